//! The times at which a behaviour runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{FIRST_PAUSE, LAST_PAUSE, Run, Step};
use crate::clock::{Clock, later};

/// The longest single wait for a point of time, because the system's time may be set meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

const DAY: Duration = Duration::from_secs(86_400);

/// The times at which a behaviour runs.
#[derive(Clone, Debug)]
pub struct Schedule(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Once,
    Cyclic,
    Every { period: Duration, delay: Duration },
    At(SystemTime),
    Daily(Duration),
}

/// Runs a step once, at once.
pub fn once() -> Schedule {
    Schedule(Kind::Once)
}

/// Runs a step again and again. The step itself must wait for something, such as a reply. After an error the behaviour
/// pauses.
pub fn cyclic() -> Schedule {
    Schedule(Kind::Cyclic)
}

/// Runs a step in equal periods, the first time at once.
///
/// The times are counted from the beginning, so they do not drift. A run never begins before the one before has ended.
/// A late run begins at once, and periods that went by meanwhile count in
/// [`Behaviour::missed`](super::Behaviour::missed). The shortest period is a millisecond.
pub fn every(period: Duration) -> Schedule {
    Schedule(Kind::Every {
        period: period.max(Duration::from_millis(1)),
        delay: Duration::ZERO,
    })
}

/// Runs a step at a point of time, or at once if that time is over.
pub fn at(time: SystemTime) -> Schedule {
    Schedule(Kind::At(time))
}

/// Runs a step each day, this long after midnight UTC.
pub fn daily(after_midnight: Duration) -> Schedule {
    let seconds = after_midnight.as_secs() % DAY.as_secs();
    let within = Duration::new(seconds, after_midnight.subsec_nanos());
    Schedule(Kind::Daily(within))
}

impl Schedule {
    /// Delays the first run of [`every`]. Other schedules stay as they are.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Schedule {
        if let Kind::Every { delay, .. } = &mut self.0 {
            *delay = time;
        }
        self
    }

    /// Runs a step at the times of this schedule.
    pub(super) async fn follow(self, run: &Run, step: &Step) {
        match self.0 {
            Kind::Once => {
                run.run(step).await;
            }
            Kind::Cyclic => cycle(run, step).await,
            Kind::Every { period, delay } => repeat(run, step, period, delay).await,
            Kind::At(time) => {
                wait_for(run.clock(), time).await;
                run.run(step).await;
            }
            Kind::Daily(within) => loop {
                wait_for(run.clock(), next_day(run.clock().time(), within)).await;
                run.run(step).await;
            },
        }
    }
}

async fn cycle(run: &Run, step: &Step) {
    let mut pause = FIRST_PAUSE;
    loop {
        if run.run(step).await {
            pause = FIRST_PAUSE;
            tokio::task::yield_now().await;
        } else {
            run.clock().sleep(pause).await;
            pause = LAST_PAUSE.min(pause * 2);
        }
    }
}

async fn repeat(run: &Run, step: &Step, period: Duration, delay: Duration) {
    let begin = later(run.clock().now(), delay);
    let mut passed = Duration::ZERO;
    loop {
        run.clock().sleep_until(later(begin, passed)).await;
        run.run(step).await;
        // The periods count from the beginning, so that delays do not add up. Periods that are over are skipped.
        passed = passed.saturating_add(period);
        let now = run.clock().now().saturating_duration_since(begin);
        let late = now.saturating_sub(passed).as_nanos() / period.as_nanos();
        if let Ok(late) = u32::try_from(late)
            && late > 0
        {
            run.miss(late.into());
            passed += period * late;
        }
    }
}

async fn wait_for(clock: &Clock, time: SystemTime) {
    while let Ok(left) = time.duration_since(clock.time())
        && !left.is_zero()
    {
        clock.sleep(left.min(LONGEST)).await;
    }
}

/// The next moment that is this long after midnight UTC.
fn next_day(now: SystemTime, within: Duration) -> SystemTime {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let midnight = since - Duration::from_nanos_u128(since.as_nanos() % DAY.as_nanos());
    let today = midnight + within;
    UNIX_EPOCH + if today > since { today } else { today + DAY }
}
