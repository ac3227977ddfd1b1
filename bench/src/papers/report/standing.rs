//! How Sealbus stands against the best peer and the limit, in every table.

use crate::papers::report::{Metric, digits, metrics, middle};
use crate::papers::results::{Results, Spread};
use crate::papers::scenario::Table;
use crate::papers::system::{Setting, Side, System};

/// A row's figure in one column.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) spread: Spread,
}

/// Sealbus beside others of its kind in one column of one table.
pub(crate) struct Standing {
    /// The table's file name.
    pub(crate) id: String,
    pub(crate) table: String,
    pub(crate) column: String,
    /// What is compared with what.
    pub(crate) group: &'static str,
    pub(crate) metric: Metric,
    pub(crate) ours: Entry,
    pub(crate) best: Option<Entry>,
    pub(crate) peers: Vec<Entry>,
    pub(crate) limit: Option<Entry>,
}

impl Standing {
    fn ratio(&self, other: &Entry) -> f64 {
        let (ours, theirs) = (self.ours.spread.median, other.spread.median);
        match self.metric.is_less_better {
            true => theirs / ours,
            false => ours / theirs,
        }
    }

    /// So many times better than the best peer; below 1 is behind.
    pub(crate) fn to_best(&self) -> Option<f64> {
        self.best.as_ref().map(|best| self.ratio(best))
    }

    /// Our figure over the limit's.
    pub(crate) fn to_limit(&self) -> Option<f64> {
        let limit = self.limit.as_ref()?;
        Some(self.ours.spread.median / limit.spread.median)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.to_best().is_some_and(|ratio| ratio < 1.0)
    }
}

/// Rows that are compared: in one process or between two, safe or not, in Python or not.
const GROUPS: [(&str, bool, bool, bool); 5] = [
    ("secure, two processes", false, true, false),
    ("insecure, two processes", false, false, false),
    ("one process", true, false, false),
    ("secure, Python", false, true, true),
    ("insecure, Python", false, false, true),
];

fn belongs(system: &System, setting: &Setting, group: (&str, bool, bool, bool)) -> bool {
    let (_, one_process, is_secure, in_python) = group;
    // Whatever is written in Python is slower: ours in other languages is held against all peers, ours in Python against Python.
    let language = match (system.side, in_python) {
        (Side::Limit, _) => true,
        (Side::Peer, false) => true,
        (Side::Ours, false) => system.language != "Python",
        (_, true) => system.language == "Python",
    };
    // In one process there is nothing to encrypt.
    language
        && setting.one_process == one_process
        && (one_process || setting.class.is_secure() == is_secure)
}

/// All comparisons that can be made.
pub(crate) fn all(tables: &[Table], systems: &[System], results: &Results) -> Vec<Standing> {
    let mut found = Vec::new();
    for table in tables {
        for metric in metrics(table.shows) {
            for column in &table.columns {
                for group in GROUPS {
                    let entry = |system: &System, setting: &Setting| -> Option<Entry> {
                        let values: Vec<f64> = results
                            .of(&table.id, &system.id, &setting.name, &column.title)
                            .filter_map(|it| match &it.outcome {
                                crate::papers::results::Outcome::Measured(figures) => {
                                    (metric.get)(figures)
                                }
                                _ => None,
                            })
                            .collect();
                        let spread = Spread::of(values)?;
                        (spread.median > 0.0).then(|| Entry {
                            name: format!("{}, {}", system.title, setting.name),
                            spread,
                        })
                    };
                    let of_side = |side: Side| {
                        let rows = (systems.iter())
                            .flat_map(|it| it.ways.iter().map(move |way| (it, way)));
                        rows.filter(|(system, setting)| {
                            system.side == side && belongs(system, setting, group)
                        })
                        .filter_map(|(system, setting)| {
                            Some((setting.class, entry(system, setting)?))
                        })
                        .collect::<Vec<_>>()
                    };
                    let better = |a: &Entry, b: &Entry| {
                        let order = a.spread.median.total_cmp(&b.spread.median);
                        match metric.is_less_better {
                            true => order,
                            false => order.reverse(),
                        }
                    };
                    // Of ours, the one that promises most.
                    let ours = of_side(Side::Ours)
                        .into_iter()
                        .max_by(|(a, x), (b, y)| a.cmp(b).then_with(|| better(y, x)));
                    let Some((_, ours)) = ours else {
                        continue;
                    };
                    let best = |side: Side| {
                        let entries = of_side(side).into_iter().map(|(_, entry)| entry);
                        entries.min_by(|a, b| better(a, b))
                    };
                    found.push(Standing {
                        id: table.id.clone(),
                        table: table.title.clone(),
                        column: column.title.clone(),
                        group: group.0,
                        metric,
                        ours,
                        best: best(Side::Peer),
                        peers: of_side(Side::Peer).into_iter().map(|it| it.1).collect(),
                        limit: best(Side::Limit),
                    });
                }
            }
        }
    }
    found
}

/// What security costs Sealbus: its most secure row over its plain one, less 1; positive is worse.
pub(crate) fn cost_of_security(
    tables: &[Table],
    systems: &[System],
    results: &Results,
) -> Vec<(String, f64)> {
    let mut costs = Vec::new();
    let ours = systems.iter().filter(|it| it.side == Side::Ours);
    for system in ours {
        let between: Vec<&Setting> = system.ways.iter().filter(|it| !it.one_process).collect();
        let plain = between.iter().find(|it| !it.class.is_secure());
        let secure = between.iter().max_by_key(|it| it.class);
        let (Some(plain), Some(secure)) = (plain, secure) else {
            continue;
        };
        for table in tables {
            let Some(metric) = metrics(table.shows).first().copied() else {
                continue;
            };
            for column in &table.columns {
                let get = |setting: &Setting| {
                    let middle = middle(results, table, system, setting, &column.title)?.ok()?;
                    Some(middle.spread.median)
                };
                if let (Some(plain), Some(secure)) = (get(plain), get(secure)) {
                    let cost = match metric.is_less_better {
                        true => secure / plain - 1.0,
                        false => 1.0 - secure / plain,
                    };
                    let what = format!(
                        "{}, {}: {} ({})",
                        table.title, column.title, metric.name, system.title
                    );
                    costs.push((what, cost));
                }
            }
        }
    }
    costs
}

/// What is aimed at, and how far it is reached.
pub(crate) struct Goal {
    pub(crate) text: &'static str,
    /// The worst of all columns; `None` if it was not measured.
    pub(crate) measured: Option<f64>,
    pub(crate) is_met: bool,
}

/// The goals of the project, each judged by the worst column.
pub(crate) fn goals(standings: &[Standing], costs: &[(String, f64)]) -> Vec<Goal> {
    let secure = |ids: &'static [&'static str]| {
        standings
            .iter()
            .filter(move |it| it.group == GROUPS[0].0 && ids.contains(&it.id.as_str()))
    };
    let throughput = |ids| secure(ids).filter(|it| it.metric.name == "throughput");
    let least = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::min);
    let greatest = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::max);
    let at_least = |text, bound: f64, measured: Option<f64>| Goal {
        text,
        measured,
        is_met: measured.is_some_and(|it| it >= bound),
    };
    let at_most = |text, bound: f64, measured: Option<f64>| Goal {
        text,
        measured,
        is_met: measured.is_some_and(|it| it <= bound),
    };
    let rabbit = throughput(&["f1"]).filter_map(|it| {
        let rabbit = it
            .peers
            .iter()
            .find(|peer| peer.name.starts_with("RabbitMQ"))?;
        Some(it.ratio(rabbit))
    });
    let costs = costs
        .iter()
        .filter(|(what, _)| what.starts_with("Flat out"));
    vec![
        at_least(
            "one-to-one latency p50 at or under every secure peer's: the best peer's over ours is at least 1",
            1.0,
            least(secure(&["c1"]).filter_map(Standing::to_best).collect()),
        ),
        at_most(
            "one-to-one latency p50 at most 1.5 × raw TLS",
            1.5,
            greatest(secure(&["c1"]).filter_map(Standing::to_limit).collect()),
        ),
        at_least(
            "flat-out throughput at least 2 × the best secure peer's",
            2.0,
            least(throughput(&["f1"]).filter_map(Standing::to_best).collect()),
        ),
        at_least(
            "flat-out throughput at least 5 × RabbitMQ's",
            5.0,
            least(rabbit.collect()),
        ),
        at_least(
            "many-to-one at least 2 × the best secure peer's",
            2.0,
            least(throughput(&["f3"]).filter_map(Standing::to_best).collect()),
        ),
        at_least(
            "broadcast at least 2 × the best secure peer's",
            2.0,
            least(throughput(&["f2"]).filter_map(Standing::to_best).collect()),
        ),
        at_most(
            "security costs at most a tenth of the flat-out throughput",
            0.1,
            greatest(costs.map(|(_, cost)| *cost).collect()),
        ),
    ]
}

/// A comparison in words.
pub(crate) fn sentence(standing: &Standing) -> String {
    let Standing {
        table,
        column,
        group,
        metric,
        ours,
        ..
    } = standing;
    let mut text = format!(
        "{table}, {column} ({group}): {} {} {}",
        metric.name,
        digits(ours.spread.median),
        metric.unit
    );
    if let (Some(best), Some(ratio)) = (&standing.best, standing.to_best()) {
        text.push_str(&format!(
            "; {} × as good as {} ({})",
            digits(ratio),
            best.name,
            digits(best.spread.median)
        ));
    }
    if let (Some(limit), Some(ratio)) = (&standing.limit, standing.to_limit()) {
        text.push_str(&format!("; {} × {}", digits(ratio), limit.name));
    }
    text
}

/// The report in some lines of text: what we are behind in comes first.
pub(crate) fn lines(tables: &[Table], systems: &[System], results: &Results) -> Vec<String> {
    let standings = all(tables, systems, results);
    let heading = |text: &str, standings: &[Standing]| {
        let lines = standings.iter().map(|it| format!("  {}", sentence(it)));
        std::iter::once(text.to_owned())
            .chain(lines)
            .collect::<Vec<_>>()
    };
    let costs = cost_of_security(tables, systems, results);
    let mut lines = vec!["Goals, by the worst column:".to_owned()];
    for goal in goals(&standings, &costs) {
        let measured = goal.measured.map_or("not measured".to_owned(), digits);
        let met = if goal.is_met { "met" } else { "not met" };
        lines.push(format!("  {met}: {} ({measured})", goal.text));
    }
    let (behind, ahead): (Vec<_>, Vec<_>) = standings.into_iter().partition(Standing::is_behind);
    lines.extend(heading("Sealbus is behind in:", &behind));
    if behind.is_empty() {
        lines.push("  nothing that was measured".to_owned());
    }
    lines.extend(heading("Sealbus is ahead in:", &ahead));
    lines
}
