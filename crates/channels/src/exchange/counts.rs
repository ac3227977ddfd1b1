//! What is counted of a channel.

use std::sync::atomic::AtomicU64;

/// The counters of a channel. Only the exchange counts, under its lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The events published on it here.
    pub(super) published: AtomicU64,
    /// The events published on it here that are in a log.
    pub(super) kept: AtomicU64,
    /// The frames from other processes.
    pub(super) received: AtomicU64,
    /// Events that were not sent for want of room, as only best-effort events may be.
    pub(super) dropped: AtomicU64,
    /// Evaluations of filters that failed for what was published on it here.
    pub(super) filter_errors: AtomicU64,
}
