//! Plots as SVG: bars on a scale of powers of ten. What is whose is told by the filling, not by colour.

use std::fmt::Write;

use crate::papers::report::page::escape;
use crate::papers::report::{digits, metrics, middle};
use crate::papers::results::Results;
use crate::papers::scenario::Table;
use crate::papers::system::{Side, System};

const ROW: f64 = 20.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 90.0;
const WIDTH: f64 = 860.0;

struct Bar {
    name: String,
    side: Side,
    value: f64,
    least: f64,
    greatest: f64,
}

/// The last column that was measured for most rows; `None` if nothing was.
pub(crate) fn draw(table: &Table, systems: &[System], results: &Results) -> Option<String> {
    let metric = *metrics(table.shows).first()?;
    let bars_of = |column: &str| {
        let mut bars = Vec::new();
        for system in systems {
            for setting in &system.ways {
                if let Some(Ok(it)) = middle(results, table, system, setting, column)
                    && it.spread.median > 0.0
                {
                    bars.push(Bar {
                        name: format!("{}, {}", system.title, setting.name),
                        side: system.side,
                        value: it.spread.median,
                        least: it.spread.least,
                        greatest: it.spread.greatest,
                    });
                }
            }
        }
        bars
    };
    let columns = table
        .columns
        .iter()
        .map(|it| (it.title.as_str(), bars_of(&it.title)));
    let (column, mut bars) = columns.max_by_key(|(_, bars)| bars.len())?;
    if bars.is_empty() {
        return None;
    }
    bars.sort_by(|a, b| match metric.is_less_better {
        true => a.value.total_cmp(&b.value),
        false => b.value.total_cmp(&a.value),
    });
    let lowest = bars.iter().map(|it| it.least).fold(f64::INFINITY, f64::min);
    let highest = bars.iter().map(|it| it.greatest).fold(0.0, f64::max);
    let (from, to) = (
        lowest.log10().floor(),
        highest.log10().ceil().max(lowest.log10().floor() + 1.0),
    );
    let x = |value: f64| LEFT + (value.log10() - from) / (to - from) * (WIDTH - LEFT - RIGHT);
    let height = 70.0 + ROW * bars.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"6\" height=\"6\" fill=\"white\"/><rect width=\"2\" height=\"6\" fill=\"black\"/></pattern></defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let better = match metric.is_less_better {
        true => "shorter is better",
        false => "longer is better",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"18\" font-weight=\"bold\">{}</text>\
         <text x=\"8\" y=\"34\">{}, {} in {}; {better}. Black: Sealbus. Hatched: the limit. White: others.</text>",
        escape(&table.title),
        escape(column),
        metric.name,
        metric.unit.trim_start_matches('/').replace(
            's',
            if metric.unit == "/s" {
                "messages a second"
            } else {
                "s"
            }
        ),
    );
    let mut decade = from;
    while decade <= to {
        let at = x(10_f64.powf(decade));
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"44\" y2=\"{:.1}\" stroke=\"#999\" stroke-dasharray=\"2 3\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - 20.0,
            height - 6.0,
            power(decade),
        );
        decade += 1.0;
    }
    for (number, bar) in bars.iter().enumerate() {
        let y = 48.0 + ROW * number as f64;
        let (fill, weight) = match bar.side {
            Side::Ours => ("black", "bold"),
            Side::Limit => ("url(#hatch)", "normal"),
            Side::Peer => ("white", "normal"),
        };
        let width = (x(bar.value) - LEFT).max(1.0);
        let middle = y + 7.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{fill}\" stroke=\"black\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#777\" stroke-width=\"3\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            y + 11.0,
            escape(&bar.name),
            x(bar.least),
            x(bar.greatest),
            x(bar.greatest) + 5.0,
            y + 11.0,
            digits(bar.value),
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn power(decade: f64) -> String {
    match decade as i32 {
        -3 => "0.001".to_owned(),
        -2 => "0.01".to_owned(),
        -1 => "0.1".to_owned(),
        decade @ 0..=5 => 10_i64.pow(decade.unsigned_abs()).to_string(),
        decade => format!("1e{decade}"),
    }
}
