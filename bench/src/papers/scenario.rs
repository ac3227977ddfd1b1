//! The papers' tables, each described once in a file under bench/scenarios.

use std::collections::BTreeMap;
use std::path::Path;

use sealbus_bench_driver::{Kind, Shape, Stamp};
use serde::Deserialize;

use crate::papers::{PapersError, read_folder};

/// How a cell is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Every sender keeps the interval, or pauses not at all when it is 0.
    #[default]
    Paced,
    /// First without a pause, then the highest rate is searched at which 99 of 100 messages stay under the limit.
    Search,
}

/// The figure in a table's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shown {
    LatencyAndThroughput,
    ThroughputAndLatency,
    RoundTrip,
    Rate,
    TotalTime,
    MeanTime,
    Bandwidth,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) title: String,
    #[serde(default = "one")]
    pub(crate) senders: u32,
    #[serde(default = "one")]
    pub(crate) receivers: u32,
    pub(crate) size: Option<usize>,
    pub(crate) messages: Option<u32>,
    pub(crate) interval_us: Option<u64>,
    /// Part of the quick profile.
    #[serde(default)]
    pub(crate) quick: bool,
    /// The systems of which it is part there, by their files' names; when empty, all.
    #[serde(default)]
    pub(crate) quick_for: Vec<String>,
}

impl Column {
    /// Agents on the side that has more.
    pub(crate) fn agents(&self) -> u32 {
        self.senders.max(self.receivers)
    }
}

fn one() -> u32 {
    1
}

fn quiet_s() -> u64 {
    4
}

/// A row as the paper prints it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Printed {
    pub(crate) system: String,
    #[serde(default)]
    pub(crate) secure: bool,
    pub(crate) cells: Vec<String>,
    /// The system of ours that measures the same.
    pub(crate) beside: Option<String>,
    /// Why the system is not measured here.
    pub(crate) cannot: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The file's name.
    #[serde(skip)]
    pub(crate) id: String,
    /// The paper, by authors and title.
    pub(crate) paper: String,
    pub(crate) title: String,
    /// The paper's method, and the differences here.
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) mode: Mode,
    pub(crate) shows: Shown,
    /// The bound of a search.
    #[serde(default)]
    pub(crate) limit_ms: f64,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) size: usize,
    /// Messages of each sender; for a search, at most.
    pub(crate) messages: u32,
    #[serde(default)]
    pub(crate) interval_us: u64,
    #[serde(default)]
    pub(crate) stamp: Stamp,
    /// Senders connect, and prove who they are, not before they first ask: that counts.
    #[serde(default)]
    pub(crate) first_contact: bool,
    /// Messages of each sender before those that count.
    #[serde(default)]
    pub(crate) warm_up: u32,
    /// Round trips are cut to as many as take about so long; all are done when it is missing.
    pub(crate) cut_s: Option<f64>,
    /// How often what counts is played by the same processes, of slow systems less often: the round in the middle is the cell's.
    #[serde(default = "one")]
    pub(crate) rounds: u32,
    /// The table this one is put in proportion to, row by row: its figures over those here.
    pub(crate) beside: Option<String>,
    /// The proportions that the paper prints, by row.
    #[serde(default)]
    pub(crate) proportions: BTreeMap<String, String>,
    /// Seconds a cell may take.
    pub(crate) patience_s: u64,
    /// How long nothing must have come before what is missing counts as lost.
    #[serde(default = "quiet_s")]
    pub(crate) quiet_s: u64,
    /// Repetitions of the quick profile.
    pub(crate) quick: u32,
    /// Repetitions of the full one.
    pub(crate) full: u32,
    /// Which systems are measured, by the beginning of their file's name; when empty, all.
    #[serde(default)]
    pub(crate) systems: Vec<String>,
    pub(crate) columns: Vec<Column>,
    #[serde(default)]
    pub(crate) printed: Vec<Printed>,
    /// The machines of the paper's figures.
    #[serde(default)]
    pub(crate) conditions: String,
}

impl Table {
    /// Nanoseconds between two messages of a sender.
    pub(crate) fn interval_ns(&self, column: &Column) -> u64 {
        column.interval_us.unwrap_or(self.interval_us) * 1000
    }
}

/// All tables, by their files' names.
pub(crate) fn load(bench: &Path) -> Result<Vec<Table>, PapersError> {
    let mut tables = Vec::new();
    for (id, path, text) in read_folder(&bench.join("scenarios"))? {
        let table: Table = toml::from_str(&text).map_err(|error| PapersError::File {
            path,
            reason: error.to_string(),
        })?;
        tables.push(Table { id, ..table });
    }
    Ok(tables)
}
