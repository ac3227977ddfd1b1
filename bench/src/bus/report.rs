//! The figures as tables with their ratios, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::bus::records::Records;
use crate::bus::{Part, Way};
use crate::marks;
use crate::papers::PapersError;
use crate::papers::results::{Figures, Results, Spread};

/// The line before the tables in a page.
const BEGIN: &str = "<!-- figures: written by sealbus-bench bus --markdown -->";

/// All that was measured.
#[derive(Default)]
pub(crate) struct Report {
    /// The turns of each cell. The columns are in the order in which they were measured.
    columns: BTreeMap<Part, Vec<String>>,
    cells: BTreeMap<(Part, String, Way), Vec<Figures>>,
    /// The rate at which one processor encrypts and decrypts, without a network.
    records: Option<Records>,
}

/// Pairs of ways whose figures are compared, where both were measured.
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
    /// The table's figure for all turns, and the median.
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
    /// Bytes a second of one processor, in full TLS records.
    encrypted_per_s: Option<f64>,
    decrypted_per_s: Option<f64>,
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

    pub(crate) fn note_records(&mut self, records: Records) {
        self.records = Some(records);
    }

    /// The notes under the table of bandwidths.
    fn about_records(&self) -> Option<String> {
        let Records {
            encrypted_per_s,
            decrypted_per_s,
        } = self.records?;
        Some(format!(
            "One processor encrypts {:.1} GB/s and decrypts {:.1} GB/s in full TLS records (AES-256-GCM), without a network.",
            encrypted_per_s / 1e9,
            decrypted_per_s / 1e9,
        ))
    }

    fn turns(&self, part: Part, column: &str, way: Way) -> Vec<f64> {
        let turns = self.cells.get(&(part, column.to_owned(), way));
        let figures = turns.into_iter().flatten();
        figures.map(|it| part.figure(it)).collect()
    }

    /// The ratios of the turns, each to the one beside it.
    fn ratio(&self, part: Part, column: &str, of: Way, to: Way) -> Option<Spread> {
        let (of, to) = (self.turns(part, column, of), self.turns(part, column, to));
        Spread::of(of.iter().zip(&to).map(|(of, to)| of / to))
    }

    /// The rows of a table: the figures of each way, then the ratios.
    fn rows(&self, part: Part, columns: &[String]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut add = |name: String, cells: Vec<Option<String>>| {
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(Option::unwrap_or_default);
                rows.push(std::iter::once(name).chain(cells).collect());
            }
        };
        for way in part.ways() {
            let figure = |column: &String| {
                let spread = Spread::of(self.turns(part, column, *way))?;
                Some(shown(spread.median))
            };
            add(way.name().to_owned(), columns.iter().map(figure).collect());
        }
        for (of, to) in RATIOS {
            let ratio = |column: &String| {
                let spread = self.ratio(part, column, of, to)?;
                Some(format!("{:.2}", spread.median))
            };
            let name = format!("{} / {}", of.name(), to.name());
            add(name, columns.iter().map(ratio).collect());
        }
        rows
    }

    pub(crate) fn print(&self) {
        for (part, columns) in &self.columns {
            let mut table = Table::new();
            let title = std::iter::once(String::new());
            table
                .load_style(presets::UTF8_HORIZONTAL_ONLY)
                .set_header(title.chain(columns.iter().cloned()));
            for row in self.rows(*part, columns) {
                table.add_row(row);
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            println!("{}\n{table}\n", part.title());
            if let (Part::Bandwidth, Some(records)) = (part, self.about_records()) {
                println!("{records}\n");
            }
        }
    }

    /// Puts the tables between the marks of a page.
    pub(crate) fn put_into(&self, page: &Path) -> Result<(), PapersError> {
        marks::put(page, BEGIN, &self.markdown())
    }

    fn markdown(&self) -> String {
        let mut where_it_ran = Results::default();
        where_it_ran.note_machine();
        let machine = |what: &str| {
            let value = where_it_ran.machine.get(what);
            value.map_or("unknown", String::as_str).to_owned()
        };
        let mut text = format!(
            "\nMeasured {} at {}: {}, {} processors, {}.\n",
            machine("measured"),
            machine("Sealbus, commit"),
            machine("processor"),
            machine("processors"),
            machine("kernel"),
        );
        for (part, columns) in &self.columns {
            let _ = writeln!(text, "\n**{}**\n", part.title());
            let _ = writeln!(text, "| | {} |", columns.join(" | "));
            let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
            for row in self.rows(*part, columns) {
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
            if let (Part::Bandwidth, Some(records)) = (part, self.about_records()) {
                let _ = writeln!(text, "\n{records}");
            }
        }
        text.push_str("\n**Goals**\n\n| goal | here |\n|---|---|\n");
        for (goal, reached) in self.goals() {
            let _ = writeln!(text, "| {goal} | {reached} |");
        }
        text
    }

    /// The goals, judged by the measured figures.
    fn goals(&self) -> Vec<(&'static str, String)> {
        let verdict = |is_reached| if is_reached { "reached" } else { "not reached" };
        let mut goals = Vec::new();
        for (goal, way, wanted) in [
            (
                "broadcast 50 × 50 in one process: 1 M deliveries/s",
                Way::BusInOneProcess,
                1e6,
            ),
            (
                "the same across two processes at `auth`: 500 000/s",
                Way::BusAtAuth,
                5e5,
            ),
        ] {
            if let Some(spread) = Spread::of(self.turns(Part::Broadcast, "50 × 50", way)) {
                let is_reached = spread.median >= wanted;
                let figure = shown(spread.median);
                goals.push((goal, format!("{figure}: {}", verdict(is_reached))));
            }
        }
        for (goal, of, to, wanted) in [
            (
                "events of 10 kB and more at `auth`: 80 % of raw TCP's bandwidth",
                Way::BusAtAuth,
                Way::RawTcp,
                0.8,
            ),
            (
                "at `auth` the bus costs at most 5 % over the mesh below it, from 10 kB on",
                Way::BusAtAuth,
                Way::MessagesAtAuth,
                0.95,
            ),
            (
                "the same at `none`",
                Way::BusAtNone,
                Way::MessagesAtNone,
                0.95,
            ),
        ] {
            let ratios: Vec<f64> = ["10 kB", "100 kB", "1 MB"]
                .into_iter()
                .filter_map(|column| self.ratio(Part::Bandwidth, column, of, to))
                .map(|ratio| ratio.median)
                .collect();
            if let Some(Spread {
                least, greatest, ..
            }) = Spread::of(ratios)
            {
                let range = format!("{:.0} to {:.0} %", least * 100.0, greatest * 100.0);
                goals.push((goal, format!("{range}: {}", verdict(least >= wanted))));
            }
        }
        goals
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
            encrypted_per_s: self.records.map(|it| it.encrypted_per_s),
            decrypted_per_s: self.records.map(|it| it.decrypted_per_s),
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
