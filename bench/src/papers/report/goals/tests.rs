//! Runs of known figures, beside the verdicts that they must get.

use std::path::Path;

use super::*;
use crate::papers::results::{Figures, Key, Measurement, Outcome};
use crate::papers::{scenario, system};

/// Cells by table, column, system, setting and figures.
type Cell = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Figures,
);

fn rate(per_s: f64) -> Figures {
    Figures {
        per_s,
        rate_under_limit: Some(per_s * 0.95),
        ..Figures::default()
    }
}

fn trip(p50_ms: f64, p99_ms: f64) -> Figures {
    Figures {
        p50_ms,
        p99_ms,
        per_s: 1000.0 / p50_ms,
        ..Figures::default()
    }
}

/// The goals as this repository's tables and systems are judged by these cells.
fn judge(busy: u8, cells: Vec<Cell>) -> Vec<Goal> {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (tables, systems) = (scenario::load(bench).unwrap(), system::load(bench).unwrap());
    let measurement = |(table, column, system, setting, figures): Cell| Measurement {
        key: Key {
            table: table.to_owned(),
            system: system.to_owned(),
            setting: setting.to_owned(),
            column: column.to_owned(),
            repetition: 0,
        },
        took_s: 1.0,
        measured: String::new(),
        commit: String::new(),
        outcome: Outcome::Measured(Box::new(figures)),
    };
    let results = Results {
        busy,
        measurements: cells.into_iter().map(measurement).collect(),
        ..Results::default()
    };
    all(&Evidence::gather(&tables, &systems, &results))
}

/// The figure and the verdict of the one goal with these words.
fn of(goals: &[Goal], words: &str) -> (String, &'static str) {
    let mut found = goals.iter().filter(|it| it.text.contains(words));
    let goal = found.next().unwrap();
    assert!(found.next().is_none(), "{words}");
    (goal.reached(), goal.verdict())
}

fn assert_goals(goals: &[Goal], expected: &[(&str, &str, &'static str)]) {
    for (words, reached, verdict) in expected {
        let reached = (*reached).to_owned();
        assert_eq!(of(goals, words), (reached, *verdict), "{words}");
    }
}

const AUTH: &str = "mesh at auth";
const TLS: &str = "mutual TLS";
const RAW_TLS: &str = "mutual TLS 1.3";

fn flat_out_cells() -> Vec<Cell> {
    vec![
        ("f1", "1 pair", "raw", RAW_TLS, rate(10e6)),
        ("f1", "1 pair", "zenoh", TLS, rate(2e6)),
        ("f1", "1 pair", "sealbus", AUTH, rate(4.1e6)),
        ("f1", "1 pair", "sealbus", "mesh at none", rate(4.4e6)),
        ("f1", "1 pair", "sealbus", "in one process", rate(6e6)),
        ("f2", "1 × 10", "zenoh", TLS, rate(5e6)),
        ("f2", "1 × 10", "sealbus", AUTH, rate(5e6)),
        ("f3", "10 producers", "zenoh", TLS, rate(1e6)),
        ("f3", "10 producers", "zeromq", "CURVE", rate(9e6)),
        ("f3", "10 producers", "sealbus", AUTH, rate(1.7e6)),
    ]
}

#[test]
fn each_goal_flat_out_has_its_figure() {
    let goals = judge(0, flat_out_cells());
    let expected = [
        ("≥ 4 000 000", "4\u{202f}100\u{202f}000", "met"),
        ("≥ 0.5 × raw TLS", "0.410", "not met"),
        ("one-to-one ≥ 2 × the best", "2.05", "met"),
        ("many-to-one ≥ 2 × Zenoh", "1.70", "not met"),
        ("broadcast ≥ 2 × Zenoh", "1.00", "not met"),
        ("p99 in the limit ≥ 0.9", "0.950", "met"),
        ("Security costs ≤ 0.05", "0.068", "not met"),
        ("In one process", "6\u{202f}000\u{202f}000", "met"),
        // Without a figure there is no verdict.
        ("events of 10 kB", "–", "not measured"),
    ];
    assert_goals(&goals, &expected);
}

#[test]
fn a_row_without_a_rate_in_the_limit_keeps_nothing_of_it() {
    let mut cells = flat_out_cells();
    cells.push((
        "f1",
        "10 pairs",
        "sealbus",
        AUTH,
        Figures {
            rate_under_limit: Some(0.0),
            ..rate(4e6)
        },
    ));
    let goals = judge(0, cells);
    assert_goals(&goals, &[("p99 in the limit", "0", "not met")]);
}

#[test]
fn round_trips_and_large_events_are_judged_beside_raw_tls() {
    let bandwidth = |bytes_per_s| Figures {
        bytes_per_s,
        ..Figures::default()
    };
    let goals = judge(
        0,
        vec![
            ("r1", "128 B", "raw", RAW_TLS, trip(0.020, 0.1)),
            ("r1", "128 B", "sealbus", AUTH, trip(0.0224, 0.1)),
            ("k4", "1000 events", "raw", "TCP", bandwidth(4e9)),
            ("k4", "1000 events", "raw", RAW_TLS, bandwidth(2e9)),
            ("k4", "1000 events", "sealbus", AUTH, bandwidth(1.92e9)),
            ("k4", "10000 events", "raw", RAW_TLS, bandwidth(2e9)),
            ("k4", "10000 events", "sealbus", AUTH, bandwidth(1.8e9)),
        ],
    );
    let expected = [
        ("≤ 1.1 × raw TLS", "1.12", "not met"),
        ("events of 10 kB", "0.900", "not met"),
    ];
    assert_goals(&goals, &expected);
}

#[test]
fn python_is_judged_beside_zenohs_python_client() {
    let (ours, zenoh) = ("sealbus-python", "zenoh-python");
    let goals = judge(
        0,
        vec![
            ("f1", "1 pair", ours, AUTH, rate(430e3)),
            ("f1", "1 pair", zenoh, TLS, rate(215e3)),
            ("r1", "128 B", ours, AUTH, trip(0.028, 0.1)),
            ("r1", "128 B", zenoh, TLS, trip(0.056, 0.1)),
            ("c1", "10 pairs", ours, "mesh at none", trip(0.2, 0.3)),
            ("c1", "10 pairs", zenoh, "plain", trip(0.1, 0.3)),
        ],
    );
    let expected = [
        ("one by one ≥ 500 000", "430\u{202f}000", "not met"),
        ("round trip of 128 B", "0.028", "met"),
        ("Zenoh's Python client", "0.500", "not met"),
    ];
    assert_goals(&goals, &expected);
}

#[test]
fn each_promise_of_a_broker_is_judged_alone() {
    let (bare, ours) = ("rabbitmq-transient", "sealbus-rabbitmq-transient");
    let (kept, durable) = ("rabbitmq-kept", "sealbus-rabbitmq");
    let goals = judge(
        0,
        vec![
            ("r1", "128 B", bare, "plain", trip(0.2, 1.0)),
            ("r1", "128 B", ours, "at none", trip(0.25, 1.0)),
            ("r1", "128 B", kept, "plain", trip(1.0, 2.0)),
            ("r1", "128 B", durable, "at none", trip(1.5, 2.0)),
        ],
    );
    let expected = [
        ("transient: round trip (p50) ≤ 1.3", "1.25", "met"),
        ("transient, all but round trips", "–", "not measured"),
        ("durable: round trip (p50) ≤ 1.3", "1.50", "not met"),
    ];
    assert_goals(&goals, &expected);
}

#[test]
fn a_busy_machine_has_goals_of_its_own() {
    let mut cells = flat_out_cells();
    cells.extend([
        ("r1", "128 B", "raw", RAW_TLS, trip(0.02, 0.4)),
        ("r1", "128 B", "sealbus", AUTH, trip(0.05, 0.6)),
        // Stronger rows are not compared.
        ("r1", "128 B", "sealbus", "mesh at sealed", trip(0.5, 6.0)),
    ]);
    let goals = judge(2, cells);
    assert_eq!(goals.len(), 3);
    let expected = [
        ("one-to-one ≥ 1.5 × Zenoh", "2.05", "met"),
        ("many-to-one ≥ 1.5 × Zenoh", "1.70", "met"),
        ("round trip (p99)", "1.50", "met"),
    ];
    assert_goals(&goals, &expected);
}
