//! The clock that agents wait by.

mod still;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub(crate) use still::{Hold, Still};

/// The longest wait: thirty years, which every instant can represent.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The instant this long after another, or an earlier one if that is far away.
pub(crate) fn later(instant: Instant, time: Duration) -> Instant {
    instant + time.min(LONGEST)
}

/// A wait has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time is over")]
pub struct Elapsed;

/// An agent's clock. The agent's deadlines, time-outs and behaviours all go by the clock of its platform: the clock of
/// the runtime and the system, or, in a test, the clock of its [`TestBed`](crate::testing::TestBed).
///
/// ```no_run
/// # use std::time::Duration;
/// # use sealbus::{AgentResult, Context};
/// # async fn hook(context: &mut Context) -> AgentResult {
/// let clock = context.clock().clone();
/// clock.sleep(Duration::from_secs(5)).await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Still>>);

impl Clock {
    pub(crate) fn still(still: Arc<Still>) -> Clock {
        Clock(Some(still))
    }

    /// The present instant.
    pub fn now(&self) -> Instant {
        match &self.0 {
            None => Instant::now(),
            Some(still) => still.now(),
        }
    }

    /// The time of day.
    pub fn time(&self) -> SystemTime {
        match &self.0 {
            None => SystemTime::now(),
            Some(still) => still.time(),
        }
    }

    /// Waits for this time.
    pub async fn sleep(&self, time: Duration) {
        match self.now().checked_add(time) {
            Some(instant) => self.sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until this instant.
    pub async fn sleep_until(&self, instant: Instant) {
        match &self.0 {
            None => tokio::time::sleep_until(instant).await,
            Some(still) => still.sleep_until(instant).await,
        }
    }

    /// Waits for `work`, for at most this time.
    ///
    /// # Errors
    /// [`Elapsed`] if `work` is not done by then. `work` is cancelled then.
    pub async fn timeout<T>(
        &self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        match self.now().checked_add(time) {
            Some(deadline) => self.timeout_at(deadline, work).await,
            None => Ok(work.await),
        }
    }

    /// Waits for `work`, until this instant at most.
    ///
    /// # Errors
    /// As [`timeout`](Self::timeout).
    pub async fn timeout_at<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let (work, over) = (pin!(work), self.sleep_until(deadline));
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = over => Err(Elapsed),
        }
    }

    /// Holds the clock of a test while an agent waits for something that does not depend on time, such as an answer of
    /// the platform's directory.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.0.clone().map(Hold::new)
    }

    /// Notes that something has happened to an agent, so that it may not be at rest.
    pub(crate) fn note(&self) {
        if let Some(still) = &self.0 {
            still.note();
        }
    }
}
