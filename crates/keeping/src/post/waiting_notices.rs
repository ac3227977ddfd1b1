//! The count of the notices that wait for an agent.

use sealbus_control::post::Cover;

/// Most notices that may wait for an agent which has further letters kept.
pub(crate) const MOST_NOTICES: usize = 10_000;
/// Most bytes of these notices.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// The notices that wait for one agent on this node. They count for no sender's share, and are always kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notices {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl Notices {
    /// Counts a letter of this size, if it is a notice.
    pub(crate) fn add(&mut self, cover: &Cover, size: u64) {
        if cover.about.is_some() {
            self.count += 1;
            self.bytes += size;
        }
    }

    /// Counts a letter no longer.
    pub(crate) fn remove(&mut self, cover: &Cover, size: u64) {
        if cover.about.is_some() {
            self.count -= 1;
            self.bytes -= size;
        }
    }

    /// Whether their receiver must take some before it has further letters kept.
    pub(crate) fn are_too_many(self) -> bool {
        self.count >= MOST_NOTICES || self.bytes >= MOST_BYTES
    }
}
