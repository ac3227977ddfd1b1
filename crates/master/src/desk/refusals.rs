//! The refusals of the whole platform, as shown to operators.

use sealbus_control::RefusalRecord;

/// Refusals remembered.
const REFUSALS: usize = 1000;

/// The refusals of the whole platform.
#[derive(Default)]
pub(crate) struct Refusals {
    /// The number of all refusals.
    pub(crate) total: u64,
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
            self.total = self.total.saturating_add(record.count);
            if self.latest.len() == REFUSALS {
                self.latest.pop_front();
            }
            self.latest.push_back(record);
        }
    }
}
