//! A sender that never has to wait must still let other tasks run, such as the task that writes to a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The messages that a sender sends in one turn: a multiple of [`OPERATIONS`]. Each turn may end with a write, so a
/// longer turn costs less for each message.
pub(super) const LONGEST: usize = 512;
/// The operations of a task in one turn, as Tokio counts them.
const OPERATIONS: usize = 128;
const _: () = assert!(LONGEST.is_multiple_of(OPERATIONS));

/// The turns of a sender of single messages.
#[derive(Debug, Default)]
pub(super) struct Turn(AtomicUsize);

impl Turn {
    /// Call this after each message.
    pub(super) async fn sent(&self) {
        // If two threads lose a count, one turn becomes longer.
        let count = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(count, Ordering::Relaxed);
        if count.is_multiple_of(LONGEST / OPERATIONS) {
            tokio::task::consume_budget().await;
        }
    }
}
