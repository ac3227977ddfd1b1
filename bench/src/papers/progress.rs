//! How far a run is, and how long the rest of it will take.

use std::collections::HashMap;

use crate::papers::report;
use crate::papers::results::{Key, Measurement, Outcome, Results};
use crate::papers::scenario::Table;
use crate::papers::system::{Setting, System};

/// The rest of a run: the cells of a system's setting, between the start and the end of its server.
pub(crate) struct Ahead {
    system: String,
    setting: String,
    /// Table and column of each cell, last first.
    cells: Vec<(String, String)>,
    /// The estimate in seconds for a system that was not measured yet.
    cell_s: f64,
    service_s: f64,
}

impl Ahead {
    pub(crate) fn new<'a>(
        system: &System,
        setting: &Setting,
        keys: impl Iterator<Item = &'a Key>,
    ) -> Self {
        let mut cells: Vec<_> = keys
            .map(|key| (key.table.clone(), key.column.clone()))
            .collect();
        cells.reverse();
        Self {
            system: system.id.clone(),
            setting: setting.name.clone(),
            cells,
            cell_s: system.cell_s,
            service_s: match system.service.is_empty() {
                true => 0.0,
                false => system.service_s,
            },
        }
    }
}

/// The seconds that something took, and how often it was done.
type Took = (f64, u32);

/// Reports how far the run is.
pub(crate) struct Progress {
    /// The groups still ahead, last first.
    ahead: Vec<Ahead>,
    all: usize,
    cells: HashMap<Key, f64>,
    /// The seconds of each server's start and end, by system and setting.
    services: HashMap<(String, String), f64>,
}

impl Progress {
    /// Estimates the times of this run's cells from the cells measured by earlier runs.
    pub(crate) fn new(mut ahead: Vec<Ahead>, earlier: &Results) -> Self {
        ahead.reverse();
        let mut progress = Self {
            all: ahead.iter().map(|it| it.cells.len()).sum(),
            ahead,
            cells: HashMap::new(),
            services: HashMap::new(),
        };
        for it in &earlier.measurements {
            progress.learn(it);
        }
        for it in &earlier.services {
            progress.learn_service(&it.system, &it.setting, it.took_s);
        }
        progress
    }

    fn learn(&mut self, measurement: &Measurement) {
        self.cells
            .insert(measurement.key.clone(), measurement.took_s);
    }

    fn learn_service(&mut self, system: &str, setting: &str, took_s: f64) {
        let key = (system.to_owned(), setting.to_owned());
        self.services.insert(key, took_s);
    }

    pub(crate) fn left(&self) -> usize {
        self.ahead.iter().map(|it| it.cells.len()).sum()
    }

    /// The estimated time of the rest. Each cell counts as the same cell did before, else as the mean of its system's
    /// cells in the same table, else as the mean of all cells of its system.
    pub(crate) fn minutes(&self) -> f64 {
        let mut same: HashMap<(&str, &str, &str, &str), Took> = HashMap::new();
        let mut of_table: HashMap<(&str, &str), Took> = HashMap::new();
        let mut of_system: HashMap<&str, Took> = HashMap::new();
        let add = |took: &mut Took, s: f64| *took = (took.0 + s, took.1 + 1);
        for (key, took_s) in &self.cells {
            let (system, table) = (key.system.as_str(), key.table.as_str());
            let cell = (system, key.setting.as_str(), table, key.column.as_str());
            add(same.entry(cell).or_default(), *took_s);
            add(of_table.entry((system, table)).or_default(), *took_s);
            add(of_system.entry(system).or_default(), *took_s);
        }
        let mean = |took: &Took| took.0 / f64::from(took.1.max(1));
        let mut sum_s = 0.0;
        for it in &self.ahead {
            let (system, setting) = (it.system.as_str(), it.setting.as_str());
            for (table, column) in &it.cells {
                let known = same
                    .get(&(system, setting, table.as_str(), column.as_str()))
                    .or_else(|| of_table.get(&(system, table.as_str())))
                    .or_else(|| of_system.get(system));
                sum_s += known.map_or(it.cell_s, mean);
            }
            let service = self.services.get(&(it.system.clone(), it.setting.clone()));
            sum_s += service.copied().unwrap_or(it.service_s);
        }
        sum_s / 60.0
    }

    /// Reports that a cell is done.
    pub(crate) fn show(&mut self, system: &System, table: &Table, measurement: &Measurement) {
        if let Some(it) = self.ahead.last_mut() {
            it.cells.pop();
        }
        self.learn(measurement);
        let Key {
            setting, column, ..
        } = &measurement.key;
        let outcome = match &measurement.outcome {
            Outcome::Measured(figures) => report::shown(table, figures),
            Outcome::Failed { why, .. } => format!("FAILED: {why}"),
            Outcome::Cannot { why } => format!("cannot: {why}"),
        };
        let (done, all) = (self.all - self.left(), self.all);
        let (minutes, took_s) = (self.minutes(), measurement.took_s);
        let title = &system.title;
        eprintln!(
            "[{done}/{all}, {minutes:.1} min left] {title}, {setting} | {} | {column}: {outcome} ({took_s:.1} s)",
            table.title
        );
    }

    /// Reports that all cells of a setting are done, and that its server has ended.
    pub(crate) fn leave(&mut self, service_s: Option<f64>) {
        if let Some(it) = self.ahead.pop()
            && let Some(took_s) = service_s
        {
            self.learn_service(&it.system, &it.setting, took_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::results::Service;

    fn key(setting: &str, table: &str, column: &str) -> Key {
        Key {
            table: table.to_owned(),
            system: "post".to_owned(),
            setting: setting.to_owned(),
            column: column.to_owned(),
            repetition: 0,
        }
    }

    fn ahead(setting: &str, cells: &[(&str, &str)]) -> Ahead {
        let cell = |(table, column): &(&str, &str)| ((*table).to_owned(), (*column).to_owned());
        Ahead {
            system: "post".to_owned(),
            setting: setting.to_owned(),
            cells: cells.iter().rev().map(cell).collect(),
            cell_s: 3.0,
            service_s: 5.0,
        }
    }

    #[test]
    fn what_was_measured_before_says_how_long_it_will_take() {
        let cells = [("c1", "1"), ("c1", "9"), ("c2", "1")];
        let unknown = Progress::new(vec![ahead("plain", &cells)], &Results::default());
        assert_eq!(unknown.minutes() * 60.0, 3.0 * 3.0 + 5.0);

        let measurement = |key, took_s| Measurement {
            key,
            took_s,
            measured: String::new(),
            commit: String::new(),
            outcome: Outcome::failed("of no matter"),
        };
        let earlier = Results {
            measurements: vec![
                measurement(key("plain", "c1", "1"), 1.0),
                measurement(key("plain", "c1", "5"), 3.0),
                measurement(key("tls", "f1", "1"), 11.0),
            ],
            services: vec![Service {
                system: "post".to_owned(),
                setting: "plain".to_owned(),
                took_s: 7.0,
            }],
            ..Results::default()
        };
        let mut known = Progress::new(vec![ahead("plain", &cells), ahead("tls", &[])], &earlier);
        // The terms are the same cell, the table's mean, the system's mean, the measured server, and the estimate for
        // the other.
        let expected = 1.0 + 2.0 + 5.0 + 7.0 + 5.0;
        assert!((known.minutes() * 60.0 - expected).abs() < 1e-9);
        known.leave(Some(7.0));
        assert!((known.minutes() * 60.0 - 5.0).abs() < 1e-9);
        assert_eq!(known.left(), 0);
    }
}
