//! The figures of docs/benchmarks.md, the page for readers, and of docs/benchmarks/tables.md. They are written between marks,
//! so that all of them come from one run.

use std::fmt::Write;
use std::path::Path;

use crate::marks;
use crate::papers::PapersError;
use crate::papers::report;
use crate::papers::report::finding::Factors;
use crate::papers::report::goals::{self, Evidence, Goal};
use crate::papers::report::standing::{self, Standing};
use crate::papers::report::summary;
use crate::papers::report::{
    Middle, cells_in_words, digits, has_figures, middle, proportion, shown,
};
use crate::papers::results::{Key, Results, Spread};
use crate::papers::scenario::{Column, Shown, Table};
use crate::papers::system::{Setting, Side, System};

const SUMMARY: &str = "<!-- summary: written by sealbus-bench papers --markdown -->";
const BEGIN: &str = "<!-- figures: written by sealbus-bench papers --markdown -->";

/// Puts the summary between the marks of `page`, and the tables between those of `tables.md` in the folder beside it that has
/// the page's name.
pub(crate) fn put(
    page: &Path,
    tables: &[Table],
    systems: &[System],
    results: &Results,
) -> Result<(), PapersError> {
    let evidence = Evidence::gather(tables, systems, results);
    let goals = goals::all(&evidence);
    let figures = figures(&evidence.standings, &goals, tables, systems, results);
    marks::put(page, SUMMARY, &summary::write(&evidence.standings))?;
    marks::put(&page.with_extension("").join("tables.md"), BEGIN, &figures)
}

fn figures(
    standings: &[Standing],
    goals: &[Goal],
    tables: &[Table],
    systems: &[System],
    results: &Results,
) -> String {
    let mut text = String::new();
    conditions(&mut text, results);
    text.push_str("\n### Where Sealbus is behind\n\n");
    let mut behind: Vec<&Standing> = standings.iter().filter(|it| it.is_behind()).collect();
    behind.sort_by(|a, b| {
        a.to_best()
            .unwrap_or(1.0)
            .total_cmp(&b.to_best().unwrap_or(1.0))
    });
    match behind.is_empty() {
        true => text.push_str("In nothing that was measured.\n"),
        false => {
            let _ = writeln!(
                text,
                "In {} of {} comparisons:\n",
                behind.len(),
                standing::comparisons(standings)
            );
            text.push_str(
                "| table, column | compared | figure | Sealbus | best peer | × best peer |\n|---|---|---|---|---|---|\n",
            );
            for it in behind {
                let best = it.best.as_ref();
                let _ = writeln!(
                    text,
                    "| {} | {} | {}, {} | {} | {} | {} |",
                    it.place(),
                    it.kin.title(),
                    it.metric.name,
                    it.metric.unit,
                    digits(it.ours.spread.median),
                    best.map_or(String::new(), |best| format!(
                        "{} ({})",
                        digits(best.spread.median),
                        best.name
                    )),
                    it.to_best().map_or(String::new(), digits),
                );
            }
        }
    }
    text.push_str("\n### The goals\n\n| goal, at equal security | reached | | worst column |\n|---|---|---|---|\n");
    for goal in goals {
        let place = goal.measured.as_ref().map_or("", |(_, place)| place);
        let (reached, verdict) = (goal.reached(), goal.verdict());
        let _ = writeln!(text, "| {} | {reached} | {verdict} | {place} |", goal.text);
    }
    let failed: Vec<_> = report::failed(results).collect();
    if !failed.is_empty() {
        text.push_str("\n### Cells that failed\n\n| cell | why |\n|---|---|\n");
    }
    for (key, why) in failed {
        let Key {
            table,
            system,
            setting,
            column,
            ..
        } = key;
        let why = why.replace(['|', '\n'], " ");
        let _ = writeln!(text, "| {table}: {system}, {setting}, {column} | {why} |");
    }
    for table in tables {
        one_table(&mut text, table, tables, systems, results);
    }
    text.trim_end().to_owned()
}

fn conditions(text: &mut String, results: &Results) {
    text.push_str("\n| | |\n|---|---|\n");
    for (what, value) in report::conditions(results) {
        let _ = writeln!(text, "| {what} | {value} |");
    }
}

/// The measured columns. The paper's figures are in its scenario file and in index.html.
fn one_table(
    text: &mut String,
    table: &Table,
    tables: &[Table],
    systems: &[System],
    results: &Results,
) {
    let measured = |column: &&Column| has_figures(results, table, &column.title);
    let columns: Vec<&Column> = table.columns.iter().filter(measured).collect();
    if columns.is_empty() {
        return;
    }
    let other = (tables.iter()).find(|it| Some(&it.id) == table.beside.as_ref());
    let _ = write!(
        text,
        "\n### {}\n\nCells: {}.\n\n| system | proves |",
        table.title,
        cells_in_words(table, results)
    );
    for column in &columns {
        let _ = write!(text, " {} |", column.title);
    }
    if other.is_some() {
        text.push_str(" δ |");
    }
    let rule = "---|".repeat(columns.len() + 2 + usize::from(other.is_some()));
    let _ = writeln!(text, " CPU µs | MiB |\n|{rule}---|---|");
    for is_secure in [false, true] {
        for system in systems.iter().filter(|it| table.includes(it)) {
            let ways = system.ways.iter();
            for setting in ways.filter(|it| it.class.is_secure() == is_secure) {
                let delta = other.map(|other| {
                    let mean = proportion(results, (table, other), (system, setting));
                    mean.map_or(String::new(), |it| format!("{it:.2}"))
                });
                row(text, table, &columns, system, setting, delta, results);
            }
        }
    }
    if let Some(words) = report::left_to_full(table, systems, results) {
        let _ = writeln!(text, "\n{words}");
    }
    if let Some(factors) = Factors::of(table, systems, results) {
        factors.write(text);
    }
}

fn row(
    text: &mut String,
    table: &Table,
    columns: &[&Column],
    system: &System,
    setting: &Setting,
    delta: Option<String>,
    results: &Results,
) {
    let measure = |column: &&Column| middle(results, table, system, setting, &column.title);
    let cells: Vec<_> = columns.iter().map(measure).collect();
    if cells.iter().all(Option::is_none) {
        return;
    }
    let name = format!("{}, {} ({})", system.title, setting.name, system.language);
    let name = match system.side {
        Side::Ours => format!("**{name}**"),
        Side::Limit => format!("*{name}*"),
        Side::Peer | Side::Mixed | Side::Technique => name,
    };
    let _ = write!(text, "| {name} | {} |", setting.proves());
    let mut cost = (String::new(), String::new());
    for (column, cell) in columns.iter().zip(&cells) {
        let shown = match cell {
            Some(Ok(it)) => {
                cost = (
                    digits(it.figures.processor_us),
                    format!("{:.0}", it.figures.memory_mib),
                );
                shown(table, &it.figures) + &spread(table, it)
            }
            Some(Err(lack)) => lack.words().0.to_owned(),
            None if system.is_full_only(setting, table, column) => "full".to_owned(),
            None => String::new(),
        };
        let _ = write!(text, " {shown} |");
    }
    if let Some(delta) = delta {
        let _ = write!(text, " {delta} |");
    }
    let _ = writeln!(text, " {} | {} |", cost.0, cost.1);
}

/// The least and the greatest of all rounds, if the cell shows the figure that is compared.
fn spread(table: &Table, it: &Middle) -> String {
    let Spread {
        least,
        greatest,
        count,
        ..
    } = it.spread;
    match table.shows {
        Shown::Rate | Shown::Bandwidth | Shown::TotalTime | Shown::MeanTime if count > 1 => {
            format!(" ({} … {})", digits(least), digits(greatest))
        }
        _ => String::new(),
    }
}
