//! The page for readers: ten comparisons and two charts. All of them are between processes, and secure.

use std::fmt::Write;

use crate::papers::report::digits;
use crate::papers::report::standing::{Entry, Standing, comparisons};

/// The comparisons, by table and column.
const ROWS: [(&str, &str); 10] = [
    ("r1", "128 B"),
    ("r1", "16 KiB"),
    ("c1", "10 pairs"),
    ("c1", "100 pairs"),
    ("c3", "10 producers"),
    ("f1", "1 pair"),
    ("f2", "1 × 10"),
    ("f3", "10 producers"),
    ("k4", "1000 events"),
    ("s1", "128"),
];

/// The comparisons that are drawn.
const CHARTS: [(&str, &str); 2] = [("r1", "128 B"), ("f1", "1 pair")];

/// A bar that is this many times as long as that of Sealbus, or as short, says nothing more.
const FAR: f64 = 20.0;

/// The table, the charts, and how often Sealbus is behind.
pub(crate) fn write(standings: &[Standing]) -> String {
    let mut text = String::from(
        "| table, column | figure | Sealbus | best peer | × best peer | × raw TLS |\n|---|---|---|---|---|---|\n",
    );
    for it in ROWS.iter().filter_map(|row| found(standings, row)) {
        let best = it.best.as_ref().map_or(String::new(), |best| {
            format!("{} ({})", digits(best.spread.median), best.name)
        });
        let ratio = |value: Option<f64>| value.map_or(String::new(), digits);
        let _ = writeln!(
            text,
            "| {} | {}, {} | {} | {best} | {} | {} |",
            it.place(),
            it.metric.name,
            it.metric.unit,
            digits(it.ours.spread.median),
            ratio(it.to_best()),
            ratio(it.to_limit()),
        );
    }
    text.push_str(
        "\n*× best peer* is how many times better Sealbus is. *× raw TLS* is the figure of Sealbus over the limit's.\n",
    );
    for it in CHARTS.iter().filter_map(|row| found(standings, row)) {
        chart(&mut text, it);
    }
    let behind = standings.iter().filter(|it| it.is_behind()).count();
    let _ = write!(
        text,
        "\nOver all tables, secure or not, from Rust or Python, Sealbus is behind the best peer in {behind} of {} comparisons.",
        comparisons(standings)
    );
    text
}

fn found<'a>(standings: &'a [Standing], (id, column): &(&str, &str)) -> Option<&'a Standing> {
    let mut of_main = standings.iter().filter(|it| it.kin.is_main());
    of_main.find(|it| it.id == *id && it.column == *column)
}

/// A chart that the pages of a repository draw (Mermaid).
fn chart(text: &mut String, standing: &Standing) {
    let ours = standing.ours.spread.median;
    let near = |it: &&Entry| {
        let ratio = it.spread.median / ours;
        (1.0 / FAR..=FAR).contains(&ratio)
    };
    let others = standing.peers.iter().filter(near);
    let mut bars: Vec<&Entry> = standing.limit.iter().chain([&standing.ours]).collect();
    bars.extend(others);
    bars.sort_by(|a, b| {
        let order = a.spread.median.total_cmp(&b.spread.median);
        match standing.metric.is_less_better {
            true => order,
            false => order.reverse(),
        }
    });
    let list =
        |of: &dyn Fn(&Entry) -> String| bars.iter().map(|it| of(it)).collect::<Vec<_>>().join(", ");
    let better = match standing.metric.is_less_better {
        true => "less is better",
        false => "more is better",
    };
    let _ = write!(
        text,
        "\n```mermaid\nxychart-beta horizontal\n  title \"{}: {} ({better})\"\n  x-axis [{}]\n  y-axis \"{}\"\n  bar [{}]\n```\n",
        standing.place(),
        standing.metric.name,
        list(&|it| format!("\"{}\"", it.name)),
        standing.metric.unit,
        list(&|it| format!("{:.4}", it.spread.median)),
    );
}
