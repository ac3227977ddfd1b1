//! The papers' tables in their own layout, with the paper's figures beside the measured ones.

use std::fmt::Write;

use crate::papers::report;
use crate::papers::report::finding::Factors;
use crate::papers::report::html::escape;
use crate::papers::report::{
    Middle, cells_in_words, digits, has_figures, judged, middle, plot, proportion, shown,
};
use crate::papers::results::Results;
use crate::papers::scenario::{Column, Printed, Table};
use crate::papers::system::{Setting, Side, System};

/// The content of a table: rows and columns.
struct Frame<'a> {
    table: &'a Table,
    results: &'a Results,
    columns: Vec<&'a Column>,
}

impl<'a> Frame<'a> {
    /// Makes the frame. Columns without any figure, measured or printed in the paper, are left out.
    fn new(table: &'a Table, results: &'a Results) -> Self {
        let columns = table.columns.iter().enumerate();
        let columns = columns.filter(|(number, column)| {
            let is_printed = (table.printed.iter()).any(|it| it.cells.len() > *number);
            is_printed || has_figures(results, table, &column.title)
        });
        Self {
            table,
            results,
            columns: columns.map(|(_, column)| column).collect(),
        }
    }

    fn has_paper(&self) -> bool {
        self.table.printed.iter().any(|it| !it.cells.is_empty())
    }

    /// All columns of the page.
    fn width(&self) -> usize {
        self.columns.len() * if self.has_paper() { 2 } else { 1 } + 4
    }

    /// The paper's entry for a column.
    fn printed(&self, printed: Option<&Printed>, column: &Column) -> String {
        let titles = self.table.columns.iter();
        let place = titles.take_while(|it| it.title != column.title).count();
        let cell = printed.and_then(|it| it.cells.get(place));
        escape(cell.map_or("", |it| it))
    }
}

/// Writes a table with its plot.
pub(crate) fn draw(
    page: &mut String,
    table: &Table,
    tables: &[Table],
    systems: &[System],
    results: &Results,
) {
    let frame = Frame::new(table, results);
    let conditions = match table.conditions.as_str() {
        "" => String::new(),
        conditions => format!(" The paper’s machine: {}.", escape(conditions)),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<h3 id=\"{}\">{}</h3>\n<p><small>{}</small></p>\n<p>{}{conditions} <b>Cells: {}.</b></p>",
        table.id,
        escape(&table.title),
        escape(&table.paper),
        escape(table.about.trim()),
        cells_in_words(table, results),
    );
    page.push_str("<div class=\"wide\"><table>\n");
    head(page, &frame);
    let mut told = vec![false; table.printed.len()];
    for (title, is_secure) in [("Insecure", false), ("Secure", true)] {
        let _ = writeln!(
            page,
            "<tr class=\"group\"><td colspan=\"{}\">{title}</td></tr>",
            frame.width()
        );
        for system in systems.iter().filter(|it| table.includes(it)) {
            let ways = system.ways.iter();
            for setting in ways.filter(|it| it.class.is_secure() == is_secure) {
                // The paper's row stands beside the first setting.
                let mut printed = table.printed.iter().zip(&mut told);
                let beside = printed.find(|(it, told)| {
                    let is_it = it.is_beside(system, setting);
                    it.secure == is_secure && is_it && !**told
                });
                let paper = beside.as_ref().map(|(it, _)| *it);
                if row(page, &frame, system, setting, paper)
                    && let Some((_, told)) = beside
                {
                    *told = true;
                }
            }
        }
        let rest = table.printed.iter().zip(&told);
        for (printed, _) in rest.filter(|(it, told)| it.secure == is_secure && !**told) {
            printed_row(page, &frame, printed);
        }
    }
    // A missing system is named here only if the paper's rows do not name it.
    let missing = systems.iter().filter(|_| !frame.has_paper());
    for system in missing.filter(|it| table.includes(it)) {
        if let Some(why) = &system.cannot {
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td class=\"why\" colspan=\"{}\">{}</td></tr>",
                escape(&system.title),
                frame.width() - 1,
                escape(why)
            );
        }
    }
    page.push_str("</table></div>\n");
    if let Some(words) = report::left_to_full(table, systems, results) {
        let _ = writeln!(page, "<p><small>{}</small></p>", escape(&words));
    }
    if let Some(factors) = Factors::of(table, systems, results) {
        factors.draw(page);
    }
    if let Some(other) = tables
        .iter()
        .find(|it| Some(&it.id) == table.beside.as_ref())
    {
        proportions(page, (table, other), systems, results);
    }
    if let Some(picture) = plot::draw(table, systems, results) {
        page.push_str(&picture);
    }
}

fn head(page: &mut String, frame: &Frame<'_>) {
    let rows = if frame.has_paper() { 2 } else { 1 };
    let _ = write!(
        page,
        "<tr><th rowspan=\"{rows}\">system</th><th rowspan=\"{rows}\" class=\"why\">in</th>\
         <th rowspan=\"{rows}\" class=\"why\">proves</th>"
    );
    for column in &frame.columns {
        let title = escape(&column.title);
        let _ = match frame.has_paper() {
            true => write!(page, "<th colspan=\"2\" class=\"column\">{title}</th>"),
            false => write!(page, "<th>{title}</th>"),
        };
    }
    let _ = writeln!(page, "<th rowspan=\"{rows}\">CPU, MiB</th></tr>");
    if frame.has_paper() {
        let both = "<th>here</th><th class=\"paper\">paper</th>".repeat(frame.columns.len());
        let _ = writeln!(page, "<tr>{both}</tr>");
    }
}

/// Writes a row, unless it has no figures.
fn row(
    page: &mut String,
    frame: &Frame<'_>,
    system: &System,
    setting: &Setting,
    printed: Option<&Printed>,
) -> bool {
    let table = frame.table;
    let measure = |column: &&Column| middle(frame.results, table, system, setting, &column.title);
    let cells: Vec<_> = frame.columns.iter().map(measure).collect();
    if cells.iter().all(Option::is_none) {
        return false;
    }
    let class = match system.side {
        Side::Ours => "ours",
        Side::Mixed | Side::Technique => "mixed",
        Side::Limit => "limit",
        Side::Peer => "peer",
    };
    let _ = write!(
        page,
        "<tr class=\"{class}\"><td>{}, {}{}</td><td class=\"why\"><small>{}</small></td><td class=\"why\"><small>{}</small></td>",
        escape(&system.title),
        escape(&setting.name),
        match printed.filter(|it| it.setting.is_some()) {
            Some(printed) => format!("<br><small>paper: {}</small>", escape(&printed.system)),
            None => String::new(),
        },
        escape(&system.language),
        escape(setting.proves())
    );
    let mut last = None;
    for (column, cell) in frame.columns.iter().zip(&cells) {
        match cell {
            Some(Ok(it)) => {
                last = Some(it);
                cell_of(page, table, it);
            }
            Some(Err(lack)) => {
                let (word, why) = lack.words();
                let _ = write!(page, "<td title=\"{}\">{word}</td>", escape(why));
            }
            None if system.is_full_only(setting, table, column) => {
                page.push_str("<td title=\"measured in the full profile only\">full</td>");
            }
            None => page.push_str("<td></td>"),
        }
        if frame.has_paper() {
            let paper = frame.printed(printed, column);
            let _ = write!(page, "<td class=\"paper\">{paper}</td>");
        }
    }
    let cost = last.map_or(String::new(), |it| {
        let (processor, memory) = (it.figures.processor_us, it.figures.memory_mib);
        format!("{} µs, {memory:.0}", digits(processor))
    });
    let _ = writeln!(page, "<td><small>{cost}</small></td></tr>");
    true
}

fn cell_of(page: &mut String, table: &Table, it: &Middle) {
    let spread = match it.spread.count {
        1 => String::new(),
        count => format!(
            "<br><small title=\"{}, {}\">{} … {} ({count})</small>",
            judged(table.shows).name,
            judged(table.shows).unit,
            digits(it.spread.least),
            digits(it.spread.greatest)
        ),
    };
    let disorder = match it.figures.disordered {
        0 => "",
        _ => " <small>out of order</small>",
    };
    let shown = shown(table, &it.figures);
    let _ = write!(page, "<td>{shown}{disorder}{spread}</td>");
}

/// Writes the row of a system that the paper measured and this run did not.
fn printed_row(page: &mut String, frame: &Frame<'_>, printed: &Printed) {
    let why = printed.cannot.as_deref().unwrap_or("");
    if printed.cells.is_empty() {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"why\" colspan=\"{}\">{}</td></tr>",
            escape(&printed.system),
            frame.width() - 1,
            escape(why)
        );
        return;
    }
    let _ = write!(
        page,
        "<tr><td>{}{}</td><td></td><td></td>",
        escape(&printed.system),
        match why {
            "" => String::new(),
            why => format!("<br><small>{}</small>", escape(why)),
        }
    );
    for column in &frame.columns {
        let paper = frame.printed(Some(printed), column);
        let _ = write!(page, "<td>–</td><td class=\"paper\">{paper}</td>");
    }
    page.push_str("<td></td></tr>\n");
}

/// For each row, the mean over all columns of another table's figure over this one's.
fn proportions(
    page: &mut String,
    (table, other): (&Table, &Table),
    systems: &[System],
    results: &Results,
) {
    let _ = writeln!(
        page,
        "<p>δ, the mean over all columns of “{}” over “{}”; 1 is insensitive to size:</p>\n<table>",
        escape(&other.title),
        escape(&table.title)
    );
    for system in systems {
        for setting in &system.ways {
            if let Some(mean) = proportion(results, (table, other), (system, setting)) {
                let (title, name) = (escape(&system.title), escape(&setting.name));
                let _ = writeln!(page, "<tr><td>{title}, {name}</td><td>{mean:.2}</td></tr>");
            }
        }
    }
    for (mtp, cells) in &table.proportions {
        let _ = writeln!(
            page,
            "<tr><td>the paper: {}</td><td>{}</td></tr>",
            escape(mtp),
            escape(cells)
        );
    }
    page.push_str("</table>\n");
}
