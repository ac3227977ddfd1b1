//! The documents that name metrics agree with the code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use sealbus_metrics::{ALL, Kind, page};
use serde_json::Value;

fn document(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_reference_page_is_that_of_the_code() {
    let made = "cargo run -p sealbus-metrics --example page > docs/reference/metrics.md";
    assert!(
        document("docs/reference/metrics.md") == page(),
        "the page is stale: {made}"
    );
}

fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(query) if name == "expr" => found.push(query.clone()),
                    other => queries(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

/// The queries of the dashboard and of the alerts name metrics and labels that exist, and take rates of counters alone.
#[test]
fn queries_name_what_there_is() {
    let metrics: BTreeMap<String, _> = ALL.iter().map(|it| (it.name(), it)).collect();
    let mut found = Vec::new();
    let dashboard = document("packaging/prometheus/grafana-dashboard.json");
    queries(&serde_json::from_str(&dashboard).unwrap(), &mut found);
    assert!(found.len() >= 8, "{found:?}");
    let alerts = document("packaging/prometheus/alerts.yml");
    let alerts = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let of_dashboard = found.len();
    found.extend(alerts.map(str::to_owned));
    assert!(found.len() > of_dashboard, "there are no alerts");
    let name = Regex::new(r"sealbus_\w+").unwrap();
    let label = Regex::new(r"(\w+)\s*(?:=~|!~|!=|=)\s*\x22").unwrap();
    let grouping = Regex::new(r"\b(?:by|on|without)\s*\(([^)]*)\)").unwrap();
    let rated = Regex::new(r"\b(?:rate|increase)\(\s*(sealbus_\w+)").unwrap();
    // Prometheus adds these to each series.
    let targets = ["instance", "job"];
    for query in &found {
        let named: Vec<_> = name.find_iter(query).map(|it| it.as_str()).collect();
        assert!(!named.is_empty(), "{query}");
        let known = named.iter().map(|it| metrics.get(*it));
        let known: Vec<_> = known
            .map(|it| it.unwrap_or_else(|| panic!("{query}")))
            .collect();
        let labels = label.captures_iter(query).map(|it| it[1].to_owned());
        let groups = grouping.captures_iter(query).map(|it| it[1].to_owned());
        let groups = groups.flat_map(|it| {
            it.split(',')
                .map(|it| it.trim().to_owned())
                .collect::<Vec<_>>()
        });
        for label in labels.chain(groups).filter(|it| !it.is_empty()) {
            let exists = known.iter().any(|it| it.labels.contains(&label.as_str()));
            assert!(
                exists || targets.contains(&label.as_str()),
                "{label} in {query}"
            );
        }
        let rates: Vec<String> = rated
            .captures_iter(query)
            .map(|it| it[1].to_owned())
            .collect();
        for metric in named {
            let is_counter = metrics[metric].kind == Kind::Counter;
            let is_rated = rates.iter().any(|it| it == metric);
            assert_eq!(is_counter, is_rated, "{metric} in {query}");
        }
    }
}
