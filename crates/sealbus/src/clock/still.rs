//! A clock that stands still until it is moved.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

/// A clock that stands still until it is moved. Two waits for the same instant end in the order in which they began.
pub(crate) struct Still {
    began: Instant,
    start: SystemTime,
    state: Mutex<State>,
    /// How often something has happened to an agent.
    news: AtomicU64,
    holds: AtomicUsize,
}

#[derive(Default)]
struct State {
    elapsed: Duration,
    waits: BTreeMap<(Duration, u64), Waker>,
    count: u64,
}

impl Still {
    pub(crate) fn new(start: SystemTime) -> Still {
        Still {
            began: Instant::now(),
            start,
            state: Mutex::default(),
            news: AtomicU64::new(0),
            holds: AtomicUsize::new(0),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.state.lock().elapsed
    }

    pub(crate) fn now(&self) -> Instant {
        self.began + self.elapsed()
    }

    pub(crate) fn time(&self) -> SystemTime {
        self.start + self.elapsed()
    }

    pub(crate) fn sleep_until(self: &Arc<Self>, instant: Instant) -> StillSleep {
        StillSleep {
            clock: self.clone(),
            due: instant.saturating_duration_since(self.began),
            number: None,
        }
    }

    pub(crate) fn note(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// The end of the next wait, as the time since the beginning.
    pub(crate) fn next(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.waits.first_key_value().map(|((due, _), _)| *due)
    }

    /// Moves the clock to this time since the beginning, never back. Ends the first wait that is then over.
    pub(crate) fn move_to(&self, time: Duration) {
        let mut state = self.state.lock();
        state.elapsed = state.elapsed.max(time);
        let is_due = |due: Duration| due <= state.elapsed;
        let first = state.waits.first_key_value().map(|((due, _), _)| *due);
        let over = match first {
            Some(due) if is_due(due) => state.waits.pop_first(),
            _ => None,
        };
        drop(state);
        if let Some((_, waker)) = over {
            self.note();
            waker.wake();
        }
    }
}

impl fmt::Debug for Still {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Still")
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}

/// A wait by a [`Still`] clock.
pub(crate) struct StillSleep {
    clock: Arc<Still>,
    due: Duration,
    /// The number of this wait among all waits, once it has begun.
    number: Option<u64>,
}

impl Future for StillSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut TaskContext<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.state.lock();
        if state.elapsed >= self.due {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.count += 1;
            state.count
        });
        state
            .waits
            .insert((self.due, number), waiting.waker().clone());
        Poll::Pending
    }
}

impl Drop for StillSleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.state.lock().waits.remove(&(self.due, number));
        }
    }
}

/// While this exists, the clock stands still.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Still>);

impl Hold {
    pub(super) fn new(clock: Arc<Still>) -> Hold {
        clock.holds.fetch_add(1, Ordering::Relaxed);
        Hold(clock)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
        self.0.note();
    }
}
