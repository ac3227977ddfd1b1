//! What is counted of a channel.

use std::sync::atomic::AtomicU64;

/// What is counted of a channel. Only the exchange counts, under its lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// What was published on it here.
    pub(super) published: AtomicU64,
    /// What was published on it here and is in a log.
    pub(super) kept: AtomicU64,
    /// What came from other processes.
    pub(super) received: AtomicU64,
    /// What could not be sent for want of room, as only best-effort events may.
    pub(super) dropped: AtomicU64,
    /// Evaluations of filters that failed for what was published on it here.
    pub(super) filter_errors: AtomicU64,
}
