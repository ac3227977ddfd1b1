//! The standing of Sealbus against the best peer and the limit, in every table. Only rows of the same kind are
//! compared.

use crate::papers::report::{Metric, metrics};
use crate::papers::results::{Results, Spread};
use crate::papers::scenario::{Column, Shown, Table};
use crate::papers::system::{Class, Setting, Side, System};

/// A row's figure in one column.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The system's title.
    pub(crate) system: String,
    pub(crate) spread: Spread,
}

/// The properties that rows must share to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kin {
    /// Whether all agents are in one process.
    pub(crate) one_process: bool,
    /// Whether the row is secure. In one process there is nothing to encrypt.
    pub(crate) is_secure: bool,
    /// Whether the row competes among Python rows. Rows of Sealbus in Python are compared with others in Python, and
    /// its rows in other languages with all.
    pub(crate) in_python: bool,
    /// The encoding of messages, where a table distinguishes encodings.
    pub(crate) encoding: Option<String>,
}

impl Kin {
    /// The class of a row of Sealbus.
    fn of(system: &System, setting: &Setting) -> Self {
        Self {
            one_process: setting.one_process,
            is_secure: !setting.one_process && setting.class.is_secure(),
            in_python: system.language == "Python",
            encoding: setting.encoding.clone(),
        }
    }

    fn has(&self, system: &System, setting: &Setting) -> bool {
        let other = Self::of(system, setting);
        let (one_process, is_secure) = (self.one_process, self.is_secure);
        if (other.one_process, other.is_secure) != (one_process, is_secure) {
            return false;
        }
        match system.side {
            // The limit is written in the fastest language and has no encoding.
            Side::Limit => true,
            Side::Peer => (!self.in_python || other.in_python) && other.encoding == self.encoding,
            Side::Ours => other == *self && setting.class.is_compared(),
            Side::Mixed | Side::Technique => false,
        }
    }

    pub(crate) fn title(&self) -> String {
        let mut words = vec![match (self.one_process, self.is_secure) {
            (true, _) => "one process",
            (false, true) => "secure",
            (false, false) => "insecure",
        }];
        words.extend(self.encoding.as_deref());
        if self.in_python {
            words.push("Python");
        }
        words.join(", ")
    }

    /// Whether the class is a subject of the goals.
    pub(crate) fn is_main(&self) -> bool {
        self.is_secure && !self.in_python
    }

    /// Whether the class is between processes and not in Python, secure or not.
    pub(crate) fn is_between_processes(&self) -> bool {
        !self.one_process && !self.in_python
    }
}

/// Sealbus beside comparable systems in one column of one table.
pub(crate) struct Standing {
    /// The table's file name.
    pub(crate) id: String,
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) kin: Kin,
    pub(crate) metric: Metric,
    pub(crate) ours: Entry,
    pub(crate) best: Option<Entry>,
    pub(crate) peers: Vec<Entry>,
    pub(crate) limit: Option<Entry>,
}

impl Standing {
    /// How many times better this is than another entry.
    pub(crate) fn ratio(&self, other: &Entry) -> f64 {
        let (ours, theirs) = (self.ours.spread.median, other.spread.median);
        match self.metric.is_less_better {
            true => theirs / ours,
            false => ours / theirs,
        }
    }

    /// How many times better this is than the best peer. A value below 1 means behind.
    pub(crate) fn to_best(&self) -> Option<f64> {
        self.best.as_ref().map(|best| self.ratio(best))
    }

    /// The figure of Sealbus over the limit's.
    pub(crate) fn to_limit(&self) -> Option<f64> {
        let limit = self.limit.as_ref()?;
        Some(self.ours.spread.median / limit.spread.median)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.to_best().is_some_and(|ratio| ratio < 1.0)
    }
}

fn rows(systems: &[System]) -> impl Iterator<Item = (&System, &Setting)> {
    let rows = systems.iter();
    rows.flat_map(|system| system.ways.iter().map(move |setting| (system, setting)))
}

/// All possible comparisons.
pub(crate) fn all(tables: &[Table], systems: &[System], results: &Results) -> Vec<Standing> {
    by(tables, systems, results, metrics)
}

/// The comparisons by these figures of each kind of table.
pub(crate) fn by(
    tables: &[Table],
    systems: &[System],
    results: &Results,
    metrics: fn(Shown) -> Vec<Metric>,
) -> Vec<Standing> {
    let mut kins: Vec<Kin> = Vec::new();
    for (system, setting) in rows(systems).filter(|(system, _)| system.side == Side::Ours) {
        let kin = Kin::of(system, setting);
        if !kins.contains(&kin) {
            kins.push(kin);
        }
    }
    // The most important rows come first: secure, and not in Python.
    kins.sort_by_key(|kin| (kin.in_python, kin.one_process, !kin.is_secure));
    let mut found = Vec::new();
    for table in tables {
        for metric in metrics(table.shows) {
            for column in &table.columns {
                let measured = measured(table, column, metric, systems, results);
                let standings = kins.iter();
                found.extend(
                    standings.filter_map(|kin| stand(table, column, metric, kin, &measured)),
                );
            }
        }
    }
    found
}

pub(crate) type Row<'a> = (&'a System, &'a Setting, Entry);

pub(crate) fn measured<'a>(
    table: &Table,
    column: &Column,
    metric: Metric,
    systems: &'a [System],
    results: &Results,
) -> Vec<Row<'a>> {
    let entry = |(system, setting): (&'a System, &'a Setting)| {
        let figures = results.figures(&table.id, &system.id, &setting.name, &column.title);
        let values = figures.ok()?.into_iter().filter_map(metric.get);
        let spread = Spread::of(values)?;
        let entry = Entry {
            name: format!("{}, {}", system.title, setting.name),
            system: system.title.clone(),
            spread,
        };
        (spread.median > 0.0).then_some((system, setting, entry))
    };
    rows(systems).filter_map(entry).collect()
}

fn stand(
    table: &Table,
    column: &Column,
    metric: Metric,
    kin: &Kin,
    measured: &[Row<'_>],
) -> Option<Standing> {
    let of_side = |side: Side| {
        (measured.iter())
            .filter(move |(system, setting, _)| system.side == side && kin.has(system, setting))
            .map(|(_, setting, entry)| (setting.class, entry))
    };
    let better = |a: &Entry, b: &Entry| {
        let order = a.spread.median.total_cmp(&b.spread.median);
        match metric.is_less_better {
            true => order,
            false => order.reverse(),
        }
    };
    // This is the row of Sealbus with the most guarantees.
    let most = |a: &(Class, &Entry), b: &(Class, &Entry)| {
        let order = a.0.cmp(&b.0);
        order.then_with(|| better(b.1, a.1))
    };
    let (_, ours) = of_side(Side::Ours).max_by(most)?;
    let best = |side: Side| of_side(side).map(|it| it.1).min_by(|a, b| better(a, b));
    Some(Standing {
        id: table.id.clone(),
        table: table.title.clone(),
        column: column.title.clone(),
        kin: kin.clone(),
        metric,
        ours: ours.clone(),
        best: best(Side::Peer).cloned(),
        peers: of_side(Side::Peer).map(|it| it.1.clone()).collect(),
        limit: best(Side::Limit).cloned(),
    })
}

impl Standing {
    /// The table and the column, in words.
    pub(crate) fn place(&self) -> String {
        format!("{}, {}", self.table, self.column)
    }
}

/// The number of peers' figures in the comparisons.
pub(crate) fn comparisons(standings: &[Standing]) -> usize {
    standings.iter().filter(|it| it.best.is_some()).count()
}
