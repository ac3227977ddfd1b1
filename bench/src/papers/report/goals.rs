//! The goals of the project, and the figures that judge them.

#[cfg(test)]
mod tests;

use sealbus_bench_driver::Kind;

use crate::papers::report::standing::{self, Entry, Kin, Row, Standing, measured};
use crate::papers::report::{LATENCY, THROUGHPUT, digits, judged, tails};
use crate::papers::results::Results;
use crate::papers::scenario::Table;
use crate::papers::system::{Side, System};

/// All comparisons that goals and report need.
pub(crate) struct Evidence {
    pub(crate) standings: Vec<Standing>,
    pub(crate) costs: Vec<Cost>,
    added: Vec<Added>,
    /// The p99 of round trips.
    tails: Vec<Standing>,
    /// Whether busy loops ran beside all of it.
    is_busy: bool,
}

impl Evidence {
    pub(crate) fn gather(tables: &[Table], systems: &[System], results: &Results) -> Self {
        Self {
            standings: standing::all(tables, systems, results),
            costs: costs(tables, systems, results),
            added: added(tables, systems, results),
            tails: standing::by(tables, systems, results, tails),
            is_busy: results.busy > 0,
        }
    }
}

/// The cost of security for one Sealbus system in one column.
pub(crate) struct Cost {
    /// The table's file name.
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) in_python: bool,
    /// Whether another system carries it, such as a broker.
    pub(crate) is_carried: bool,
    /// Its most secure row over its plain one, less 1. A positive value is worse.
    pub(crate) share: f64,
}

/// The cost of security for Sealbus.
fn costs(tables: &[Table], systems: &[System], results: &Results) -> Vec<Cost> {
    let mut costs = Vec::new();
    for table in tables {
        let metric = judged(table.shows);
        for column in &table.columns {
            let measured = measured(table, column, metric, systems, results);
            for system in systems.iter().filter(|it| it.side == Side::Ours) {
                let of_it = || {
                    let rows = measured.iter().filter(|(other, ..)| other.id == system.id);
                    rows.filter(|(_, setting, _)| {
                        !setting.one_process && setting.class.is_compared()
                    })
                };
                let plain = of_it().find(|(_, setting, _)| !setting.class.is_secure());
                let secure = (of_it().filter(|(_, setting, _)| setting.class.is_secure()))
                    .max_by_key(|(_, setting, _)| setting.class);
                let (Some((.., plain)), Some((.., secure))) = (plain, secure) else {
                    continue;
                };
                let (plain, secure) = (plain.spread.median, secure.spread.median);
                costs.push(Cost {
                    id: table.id.clone(),
                    what: format!(
                        "{}, {}: {} ({})",
                        table.title, column.title, metric.name, system.title
                    ),
                    in_python: system.language == "Python",
                    is_carried: system.carried_by.is_some(),
                    share: match metric.is_less_better {
                        true => secure / plain - 1.0,
                        false => 1.0 - secure / plain,
                    },
                });
            }
        }
    }
    costs
}

/// The overhead of Sealbus over the system that carries it, at one class of security in one column.
struct Added {
    what: String,
    is_round_trip: bool,
    /// Whether the broker promises no more than its memory.
    is_transient: bool,
    /// The latency of Sealbus over that of the carrier alone.
    latency: f64,
    /// The throughput of Sealbus over that of the carrier alone.
    throughput: f64,
}

/// The overheads of Sealbus over the systems that carry it.
fn added(tables: &[Table], systems: &[System], results: &Results) -> Vec<Added> {
    let mut added = Vec::new();
    for table in tables {
        for column in &table.columns {
            let [latencies, throughputs] = [LATENCY, THROUGHPUT]
                .map(|metric| measured(table, column, metric, systems, results));
            for (system, setting, latency) in &latencies {
                let of = |rows: &[Row<'_>], id: &str| {
                    let mut rows = rows.iter();
                    let row = rows.find(|(it, way, _)| it.id == id && way.class == setting.class);
                    row.map(|(.., entry)| entry.spread.median)
                };
                let Some(carrier) = &system.carried_by else {
                    continue;
                };
                let (Some(bare), Some(ours_per_s), Some(bare_per_s)) = (
                    of(&latencies, carrier),
                    of(&throughputs, &system.id),
                    of(&throughputs, carrier),
                ) else {
                    continue;
                };
                let promise = setting.with.get("promise").and_then(|it| it.as_str());
                added.push(Added {
                    is_round_trip: table.kind == Kind::RoundTrip,
                    is_transient: promise == Some("transient"),
                    what: format!("{}, {}: {}", table.title, column.title, latency.name),
                    latency: latency.spread.median / bare,
                    throughput: ours_per_s / bare_per_s,
                });
            }
        }
    }
    added
}

/// A goal, and how far it is reached.
pub(crate) struct Goal {
    pub(crate) text: &'static str,
    /// The worst of all columns, with its name; `None` if it was not measured.
    pub(crate) measured: Option<(f64, String)>,
    pub(crate) is_met: bool,
}

impl Goal {
    /// The ratio reached, in words.
    pub(crate) fn reached(&self) -> String {
        self.measured
            .as_ref()
            .map_or_else(|| "–".to_owned(), |(ratio, _)| digits(*ratio))
    }

    /// Whether the goal is met, in words.
    pub(crate) fn verdict(&self) -> &'static str {
        match (&self.measured, self.is_met) {
            (None, _) => "not measured",
            (_, true) => "met",
            (_, false) => "not met",
        }
    }
}

type Reached = Vec<(f64, String)>;

fn at_least(text: &'static str, bound: f64, measured: Reached) -> Goal {
    let worst = measured.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    Goal {
        text,
        is_met: worst.as_ref().is_some_and(|(figure, _)| *figure >= bound),
        measured: worst,
    }
}

fn at_most(text: &'static str, bound: f64, measured: Reached) -> Goal {
    let worst = measured.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    Goal {
        text,
        is_met: worst.as_ref().is_some_and(|(figure, _)| *figure <= bound),
        measured: worst,
    }
}

fn of_tables<'a>(
    standings: &'a [Standing],
    ids: &'a [&'a str],
) -> impl Iterator<Item = &'a Standing> {
    (standings.iter()).filter(move |it| ids.contains(&it.id.as_str()))
}

/// Between processes, secure, and not in Python.
fn main_rows<'a>(
    standings: &'a [Standing],
    ids: &'a [&'a str],
) -> impl Iterator<Item = &'a Standing> {
    of_tables(standings, ids).filter(|it| it.kin.is_main())
}

fn is_throughput(standing: &&Standing) -> bool {
    standing.metric.name == THROUGHPUT.name
}

fn figure(standing: &Standing) -> (f64, String) {
    (standing.ours.spread.median, standing.place())
}

fn to_entry(standing: &Standing, other: &Entry) -> (f64, String) {
    let (place, kin) = (standing.place(), standing.kin.title());
    let what = format!("{place}, {kin}: {} ({})", other.name, standing.metric.name);
    (standing.ratio(other), what)
}

fn to_best(standing: &Standing) -> Option<(f64, String)> {
    Some(to_entry(standing, standing.best.as_ref()?))
}

fn to_limit(standing: &Standing) -> Option<(f64, String)> {
    Some((standing.to_limit()?, standing.place()))
}

/// How many times better Sealbus is than the best row of the peers whose titles begin so.
fn to_peer(standing: &Standing, title: &str) -> Option<(f64, String)> {
    let peers = standing.peers.iter();
    (peers.filter(|it| it.system.starts_with(title)))
        .map(|it| to_entry(standing, it))
        .min_by(|a, b| a.0.total_cmp(&b.0))
}

/// The highest rate with p99 in the limit, over the throughput without a pause of the same row. A row without such a
/// rate keeps nothing of it.
fn kept(standings: &[Standing]) -> Reached {
    let flat_out = main_rows(standings, &["f1", "f2", "f3"]).filter(is_throughput);
    let share = |flat: &Standing| {
        let mut same = standings.iter().filter(|it| {
            let is_cell = it.id == flat.id && it.column == flat.column && it.kin == flat.kin;
            is_cell && it.ours.name == flat.ours.name && !is_throughput(it)
        });
        let rate = same.next().map_or(0.0, |it| it.ours.spread.median);
        (rate / flat.ours.spread.median, flat.place())
    };
    flat_out.map(share).collect()
}

/// The goals of the project for which a run can have figures. The worst column judges each of them.
pub(crate) fn all(evidence: &Evidence) -> Vec<Goal> {
    if evidence.is_busy {
        return on_a_busy_machine(evidence);
    }
    let mut goals = latencies(evidence);
    goals.extend(flat_out(evidence));
    goals.extend(from_python(evidence));
    goals.extend(over_rabbitmq(evidence));
    goals
}

fn on_a_busy_machine(evidence: &Evidence) -> Vec<Goal> {
    let to_zenoh = |id| {
        let rows = main_rows(&evidence.standings, id).filter(is_throughput);
        rows.filter_map(|it| to_peer(it, "Zenoh")).collect()
    };
    vec![
        at_least(
            "Beside busy loops: flat out, one-to-one ≥ 1.5 × Zenoh",
            1.5,
            to_zenoh(&["f1"]),
        ),
        at_least(
            "Beside busy loops: flat out, many-to-one ≥ 1.5 × Zenoh",
            1.5,
            to_zenoh(&["f3"]),
        ),
        at_most(
            "Beside busy loops: round trip (p99), all sizes, ≤ 2 × raw TLS",
            2.0,
            (main_rows(&evidence.tails, &["r1"]).filter_map(to_limit)).collect(),
        ),
    ]
}

fn latencies(evidence: &Evidence) -> Vec<Goal> {
    let standings = &evidence.standings;
    let to_all = |ids| {
        let rows = of_tables(standings, ids).filter(|it| it.kin.is_between_processes());
        rows.filter_map(to_best).collect()
    };
    vec![
        at_least(
            "One-to-one latency (p50) at or under every peer's, secure and insecure: the best peer's over ours ≥ 1",
            1.0,
            to_all(&["c1"]),
        ),
        at_most(
            "One-to-one latency (p50) ≤ 1.5 × raw TLS",
            1.5,
            (main_rows(standings, &["c1"]).filter_map(to_limit)).collect(),
        ),
        at_least(
            "Round trip (p50), all sizes, at or under every peer's, secure and insecure: the best peer's over ours ≥ 1",
            1.0,
            to_all(&["r1"]),
        ),
        at_most(
            "Round trip (p50), all sizes, ≤ 1.1 × raw TLS",
            1.1,
            (main_rows(standings, &["r1"]).filter_map(to_limit)).collect(),
        ),
    ]
}

fn flat_out(evidence: &Evidence) -> Vec<Goal> {
    let standings = &evidence.standings;
    let throughput = |ids| main_rows(standings, ids).filter(is_throughput);
    let in_process = of_tables(standings, &["f1"]).filter(|it| {
        let Kin {
            one_process,
            in_python,
            ..
        } = it.kin;
        one_process && !in_python && is_throughput(it)
    });
    vec![
        at_least(
            "Flat out, one-to-one ≥ 4 000 000 messages a second",
            4e6,
            throughput(&["f1"]).map(figure).collect(),
        ),
        at_least(
            "Flat out, one-to-one ≥ 0.5 × raw TLS",
            0.5,
            throughput(&["f1"]).filter_map(to_limit).collect(),
        ),
        at_least(
            "Flat out, one-to-one ≥ 2 × the best secure peer",
            2.0,
            throughput(&["f1"]).filter_map(to_best).collect(),
        ),
        at_least(
            "Flat out, one-to-one ≥ 5 × RabbitMQ with TLS",
            5.0,
            (throughput(&["f1"]).filter_map(|it| to_peer(it, "RabbitMQ"))).collect(),
        ),
        at_least(
            "Flat out, many-to-one ≥ 2 × Zenoh",
            2.0,
            (throughput(&["f3"]).filter_map(|it| to_peer(it, "Zenoh"))).collect(),
        ),
        at_least(
            "Flat out, broadcast ≥ 2 × Zenoh",
            2.0,
            (throughput(&["f2"]).filter_map(|it| to_peer(it, "Zenoh"))).collect(),
        ),
        at_least(
            "The rate with p99 in the limit ≥ 0.9 × the throughput flat out",
            0.9,
            kept(standings),
        ),
        at_most(
            "Security costs ≤ 0.05 of the flat-out throughput, on Sealbus's own mesh",
            0.05,
            evidence.costs_of_security(false),
        ),
        at_least(
            "In one process, one-to-one, one by one ≥ 5 000 000 messages a second",
            5e6,
            in_process.map(figure).collect(),
        ),
        at_least(
            "Bandwidth of events of 10 kB and more at auth ≥ 0.95 × raw TLS",
            0.95,
            (main_rows(standings, &["k4"]).filter_map(to_limit)).collect(),
        ),
    ]
}

fn from_python(evidence: &Evidence) -> Vec<Goal> {
    let standings = &evidence.standings;
    let secure = |ids| of_tables(standings, ids).filter(|it| it.kin.in_python && it.kin.is_secure);
    let trips = secure(&["r1"]).filter(|it| it.column == "128 B");
    let in_python = (standings.iter()).filter(|it| it.kin.in_python && !it.kin.one_process);
    vec![
        at_least(
            "Python at auth, one by one ≥ 500 000 messages a second",
            5e5,
            secure(&["f1"]).filter(is_throughput).map(figure).collect(),
        ),
        at_most(
            "Python at auth, round trip of 128 B (p50) ≤ 0.045 ms",
            0.045,
            trips.map(figure).collect(),
        ),
        at_least(
            "Python, every cell, secure and insecure: no worse than Zenoh's Python client (× as good ≥ 1)",
            1.0,
            in_python
                .filter_map(|it| to_peer(it, "Zenoh from Python"))
                .collect(),
        ),
    ]
}

fn over_rabbitmq(evidence: &Evidence) -> Vec<Goal> {
    let of = |is_transient: bool, is_round_trip: bool| {
        (evidence.added.iter())
            .filter(move |it| (it.is_transient, it.is_round_trip) == (is_transient, is_round_trip))
    };
    let latencies = |it: &Added| (it.latency, it.what.clone());
    let throughputs = |it: &Added| (it.throughput, it.what.clone());
    vec![
        at_most(
            "Over RabbitMQ, transient: round trip (p50) ≤ 1.3 × that of the broker alone with the same promise, at each level",
            1.3,
            of(true, true).map(latencies).collect(),
        ),
        at_least(
            "Over RabbitMQ, transient, all but round trips: throughput ≥ 0.9 × that of the broker alone with the same promise, at each level",
            0.9,
            of(true, false).map(throughputs).collect(),
        ),
        at_most(
            "Over RabbitMQ, durable: round trip (p50) ≤ 1.3 × that of the broker alone with the same promise, at each level",
            1.3,
            of(false, true).map(latencies).collect(),
        ),
        at_least(
            "Over RabbitMQ, durable, all but round trips: throughput ≥ 0.9 × that of the broker alone with the same promise, at each level",
            0.9,
            of(false, false).map(throughputs).collect(),
        ),
        at_most(
            "Over RabbitMQ, durable, all but round trips: latency (p50) ≤ 1.1 × that of the broker alone with the same promise, at each level",
            1.1,
            of(false, false).map(latencies).collect(),
        ),
        at_most(
            "Over RabbitMQ: security costs ≤ 0.10 of the flat-out throughput",
            0.1,
            evidence.costs_of_security(true),
        ),
    ]
}

impl Evidence {
    /// The costs of security flat out. `is_carried`: over a broker.
    fn costs_of_security(&self, is_carried: bool) -> Reached {
        let of_it = self.costs.iter().filter(move |it| {
            let is_flat_out = ["f1", "f2", "f3"].contains(&it.id.as_str());
            is_flat_out && !it.in_python && it.is_carried == is_carried
        });
        of_it.map(|it| (it.share, it.what.clone())).collect()
    }
}
