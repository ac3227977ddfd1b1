//! The AgentBus compared with the mesh that carries it and the sockets below, measured in turns in one run. The tables
//! and the methods are those of the papers' benchmark. In addition, messages are also sent without a pause here, and
//! the figures are compared with each other repetition by repetition.

mod records;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sealbus_bench_driver::Shape;
use serde_json::Value;

use crate::bus::report::Report;
use crate::papers::PapersError;
use crate::papers::cell::Cell;
use crate::papers::results::{Figures, Outcome};
use crate::papers::scenario::{self, Column, Table};
use crate::papers::system::{self, Places, Setting, System};

/// The subjects to measure.
#[derive(Args, Clone)]
pub(crate) struct Arguments {
    /// Write the figures as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables between the marks of this page too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Turns; the median counts
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Only tables with a name that begins so: broadcast, bandwidth, time, events
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Only columns with this in their title
    #[arg(long, value_name = "TEXT", default_value = "")]
    column: String,
    /// Only ways with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    way: String,
    /// The folder with scenarios and systems
    #[arg(long, default_value = "bench")]
    bench: PathBuf,
}

/// Deliveries of a broadcast, in each turn.
const DELIVERIES: u32 = 2_000_000;
/// Bytes of content that are carried in each turn to measure bandwidth.
const BYTES: usize = 800_000_000;
/// The most messages for that measurement.
const MESSAGES: usize = 200_000;
/// How long messages with a pause between them are sent, in each turn and before it to warm up.
const PACED: Duration = Duration::from_millis(400);
const WARM_UP: Duration = Duration::from_millis(100);

/// A way to publish: a setting of a system of the papers' benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    RawTcp,
    RawTls,
    MessagesAtNone,
    MessagesAtAuth,
    BusInOneProcess,
    BusAtNone,
    BusAtAuth,
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RawTcp => "raw TCP",
            Self::RawTls => "raw mutual TLS",
            Self::MessagesAtNone => "agent messages, mesh at none",
            Self::MessagesAtAuth => "agent messages, mesh at auth",
            Self::BusInOneProcess => "AgentBus, one process",
            Self::BusAtNone => "AgentBus, mesh at none",
            Self::BusAtAuth => "AgentBus, mesh at auth",
        }
    }

    /// The files' names for the way: system and setting.
    const fn system(self) -> (&'static str, &'static str) {
        match self {
            Self::RawTcp => ("raw", "TCP"),
            Self::RawTls => ("raw", "mutual TLS 1.3"),
            Self::BusInOneProcess => ("sealbus", "in one process"),
            Self::MessagesAtNone | Self::BusAtNone => ("sealbus", "mesh at none"),
            Self::MessagesAtAuth | Self::BusAtAuth => ("sealbus", "mesh at auth"),
        }
    }

    /// Agent messages have one receiver each.
    const fn shape(self, shape: Shape) -> Shape {
        match self {
            Self::MessagesAtNone | Self::MessagesAtAuth => Shape::OneToOne,
            _ => shape,
        }
    }
}

/// One of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Broadcast,
    Bandwidth,
    Time,
    Events,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Broadcast, Self::Bandwidth, Self::Time, Self::Events];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Bandwidth => "bandwidth",
            Self::Time => "time",
            Self::Events => "events",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Broadcast => {
                "Broadcast without a pause (C, Table 2; publishers × subscribers): deliveries a second"
            }
            Self::Bandwidth => {
                "Events by size, without a pause, one publisher and one subscriber: MB/s"
            }
            Self::Time => {
                "Events by size, one every 2 ms, from 100 kB on 5 and 20 ms (K, Figure 3): mean time in ms"
            }
            Self::Events => "Events of 10 kB by their number, without a pause (K, Figure 4): MB/s",
        }
    }

    /// The papers' table that this one is made of.
    const fn table(self) -> &'static str {
        match self {
            Self::Broadcast => "c2",
            Self::Bandwidth | Self::Time => "k3",
            Self::Events => "k4",
        }
    }

    pub(crate) const fn ways(self) -> &'static [Way] {
        match self {
            Self::Broadcast => &[
                Way::RawTcp,
                Way::RawTls,
                Way::BusInOneProcess,
                Way::BusAtNone,
                Way::BusAtAuth,
            ],
            Self::Bandwidth | Self::Time | Self::Events => &[
                Way::RawTcp,
                Way::RawTls,
                Way::MessagesAtNone,
                Way::MessagesAtAuth,
                Way::BusInOneProcess,
                Way::BusAtNone,
                Way::BusAtAuth,
            ],
        }
    }

    pub(crate) fn figure(self, figures: &Figures) -> f64 {
        match self {
            Self::Broadcast => figures.per_s,
            Self::Bandwidth | Self::Events => figures.bytes_per_s / 1e6,
            Self::Time => figures.mean_ms,
        }
    }

    /// A column of the papers' table as it is measured here: without a pause where none is wanted, and long enough for
    /// a useful figure.
    fn adapt(self, table: &Table, column: &Column) -> (Table, Column) {
        let (mut table, mut column) = (table.clone(), column.clone());
        let size = column.size.unwrap_or(table.size).max(1);
        let interval = Duration::from_nanos(table.interval_ns(&column));
        let messages = match self {
            Self::Events => return (table, column),
            Self::Broadcast => DELIVERIES / (column.senders * column.receivers).max(1),
            Self::Bandwidth => u32::try_from((BYTES / size).min(MESSAGES)).unwrap_or(u32::MAX),
            Self::Time => number_within(PACED, interval),
        };
        column.messages = Some(messages);
        match self {
            Self::Time => table.warm_up = table.warm_up.min(number_within(WARM_UP, interval)),
            _ => column.interval_us = Some(0),
        }
        (table, column)
    }
}

/// The number of messages that fit into a time, with one after each interval.
fn number_within(time: Duration, interval: Duration) -> u32 {
    let number = time.as_nanos() / interval.as_nanos().max(1);
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), PapersError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure_all(arguments))
}

async fn measure_all(arguments: &Arguments) -> Result<(), PapersError> {
    let logs = std::env::temp_dir().join(format!("sealbus-bench-{}", std::process::id()));
    fs::create_dir_all(&logs)?;
    let measured = measure(arguments, &logs).await;
    // The folder lies under the temporary folder in any case.
    let _ = fs::remove_dir_all(&logs);
    let report = measured?;
    report.print();
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    if let Some(page) = &arguments.markdown {
        report.put_into(page)?;
    }
    Ok(())
}

async fn measure(arguments: &Arguments, logs: &Path) -> Result<Report, PapersError> {
    let tables = scenario::load(&arguments.bench)?;
    let systems = system::load(&arguments.bench)?;
    let places = Places {
        bench: fs::canonicalize(&arguments.bench)?,
        peers: PathBuf::new(),
    };
    let mut report = Report::default();
    for part in Part::ALL {
        if !part.name().starts_with(&arguments.only) {
            continue;
        }
        if part == Part::Bandwidth {
            report.note_records(records::measure()?);
        }
        let table = (tables.iter().find(|it| it.id == part.table()))
            .ok_or_else(|| missing("table", part.table()))?;
        let columns = table.columns.iter();
        for column in columns.filter(|it| it.title.contains(&arguments.column)) {
            let (table, column) = part.adapt(table, column);
            for turn in 0..arguments.repetitions {
                let ways = part.ways().iter();
                for way in ways.filter(|it| it.name().contains(&arguments.way)) {
                    let figures =
                        measure_cell(*way, &table, &column, &systems, &places, logs).await?;
                    eprintln!(
                        "{}, {}, turn {}: {}: {}",
                        part.name(),
                        column.title,
                        turn + 1,
                        way.name(),
                        report::shown(part.figure(&figures)),
                    );
                    report.add(part, &column.title, *way, figures);
                }
            }
        }
    }
    Ok(report)
}

async fn measure_cell(
    way: Way,
    table: &Table,
    column: &Column,
    systems: &[System],
    places: &Places,
    logs: &Path,
) -> Result<Figures, PapersError> {
    let (system, setting) = way.system();
    let system =
        (systems.iter().find(|it| it.id == system)).ok_or_else(|| missing("system", system))?;
    let setting: &Setting = (system.ways.iter().find(|it| it.name == setting))
        .ok_or_else(|| missing("setting", setting))?;
    let table = Table {
        shape: way.shape(table.shape),
        ..table.clone()
    };
    let cell = Cell {
        table: &table,
        column,
        system,
        setting,
        service: None,
        served: &Value::Null,
        places,
        logs,
    };
    match cell.measure().await {
        Outcome::Measured(figures) => Ok(*figures),
        Outcome::Failed { why, .. } | Outcome::Cannot { why } => Err(PapersError::Failed(format!(
            "{}, {}: {why}",
            way.name(),
            column.title
        ))),
    }
}

fn missing(what: &str, name: &str) -> PapersError {
    PapersError::Failed(format!("there is no {what} {name} under the bench folder"))
}
