//! The refusals of the whole platform, as shown to operators.

use sealbus_bus::{LogShares, RefusalReason};
use sealbus_control::RefusalRecord;

use crate::latest::Latest;

/// Refusals remembered.
const REFUSALS: usize = 1000;
/// The word for reasons that this version does not know.
const OTHER: &str = "other";

/// The refusals of the whole platform.
pub(crate) struct Refusals {
    /// The number of refusals for each reason, and last that for other reasons.
    counts: [u64; RefusalReason::ALL.len() + 1],
    /// The latest refusals, by the node that reports them and the program that they count against.
    latest: Latest<RefusalRecord>,
    log: LogShares,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            latest: Latest::of(REFUSALS),
            log: LogShares::default(),
        }
    }
}

impl Refusals {
    /// Notes refusals that a node reports, and logs them as far as the shares of the log go.
    pub(crate) fn note(&mut self, node: &str, records: Vec<RefusalRecord>) {
        for record in records.into_iter().map(RefusalRecord::bounded) {
            if let Some(left_out) = self.log.admit(source(&record)) {
                tracing::warn!(
                    target: "sealbus::refusals",
                    who = %record.who, receiver = record.receiver.as_deref(), count = record.count, left_out,
                    "{}", record.reason
                );
            }
            let word = record.reason.split(':').next();
            let known = RefusalReason::ALL.iter();
            let known = known.take_while(|reason| Some(reason.as_str()) != word);
            let count = &mut self.counts[known.count()];
            *count = count.saturating_add(record.count);
            self.latest.keep(node, source(&record), record);
        }
    }

    /// The latest refusals, oldest first.
    pub(crate) fn latest(&self) -> Vec<&RefusalRecord> {
        self.latest.all()
    }

    /// The number of all refusals.
    pub(crate) fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(0, |total, count| total.saturating_add(*count))
    }

    /// The number of refusals for each reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = RefusalReason::ALL.into_iter().map(RefusalReason::as_str);
        words.chain([OTHER]).zip(self.counts)
    }
}

/// The source that a refusal counts against: the program that reports it. This program can invent everything else.
fn source(record: &RefusalRecord) -> String {
    let known = record.by.as_ref().or(record.proved.as_ref());
    known.unwrap_or(&record.who).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dishonest_node_fills_no_memory_with_long_records() {
        let mut refusals = Refusals::default();
        let long = || "x".repeat(1 << 20);
        let long_record = RefusalRecord {
            at: 1,
            who: long(),
            proved: Some(long()),
            receiver: Some(long()),
            reason: long(),
            count: 1,
            by: Some(long()),
        };
        refusals.note("node-1", vec![long_record]);
        let kept = serde_json::to_vec(&refusals.latest()).unwrap();
        assert!(kept.len() < 4096, "{} bytes", kept.len());
    }

    fn record(by: Option<&str>, number: usize) -> RefusalRecord {
        RefusalRecord {
            at: 1,
            who: format!("somebody-{number}@factory"),
            proved: None,
            receiver: None,
            reason: "forged-sender: no".to_owned(),
            count: 1,
            by: by.map(str::to_owned),
        }
    }

    /// The records of a program that are shown, in the order in which they are.
    fn shown(refusals: &Refusals, by: &str) -> Vec<RefusalRecord> {
        let latest = refusals.latest().into_iter();
        let of_it = latest.filter(|it| it.by.as_deref() == Some(by));
        of_it.cloned().collect()
    }

    #[test]
    fn a_program_or_a_node_pushes_out_its_own_refusals_alone() {
        let mut refusals = Refusals::default();
        let some = |by: &str, numbers: std::ops::Range<usize>| -> Vec<RefusalRecord> {
            numbers.map(|number| record(Some(by), number)).collect()
        };
        refusals.note("node-1", some("alice", 0..3));
        refusals.note("node-2", some("bob", 0..3));
        refusals.note("node-1", some("mallory", 0..10_000));
        assert_eq!(refusals.latest().len(), REFUSALS);
        // It loses its oldest ones.
        assert_eq!(shown(&refusals, "mallory"), some("mallory", 9_006..10_000));
        // A node may name other programs without end.
        let invented = (0..10_000).map(|number| record(Some(&format!("program-{number}")), number));
        refusals.note("node-3", invented.collect());
        assert_eq!(refusals.latest().len(), REFUSALS);
        assert_eq!(shown(&refusals, "alice"), some("alice", 0..3));
        assert_eq!(shown(&refusals, "bob"), some("bob", 0..3));
        assert!(shown(&refusals, "mallory").len() > 400);
        assert_eq!(shown(&refusals, "program-9999").len(), 1);
        // The order is that in which they came.
        refusals.note("node-2", some("bob", 3..4));
        assert_eq!(refusals.latest().last(), Some(&&record(Some("bob"), 3)));
    }

    #[test]
    fn a_program_that_reports_refusals_without_end_has_a_share_of_the_log() {
        let mut refusals = Refusals::default();
        let flood = (0..10_000).map(|number| record(Some("mallory"), number));
        refusals.note("node-1", flood.collect());
        // All are counted, and the latest are shown. The log has room for others.
        assert_eq!(refusals.total(), 10_000);
        assert_eq!(refusals.latest().len(), REFUSALS);
        assert_eq!(
            refusals.log.admit(source(&record(Some("mallory"), 1))),
            None
        );
        let left_out = refusals.log.admit(source(&record(Some("alice"), 1)));
        assert!(left_out.is_some_and(|count| count > 9_900), "{left_out:?}");
        assert!(refusals.log.admit(source(&record(None, 1))).is_some());
    }
}
