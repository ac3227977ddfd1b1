//! The figures as a table with ratios, and as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::mesh::BenchError;

/// A way for bytes or messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    RawTcp,
    RawTls,
    MeshNone,
    MeshTls,
    MeshAuth,
    MeshAuthMany,
    MeshSigned,
    MeshSignedMany,
    InProcess,
    InProcessMany,
}

impl Way {
    pub(crate) const ALL: [Self; 10] = [
        Self::RawTcp,
        Self::RawTls,
        Self::MeshNone,
        Self::MeshTls,
        Self::MeshAuth,
        Self::MeshAuthMany,
        Self::MeshSigned,
        Self::MeshSignedMany,
        Self::InProcess,
        Self::InProcessMany,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RawTcp => "raw TCP",
            Self::RawTls => "raw mutual TLS",
            Self::MeshNone => "mesh at none",
            Self::MeshTls => "mesh at tls",
            Self::MeshAuth => "mesh at auth",
            Self::MeshAuthMany => "mesh at auth, many at once",
            Self::MeshSigned => "mesh at signed",
            Self::MeshSignedMany => "mesh at signed, many at once",
            Self::InProcess => "in one process",
            Self::InProcessMany => "in one process, many at once",
        }
    }
}

/// All measured figures.
#[derive(Default)]
pub(crate) struct Report {
    round_trips: BTreeMap<(Way, usize), Vec<RoundTrips>>,
    streams: BTreeMap<Way, Vec<f64>>,
    /// Bytes of memory of an idle agent.
    pub(crate) idle: Vec<(String, u64)>,
    /// Whether processors are halted while they wait, in words.
    pub(crate) idle_processors: String,
}

/// One turn of round trips, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct RoundTrips {
    p50_ns: u64,
    p99_ns: u64,
}

#[derive(Serialize)]
struct Row {
    way: &'static str,
    round_trips: BTreeMap<usize, RoundTrips>,
    messages_per_s: Option<f64>,
    turns_messages_per_s: Vec<f64>,
}

#[derive(Serialize)]
struct Written<'a> {
    processors: usize,
    idle_processors: &'a str,
    rows: Vec<Row>,
    idle_agent_bytes: BTreeMap<&'a str, u64>,
    ratios: BTreeMap<&'static str, f64>,
}

fn median<T: Copy>(values: &[T], key: impl Fn(&T) -> f64) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    sorted.get(sorted.len() / 2).copied()
}

impl Report {
    pub(crate) fn add_round_trips(&mut self, way: Way, size: usize, times: Vec<Duration>) {
        // The range goes up to a second, with three digits.
        let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3) else {
            return;
        };
        for time in times {
            histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        let turn = RoundTrips {
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
        };
        self.round_trips.entry((way, size)).or_default().push(turn);
    }

    pub(crate) fn add_stream(&mut self, way: Way, messages_per_second: f64) {
        self.streams
            .entry(way)
            .or_default()
            .push(messages_per_second);
    }

    fn round_trip(&self, way: Way, size: usize) -> Option<RoundTrips> {
        median(self.round_trips.get(&(way, size))?, |turn| {
            turn.p50_ns as f64
        })
    }

    fn stream(&self, way: Way) -> Option<f64> {
        median(self.streams.get(&way)?, |rate| *rate)
    }

    /// The ratios in which the goals are stated.
    fn ratios(&self) -> BTreeMap<&'static str, f64> {
        let [small, large] = crate::mesh::ROUND_TRIP_SIZES;
        let p50 = |way, size| self.round_trip(way, size).map(|turn| turn.p50_ns as f64);
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        [
            (
                "round trip of 128 B at auth / raw mutual TLS",
                ratio(p50(Way::MeshAuth, small), p50(Way::RawTls, small)),
            ),
            (
                "round trip of 16 KiB at auth / raw mutual TLS",
                ratio(p50(Way::MeshAuth, large), p50(Way::RawTls, large)),
            ),
            (
                "round trip of 16 KiB / 128 B at auth",
                ratio(p50(Way::MeshAuth, large), p50(Way::MeshAuth, small)),
            ),
            (
                "stream at auth / none",
                ratio(self.stream(Way::MeshAuth), self.stream(Way::MeshNone)),
            ),
            (
                "stream at auth / raw mutual TLS",
                ratio(self.stream(Way::MeshAuth), self.stream(Way::RawTls)),
            ),
            (
                "stream of many at once at auth / raw mutual TLS",
                ratio(self.stream(Way::MeshAuthMany), self.stream(Way::RawTls)),
            ),
            (
                "stream of many at once at signed / auth",
                ratio(
                    self.stream(Way::MeshSignedMany),
                    self.stream(Way::MeshAuthMany),
                ),
            ),
        ]
        .into_iter()
        .filter_map(|(name, ratio)| Some((name, ratio?)))
        .collect()
    }

    pub(crate) fn print(&self) {
        let [small, large] = crate::mesh::ROUND_TRIP_SIZES;
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "",
            "128 B round trip p50",
            "p99",
            "16 KiB p50",
            "p99",
            "64 B one way",
        ]);
        for way in Way::ALL {
            let time = |size, p99: bool| {
                self.round_trip(way, size).map_or(String::new(), |turn| {
                    let ns = if p99 { turn.p99_ns } else { turn.p50_ns };
                    format!("{:.1} µs", ns as f64 / 1000.0)
                })
            };
            let stream = self
                .stream(way)
                .map_or(String::new(), |rate| format!("{:.2} M/s", rate / 1e6));
            table.add_row([
                way.name().to_owned(),
                time(small, false),
                time(small, true),
                time(large, false),
                time(large, true),
                stream,
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
        println!("idle processors: {}", self.idle_processors);
        for (name, ratio) in self.ratios() {
            println!("{name}: {ratio:.2}");
        }
        for (what, bytes) in &self.idle {
            println!("an idle agent {what}: {bytes} bytes");
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        let rows = Way::ALL
            .into_iter()
            .map(|way| Row {
                way: way.name(),
                round_trips: crate::mesh::ROUND_TRIP_SIZES
                    .into_iter()
                    .filter_map(|size| Some((size, self.round_trip(way, size)?)))
                    .collect(),
                messages_per_s: self.stream(way),
                turns_messages_per_s: self.streams.get(&way).cloned().unwrap_or_default(),
            })
            .collect();
        let written = Written {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            idle_processors: &self.idle_processors,
            rows,
            idle_agent_bytes: self
                .idle
                .iter()
                .map(|(what, bytes)| (what.as_str(), *bytes))
                .collect(),
            ratios: self.ratios(),
        };
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(
            file,
            serde_json::to_string_pretty(&written).map_err(crate::mesh::failed)?,
        )?;
        Ok(())
    }
}
