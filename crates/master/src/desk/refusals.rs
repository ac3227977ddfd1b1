//! The refusals of the whole platform, as shown to operators.

use sealbus_bus::RefusalReason;
use sealbus_control::RefusalRecord;

/// Refusals remembered.
const REFUSALS: usize = 1000;
/// The word for reasons that this version does not know.
const OTHER: &str = "other";

/// The refusals of the whole platform.
#[derive(Default)]
pub(crate) struct Refusals {
    /// The number of refusals for each reason, and last that for other reasons.
    counts: [u64; RefusalReason::ALL.len() + 1],
    /// The latest refusals.
    pub(crate) latest: std::collections::VecDeque<RefusalRecord>,
}

impl Refusals {
    /// Notes refusals.
    pub(crate) fn note(&mut self, records: Vec<RefusalRecord>) {
        for record in records {
            tracing::warn!(
                target: "sealbus::refusals",
                who = %record.who, receiver = record.receiver.as_deref(), count = record.count,
                "{}", record.reason
            );
            let word = record.reason.split(':').next();
            let known = RefusalReason::ALL.iter();
            let known = known.take_while(|reason| Some(reason.as_str()) != word);
            let count = &mut self.counts[known.count()];
            *count = count.saturating_add(record.count);
            if self.latest.len() == REFUSALS {
                self.latest.pop_front();
            }
            self.latest.push_back(record);
        }
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
