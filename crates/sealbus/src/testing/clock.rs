//! The clock of a test bed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::{Elapsed, Still};

/// The number of turns of the runtime without news after which agents count as being at rest. In a turn, 61 tasks run.
const QUIET_TURNS: u32 = 32;

/// How long, by the real clock, a test waits for the platform itself, such as for an answer of its DF.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a test waits at a time for work that takes real time.
const LOOK: Duration = Duration::from_micros(500);

/// A clock that moves when a test says so; see [`TestBed::clock`](super::TestBed::clock).
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<Still>);

impl VirtualClock {
    pub(super) fn new(still: Arc<Still>) -> VirtualClock {
        VirtualClock(still)
    }

    /// The time since the clock began.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Lets this much time pass.
    pub async fn advance(&self, time: Duration) {
        let end = self.elapsed() + time;
        loop {
            self.settle().await;
            match self.0.next() {
                Some(due) if due <= end => self.0.move_to(due),
                _ => break,
            }
        }
        self.0.move_to(end);
        self.settle().await;
    }

    /// Lets the agents finish all work that is possible now.
    ///
    /// # Panics
    /// If the platform does not answer an agent for minutes.
    pub async fn settle(&self) {
        let (mut quiet, mut known) = (0, self.0.news());
        let mut held = Instant::now();
        while quiet < QUIET_TURNS {
            if self.0.is_held() {
                assert!(
                    held.elapsed() < PATIENCE,
                    "the platform did not answer an agent for {PATIENCE:?}"
                );
                tokio::time::sleep(LOOK).await;
                quiet = 0;
                continue;
            }
            held = Instant::now();
            tokio::task::yield_now().await;
            let news = self.0.news();
            quiet = if news == known { quiet + 1 } else { 0 };
            known = news;
        }
    }

    /// Lets time pass until `work` is done.
    ///
    /// # Panics
    /// If nothing more can happen and `work` is not done.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut moved = Instant::now();
        loop {
            if let Some(done) = self.step(&mut work).await {
                return done;
            }
            if let Some(due) = self.0.next() {
                self.0.move_to(due);
                moved = Instant::now();
                continue;
            }
            assert!(
                moved.elapsed() < PATIENCE,
                "nothing is left that could happen"
            );
            // Work outside the agents, such as the platform's end, takes real time.
            if let Ok(done) = tokio::time::timeout(LOOK, &mut work).await {
                return done;
            }
        }
    }

    /// Like [`run`](Self::run), for at most this much time.
    ///
    /// # Errors
    /// [`Elapsed`] if `work` is not done then.
    pub async fn run_within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut work = pin!(work);
        let end = self.elapsed() + limit;
        loop {
            if let Some(done) = self.step(&mut work).await {
                return Ok(done);
            }
            match self.0.next() {
                Some(due) if due <= end => self.0.move_to(due),
                _ => break,
            }
        }
        self.0.move_to(end);
        self.step(&mut work).await.ok_or(Elapsed)
    }

    /// Lets the agents settle; returns early with the outcome of `work`.
    async fn step<T>(&self, work: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.settle() => None,
        }
    }
}
