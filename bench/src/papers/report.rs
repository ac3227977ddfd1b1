//! The report: bench/report/index.html with the papers' tables and plots, and the figures of docs/benchmarks.

mod finding;
mod goals;
mod html;
mod markdown;
mod page;
mod plot;
mod standing;
mod summary;
mod tables;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::papers::PapersError;
use crate::papers::results::{Figures, Key, Outcome, Results, Spread};
use crate::papers::scenario::{Shown, Table};
use crate::papers::system::{Setting, System};

/// Writes the whole report.
pub(crate) fn write(
    folder: &Path,
    tables: &[Table],
    systems: &[System],
    results: &Results,
) -> Result<(), PapersError> {
    for table in tables {
        if let Some(picture) = plot::draw(table, systems, results) {
            fs::write(folder.join(format!("{}.svg", table.id)), picture)?;
        }
    }
    let page = page::write(tables, systems, results);
    let path = folder.join("index.html");
    fs::write(&path, page)?;
    for line in words::lines(tables, systems, results) {
        println!("{line}");
    }
    println!("the report is {}", path.display());
    Ok(())
}

pub(crate) use markdown::put as write_markdown;

/// One figure of a cell.
#[derive(Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) get: fn(&Figures) -> Option<f64>,
    pub(crate) is_less_better: bool,
}

const LATENCY: Metric = Metric {
    name: "latency p50",
    unit: "ms",
    get: |figures| Some(figures.p50_ms),
    is_less_better: true,
};
const MEAN: Metric = Metric {
    name: "mean latency",
    get: |figures| Some(figures.mean_ms),
    ..LATENCY
};
const THROUGHPUT: Metric = Metric {
    name: "throughput",
    unit: "/s",
    get: |figures| Some(figures.per_s),
    is_less_better: false,
};

const BANDWIDTH: Metric = Metric {
    name: "bandwidth",
    unit: "MB/s",
    get: |figures| Some(figures.bytes_per_s / 1e6),
    is_less_better: false,
};

/// The figure that first judges a table. At a given pace, all systems that keep up have the same throughput, and only
/// their latency differs.
pub(crate) fn judged(shows: Shown) -> Metric {
    match shows {
        Shown::LatencyAndThroughput | Shown::ThroughputAndLatency => LATENCY,
        Shown::RoundTrip => Metric {
            name: "round trip p50",
            ..LATENCY
        },
        Shown::Rate => THROUGHPUT,
        Shown::TotalTime => Metric {
            name: "total time",
            get: |figures| Some(figures.seconds * 1000.0),
            ..LATENCY
        },
        Shown::MeanTime => Metric {
            name: "mean time",
            ..MEAN
        },
        Shown::Bandwidth => BANDWIDTH,
    }
}

/// All figures that judge a table, the most important first.
pub(crate) fn metrics(shows: Shown) -> Vec<Metric> {
    let first = judged(shows);
    match shows {
        Shown::Rate => vec![
            first,
            Metric {
                name: "rate with p99 in the limit",
                get: |figures| figures.rate_under_limit,
                ..THROUGHPUT
            },
        ],
        _ => vec![first],
    }
}

/// The figures that judge the tail of a table: of round trips, on a busy machine.
fn tails(shows: Shown) -> Vec<Metric> {
    match shows {
        Shown::RoundTrip => vec![Metric {
            name: "round trip p99",
            get: |figures| Some(figures.p99_ms),
            ..LATENCY
        }],
        _ => Vec::new(),
    }
}

/// The figures in a table's plot. For latencies this is the mean, as in the papers.
pub(crate) fn plotted(shows: Shown) -> Vec<Metric> {
    match shows {
        Shown::LatencyAndThroughput | Shown::ThroughputAndLatency => vec![MEAN],
        _ => metrics(shows),
    }
}

/// A figure with its meaningful digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10_000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A number with its thousands separated by a narrow space that does not break.
fn grouped(value: f64) -> String {
    let plain = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in plain.chars().enumerate() {
        let follow = plain.len() - place;
        if place > 0 && follow.is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A cell as its table shows it.
pub(crate) fn shown(table: &Table, figures: &Figures) -> String {
    let per_s = grouped(figures.per_s);
    let mean = digits(figures.mean_ms);
    let us = |ms: f64| digits(ms * 1000.0);
    match table.shows {
        Shown::LatencyAndThroughput => format!("{mean} / {per_s} · {}", digits(figures.p50_ms)),
        Shown::ThroughputAndLatency => format!("{per_s} / {mean} · {}", digits(figures.p50_ms)),
        Shown::RoundTrip => {
            let Figures {
                p50_ms,
                p99_ms,
                p999_ms,
                ..
            } = *figures;
            format!("{} · {} · {}", us(p50_ms), us(p99_ms), us(p999_ms))
        }
        Shown::Rate => match figures.rate_under_limit {
            Some(rate) if rate > 0.0 => format!("{per_s} · {}", grouped(rate)),
            _ => format!("{per_s} · –"),
        },
        Shown::TotalTime => digits(figures.seconds * 1000.0),
        Shown::MeanTime => mean,
        Shown::Bandwidth => digits(figures.bytes_per_s / 1e6),
    }
}

/// The meaning of a cell's figures, for readers of a table.
pub(crate) fn legend(shows: Shown) -> &'static str {
    match shows {
        Shown::LatencyAndThroughput => {
            "mean latency in ms / messages a second · p50 of the latency in ms"
        }
        Shown::ThroughputAndLatency => "deliveries a second / mean latency in ms · its p50",
        Shown::RoundTrip => "round trip in µs: p50 · p99 · p99.9",
        Shown::Rate => {
            "messages received a second without a pause · the same at the highest rate with p99 in the limit"
        }
        Shown::TotalTime => "total time in ms",
        Shown::MeanTime => "mean time in ms",
        Shown::Bandwidth => "bandwidth in MB/s",
    }
}

/// The meaning of a table's cells, and the number of their rounds.
pub(crate) fn cells_in_words(table: &Table, results: &Results) -> String {
    let legend = legend(table.shows);
    let measured = results.measurements.iter();
    let rounds = measured
        .filter(|it| it.key.table == table.id)
        .map(|it| match &it.outcome {
            Outcome::Measured(figures) => figures.rounds.len(),
            Outcome::Failed { .. } | Outcome::Cannot { .. } => 0,
        });
    match rounds.max() {
        None | Some(0 | 1) => format!("{legend}; one round"),
        Some(rounds) => format!(
            "{legend}; of up to {rounds} rounds in the same processes the one in the middle"
        ),
    }
}

/// The median repetition by the table's first metric, with the spread of that metric over all rounds of all
/// repetitions.
pub(crate) struct Middle {
    pub(crate) figures: Figures,
    pub(crate) spread: Spread,
}

/// The reason why a cell has no figures.
#[derive(Clone)]
pub(crate) enum Lack {
    /// The cell failed.
    Failed(String),
    /// The cell could not be tried.
    Cannot(String),
}

impl Lack {
    /// The word in the table, and the reason.
    pub(crate) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Failed(why) => ("failed", why),
            Self::Cannot(why) => ("not here", why),
        }
    }
}

/// The outcome of a cell's repetitions: the median one, or the reason why there is none.
pub(crate) fn middle(
    results: &Results,
    table: &Table,
    system: &System,
    setting: &Setting,
    column: &str,
) -> Option<Result<Middle, Lack>> {
    let metric = judged(table.shows);
    let measured = results.figures(&table.id, &system.id, &setting.name, column);
    let mut measured: Vec<Figures> = match measured {
        Ok(figures) => figures.into_iter().cloned().collect(),
        Err(Outcome::Failed { why, .. }) => return Some(Err(Lack::Failed(why.clone()))),
        Err(Outcome::Cannot { why }) => return Some(Err(Lack::Cannot(why.clone()))),
        Err(Outcome::Measured(_)) => return None,
    };
    let value = |figures: &Figures| (metric.get)(figures).unwrap_or(0.0);
    measured.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let of_rounds = |figures: &Figures| {
        let rounds: Vec<f64> = figures.rounds.iter().map(|it| it.value).collect();
        match rounds.is_empty() {
            true => vec![value(figures)],
            false => rounds,
        }
    };
    let repetitions = Spread::of(measured.iter().map(value))?;
    let rounds = Spread::of(measured.iter().flat_map(of_rounds))?;
    let figures = measured.swap_remove(measured.len() / 2);
    let spread = Spread {
        median: repetitions.median,
        ..rounds
    };
    Some(Ok(Middle { figures, spread }))
}

/// The place and time of the measurement, its duration, and the machine's other load.
pub(crate) fn conditions(results: &Results) -> Vec<(String, String)> {
    let machine = results.machine.iter();
    let mut conditions: Vec<_> = machine
        .map(|(what, words)| (what.clone(), words.clone()))
        .collect();
    let mut note = |what: &str, words: String| conditions.push((what.to_owned(), words));
    let commits = counted(results.measurements.iter().map(|it| it.commit.as_str()));
    if commits.len() > 1 {
        let words = commits.iter().map(|(commit, cells)| match *commit {
            "" => format!("{cells} cells of an unknown one"),
            commit => format!("{cells} cells of {commit}"),
        });
        let words: Vec<String> = words.collect();
        note("not all of one commit", words.join(", "));
    }
    let moments = results.measurements.iter().map(|it| it.measured.as_str());
    let moments = moments.filter(|it| !it.is_empty());
    if let (Some(first), Some(last)) = (moments.clone().min(), moments.max()) {
        note("cells measured", format!("{first} to {last}"));
    }
    let (cells, services) = (results.measurements.len(), results.services.len());
    note(
        "time it took",
        format!(
            "{:.1} minutes for {cells} cells, with {services} starts of a server",
            results.minutes()
        ),
    );
    let others = (results.measurements.iter()).filter_map(|it| match &it.outcome {
        Outcome::Measured(figures) => Some(figures.others),
        _ => None,
    });
    if let Some(spread) = Spread::of(others) {
        let (median, greatest) = (spread.median * 100.0, spread.greatest * 100.0);
        note(
            "what else ran",
            format!(
                "{median:.0} % of the processor time during the middle cell, {greatest:.0} % during the most disturbed one"
            ),
        );
    }
    conditions
}

/// The number of occurrences of each word.
fn counted<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// The cells that failed, with the reasons.
pub(crate) fn failed(results: &Results) -> impl Iterator<Item = (&Key, &str)> {
    let all = results.measurements.iter();
    all.filter_map(|it| match &it.outcome {
        Outcome::Failed { why, .. } => Some((&it.key, why.as_str())),
        Outcome::Measured(_) | Outcome::Cannot { .. } => None,
    })
}

/// The columns and rows, in words, that the quick profile leaves to the full one and that were not measured.
pub(crate) fn left_to_full(table: &Table, systems: &[System], results: &Results) -> Option<String> {
    let columns = table.columns.iter();
    let columns = columns.filter(|it| !it.quick && !has_figures(results, table, &it.title));
    let columns: Vec<_> = columns.map(|it| it.title.as_str()).collect();
    let mut rows = Vec::new();
    for system in systems {
        let is_measured = |setting: &Setting| {
            (table.columns.iter()).any(|it| {
                let mut of_it = results.of(&table.id, &system.id, &setting.name, &it.title);
                of_it.next().is_some()
            })
        };
        let is_left = |setting: &&Setting| {
            let mut columns = table.columns.iter().filter(|it| it.quick);
            columns.all(|it| system.is_full_only(setting, table, it)) && !is_measured(setting)
        };
        let settings: Vec<_> = (system.ways.iter().filter(is_left))
            .map(|it| it.name.as_str())
            .collect();
        match settings.len() {
            0 => {}
            all if all == system.ways.len() => rows.push(system.title.clone()),
            _ => rows.push(format!("{} ({})", system.title, settings.join(", "))),
        }
    }
    let mut parts = Vec::new();
    if !columns.is_empty() {
        parts.push(format!("the columns {}", columns.join(", ")));
    }
    if !rows.is_empty() {
        parts.push(format!("the rows {}", rows.join(", ")));
    }
    (!parts.is_empty()).then(|| format!("Measured in the full profile only: {}.", parts.join("; ")))
}

/// Whether there is any figure for a column.
pub(crate) fn has_figures(results: &Results, table: &Table, column: &str) -> bool {
    let mut measured = results.measurements.iter();
    measured.any(|it| it.key.table == table.id && it.key.column == column)
}

/// The δ of a row: the mean, over the columns in both tables, of another table's figure over this one's.
pub(crate) fn proportion(
    results: &Results,
    (table, other): (&Table, &Table),
    (system, setting): (&System, &Setting),
) -> Option<f64> {
    let figure = |table: &Table, column: &str| {
        let middle = middle(results, table, system, setting, column)?.ok()?;
        Some(middle.spread.median)
    };
    let ratios: Vec<f64> = (table.columns.iter())
        .filter_map(|it| Some(figure(other, &it.title)? / figure(table, &it.title)?))
        .collect();
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        let texts: Vec<String> = [0.01234, 1.234, 56.78, 1234.5, 12345.6, 1_234_567.0]
            .map(|it| digits(it).replace('\u{202f}', " "))
            .into();
        let expected = ["0.012", "1.23", "56.8", "1234", "12 346", "1 234 567"];
        assert_eq!(texts, expected);
    }
}
