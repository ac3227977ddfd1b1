//! The page index.html: where Sealbus is behind, the goals, its standing in every table, and then the tables.

use std::fmt::Write;

use crate::papers::report;
use crate::papers::report::goals::{self, Cost, Evidence, Goal};
use crate::papers::report::html::escape;
use crate::papers::report::standing::{Entry, Standing};
use crate::papers::report::words;
use crate::papers::report::{digits, tables};
use crate::papers::results::{Outcome, Results};
use crate::papers::scenario::Table;
use crate::papers::system::System;

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(crate) fn write(all_tables: &[Table], systems: &[System], results: &Results) -> String {
    let evidence = Evidence::gather(all_tables, systems, results);
    let goals = goals::all(&evidence);
    let standings = &evidence.standings;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Sealbus beside others</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Sealbus beside others</h1>\n"
    );
    let mut behind: Vec<&Standing> = standings.iter().filter(|it| it.is_behind()).collect();
    behind.sort_by(|a, b| {
        a.to_best()
            .unwrap_or(1.0)
            .total_cmp(&b.to_best().unwrap_or(1.0))
    });
    draw_behind(&mut page, &behind, &words::first_words(standings, &goals));
    draw_goals(&mut page, &goals);
    let _ = writeln!(page, "<p class=\"sub\">{}</p>", summary(results));
    contents(&mut page, all_tables);
    draw_standings(&mut page, standings);
    draw_costs(&mut page, &evidence.costs);
    draw_faults(&mut page, results);
    page.push_str(READING);
    for table in all_tables {
        tables::draw(&mut page, table, all_tables, systems, results);
    }
    draw_fairness(&mut page);
    draw_conditions(&mut page, systems, results);
    page.push_str("</body>\n</html>\n");
    page
}

const READING: &str = "<h2>The tables</h2>\n<p>Each cell is the round in the middle, of several repetitions the one in the middle of theirs; below \
it, when there were several, the least and the greatest figure of all rounds by which the table is judged (of a latency or round trip the p50, in ms), and how many rounds \
there were. <i>paper</i> is what the paper printed, on its machine of its day. A cell whose counts of sent, \
received and checked messages disagree has failed and shows no figure; <i>full</i>: measured in the full profile only. The last two columns hold, for the last column that was \
measured, the processor time of all processes, servers included, for each message received in any of the rounds, and the sum of their peaks of memory. \
<b>Bold</b>: Sealbus. <i>Italic</i>: the limit, bare sockets.</p>\n";

/// The place and time of the measurement, in a line.
fn summary(results: &Results) -> String {
    let machine = |what: &str| results.machine.get(what).map_or("", String::as_str);
    let count = results.measurements.len();
    let parts = [
        machine("measured").to_owned(),
        format!("{} cells", digits(count as f64).trim_end_matches(".00")),
        format!("{} × {}", machine("processors"), machine("processor")),
        machine("memory").to_owned(),
        machine("kernel").to_owned(),
        format!(
            "Sealbus {} ({})",
            machine("Sealbus"),
            machine("Sealbus, commit")
        ),
    ];
    let parts = parts.iter().filter(|it| !it.is_empty());
    let parts: Vec<String> = parts.map(|it| escape(it)).collect();
    parts.join(" · ")
}

fn contents(page: &mut String, all_tables: &[Table]) {
    let links = all_tables.iter().map(|table| {
        let (id, title) = (&table.id, escape(&table.title));
        format!("<a href=\"#{id}\">{title}</a>")
    });
    let links: Vec<String> = links.collect();
    let _ = writeln!(page, "<p class=\"sub\">{}</p>", links.join(" · "));
}

fn entry(entry: &Entry) -> String {
    let (value, name) = (digits(entry.spread.median), escape(&entry.name));
    format!("{value} <small>{name}</small>")
}

const STANDING_HEAD: &str = "<tr><th>table, column</th><th>compared</th><th>figure</th><th>Sealbus</th>\
<th>best peer</th><th>× best peer</th><th>÷ limit</th></tr>\n";

fn standing_row(page: &mut String, it: &Standing, place: &str) {
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), digits);
    let _ = writeln!(
        page,
        "<tr{}><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}, {}</td><td>{}</td><td>{}</td><td><b>{}</b></td><td>{}</td></tr>",
        if it.is_behind() {
            " class=\"late\""
        } else {
            ""
        },
        it.id,
        escape(place),
        escape(&it.kin.title()),
        it.metric.name,
        it.metric.unit,
        entry(&it.ours),
        it.best.as_ref().map_or("–".to_owned(), entry),
        ratio(it.to_best()),
        ratio(it.to_limit()),
    );
}

/// The beginning of the page.
fn draw_behind(page: &mut String, behind: &[&Standing], first_words: &str) {
    page.push_str("<div class=\"behind\">\n<h2>Where Sealbus is behind</h2>\n");
    let _ = writeln!(page, "<p>{}</p>", escape(first_words));
    if !behind.is_empty() {
        page.push_str("<table>\n");
        page.push_str(STANDING_HEAD);
        for it in behind {
            standing_row(page, it, &it.place());
        }
        page.push_str("</table>\n");
    }
    page.push_str("</div>\n");
}

fn draw_goals(page: &mut String, goals: &[Goal]) {
    page.push_str(
        "<h2>The goals</h2>\n<table class=\"goals\">\n<tr><th>goal, at equal security</th><th>reached</th><th></th>\
         <th>worst column</th></tr>\n",
    );
    for goal in goals {
        let place = goal.measured.as_ref().map_or("", |(_, place)| place);
        let class = match (&goal.measured, goal.is_met) {
            (None, _) => "open",
            (_, true) => "met",
            (_, false) => "late",
        };
        let _ = writeln!(
            page,
            "<tr class=\"{class}\"><td>{}</td><td><b>{}</b></td><td>{}</td><td><small>{}</small></td></tr>",
            goal.text,
            goal.reached(),
            goal.verdict(),
            escape(place),
        );
    }
    page.push_str("</table>\n");
}

fn draw_standings(page: &mut String, standings: &[Standing]) {
    if standings.is_empty() {
        return;
    }
    page.push_str(
        "<h2>How Sealbus stands</h2>\n<p><small><b>× best peer</b>: above 1 Sealbus is better, below 1 worse (marked ◀), whichever \
         direction the figure has. <b>÷ limit</b>: Sealbus’s figure over that of bare sockets. Of Sealbus’s rows the one that \
         promises most is taken; secure rows are held against secure ones, whatever these promise.</small></p>\n<table>\n",
    );
    page.push_str(STANDING_HEAD);
    let mut last = "";
    for it in standings {
        if it.table != last {
            last = &it.table;
            let _ = writeln!(
                page,
                "<tr class=\"group\"><td colspan=\"7\">{}</td></tr>",
                escape(last)
            );
        }
        standing_row(page, it, &it.column);
    }
    page.push_str("</table>\n");
}

fn draw_costs(page: &mut String, costs: &[Cost]) {
    if costs.is_empty() {
        return;
    }
    page.push_str(
        "<h2>The cost of security to Sealbus</h2>\n<p>The most secure level beside none; negative: the secure one was faster. \
         The systems of Costa et al. lost 51 to 91 % of their throughput.</p>\n<table>\n",
    );
    for Cost { what, share, .. } in costs {
        let what = escape(what);
        let _ = writeln!(
            page,
            "<tr><td>{what}</td><td>{:+.0} %</td></tr>",
            share * 100.0
        );
    }
    page.push_str("</table>\n");
}

fn draw_faults(page: &mut String, results: &Results) {
    let failed: Vec<_> = report::failed(results).collect();
    if failed.is_empty() {
        return;
    }
    page.push_str("<h2>Cells that failed</h2>\n<table>\n");
    for (key, why) in failed {
        let _ = writeln!(
            page,
            "<tr><td>{} {}, {}, {} (repetition {})</td><td class=\"why\">{}</td></tr>",
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

/// The conditions that are equal for all systems, and those that are not.
const FAIRNESS: [&str; 9] = [
    "All senders of a cell are in one process, all receivers in another, on one host; rows “in one process” are compared with each other only.",
    "The content is the same for all, to the byte; nothing is kept on disk. Kafka alone cannot be told so: it writes its log without waiting for the disk.",
    "Every message is numbered and checked. One that is lost, repeated or damaged fails its cell.",
    "Systems take turns, repetition after repetition, so that what disturbs the machine disturbs all. Where a table says so, the same processes play several rounds, and each of them must have all its messages. Where code is compiled while it runs, four rounds go before the one that counts.",
    "“secure” holds against whatever promises at least encryption. Each row says what it proves: Sealbus’s proves the sender of every message, most peers’ rows only the two ends of a connection.",
    "Each system is driven by its own makers’ client, in the language beside its name. A client in Python costs more than one in Rust: Sealbus in Rust is held against all, Sealbus in Python against Python only.",
    "Where the machine allows it, its processors are not halted while they wait, for all systems alike: waking a virtual one takes longer than a message.",
    "Rows of different encodings are not held against each other.",
    "Time is that of this host’s monotonic clock for all processes; processor time and memory are those of all processes, servers included.",
];

fn draw_fairness(page: &mut String) {
    page.push_str("<h2>Equal and unequal conditions</h2>\n<ul>\n");
    for it in FAIRNESS {
        let _ = writeln!(page, "<li>{it}</li>");
    }
    page.push_str("</ul>\n");
}

fn draw_conditions(page: &mut String, systems: &[System], results: &Results) {
    page.push_str("<h2>Conditions</h2>\n<table>\n");
    for (what, words) in report::conditions(results) {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"why\">{}</td></tr>",
            escape(&what),
            escape(&words)
        );
    }
    page.push_str(
        "</table>\n<h2>How each system was set up</h2>\n<table>\n<tr><th>system</th><th>language</th>\
         <th class=\"why\">settings</th><th class=\"why\">versions</th></tr>\n",
    );
    for system in systems {
        let mut clients: Vec<&str> = Vec::new();
        for it in &results.measurements {
            if let Outcome::Measured(figures) = &it.outcome
                && it.key.system == system.id
            {
                clients.extend(figures.clients.iter().map(String::as_str));
            }
        }
        clients.sort_unstable();
        clients.dedup();
        let why = system.cannot.as_deref().unwrap_or(&system.settings);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"why\">{}</td><td class=\"why\">{}</td></tr>",
            escape(&system.title),
            escape(&system.language),
            escape(why),
            escape(&clients.join("; "))
        );
    }
    page.push_str("</table>\n");
}
