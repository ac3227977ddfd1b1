//! The goals of the project, and the figures that judge them.

use crate::papers::report::standing::{self, Entry, Row, Standing, measured};
use crate::papers::report::{LATENCY, THROUGHPUT, digits, judged};
use crate::papers::results::Results;
use crate::papers::scenario::{Shown, Table};
use crate::papers::system::{Side, System};

/// All comparisons that goals and report need.
pub(crate) struct Evidence {
    pub(crate) standings: Vec<Standing>,
    pub(crate) costs: Vec<Cost>,
    added: Vec<Added>,
    bandwidths: Vec<Bandwidth>,
}

impl Evidence {
    pub(crate) fn gather(tables: &[Table], systems: &[System], results: &Results) -> Self {
        Self {
            standings: standing::all(tables, systems, results),
            costs: costs(tables, systems, results),
            added: added(tables, systems, results),
            bandwidths: bandwidths(tables, systems, results),
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
pub(crate) struct Added {
    /// The table's file name.
    pub(crate) id: String,
    pub(crate) what: String,
    /// The latency of Sealbus over that of the carrier alone.
    pub(crate) latency: f64,
    /// The throughput of Sealbus over that of the carrier alone.
    pub(crate) throughput: f64,
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
                added.push(Added {
                    id: table.id.clone(),
                    what: format!("{}, {}: {}", table.title, column.title, latency.name),
                    latency: latency.spread.median / bare,
                    throughput: ours_per_s / bare_per_s,
                });
            }
        }
    }
    added
}

/// The bandwidth of secure events beside that of a raw socket without security, in one column.
pub(crate) struct Bandwidth {
    /// The column, with the loss of the raw socket itself by TLS.
    pub(crate) what: String,
    /// The bandwidth of Sealbus over that of raw TCP.
    pub(crate) of_tcp: f64,
}

/// The cost of each single event limits events smaller than this.
const LARGE_EVENT: usize = 10_000;

/// The bandwidths of the mesh of Sealbus at its strongest.
fn bandwidths(tables: &[Table], systems: &[System], results: &Results) -> Vec<Bandwidth> {
    let mut found = Vec::new();
    for table in tables.iter().filter(|it| it.shows == Shown::Bandwidth) {
        let columns = table.columns.iter();
        for column in columns.filter(|it| it.size.unwrap_or(table.size) >= LARGE_EVENT) {
            let metric = judged(table.shows);
            let rows = measured(table, column, metric, systems, results);
            let of = |side: Side, is_secure: bool| {
                (rows.iter())
                    .filter(|(system, setting, _)| {
                        let is_own = system.carried_by.is_none() && system.language != "Python";
                        let is_it = setting.class.is_secure() == is_secure;
                        is_own && is_it && system.side == side && !setting.one_process
                    })
                    .max_by_key(|(_, setting, _)| setting.class)
                    .map(|(.., entry)| entry.spread.median)
            };
            let (Some(ours), Some(tcp)) = (of(Side::Ours, true), of(Side::Limit, false)) else {
                continue;
            };
            let tls = of(Side::Limit, true).map_or(String::new(), |tls| {
                format!(": raw mutual TLS itself reaches {}", digits(tls / tcp))
            });
            found.push(Bandwidth {
                what: format!("{}, {}{tls}", table.title, column.title),
                of_tcp: ours / tcp,
            });
        }
    }
    found
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

/// The goals of the project. The worst column judges each of them.
pub(crate) fn all(evidence: &Evidence) -> Vec<Goal> {
    let Evidence {
        standings,
        costs,
        added,
        bandwidths,
    } = evidence;
    let main = |ids: &'static [&'static str]| {
        (standings.iter()).filter(move |it| it.kin.is_main() && ids.contains(&it.id.as_str()))
    };
    let between = |ids: &'static [&'static str]| {
        (standings.iter())
            .filter(move |it| it.kin.is_between_processes() && ids.contains(&it.id.as_str()))
    };
    // Tables of the paper begin with `c` or `f`. The others go beyond the paper.
    let of_paper = |it: &&Added| it.id.starts_with('c') || it.id.starts_with('f');
    let beyond = |it: &&Added| !of_paper(it);
    let latencies = |it: &Added| (it.latency, it.what.clone());
    let throughputs = |it: &Added| (it.throughput, it.what.clone());
    let throughput = |ids| main(ids).filter(|it| it.metric.name == "throughput");
    let named = |it: &Standing, other: &Entry| {
        format!("{}, {}: {}", it.place(), it.kin.title(), other.name)
    };
    let to_best = |it: &Standing| {
        let best = it.best.as_ref()?;
        Some((it.to_best()?, named(it, best)))
    };
    let to_limit = |it: &Standing| Some((it.to_limit()?, it.place()));
    let to_rabbit = |it: &Standing| {
        let is_rabbit = |peer: &&Entry| peer.system.starts_with("RabbitMQ");
        let rabbits = it.peers.iter().filter(is_rabbit);
        let best = rabbits.min_by(|a, b| it.ratio(a).total_cmp(&it.ratio(b)))?;
        Some((it.ratio(best), named(it, best)))
    };
    let at_least = |text, bound: f64, measured: Vec<(f64, String)>| {
        let worst = measured.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        Goal {
            text,
            is_met: worst.as_ref().is_some_and(|(ratio, _)| *ratio >= bound),
            measured: worst,
        }
    };
    let at_most = |text, bound: f64, measured: Vec<(f64, String)>| {
        let worst = measured.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        Goal {
            text,
            is_met: worst.as_ref().is_some_and(|(ratio, _)| *ratio <= bound),
            measured: worst,
        }
    };
    let cost = |is_carried: bool| {
        let of_it = costs.iter().filter(move |it| {
            let is_flat_out = ["f1", "f2", "f3"].contains(&it.id.as_str());
            is_flat_out && !it.in_python && it.is_carried == is_carried
        });
        of_it.map(|it| (it.share, it.what.clone())).collect()
    };
    vec![
        at_least(
            "One-to-one latency (p50) at or under every peer's, secure and insecure: the best peer's over ours ≥ 1",
            1.0,
            between(&["c1"]).filter_map(to_best).collect(),
        ),
        at_most(
            "One-to-one latency (p50) ≤ 1.5 × raw TLS",
            1.5,
            main(&["c1"]).filter_map(to_limit).collect(),
        ),
        at_least(
            "Round trip (p50), all sizes, at or under every peer's, secure and insecure: the best peer's over ours ≥ 1",
            1.0,
            between(&["r1"]).filter_map(to_best).collect(),
        ),
        at_most(
            "Round trip (p50), all sizes, ≤ 1.5 × raw TLS",
            1.5,
            main(&["r1"]).filter_map(to_limit).collect(),
        ),
        at_least(
            "Flat out, one-to-one ≥ 2 × the best secure peer",
            2.0,
            throughput(&["f1"]).filter_map(to_best).collect(),
        ),
        at_least(
            "Flat out, one-to-one ≥ 5 × RabbitMQ with TLS",
            5.0,
            throughput(&["f1"]).filter_map(to_rabbit).collect(),
        ),
        at_least(
            "Flat out, many-to-one ≥ 2 × the best secure peer",
            2.0,
            throughput(&["f3"]).filter_map(to_best).collect(),
        ),
        at_least(
            "Flat out, broadcast ≥ 2 × the best secure peer",
            2.0,
            throughput(&["f2"]).filter_map(to_best).collect(),
        ),
        at_most(
            "Security costs ≤ 0.10 of the flat-out throughput, on Sealbus's own mesh",
            0.1,
            cost(false),
        ),
        at_most(
            "Over RabbitMQ: security costs ≤ 0.10 of the flat-out throughput",
            0.1,
            cost(true),
        ),
        at_most(
            "Over RabbitMQ, one-to-one, many-to-one, broadcast: latency (p50) ≤ 1.1 × that of the broker alone with the same promises, at each level",
            1.1,
            added.iter().filter(of_paper).map(latencies).collect(),
        ),
        at_least(
            "Over RabbitMQ, one-to-one, many-to-one, broadcast: throughput ≥ 0.9 × that of the broker alone with the same promises, at each level",
            0.9,
            added.iter().filter(of_paper).map(throughputs).collect(),
        ),
        at_most(
            "Over RabbitMQ, round trips and events: latency (p50) ≤ 1.1 × that of the broker alone with the same promises, at each level",
            1.1,
            added.iter().filter(beyond).map(latencies).collect(),
        ),
        at_least(
            "Over RabbitMQ, round trips and events: throughput ≥ 0.9 × that of the broker alone with the same promises, at each level",
            0.9,
            added.iter().filter(beyond).map(throughputs).collect(),
        ),
        at_least(
            "Bandwidth of events of 10 kB and more at auth ≥ 0.8 × raw TCP",
            0.8,
            (bandwidths.iter().map(|it| (it.of_tcp, it.what.clone()))).collect(),
        ),
    ]
}
