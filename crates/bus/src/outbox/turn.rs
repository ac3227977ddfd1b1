//! A sender that never has to wait must still let other tasks have their turn, such as the one that writes to a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The messages that a sender sends in its turn: a multiple of [`OPERATIONS`]. Each turn may end with a write, so longer ones
/// cost less a message.
pub(super) const LONGEST: usize = 512;
/// The operations of a task in its turn, as Tokio counts them.
const OPERATIONS: usize = 128;
const _: () = assert!(LONGEST.is_multiple_of(OPERATIONS));

/// The turns of a sender of single messages.
#[derive(Debug, Default)]
pub(super) struct Turn(AtomicUsize);

impl Turn {
    /// Call this after each message.
    pub(super) async fn sent(&self) {
        // A count that is lost between two threads makes one turn longer.
        let count = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(count, Ordering::Relaxed);
        if count.is_multiple_of(LONGEST / OPERATIONS) {
            tokio::task::consume_budget().await;
        }
    }
}
