//! The standing of Sealbus, in words.

use crate::papers::report::digits;
use crate::papers::report::goals::{self, Evidence, Goal};
use crate::papers::report::standing::{Standing, comparisons};
use crate::papers::results::Results;
use crate::papers::scenario::Table;
use crate::papers::system::System;

/// The first words of a report: how often Sealbus is behind, and which goals are not met.
pub(crate) fn first_words(standings: &[Standing], goals: &[Goal]) -> String {
    if standings.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let behind = standings.iter().filter(|it| it.is_behind()).count();
    let missed = goals
        .iter()
        .filter(|it| it.measured.is_some() && !it.is_met);
    let missed: Vec<String> = missed
        .map(|it| format!("{} (reached: {})", it.text, it.reached()))
        .collect();
    let comparisons = comparisons(standings);
    let mut text = format!("Behind the best peer in {behind} of {comparisons} comparisons. ");
    match missed.is_empty() {
        true => text.push_str("Every goal that was measured is met."),
        false => {
            let (count, all) = (missed.len(), goals.len());
            text.push_str(&format!(
                "{count} of {all} goals are not met: {}.",
                missed.join("; ")
            ));
        }
    }
    text
}

/// A comparison in words.
pub(crate) fn sentence(standing: &Standing) -> String {
    let Standing {
        kin, metric, ours, ..
    } = standing;
    let mut text = format!(
        "{} ({}): {} {} {}",
        standing.place(),
        kin.title(),
        metric.name,
        digits(ours.spread.median),
        metric.unit
    );
    if let (Some(best), Some(ratio)) = (&standing.best, standing.to_best()) {
        text.push_str(&format!(
            "; {} × as good as {} ({})",
            digits(ratio),
            best.name,
            digits(best.spread.median)
        ));
    }
    if let (Some(limit), Some(ratio)) = (&standing.limit, standing.to_limit()) {
        text.push_str(&format!("; {} × {}", digits(ratio), limit.name));
    }
    text
}

/// The report in some lines of text. Comparisons in which Sealbus is behind come first.
pub(crate) fn lines(tables: &[Table], systems: &[System], results: &Results) -> Vec<String> {
    let evidence = Evidence::gather(tables, systems, results);
    let goals = goals::all(&evidence);
    let heading = |text: &str, standings: &[Standing]| {
        let lines = standings.iter().map(|it| format!("  {}", sentence(it)));
        std::iter::once(text.to_owned())
            .chain(lines)
            .collect::<Vec<_>>()
    };
    let (behind, ahead): (Vec<_>, Vec<_>) = evidence
        .standings
        .into_iter()
        .partition(Standing::is_behind);
    let mut lines = heading("Sealbus is behind in:", &behind);
    if behind.is_empty() {
        lines.push("  nothing that was measured".to_owned());
    }
    lines.push("Goals, by the worst column:".to_owned());
    for goal in goals {
        let (verdict, text) = (goal.verdict(), goal.text);
        lines.push(format!("  {verdict}: {text} ({})", goal.reached()));
    }
    lines.extend(heading("Sealbus is ahead in:", &ahead));
    lines
}
