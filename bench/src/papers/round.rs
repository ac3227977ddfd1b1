//! A round as both sides report it, and the result of a cell's rounds.

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::papers::PapersError;
use crate::papers::process::Cost;
use crate::papers::report;
use crate::papers::results::{Figures, Outcome, RoundFigures};
use crate::papers::scenario::Table;

/// The messages sent in a round, and the outcome.
pub(crate) struct Round {
    pub(crate) sent: u64,
    pub(crate) expected: u64,
    pub(crate) received: u64,
    pub(crate) duplicated: u64,
    pub(crate) disordered: u64,
    pub(crate) corrupt: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) mean_ns: f64,
    pub(crate) times: Histogram<u64>,
    pub(crate) remarks: Value,
}

impl Round {
    /// The fault in the round's counts, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        let Self {
            sent,
            expected,
            received,
            duplicated,
            corrupt,
            ..
        } = self;
        let is_right = expected == received && *duplicated == 0 && *corrupt == 0;
        (!is_right).then(|| {
            format!(
                "{sent} sent, {expected} should have come, {received} did, \
                 {duplicated} twice, {corrupt} damaged"
            )
        })
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns).max(1) as f64 / 1e9
    }

    /// Messages received in a second. In a broadcast each delivery counts.
    pub(crate) fn received_per_s(&self) -> f64 {
        self.received as f64 / self.seconds()
    }

    /// The figures of the round, without those known only for the whole cell.
    fn figures(&self, size: usize) -> Figures {
        let at = |quantile| self.times.value_at_quantile(quantile) as f64 / 1e6;
        Figures {
            mean_ms: self.mean_ns / 1e6,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: self.times.max() as f64 / 1e6,
            per_s: self.received_per_s(),
            seconds: self.seconds(),
            bytes_per_s: self.received_per_s() * size as f64,
            sent: self.sent,
            received: self.received,
            duplicated: self.duplicated,
            disordered: self.disordered,
            remarks: self.remarks.clone(),
            ..Figures::default()
        }
    }
}

/// The rounds that count, one after another in the same processes, and the cost of all of them. No round follows a
/// round whose counts disagree.
pub(crate) struct Rounds {
    pub(crate) played: Vec<Round>,
    pub(crate) before: Cost,
    pub(crate) after: Cost,
}

impl Rounds {
    /// The fault in the counts of a round, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        self.played.iter().find_map(Round::fault)
    }

    /// The median round by the figure that judges the table, or the round whose counts disagree, which fails the cell.
    pub(crate) fn outcome(
        &self,
        table: &Table,
        size: usize,
        clients: &[String],
        rate_under_limit: Option<f64>,
    ) -> Outcome {
        let judged = report::judged(table.shows);
        let value = |figures: &Figures| (judged.get)(figures).unwrap_or(0.0);
        let mut all: Vec<Figures> = self.played.iter().map(|it| it.figures(size)).collect();
        let rounds = (all.iter())
            .map(|it| RoundFigures {
                value: value(it),
                sent: it.sent,
                received: it.received,
                remarks: it.remarks.clone(),
            })
            .collect();
        let received: u64 = all.iter().map(|it| it.received).sum();
        let fault = self.fault();
        let at = match fault {
            Some(_) => all.len().saturating_sub(1),
            None => {
                all.sort_by(|a, b| value(a).total_cmp(&value(b)));
                all.len() / 2
            }
        };
        if at >= all.len() {
            return Outcome::failed("no round was played");
        }
        let processor_s = self.after.processor_s - self.before.processor_s;
        let figures = Box::new(Figures {
            rate_under_limit,
            rounds,
            processor_us: processor_s * 1e6 / received.max(1) as f64,
            memory_mib: self.after.memory as f64 / f64::from(1 << 20),
            others: self.after.others_since(&self.before),
            clients: clients.to_vec(),
            ..all.swap_remove(at)
        });
        match fault {
            None => Outcome::Measured(figures),
            Some(why) => Outcome::Failed {
                why,
                figures: Some(figures),
            },
        }
    }
}

/// Times in buckets, as a driver reports them.
pub(crate) fn histogram(pairs: &[(u64, u64)]) -> Result<Histogram<u64>, PapersError> {
    // The range goes up to an hour.
    let failed = |error: &dyn std::fmt::Display| PapersError::Failed(error.to_string());
    let mut histogram =
        Histogram::new_with_bounds(1, 3_600_000_000_000, 3).map_err(|error| failed(&error))?;
    for (low, count) in pairs {
        histogram.saturating_record_n(*low, *count);
    }
    Ok(histogram)
}
