//! The count of the notices that wait for an agent.

use sealbus_control::post::Cover;

/// The most notices that may wait for an agent that wants further letters kept, or further notices of other nodes.
pub(crate) const MOST_NOTICES: usize = 10_000;
/// The most bytes of these notices.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// The notices that wait for one agent on this node. They do not count for a sender's share. Those that this node wrote
/// are always kept.
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

    /// Removes a letter from the count.
    pub(crate) fn remove(&mut self, cover: &Cover, size: u64) {
        if cover.about.is_some() {
            self.count -= 1;
            self.bytes -= size;
        }
    }

    /// Whether the receiver must take some before further letters of its own, and notices of other nodes, are kept.
    pub(crate) fn are_too_many(self) -> bool {
        self.count >= MOST_NOTICES || self.bytes >= MOST_BYTES
    }
}
