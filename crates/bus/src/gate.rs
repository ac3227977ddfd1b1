//! Where senders wait, first come first served, until there is room again.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A queue of waiting senders.
///
/// Whoever frees room calls [`open`](Self::open); whoever was refused waits in [`wait`](Self::wait) and tries
/// again. While somebody waits, newcomers queue behind ([`is_crowded`](Self::is_crowded)), so nobody starves.
#[derive(Debug, Default)]
pub struct Gate {
    waiting: AtomicUsize,
    notify: Notify,
}

/// A place in the queue; leaving it, also by cancellation, passes the turn on.
struct Place<'a>(&'a Gate);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// Whether somebody waits already.
    pub fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Lets the first waiter try again.
    pub fn open(&self) {
        if self.is_crowded() {
            self.notify.notify_one();
        }
    }

    /// Lets every waiter try again, as when what they wait for is gone.
    pub fn open_all(&self) {
        self.notify.notify_waiters();
    }

    /// Runs `attempt` until it gives an answer, waiting for the gate between the attempts.
    ///
    /// `attempt` returns `None` when there is still no room.
    pub async fn pass<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> T {
        let mut is_first = self.waiting.fetch_add(1, Ordering::AcqRel) == 0;
        let place = Place(self);
        loop {
            let turn = self.notify.notified();
            tokio::pin!(turn);
            // Registered before the attempt, so that room made in between is not missed.
            turn.as_mut().enable();
            if is_first && let Some(answer) = attempt() {
                drop(place);
                // There may be room for the next one as well.
                self.open();
                return answer;
            }
            turn.await;
            is_first = true;
        }
    }
}
