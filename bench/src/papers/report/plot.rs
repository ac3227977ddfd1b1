//! Plots as SVG, for print in black and white. Each setting has a row, each column a panel, and each figure a mark on a
//! scale of powers of ten. The shape of a mark shows the owner of the row, not its colour.

use std::fmt::Write;

use crate::papers::report::html::escape;
use crate::papers::report::{Metric, digits, middle, plotted};
use crate::papers::results::{Results, Spread};
use crate::papers::scenario::{Column, Table};
use crate::papers::system::{Setting, Side, System};

const ROW: f64 = 17.0;
const LEFT: f64 = 262.0;
const WIDTH: f64 = 1080.0;
/// The space between a panel's scale and the next panel, for the figures.
const FIGURES: f64 = 62.0;
const TOP: f64 = 62.0;
const MOST_PANELS: usize = 4;

struct Row {
    name: String,
    side: Side,
    /// One value for each panel.
    values: Vec<Option<Spread>>,
}

struct Panel<'a> {
    metric: Metric,
    column: &'a Column,
    /// The scale's beginning, as a power of ten.
    from: f64,
    to: f64,
    x: f64,
    width: f64,
}

impl Panel<'_> {
    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - self.from) / (self.to - self.from);
        self.x + share.clamp(0.0, 1.0) * self.width
    }
}

/// All measured figures of a table; `None` if there are none.
pub(crate) fn draw(table: &Table, systems: &[System], results: &Results) -> Option<String> {
    let value = |system: &System, setting: &Setting, column: &Column, metric: Metric| {
        let middle = middle(results, table, system, setting, &column.title)?.ok()?;
        let value = (metric.get)(&middle.figures).filter(|it| *it > 0.0)?;
        Some(Spread {
            median: value,
            // Only the metric that sorts the repetitions has a known spread. For another metric it would mislead.
            least: value,
            greatest: value,
            count: middle.spread.count,
        })
    };
    let mut wanted = Vec::new();
    for column in &table.columns {
        for metric in plotted(table.shows) {
            let mut all = systems
                .iter()
                .flat_map(|it| it.ways.iter().map(move |way| (it, way)));
            if all.any(|(system, way)| value(system, way, column, metric).is_some()) {
                wanted.push((column, metric));
            }
        }
    }
    // If there are many columns, the plot shows the first, the last and some evenly between them.
    let last = wanted.len().checked_sub(1)?;
    let count = wanted.len().min(MOST_PANELS);
    let chosen = (0..count).map(|it| match count {
        1 => 0,
        _ => it * last / (count - 1),
    });
    let wanted: Vec<_> = chosen.filter_map(|it| wanted.get(it).copied()).collect();
    let mut groups = Vec::new();
    for (title, one_process, is_secure) in [
        ("secure", false, true),
        ("insecure", false, false),
        ("in one process", true, false),
    ] {
        let mut rows = Vec::new();
        for system in systems {
            for way in &system.ways {
                let belongs = way.one_process == one_process
                    && (one_process || way.class.is_secure() == is_secure);
                let values: Vec<_> = (wanted.iter())
                    .map(|(column, metric)| value(system, way, column, *metric))
                    .collect();
                if belongs && values.iter().any(Option::is_some) {
                    rows.push(Row {
                        name: format!("{}, {}", system.title, way.name),
                        side: system.side,
                        values,
                    });
                }
            }
        }
        sort(&mut rows, wanted.first()?.1);
        if !rows.is_empty() {
            groups.push((title, rows));
        }
    }
    let panels = panels(&wanted, &groups);
    let lines: usize = groups.iter().map(|(_, rows)| rows.len() + 1).sum();
    let height = TOP + ROW * lines as f64 + 26.0;
    let mut svg = head(table, &panels, height);
    let mut y = TOP;
    for (title, rows) in &groups {
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>",
            y + 13.0
        );
        y += ROW;
        for row in rows {
            draw_row(&mut svg, row, &panels, y);
            y += ROW;
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Sorts the best row first. A row without a figure in the first panel is sorted by the next.
fn sort(rows: &mut [Row], metric: Metric) {
    let key = |row: &Row| {
        let value = row.values.iter().flatten().next();
        let value = value.map_or(f64::INFINITY, |it| it.median);
        let is_missing = row.values.first().is_none_or(Option::is_none);
        (
            is_missing,
            if metric.is_less_better { value } else { -value },
        )
    };
    rows.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1))
    });
}

fn panels<'a>(wanted: &[(&'a Column, Metric)], groups: &[(&str, Vec<Row>)]) -> Vec<Panel<'a>> {
    let each = (WIDTH - LEFT) / wanted.len() as f64;
    let mut panels = Vec::new();
    for (number, (column, metric)) in wanted.iter().enumerate() {
        // Panels of one metric share a scale, so that they can be compared.
        let same = |it: &usize| {
            wanted
                .get(*it)
                .is_some_and(|(_, it)| it.name == metric.name)
        };
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for row in groups.iter().flat_map(|(_, rows)| rows) {
            for (_, value) in (0..).zip(&row.values).filter(|(it, _)| same(it)) {
                if let Some(value) = value {
                    low = low.min(value.median);
                    high = high.max(value.median);
                }
            }
        }
        let from = low.log10().floor();
        panels.push(Panel {
            metric: *metric,
            column,
            from,
            to: high.log10().ceil().max(from + 1.0),
            x: LEFT + each * number as f64,
            width: each - FIGURES,
        });
    }
    panels
}

fn head(table: &Table, panels: &[Panel<'_>], height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" role=\"img\" aria-label=\"{title}\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"17\" font-size=\"13\" font-weight=\"bold\">{title}</text>\n",
        title = escape(&table.title),
    );
    let mut x = LEFT;
    for (side, name, room) in [
        (Side::Ours, "Sealbus", 78.0),
        (Side::Limit, "the limit", 84.0),
        (Side::Peer, "others", 0.0),
    ] {
        mark(&mut svg, side, x, 32.0);
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"36\">{name}</text>", x + 9.0);
        x += room;
    }
    for panel in panels {
        let better = match panel.metric.is_less_better {
            true => "left is better",
            false => "right is better",
        };
        let unit = match panel.metric.unit {
            "/s" => "messages a second",
            unit => unit,
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"53\"><tspan font-weight=\"bold\">{}</tspan> <tspan font-size=\"10\">{}</tspan></text>",
            panel.x,
            escape(&panel.column.title),
            caption(panel, unit, better)
        );
        let mut decade = panel.from;
        // There are no more labels than the panel has room for.
        let room = (panel.width / 34.0).max(1.0);
        let step = ((panel.to - panel.from) / room).ceil().max(1.0);
        while decade <= panel.to {
            let x = panel.at(10_f64.powf(decade));
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#bbb\"/>",
                TOP - 3.0,
                height - 22.0
            );
            if ((decade - panel.from) / step).fract() == 0.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
                    height - 9.0,
                    power(decade)
                );
            }
            decade += 1.0;
        }
    }
    svg
}

/// As much of the caption as the panel has room for.
fn caption(panel: &Panel<'_>, unit: &str, better: &str) -> String {
    let name = panel.metric.name;
    let room = panel.width + FIGURES - 8.0 - panel.column.title.chars().count() as f64 * 6.6;
    let texts = [
        format!("{name} in {unit}; {better}"),
        format!("{name} in {unit}"),
        name.to_owned(),
    ];
    let fits = |text: &String| text.chars().count() as f64 * 5.1 <= room;
    texts.into_iter().find(fits).unwrap_or_default()
}

fn draw_row(svg: &mut String, row: &Row, panels: &[Panel<'_>], y: f64) {
    let middle = y + 8.0;
    let weight = match row.side {
        Side::Ours => "bold",
        Side::Limit | Side::Peer | Side::Mixed | Side::Technique => "normal",
    };
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>",
        LEFT - 10.0,
        y + 12.0,
        escape(&shortened(&row.name))
    );
    for (panel, value) in panels.iter().zip(&row.values) {
        let (begin, end) = (panel.x, panel.x + panel.width);
        let _ = writeln!(
            svg,
            "<line x1=\"{begin:.1}\" x2=\"{end:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#ccc\" stroke-dasharray=\"1 3\"/>"
        );
        let Some(value) = value else {
            continue;
        };
        mark(svg, row.side, panel.at(value.median), middle);
        // The text is at the panel's edge, so that it meets no mark.
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"10\" font-weight=\"{weight}\">{}</text>",
            panel.x + panel.width + FIGURES - 10.0,
            y + 12.0,
            digits(value.median)
        );
    }
}

/// The name, shortened to the width of its column.
fn shortened(name: &str) -> String {
    const MOST: usize = 44;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

fn mark(svg: &mut String, side: Side, x: f64, y: f64) {
    let _ = match side {
        Side::Ours => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>"),
        Side::Limit => writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"black\" stroke-width=\"3\"/>",
            y - 6.0,
            y + 6.0
        ),
        Side::Peer => writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"white\" stroke=\"black\" stroke-width=\"1.5\"/>"
        ),
        Side::Mixed | Side::Technique => writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#aaa\" stroke=\"black\"/>"
        ),
    };
}

fn power(decade: f64) -> String {
    match decade as i32 {
        decade @ 0..=3 => 10_i64.pow(decade.unsigned_abs()).to_string(),
        decade @ 4..=5 => format!("{}k", 10_i64.pow((decade - 3).unsigned_abs())),
        decade @ 6..=8 => format!("{}M", 10_i64.pow((decade - 6).unsigned_abs())),
        decade @ -4..=-1 => {
            format!("{:.*}", decade.unsigned_abs() as usize, 10_f64.powi(decade))
        }
        decade => format!("1e{decade}"),
    }
}
