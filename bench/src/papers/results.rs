//! The measured results, as kept between runs in bench/report/results.json.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::papers::PapersError;

/// The figures of one cell in one repetition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The mean time from sending to receiving, or of a round trip.
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    /// Messages received in a second, from the first sent to the last received. In a broadcast this is the rate of each
    /// receiver.
    pub(crate) per_s: f64,
    pub(crate) seconds: f64,
    /// In a search, the highest rate that kept the limit, counted like `per_s`.
    pub(crate) rate_under_limit: Option<f64>,
    pub(crate) bytes_per_s: f64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) duplicated: u64,
    pub(crate) disordered: u64,
    /// Processor time of all processes, for each message received.
    pub(crate) processor_us: f64,
    /// The most memory all processes held.
    pub(crate) memory_mib: f64,
    /// The share of the machine's processor time that other processes used in the meantime.
    #[serde(default)]
    pub(crate) others: f64,
    pub(crate) clients: Vec<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) remarks: Value,
    /// All rounds that counted, in their order. The figures above come from the median round, except the costs, which
    /// cover all rounds.
    #[serde(default)]
    pub(crate) rounds: Vec<RoundFigures>,
}

/// One round of a cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RoundFigures {
    /// The figure by which the table is judged.
    pub(crate) value: f64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) remarks: Value,
}

/// How a cell ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Outcome {
    Measured(Box<Figures>),
    /// Counts disagree, or something broke.
    Failed {
        why: String,
        figures: Option<Box<Figures>>,
    },
    /// The system does not support it, or is not installed.
    Cannot {
        why: String,
    },
}

impl Outcome {
    pub(crate) fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed {
            why: why.to_string(),
            figures: None,
        }
    }
}

/// A cell: its table, column and row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) table: String,
    pub(crate) system: String,
    pub(crate) setting: String,
    pub(crate) column: String,
    pub(crate) repetition: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// Seconds that the cell took, with everything around it.
    pub(crate) took_s: f64,
    /// The time of the measurement and the version of Sealbus. A run may continue with another run's results.
    #[serde(default)]
    pub(crate) measured: String,
    #[serde(default)]
    pub(crate) commit: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// How long the server of a setting took to start and to end, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) system: String,
    pub(crate) setting: String,
    pub(crate) took_s: f64,
}

/// All results, and the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Busy loops that ran beside all measurements.
    #[serde(default)]
    pub(crate) busy: u8,
    /// Kernel, processors, memory, versions.
    pub(crate) machine: BTreeMap<String, String>,
    pub(crate) measurements: Vec<Measurement>,
    /// The time of each server, once for each time it was needed.
    #[serde(default)]
    pub(crate) services: Vec<Service>,
}

impl Results {
    /// The results of an earlier run, if they can be read.
    pub(crate) fn load(path: &Path) -> Result<Self, PapersError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error.into()),
        };
        serde_json::from_str(&text).map_err(|error| PapersError::File {
            path: path.to_owned(),
            reason: format!("{error}; remove it, or run with --fresh"),
        })
    }

    /// Notes how many busy loops run beside the measurements. Results that were taken beside another number of them are
    /// refused.
    pub(crate) fn take_beside(&mut self, busy: u8) -> Result<(), PapersError> {
        if self.busy != busy && !self.measurements.is_empty() {
            return Err(PapersError::Failed(format!(
                "the folder of the report has results that were taken beside {} busy loops, and this run has {busy}: name another folder with --report, or forget them with --fresh",
                self.busy
            )));
        }
        self.busy = busy;
        if busy > 0 {
            let words = format!("{busy}, beside all cells, at the priority of the drivers");
            self.note("busy loops", words);
        }
        Ok(())
    }

    /// Writes the results, either completely or not at all.
    pub(crate) fn save(&self, path: &Path) -> Result<(), PapersError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| PapersError::Failed(error.to_string()))?;
        let whole = path.with_extension("part");
        fs::write(&whole, text)?;
        fs::rename(whole, path)?;
        Ok(())
    }

    pub(crate) fn put(&mut self, measurement: Measurement) {
        self.measurements.retain(|it| it.key != measurement.key);
        self.measurements.push(measurement);
    }

    /// Minutes that the measurement of all results took.
    pub(crate) fn minutes(&self) -> f64 {
        let cells = self.measurements.iter().map(|it| it.took_s);
        let services = self.services.iter().map(|it| it.took_s);
        cells.chain(services).sum::<f64>() / 60.0
    }

    /// Notes a fact about the machine or the method.
    pub(crate) fn note(&mut self, what: &str, words: String) {
        self.machine.insert(what.to_owned(), words);
    }

    /// Whether a cell need not be measured again, because it was measured and did not fail.
    pub(crate) fn has(&self, key: &Key) -> bool {
        let found = self.measurements.iter().find(|it| it.key == *key);
        found.is_some_and(|it| matches!(it.outcome, Outcome::Measured(_)))
    }

    /// All repetitions of a cell.
    pub(crate) fn of<'a>(
        &'a self,
        table: &'a str,
        system: &'a str,
        setting: &'a str,
        column: &'a str,
    ) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.iter().filter(move |it| {
            let key = &it.key;
            key.table == table
                && key.system == system
                && key.setting == setting
                && key.column == column
        })
    }

    /// The outcome of all repetitions of a cell, or the failed one: other repetitions do not make up for a failure.
    pub(crate) fn figures<'a>(
        &'a self,
        table: &'a str,
        system: &'a str,
        setting: &'a str,
        column: &'a str,
    ) -> Result<Vec<&'a Figures>, &'a Outcome> {
        let outcomes = self
            .of(table, system, setting, column)
            .map(|it| &it.outcome);
        outcomes
            .map(|outcome| match outcome {
                Outcome::Measured(figures) => Ok(&**figures),
                Outcome::Failed { .. } | Outcome::Cannot { .. } => Err(outcome),
            })
            .collect()
    }

    /// Notes the machine that this runs on.
    pub(crate) fn note_machine(&mut self) {
        let read = |path: &str, field: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(field))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut note = |what: &str, value: Option<String>| {
            if let Some(value) = value {
                self.machine.insert(what.to_owned(), value);
            }
        };
        note("measured", Some(moment()));
        note("kernel", first_line("uname", &["-sr"]));
        note("processor", read("/proc/cpuinfo", "model name"));
        note("processors", Some(processors.to_string()));
        note("memory", read("/proc/meminfo", "MemTotal"));
        note("Java", first_line("java", &["-version"]));
        note("Python", first_line("python3", &["--version"]));
        note("Go", first_line("go", &["version"]));
        note("Sealbus", Some(env!("CARGO_PKG_VERSION").to_owned()));
        note("Sealbus, commit", Some(commit()));
        note("Sealbus, profile", {
            let profile = if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            };
            Some(profile.to_owned())
        });
    }
}

/// The first line a program writes.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next().map(str::to_owned)
}

/// The current time.
pub(crate) fn moment() -> String {
    first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
}

/// The commit of this folder's repository, and whether anything in the folder differs from it.
pub(crate) fn commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--exclude", "*"];
    first_line("git", &arguments).unwrap_or_default()
}

/// The median of some values, with their least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) count: usize,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => *sorted.get(middle)?,
            _ => (sorted.get(middle.checked_sub(1)?)? + sorted.get(middle)?) / 2.0,
        };
        Some(Self {
            median,
            least: *sorted.first()?,
            greatest: *sorted.last()?,
            count: sorted.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_failed_once_has_no_figures() {
        let measurement = |setting: &str, repetition, outcome| Measurement {
            key: Key {
                table: "c1".to_owned(),
                system: "post".to_owned(),
                setting: setting.to_owned(),
                column: "1 pair".to_owned(),
                repetition,
            },
            took_s: 1.0,
            measured: String::new(),
            commit: String::new(),
            outcome,
        };
        let measured = || Outcome::Measured(Box::default());
        let results = Results {
            measurements: vec![
                measurement("plain", 0, measured()),
                measurement("plain", 1, Outcome::failed("one message was lost")),
                measurement("plain", 2, measured()),
                measurement("tls", 0, measured()),
                measurement("tls", 1, measured()),
            ],
            ..Results::default()
        };
        let figures = |setting| results.figures("c1", "post", setting, "1 pair");
        assert!(matches!(figures("plain"), Err(Outcome::Failed { .. })));
        assert_eq!(figures("tls").unwrap().len(), 2);
        assert_eq!(figures("none").unwrap().len(), 0);
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!(
            (spread.median, spread.least, spread.greatest),
            (2.5, 1.0, 4.0)
        );
        assert_eq!(Spread::of([]), None);
    }
}
