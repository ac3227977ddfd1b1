//! The papers' tables, measured again in one run: every system in the papers, and systems that one would choose today,
//! beside Sealbus.

mod busy;
pub(crate) mod cell;
mod error;
pub(crate) mod process;
mod progress;
mod report;
pub(crate) mod results;
mod round;
pub(crate) mod scenario;
pub(crate) mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::awake::Awake;
use crate::papers::busy::Busy;
use crate::papers::cell::Cell;
use crate::papers::process::Process;
use crate::papers::progress::{Ahead, Progress};
use crate::papers::results::{Key, Measurement, Outcome, Results, Service};
use crate::papers::scenario::{Column, Table};
use crate::papers::system::{Places, Setting, System};

pub(crate) use crate::papers::error::PapersError;

/// How long a server may take to become ready.
const SERVER_START: Duration = Duration::from_secs(90);

/// The subjects to measure.
#[derive(Args, Clone)]
pub(crate) struct Arguments {
    /// How much: quick takes 15 to 25 minutes on two cores
    #[arg(long, value_enum, default_value_t = Profile::Quick)]
    profile: Profile,
    /// Only the table with this name, or tables with names that begin so; may be given again
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Only the system with this name, or systems with names that begin so; may be given again
    #[arg(long, value_name = "NAME")]
    system: Vec<String>,
    /// Repetitions, instead of those of the profile
    #[arg(long)]
    repetitions: Option<u32>,
    /// Begin no more cells after this many minutes; the next run measures the missing ones
    #[arg(long)]
    minutes: Option<f64>,
    /// Let so many busy loops run beside all of it; the results need a folder of their own
    #[arg(long, value_name = "LOOPS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=64))]
    busy: u8,
    /// Forget earlier results
    #[arg(long)]
    fresh: bool,
    /// Measure nothing, and write the report anew
    #[arg(long)]
    report_only: bool,
    /// Put the summary into this page too, and the tables into NAME/tables.md beside it
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The folder for the report
    #[arg(long, default_value = "bench/report")]
    report: PathBuf,
    /// The folder with scenarios, systems and peers
    #[arg(long, default_value = "bench")]
    bench: PathBuf,
    /// The folder with the systems that `make peers` installs
    #[arg(long, env = "SEALBUS_PEERS")]
    peers: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    Quick,
    Full,
}

/// The TOML files of a folder in order: name, path, text.
fn read_folder(folder: &Path) -> Result<Vec<(String, PathBuf, String)>, PapersError> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| PapersError::File {
        path: folder.to_owned(),
        reason: error.to_string(),
    })?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "toml")
            && let Some(name) = path.file_stem()
        {
            let text = fs::read_to_string(&path)?;
            files.push((name.to_string_lossy().into_owned(), path, text));
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), PapersError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the run's owner kills its processes, so the end of the run ends them.
        tokio::select! {
            result = measure_all(arguments) => result,
            _ = terminate.recv() => Err(PapersError::Failed("ended by a signal".to_owned())),
            _ = tokio::signal::ctrl_c() => Err(PapersError::Failed("ended from the keyboard".to_owned())),
        }
    })
}

/// One cell to be measured.
struct Planned<'a> {
    key: Key,
    table: &'a Table,
    column: &'a Column,
}

async fn measure_all(arguments: &Arguments) -> Result<(), PapersError> {
    let tables = scenario::load(&arguments.bench)?;
    let systems = system::load(&arguments.bench)?;
    let names = tables.iter().map(|it| it.id.as_str());
    let chosen_tables = select("table", &arguments.table, names)?;
    let is_chosen_table = |it: &&Table| chosen_tables.contains(&it.id.as_str());
    let names = systems.iter().map(|it| it.id.as_str());
    let chosen_systems = select("system", &arguments.system, names)?;
    let is_chosen_system = |it: &&System| chosen_systems.contains(&it.id.as_str());
    let places = Places {
        bench: fs::canonicalize(&arguments.bench)?,
        peers: arguments.peers.clone().unwrap_or_else(default_peers),
    };
    let logs = arguments.report.join("log");
    fs::create_dir_all(&logs)?;
    let file = arguments.report.join("results.json");
    // A discarded result still tells how long it took, if it can be read.
    let earlier = Results::load(&file);
    let (mut results, forgotten) = match arguments.fresh {
        true => (Results::default(), earlier.unwrap_or_default()),
        false => (earlier?, Results::default()),
    };
    if !arguments.report_only {
        results.take_beside(arguments.busy)?;
    }
    if arguments.markdown.is_some() && results.busy > 0 {
        let reason = "the pages for readers have no figures that were taken beside busy loops: leave --markdown out";
        return Err(PapersError::Failed(reason.to_owned()));
    }
    if !arguments.report_only {
        let awake = Awake::hold();
        let busy = Busy::start(arguments.busy)?;
        results.note_machine();
        results.note("processors, idle", awake.words());
        let run = Run {
            arguments,
            places: &places,
            tables: tables.iter().filter(is_chosen_table).collect(),
            logs: &logs,
            file: &file,
            commit: results::commit(),
        };
        let chosen: Vec<&System> = systems.iter().filter(is_chosen_system).collect();
        run.measure(&chosen, &mut results, &forgotten).await?;
        drop(busy);
        drop(awake);
    }
    report::write(&arguments.report, &tables, &systems, &results)?;
    match &arguments.markdown {
        Some(page) => report::write_markdown(page, &tables, &systems, &results),
        None => Ok(()),
    }
}

fn default_peers() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("sealbus").join("peers")
}

struct Run<'a> {
    arguments: &'a Arguments,
    places: &'a Places,
    /// The selected tables.
    tables: Vec<&'a Table>,
    logs: &'a Path,
    file: &'a Path,
    /// The commit of the measured parts of Sealbus.
    commit: String,
}

/// The names that are selected. Each selection is one of the names, or else the beginning of some.
fn select<'a>(
    what: &str,
    selected: &[String],
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<Vec<&'a str>, PapersError> {
    if selected.is_empty() {
        return Ok(names.collect());
    }
    let mut found = Vec::new();
    for it in selected {
        let is_exact = names.clone().any(|name| name == it);
        let begins = |name: &&str| match is_exact {
            true => *name == it,
            false => name.starts_with(it.as_str()),
        };
        let before = found.len();
        found.extend(names.clone().filter(begins));
        if found.len() == before {
            let all: Vec<&str> = names.collect();
            return Err(PapersError::Failed(format!(
                "no {what} is called {it} or begins so: there are {}",
                all.join(", ")
            )));
        }
    }
    Ok(found)
}

impl<'a> Run<'a> {
    fn repetitions(&self, table: &Table) -> u32 {
        let profile = match self.arguments.profile {
            Profile::Quick => table.quick,
            Profile::Full => table.full,
        };
        self.arguments.repetitions.unwrap_or(profile)
    }

    /// The cells of one system's setting in one repetition that are not measured yet.
    fn plan(
        &self,
        system: &System,
        setting: &Setting,
        repetition: u32,
        results: &Results,
    ) -> Vec<Planned<'a>> {
        let mut planned = Vec::new();
        let is_quick = self.arguments.profile == Profile::Quick;
        for table in &self.tables {
            if !table.has(system, setting) || repetition >= self.repetitions(table) {
                continue;
            }
            let columns = table.columns.iter();
            for column in columns.filter(|it| !is_quick || system.is_quick(setting, table, it)) {
                let size = column.size.unwrap_or(table.size);
                let key = Key {
                    table: table.id.clone(),
                    system: system.id.clone(),
                    setting: setting.name.clone(),
                    column: column.title.clone(),
                    repetition,
                };
                if system.plays(table, column.agents(), size).is_ok() && !results.has(&key) {
                    planned.push(Planned { key, table, column });
                }
            }
        }
        planned
    }

    /// Measures all systems in turns, repetition after repetition, so that a disturbance of the machine affects all
    /// alike.
    async fn measure(
        &self,
        systems: &[&System],
        results: &mut Results,
        forgotten: &Results,
    ) -> Result<(), PapersError> {
        let started = Instant::now();
        let most = self
            .tables
            .iter()
            .map(|table| self.repetitions(table))
            .max();
        let mut groups = Vec::new();
        for repetition in 0..most.unwrap_or(0) {
            for system in systems.iter().copied().filter(|it| it.cannot.is_none()) {
                for setting in &system.ways {
                    let cells = self.plan(system, setting, repetition, results);
                    if !cells.is_empty() {
                        groups.push((system, setting, cells));
                    }
                }
            }
        }
        let ahead = groups.iter().map(|(system, setting, cells)| {
            Ahead::new(system, setting, cells.iter().map(|it| &it.key))
        });
        let earlier = match self.arguments.fresh {
            true => forgotten,
            false => &*results,
        };
        let mut progress = Progress::new(ahead.collect(), earlier);
        eprintln!(
            "{} cells, about {:.1} minutes",
            progress.left(),
            progress.minutes()
        );
        for (system, setting, cells) in groups {
            let minutes = started.elapsed().as_secs_f64() / 60.0;
            if self.arguments.minutes.is_some_and(|most| minutes > most) {
                eprintln!(
                    "the time is up: the next run measures the other {} cells",
                    progress.left()
                );
                break;
            }
            self.measure_group(system, setting, cells, results, &mut progress)
                .await?;
        }
        Ok(())
    }

    /// Measures the cells of a setting while its server runs.
    async fn measure_group(
        &self,
        system: &System,
        setting: &Setting,
        cells: Vec<Planned<'_>>,
        results: &mut Results,
        progress: &mut Progress,
    ) -> Result<(), PapersError> {
        let missing = system
            .needs
            .iter()
            .map(|it| self.places.fill(it))
            .find(|it| {
                // A program of this machine is searched on the PATH.
                let is_path = it.contains('/');
                !match is_path {
                    true => Path::new(it).exists(),
                    false => is_program(it),
                }
            });
        let mut service = None;
        let mut served = Value::Null;
        let mut fault = missing.map(|it| Outcome::Cannot {
            why: format!("{it} is not there: run `make peers`"),
        });
        let mut service_s = 0.0;
        if fault.is_none() && !system.service.is_empty() {
            let began = Instant::now();
            match self.serve(system, setting).await {
                Ok((process, words)) => (service, served) = (Some(process), words),
                Err(error) => fault = Some(Outcome::failed(error)),
            }
            service_s = began.elapsed().as_secs_f64();
        }
        for Planned { key, table, column } in cells {
            let began = Instant::now();
            let outcome = match &fault {
                Some(outcome) => outcome.clone(),
                None => {
                    let cell = Cell {
                        table,
                        column,
                        system,
                        setting,
                        service: service.as_ref().and_then(Process::id),
                        served: &served,
                        places: self.places,
                        logs: self.logs,
                    };
                    cell.measure().await
                }
            };
            let measurement = Measurement {
                key,
                took_s: began.elapsed().as_secs_f64(),
                measured: results::moment(),
                commit: self.commit.clone(),
                outcome,
            };
            progress.show(system, table, &measurement);
            results.put(measurement);
            results.save(self.file)?;
        }
        let Some(service) = service else {
            progress.leave(None);
            return Ok(());
        };
        let began = Instant::now();
        service.end().await;
        let took_s = service_s + began.elapsed().as_secs_f64();
        progress.leave(Some(took_s));
        results.services.push(Service {
            system: system.id.clone(),
            setting: setting.name.clone(),
            took_s,
        });
        results.save(self.file)
    }

    async fn serve(
        &self,
        system: &System,
        setting: &Setting,
    ) -> Result<(Process, Value), PapersError> {
        let command: Vec<String> = (system.service.iter())
            .map(|word| self.places.fill(word))
            .collect();
        let log = self.logs.join(format!("{}-server.log", system.id));
        let name = format!("the server of {}", system.title);
        let mut process = Process::start(&name, &command, &log)?;
        process.say(&setting.to_value(self.places)?).await?;
        let words: Value = process.hear(SERVER_START).await?;
        Ok((process, words))
    }
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_selects_nothing_that_only_begins_so() {
        let names = ["post", "post-by-air", "pigeon", "pipe"];
        let select = |selected: &[&str]| {
            let selected: Vec<String> = selected.iter().map(|it| (*it).to_owned()).collect();
            select("system", &selected, names.into_iter()).ok()
        };
        assert_eq!(select(&["post"]), Some(vec!["post"]));
        assert_eq!(
            select(&["pi", "post-"]),
            Some(vec!["pigeon", "pipe", "post-by-air"])
        );
        assert_eq!(select(&[]), Some(names.to_vec()));
        assert_eq!(select(&["post", "smoke"]), None);
    }
}
