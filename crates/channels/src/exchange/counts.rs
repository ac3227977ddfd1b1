//! The counters of a channel.

use std::sync::atomic::AtomicU64;

/// The counters of a channel. Only the exchange counts, under its lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The events published on the channel here.
    pub(super) published: AtomicU64,
    /// Those of them that are in a log.
    pub(super) kept: AtomicU64,
    /// The frames from other processes.
    pub(super) received: AtomicU64,
    /// The number of best-effort events that found no room and were not sent. Only best-effort events may be dropped in
    /// this way.
    pub(super) dropped: AtomicU64,
    /// The number of failed filter evaluations for messages published on the channel here.
    pub(super) filter_errors: AtomicU64,
}
