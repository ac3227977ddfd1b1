//! The papers' tables. A file under bench/scenarios describes each.

use std::collections::BTreeMap;
use std::path::Path;

use sealbus_bench_driver::{Kind, Shape, Stamp};
use serde::Deserialize;

use crate::papers::{PapersError, read_folder};

/// How a cell is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Every sender keeps the interval, or sends without a pause if the interval is 0.
    #[default]
    Paced,
    /// Senders send without a pause first. Then the highest rate is searched at which 99 of 100 messages stay under the
    /// limit.
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
    /// Whether the column is part of the quick profile.
    #[serde(default)]
    pub(crate) quick: bool,
    /// The systems for which the column is part of that profile, by their files' names; all if empty.
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
    /// The system here that measures the same.
    pub(crate) beside: Option<String>,
    /// The setting of that system; if missing, the first one with figures.
    pub(crate) setting: Option<String>,
    /// The reason why the system is not measured here.
    pub(crate) cannot: Option<String>,
}

/// The paper's finding, and the row over which the others are shown.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    pub(crate) text: String,
    /// The row's system, by its file's name.
    pub(crate) system: String,
    pub(crate) setting: String,
}

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The file's name.
    #[serde(skip)]
    pub(crate) id: String,
    /// The paper's authors and title.
    pub(crate) paper: String,
    pub(crate) title: String,
    /// The paper's method, and the differences from it here.
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) mode: Mode,
    pub(crate) shows: Shown,
    /// The limit of a search.
    #[serde(default)]
    pub(crate) limit_ms: f64,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) size: usize,
    /// Messages of each sender. For a search this is the maximum.
    pub(crate) messages: u32,
    #[serde(default)]
    pub(crate) interval_us: u64,
    #[serde(default)]
    pub(crate) stamp: Stamp,
    /// Whether senders connect and prove their identity only when they first ask, so that the time for it counts.
    #[serde(default)]
    pub(crate) first_contact: bool,
    /// Warm-up messages of each sender, before those that count.
    #[serde(default)]
    pub(crate) warm_up: u32,
    /// The time in seconds to which round trips are cut. Without it, all are made.
    pub(crate) cut_s: Option<f64>,
    /// How many counting rounds the same processes play; slow systems play fewer. The median round is the cell's
    /// result.
    #[serde(default = "one")]
    pub(crate) rounds: u32,
    /// The table with which this one is compared, row by row: its figures over those here.
    pub(crate) beside: Option<String>,
    /// The ratios that the paper prints, by row.
    #[serde(default)]
    pub(crate) proportions: BTreeMap<String, String>,
    pub(crate) finding: Option<Finding>,
    /// Seconds a cell may take.
    pub(crate) patience_s: u64,
    /// How long nothing must have come before missing messages count as lost.
    #[serde(default = "quiet_s")]
    pub(crate) quiet_s: u64,
    /// Repetitions of the quick profile.
    pub(crate) quick: u32,
    /// Repetitions of the full profile.
    pub(crate) full: u32,
    /// The systems that are measured, by the beginnings of their files' names; all if empty.
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
