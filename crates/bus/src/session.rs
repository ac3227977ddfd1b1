//! The sessions of carriers.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// A session of a carrier with one other process. All messages that the carrier takes in the session either arrive in
/// that process, in the order in which they were taken, or come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionNumber(NonZeroU64);

impl SessionNumber {
    /// The number of a new session, unique in this program.
    pub fn next() -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }

    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }
}
