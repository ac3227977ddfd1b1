//! index.html.

use std::fmt::Write;

use crate::papers::report::standing::{self, Standing};
use crate::papers::report::{digits, middle, shown};
use crate::papers::results::{Outcome, Results};
use crate::papers::scenario::{Printed, Table};
use crate::papers::system::{Setting, Side, System};

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#111}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{border-bottom:1px solid #bbb;padding:3px 9px;text-align:right;vertical-align:top}\
th:first-child,td:first-child{text-align:left}tr.ours{font-weight:bold;background:#eee}tr.limit{font-style:italic}\
td.paper,th.paper{color:#555;font-weight:normal;font-style:normal;font-size:12px;border-right:1px solid #bbb}small{color:#444}td.why{text-align:left;color:#444}\
.behind{border:2px solid #111;padding:.4em 1em}code{font-size:13px}img{max-width:100%}";

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The whole page.
pub(crate) fn write(tables: &[Table], systems: &[System], results: &Results) -> String {
    let standings = standing::all(tables, systems, results);
    let costs = standing::cost_of_security(tables, systems, results);
    let goals = standing::goals(&standings, &costs);
    let (behind, ahead): (Vec<_>, Vec<_>) = standings.into_iter().partition(Standing::is_behind);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sealbus beside others</title>\n<style>{STYLE}</style>\n\
         <h1>Sealbus beside others</h1>\n<div class=\"behind\"><h2>Where Sealbus is behind</h2>\n"
    );
    list(&mut page, &behind, "In nothing that was measured.");
    page.push_str("</div>\n<h2>The goals</h2>\n<table>\n");
    for goal in goals {
        let measured = goal.measured.map_or("not measured".to_owned(), digits);
        let met = if goal.is_met { "met" } else { "<b>not met</b>" };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{measured}</td><td>{met}</td></tr>",
            goal.text
        );
    }
    page.push_str(
        "</table>\n<p><small>Each by the worst column measured.</small></p>\n\
         <h2>Where it is ahead</h2>\n",
    );
    list(&mut page, &ahead, "In nothing yet.");
    security(&mut page, &costs);
    faults(&mut page, results);
    page.push_str(
        "<h2>The tables</h2>\n<p>Each cell is the repetition in the middle; below it the least and the greatest. Beside \
         it, small: what the paper printed. A cell whose counts of sent, received and checked messages disagree has failed and \
         shows no figure. Processor time is that of all processes, servers included, for each message received; memory is \
         the sum of their peaks. In bold: Sealbus. In italics: the limit.</p>\n",
    );
    for table in tables {
        draw_table(&mut page, table, systems, results);
        proportions(&mut page, table, tables, systems, results);
    }
    conditions(&mut page, systems, results);
    page.push_str("</html>\n");
    page
}

fn list(page: &mut String, standings: &[Standing], nothing: &str) {
    if standings.is_empty() {
        let _ = writeln!(page, "<p>{nothing}</p>");
        return;
    }
    page.push_str(
        "<table><tr><th>Table, column</th><th>compared</th><th>figure</th><th>Sealbus</th>\
         <th>× the best peer</th><th>best peer</th><th>÷ the limit</th></tr>\n",
    );
    for it in standings {
        let entry = |entry: &standing::Entry| {
            let spread = entry.spread;
            format!(
                "{} <small>{}</small>",
                digits(spread.median),
                escape(&entry.name)
            )
        };
        let ratio = |value: Option<f64>| value.map_or("–".to_owned(), digits);
        let _ = writeln!(
            page,
            "<tr><td>{}, {}</td><td>{}</td><td>{} ({})</td><td>{}</td><td><b>{}</b></td><td>{}</td><td>{}</td></tr>",
            escape(&it.table),
            escape(&it.column),
            it.group,
            it.metric.name,
            it.metric.unit,
            entry(&it.ours),
            ratio(it.to_best()),
            it.best.as_ref().map_or("none measured".to_owned(), entry),
            ratio(it.to_limit()),
        );
    }
    page.push_str(
        "</table>\n<p><small>“× the best peer”: above 1 Sealbus is better, below 1 worse, whichever direction the figure \
         has. “÷ the limit”: Sealbus's figure over that of raw sockets.</small></p>\n",
    );
}

fn security(page: &mut String, costs: &[(String, f64)]) {
    if costs.is_empty() {
        return;
    }
    page.push_str(
        "<h2>What security costs Sealbus</h2>\n<p>The most secure level beside none. The paper's systems lost 51 to 91 % of \
         their throughput.</p>\n<table><tr><th>Table, column</th><th>cost</th></tr>\n",
    );
    for (what, cost) in costs {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{:+.0} %</td></tr>",
            escape(what),
            cost * 100.0
        );
    }
    page.push_str("</table>\n");
}

fn faults(page: &mut String, results: &Results) {
    let failed: Vec<_> = results
        .measurements
        .iter()
        .filter_map(|it| match &it.outcome {
            Outcome::Failed { why, .. } => Some((&it.key, why)),
            _ => None,
        })
        .collect();
    if failed.is_empty() {
        return;
    }
    page.push_str("<h2>Cells that failed</h2>\n<table>\n");
    for (key, why) in failed {
        let _ = writeln!(
            page,
            "<tr><td>{} {} {} {} #{}</td><td class=\"why\">{}</td></tr>",
            escape(&key.table),
            escape(&key.system),
            escape(&key.setting),
            escape(&key.column),
            key.repetition + 1,
            escape(why)
        );
    }
    page.push_str("</table>\n");
}

fn draw_table(page: &mut String, table: &Table, systems: &[System], results: &Results) {
    let _ = writeln!(
        page,
        "<h3 id=\"{}\">{}</h3>\n<p>{}. {} {}</p>",
        table.id,
        escape(&table.title),
        escape(&table.paper),
        escape(&table.about),
        match table.conditions.is_empty() {
            true => String::new(),
            false => format!("The paper's machine: {}.", escape(&table.conditions)),
        }
    );
    page.push_str("<table><tr><th>System</th><th>secure</th>");
    let has_paper = !table.printed.is_empty();
    for column in &table.columns {
        let _ = write!(page, "<th>{}</th>", escape(&column.title));
        if has_paper {
            page.push_str("<th class=\"paper\">paper</th>");
        }
    }
    page.push_str("<th>µs of processor</th><th>MiB</th></tr>\n");
    let mut told = vec![false; table.printed.len()];
    for is_secure in [false, true] {
        for system in systems.iter().filter(|it| table.includes(it)) {
            for setting in system
                .ways
                .iter()
                .filter(|it| it.class.is_secure() == is_secure)
            {
                let beside = table.printed.iter().position(|it| {
                    it.secure == is_secure && it.beside.as_deref() == Some(&system.id)
                });
                // The paper's row stands beside the first setting.
                let beside = beside.filter(|it| !told[*it]);
                if row(
                    page,
                    table,
                    system,
                    setting,
                    results,
                    beside.map(|it| &table.printed[it]),
                ) && let Some(it) = beside
                {
                    told[it] = true;
                }
            }
        }
        let rest = table.printed.iter().zip(&told);
        for (printed, _) in rest.filter(|(it, told)| it.secure == is_secure && !**told) {
            printed_row(page, table, printed);
        }
    }
    for system in systems.iter().filter(|it| table.includes(it)) {
        if let Some(why) = &system.cannot {
            let span = table.columns.len() * if has_paper { 2 } else { 1 } + 3;
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td class=\"why\" colspan=\"{span}\">{}</td></tr>",
                escape(&system.title),
                escape(why)
            );
        }
    }
    page.push_str("</table>\n");
    let _ = writeln!(page, "<p><img src=\"{}.svg\" alt=\"\"></p>", table.id);
}

/// For each row, the mean over all columns of another table's figure over this one's.
fn proportions(
    page: &mut String,
    table: &Table,
    tables: &[Table],
    systems: &[System],
    results: &Results,
) {
    let beside = table.beside.as_deref();
    let Some(other) = tables.iter().find(|it| Some(it.id.as_str()) == beside) else {
        return;
    };
    let _ = writeln!(
        page,
        "<p>δ, the mean over all columns of “{}” over “{}”:</p>\n<table>",
        escape(&other.title),
        escape(&table.title)
    );
    for system in systems {
        for setting in &system.ways {
            let figure = |table: &Table, column: &str| {
                let middle = middle(results, table, system, setting, column)?.ok()?;
                Some(middle.spread.median)
            };
            let ratios: Vec<f64> = (table.columns.iter())
                .filter_map(|it| Some(figure(other, &it.title)? / figure(table, &it.title)?))
                .collect();
            if !ratios.is_empty() {
                let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                let name = format!("{}, {}", system.title, setting.name);
                let _ = writeln!(
                    page,
                    "<tr><td>{}</td><td>{mean:.2}</td></tr>",
                    escape(&name)
                );
            }
        }
    }
    page.push_str("</table>\n");
}

/// Writes a row, unless nothing is known of it.
fn row(
    page: &mut String,
    table: &Table,
    system: &System,
    setting: &Setting,
    results: &Results,
    printed: Option<&Printed>,
) -> bool {
    let cells: Vec<_> = table
        .columns
        .iter()
        .map(|column| middle(results, table, system, setting, &column.title))
        .collect();
    if cells.iter().all(Option::is_none) {
        return false;
    }
    let class = match system.side {
        Side::Ours => "ours",
        Side::Limit => "limit",
        Side::Peer => "peer",
    };
    let _ = write!(
        page,
        "<tr class=\"{class}\"><td>{}, {}</td><td><small>{}</small></td>",
        escape(&system.title),
        escape(&setting.name),
        setting.class.name()
    );
    let (mut processor, mut memory) = (None, None);
    for (number, cell) in cells.iter().enumerate() {
        match cell {
            Some(Ok(it)) => {
                (processor, memory) = (Some(it.figures.processor_us), Some(it.figures.memory_mib));
                let spread = match it.spread.count {
                    1 => String::new(),
                    count => format!(
                        "<br><small>{} … {} ({count})</small>",
                        digits(it.spread.least),
                        digits(it.spread.greatest)
                    ),
                };
                let disorder = match it.figures.disordered {
                    0 => "",
                    _ => " <small>out of order</small>",
                };
                let _ = write!(
                    page,
                    "<td>{}{disorder}{spread}</td>",
                    shown(table, &it.figures)
                );
            }
            Some(Err(why)) => {
                let _ = write!(page, "<td title=\"{}\">failed</td>", escape(why));
            }
            None => page.push_str("<td></td>"),
        }
        if !table.printed.is_empty() {
            let paper = printed.and_then(|it| it.cells.get(number));
            let _ = write!(
                page,
                "<td class=\"paper\">{}</td>",
                escape(paper.map_or("", |it| it))
            );
        }
    }
    let figure = |value: Option<f64>| value.map_or(String::new(), digits);
    let _ = writeln!(
        page,
        "<td>{}</td><td>{}</td></tr>",
        figure(processor),
        figure(memory)
    );
    true
}

/// What the paper measured and we did not.
fn printed_row(page: &mut String, table: &Table, printed: &Printed) {
    let secure = if printed.secure { "secure" } else { "none" };
    let _ = write!(
        page,
        "<tr><td>{}</td><td><small>{secure}</small></td>",
        escape(&printed.system)
    );
    for number in 0..table.columns.len() {
        let paper = printed.cells.get(number).map_or("", |it| it);
        let _ = write!(page, "<td>–</td><td class=\"paper\">{}</td>", escape(paper));
    }
    let why = printed.cannot.as_deref().unwrap_or("not measured");
    let _ = writeln!(
        page,
        "<td class=\"why\" colspan=\"2\">{}</td></tr>",
        escape(why)
    );
}

fn conditions(page: &mut String, systems: &[System], results: &Results) {
    page.push_str("<h2>Conditions</h2>\n<table>\n");
    for (what, value) in &results.machine {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"why\">{}</td></tr>",
            escape(what),
            escape(value)
        );
    }
    let loads = results.measurements.iter().map(|it| it.load);
    let load = loads.fold(0.0, f64::max);
    let _ = writeln!(
        page,
        "<tr><td>highest load before a cell, per processor</td><td class=\"why\">{load:.1}</td></tr>"
    );
    page.push_str("</table>\n<p>One clock: CLOCK_MONOTONIC of this host.</p>\n<h2>How each system was set up</h2>\n<table>\n");
    for system in systems {
        let mut clients: Vec<&str> = Vec::new();
        for it in results
            .measurements
            .iter()
            .filter(|it| it.key.system == system.id)
        {
            if let Outcome::Measured(figures) = &it.outcome {
                clients.extend(figures.clients.iter().map(String::as_str));
            }
        }
        clients.sort_unstable();
        clients.dedup();
        let why = system.cannot.as_deref().unwrap_or(&system.settings);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"why\">{}</td><td class=\"why\">{}</td></tr>",
            escape(&system.title),
            escape(why),
            escape(&clients.join("; "))
        );
    }
    page.push_str("</table>\n");
}
