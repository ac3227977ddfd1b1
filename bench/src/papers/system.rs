//! The measured systems. A file under bench/systems describes each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sealbus_bench_driver::{Kind, Shape};
use serde::Deserialize;
use serde_json::Value;

use crate::papers::scenario::{Column, Printed, Table};
use crate::papers::{PapersError, read_folder};

/// The protection of a setting, weakest first. Only rows of one class are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// No protection.
    None,
    /// Each hop is encrypted, and the server proves its identity.
    Encrypted,
    /// Each hop is encrypted, and both of its ends prove their identity.
    Mutual,
    /// Like `Mutual`, and every message's sender is proved.
    Sender,
    /// Like `Sender`, and anybody can check each message's author.
    Signed,
    /// Like `Signed`, and only the receiver reads the message.
    Sealed,
}

impl Class {
    pub(crate) fn is_secure(self) -> bool {
        self > Self::None
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Encrypted => "encrypted",
            Self::Mutual => "both ends proved",
            Self::Sender => "each sender proved",
            Self::Signed => "each author proved to all",
            Self::Sealed => "each author to all, and only the receiver reads",
        }
    }

    /// Whether other systems have rows of this strength. Stronger rows of Sealbus are shown but not compared.
    pub(crate) fn is_compared(self) -> bool {
        self <= Self::Sender
    }
}

/// The owner of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Sealbus.
    Ours,
    /// Sealbus on one side and another system on the other. The row is shown but not compared.
    Mixed,
    /// One technique of protection alone, without a platform. The row is shown but not compared.
    Technique,
    /// The limit that nothing can beat.
    Limit,
    /// Another system.
    Peer,
}

/// One way to set a system up: a row of the tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// The proof that a technique gives, where that is less than its class.
    pub(crate) proves: Option<String>,
    /// The tables it is measured for. If empty, all tables of its system.
    #[serde(default)]
    pub(crate) tables: Vec<String>,
    /// The encoding of messages, where the table distinguishes encodings. Only rows of one encoding are compared.
    pub(crate) encoding: Option<String>,
    /// Settings that are handed to the drivers and the service.
    #[serde(default)]
    pub(crate) with: toml::Table,
    /// Whether all agents are in one process.
    #[serde(default)]
    pub(crate) one_process: bool,
    /// Whether the setting is left out of the quick profile.
    #[serde(default)]
    pub(crate) full_only: bool,
}

/// A system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct System {
    /// The file's name.
    #[serde(skip)]
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) side: Side,
    /// The language of its agents. Sealbus in Python is compared with other systems in Python.
    pub(crate) language: String,
    /// The settings that give its best figures, and their documentation.
    pub(crate) settings: String,
    /// The system that carries it, driven alone to show the overhead.
    pub(crate) carried_by: Option<String>,
    /// The reason why it has no figures.
    pub(crate) cannot: Option<String>,
    /// The program that plays its agents.
    #[serde(default)]
    pub(crate) driver: Vec<String>,
    /// The program that plays its receivers, if it is another.
    #[serde(default)]
    pub(crate) receivers: Vec<String>,
    /// The server it needs.
    #[serde(default)]
    pub(crate) service: Vec<String>,
    /// Files that it needs to run; `make peers` makes them.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// The tables that its driver can play.
    #[serde(default)]
    pub(crate) shapes: Vec<Shape>,
    #[serde(default)]
    pub(crate) kinds: Vec<Kind>,
    /// Rounds before the one that counts. Code that is compiled while it runs needs more.
    #[serde(default = "one")]
    pub(crate) warm_ups: u32,
    /// The tables it is measured for. If empty, all tables that include it.
    #[serde(default)]
    pub(crate) tables: Vec<String>,
    /// The tables it is measured for in the quick profile. If missing, the same as in the full one.
    pub(crate) quick: Option<Vec<String>>,
    /// The most agents on one side in the quick profile, by table. Tables without an entry have no limit.
    #[serde(default)]
    pub(crate) quick_agents: BTreeMap<String, u32>,
    /// About how many seconds a cell of the quick profile takes, as the estimate before the first measurement.
    #[serde(default = "two_seconds")]
    pub(crate) cell_s: f64,
    /// The same estimate for starting and ending its server.
    #[serde(default = "two_seconds")]
    pub(crate) service_s: f64,
    /// Whether its cells take long. Such a system has its turn after the others.
    #[serde(default)]
    pub(crate) slow: bool,
    /// The most agents on one side, if it has a limit.
    pub(crate) most_agents: Option<u32>,
    /// The largest content it takes, in bytes.
    pub(crate) largest: Option<usize>,
    #[serde(default, rename = "setting")]
    pub(crate) ways: Vec<Setting>,
}

fn one() -> u32 {
    1
}

fn two_seconds() -> f64 {
    2.0
}

impl Table {
    /// Whether the table has rows of this setting.
    pub(crate) fn has(&self, system: &System, setting: &Setting) -> bool {
        let is_at_home = setting.tables.is_empty() || setting.tables.contains(&self.id);
        is_at_home && self.includes(system)
    }

    /// Whether the table has rows of this system.
    pub(crate) fn includes(&self, system: &System) -> bool {
        let is_wanted = |it: &String| system.id.starts_with(it.as_str());
        let is_at_home = system.tables.is_empty() || system.tables.contains(&self.id);
        is_at_home && (self.systems.is_empty() || self.systems.iter().any(is_wanted))
    }
}

impl Printed {
    /// Whether this row of a system here measures the same.
    pub(crate) fn is_beside(&self, system: &System, setting: &Setting) -> bool {
        self.beside.as_deref() == Some(&system.id)
            && (self.setting.as_ref()).is_none_or(|it| *it == setting.name)
    }
}

impl System {
    /// Whether a cell is part of the quick profile.
    pub(crate) fn is_quick(&self, setting: &Setting, table: &Table, column: &Column) -> bool {
        let tables = self.quick.as_ref();
        let most = self.quick_agents.get(&table.id);
        column.quick
            && (column.quick_for.is_empty() || column.quick_for.contains(&self.id))
            && !setting.full_only
            && tables.is_none_or(|tables| tables.contains(&table.id))
            && most.is_none_or(|most| column.agents() <= *most)
    }

    /// Whether only the full profile measures a cell.
    pub(crate) fn is_full_only(&self, setting: &Setting, table: &Table, column: &Column) -> bool {
        let size = column.size.unwrap_or(table.size);
        let can = self.cannot.is_none() && table.has(self, setting);
        can && self.plays(table, column.agents(), size).is_ok()
            && !self.is_quick(setting, table, column)
    }

    /// Checks whether it can play a table.
    pub(crate) fn plays(&self, table: &Table, agents: u32, size: usize) -> Result<(), String> {
        if !self.kinds.contains(&table.kind) || !self.shapes.contains(&table.shape) {
            return Err("has no such mechanism".to_owned());
        }
        if self.most_agents.is_some_and(|most| agents > most) {
            return Err(format!(
                "takes at most {} agents",
                self.most_agents.unwrap_or(0)
            ));
        }
        if self.largest.is_some_and(|largest| size > largest) {
            return Err(format!("takes at most {} bytes", self.largest.unwrap_or(0)));
        }
        Ok(())
    }
}

impl Setting {
    /// The proof that its rows give, in words.
    pub(crate) fn proves(&self) -> &str {
        self.proves.as_deref().unwrap_or(self.class.name())
    }

    pub(crate) fn to_value(&self, places: &Places) -> Result<Value, PapersError> {
        let mut value = serde_json::to_value(&self.with)
            .map_err(|error| PapersError::Failed(error.to_string()))?;
        for text in value
            .as_object_mut()
            .into_iter()
            .flat_map(|it| it.values_mut())
        {
            if let Value::String(text) = text {
                *text = places.fill(text);
            }
        }
        Ok(value)
    }
}

/// The places of files and folders.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) bench: PathBuf,
    pub(crate) peers: PathBuf,
}

impl Places {
    /// Inserts the places into a word of a command.
    pub(crate) fn fill(&self, word: &str) -> String {
        let own = std::env::current_exe().unwrap_or_default();
        word.replace("{self}", &own.to_string_lossy())
            .replace("{bench}", &self.bench.to_string_lossy())
            .replace("{peers}", &self.peers.to_string_lossy())
    }
}

/// All systems, by their files' names.
pub(crate) fn load(bench: &Path) -> Result<Vec<System>, PapersError> {
    let mut systems = Vec::new();
    for (id, path, text) in read_folder(&bench.join("systems"))? {
        let system: System = toml::from_str(&text).map_err(|error| PapersError::File {
            path,
            reason: error.to_string(),
        })?;
        systems.push(System { id, ..system });
    }
    // If the time is short, the most important systems are measured first.
    systems.sort_by_key(|it| (it.slow, it.side == Side::Peer));
    Ok(systems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::scenario;

    #[test]
    fn what_the_tables_name_is_there() {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (tables, systems) = (scenario::load(bench).unwrap(), load(bench).unwrap());
        let rows: Vec<(&System, &Setting)> = systems
            .iter()
            .flat_map(|it| it.ways.iter().map(move |way| (it, way)))
            .collect();
        for table in &tables {
            for printed in table.printed.iter().filter(|it| it.setting.is_some()) {
                let mut rows = rows.iter().filter(|it| table.has(it.0, it.1));
                let found = rows.any(|it| printed.is_beside(it.0, it.1));
                assert!(found, "{}: {}", table.id, printed.system);
            }
            if let Some(finding) = &table.finding {
                let mut rows = rows.iter().filter(|it| table.has(it.0, it.1));
                let found =
                    rows.any(|it| it.0.id == finding.system && it.1.name == finding.setting);
                assert!(found, "{}: {}", table.id, finding.setting);
            }
        }
        let ids: Vec<&str> = tables.iter().map(|it| it.id.as_str()).collect();
        for (system, setting) in &rows {
            let mut named = system.tables.iter().chain(&setting.tables);
            let missing = named.find(|it| !ids.contains(&it.as_str()));
            assert_eq!(missing, None, "{}", system.id);
        }
    }
}
