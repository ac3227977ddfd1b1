//! The figures as tables with their proportions, and as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::bus::{Part, Way};
use crate::papers::PapersError;
use crate::papers::results::{Figures, Results, Spread};

/// All that was measured.
#[derive(Default)]
pub(crate) struct Report {
    /// The turns of each cell. Columns in the order they were measured.
    columns: BTreeMap<Part, Vec<String>>,
    cells: BTreeMap<(Part, String, Way), Vec<Figures>>,
}

/// Two ways whose figures are put in proportion, where both were measured.
const RATIOS: [(Way, Way); 7] = [
    (Way::BusAtAuth, Way::RawTcp),
    (Way::BusAtAuth, Way::RawTls),
    (Way::RawTls, Way::RawTcp),
    (Way::BusAtAuth, Way::MessagesAtAuth),
    (Way::BusAtNone, Way::MessagesAtNone),
    (Way::BusAtNone, Way::RawTcp),
    (Way::BusAtAuth, Way::BusAtNone),
];

#[derive(Serialize)]
struct WrittenCell<'a> {
    table: &'static str,
    column: &'a str,
    way: &'static str,
    /// The table's figure: of all turns, and the middle one.
    turns: Vec<f64>,
    median: f64,
    p50_ms: f64,
    processor_us: f64,
}

#[derive(Serialize)]
struct WrittenRatio<'a> {
    table: &'static str,
    column: &'a str,
    of: &'static str,
    to: &'static str,
    #[serde(flatten)]
    ratio: WrittenSpread,
}

#[derive(Serialize)]
struct WrittenSpread {
    median: f64,
    least: f64,
    greatest: f64,
}

#[derive(Serialize)]
struct Written<'a> {
    machine: BTreeMap<String, String>,
    cells: Vec<WrittenCell<'a>>,
    ratios: Vec<WrittenRatio<'a>>,
}

/// A figure to three digits, with a letter for thousands and millions.
pub(crate) fn shown(figure: f64) -> String {
    match figure {
        it if it >= 1e6 => format!("{:.2} M", it / 1e6),
        it if it >= 1e4 => format!("{:.0} k", it / 1e3),
        it if it >= 100.0 => format!("{it:.0}"),
        it if it >= 1.0 => format!("{it:.2}"),
        it => format!("{it:.3}"),
    }
}

impl Report {
    pub(crate) fn add(&mut self, part: Part, column: &str, way: Way, figures: Figures) {
        let columns = self.columns.entry(part).or_default();
        if !columns.iter().any(|it| it == column) {
            columns.push(column.to_owned());
        }
        let cell = (part, column.to_owned(), way);
        self.cells.entry(cell).or_default().push(figures);
    }

    fn turns(&self, part: Part, column: &str, way: Way) -> Vec<f64> {
        let turns = self.cells.get(&(part, column.to_owned(), way));
        let figures = turns.into_iter().flatten();
        figures.map(|it| part.figure(it)).collect()
    }

    /// The proportions of the turns, each to the one beside it.
    fn ratio(&self, part: Part, column: &str, of: Way, to: Way) -> Option<Spread> {
        let (of, to) = (self.turns(part, column, of), self.turns(part, column, to));
        Spread::of(of.iter().zip(&to).map(|(of, to)| of / to))
    }

    pub(crate) fn print(&self) {
        for (part, columns) in &self.columns {
            let mut table = Table::new();
            let title = std::iter::once(String::new());
            table
                .load_style(presets::UTF8_HORIZONTAL_ONLY)
                .set_header(title.chain(columns.iter().cloned()));
            for way in part.ways() {
                let figures: Vec<_> = (columns.iter())
                    .map(|column| Spread::of(self.turns(*part, column, *way)))
                    .collect();
                if figures.iter().any(Option::is_some) {
                    let name = std::iter::once(way.name().to_owned());
                    let figures = figures.into_iter();
                    table.add_row(
                        name.chain(
                            figures.map(|it| {
                                it.map_or_else(String::new, |spread| shown(spread.median))
                            }),
                        ),
                    );
                }
            }
            for (of, to) in RATIOS {
                let ratios: Vec<_> = (columns.iter())
                    .map(|column| self.ratio(*part, column, of, to))
                    .collect();
                if ratios.iter().any(Option::is_some) {
                    let name = std::iter::once(format!("{} / {}", of.name(), to.name()));
                    table.add_row(name.chain(ratios.into_iter().map(|it| {
                        it.map_or_else(String::new, |spread| format!("{:.2}", spread.median))
                    })));
                }
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            println!("{}\n{table}\n", part.title());
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), PapersError> {
        let mut where_it_ran = Results::default();
        where_it_ran.note_machine();
        let cells = self.cells.iter().map(|((part, column, way), turns)| {
            let figures = self.turns(*part, column, *way);
            let median = |of: &dyn Fn(&Figures) -> f64| {
                Spread::of(turns.iter().map(of)).map_or(0.0, |spread| spread.median)
            };
            WrittenCell {
                table: part.name(),
                column,
                way: way.name(),
                median: median(&|it| part.figure(it)),
                p50_ms: median(&|it| it.p50_ms),
                processor_us: median(&|it| it.processor_us),
                turns: figures,
            }
        });
        let columns = self.columns.iter();
        let columns = columns.flat_map(|(part, all)| all.iter().map(|column| (*part, column)));
        let ratios = columns.flat_map(|(part, column)| {
            RATIOS.into_iter().filter_map(move |(of, to)| {
                let spread = self.ratio(part, column, of, to)?;
                Some(WrittenRatio {
                    table: part.name(),
                    column,
                    of: of.name(),
                    to: to.name(),
                    ratio: WrittenSpread {
                        median: spread.median,
                        least: spread.least,
                        greatest: spread.greatest,
                    },
                })
            })
        });
        let written = Written {
            machine: where_it_ran.machine,
            cells: cells.collect(),
            ratios: ratios.collect(),
        };
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(&written)
            .map_err(|error| PapersError::Failed(error.to_string()))?;
        fs::write(file, text)?;
        Ok(())
    }
}
