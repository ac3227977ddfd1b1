//! The times of renewal: at half of a certificate's life, spread by jitter, and again soon after a failure.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Certificates by due time, on any monotonic clock that counts from some origin.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeSet<(Duration, u64)>,
}

impl Schedule {
    /// Notes that the certificate of `holder` is due at `at`.
    pub(super) fn insert(&mut self, at: Duration, holder: u64) {
        self.due.insert((at, holder));
    }

    /// Forgets a certificate. `at` is the value given to [`insert`](Self::insert). Returns false if it was not due at
    /// that time.
    pub(super) fn remove(&mut self, at: Duration, holder: u64) -> bool {
        self.due.remove(&(at, holder))
    }

    /// The earliest moment at which something is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes one holder that is due at `now`.
    pub(super) fn pop(&mut self, now: Duration) -> Option<u64> {
        let first = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }
}

/// The time after issue at which to renew a certificate that lives for `lifetime`: 45 to 55 % of it. `jitter` (0 to 1)
/// selects a time in this range, so that certificates issued together are not renewed together.
pub(super) fn after_issue(lifetime: Duration, jitter: f64) -> Duration {
    lifetime.mul_f64(0.45 + 0.1 * jitter.clamp(0.0, 1.0))
}

/// The time to wait after `failures` failed attempts in a row, with `remaining` life left. It begins short and doubles.
/// It is at most a quarter of the remaining life and at most a minute, and at least a tenth of a second.
pub(super) fn after_failure(failures: u32, remaining: Duration, jitter: f64) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(60);
    let doubled =
        Duration::from_millis(250).saturating_mul(1 << failures.saturating_sub(1).min(10));
    let wait = doubled.mul_f64(0.75 + 0.5 * jitter.clamp(0.0, 1.0));
    // An expired certificate gets as many attempts as one with little life left, because the platform may come back.
    let share = if remaining.is_zero() {
        LONGEST
    } else {
        remaining / 4
    };
    wait.min(share).clamp(SHORTEST, LONGEST)
}

/// A number from 0 to 1, different each time.
pub(super) fn jitter() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_due_first_comes_first() {
        let mut schedule = Schedule::default();
        schedule.insert(Duration::from_secs(5), 1);
        schedule.insert(Duration::from_secs(3), 2);
        schedule.insert(Duration::from_secs(4), 3);
        schedule.remove(Duration::from_secs(4), 3);
        assert_eq!(schedule.next(), Some(Duration::from_secs(3)));
        assert_eq!(schedule.pop(Duration::from_secs(2)), None);
        assert_eq!(schedule.pop(Duration::from_secs(9)), Some(2));
        assert_eq!(schedule.pop(Duration::from_secs(9)), Some(1));
        assert_eq!(schedule.pop(Duration::from_secs(9)), None);
    }

    proptest! {
        #[test]
        fn renewal_is_around_half_life(seconds in 1u64..1_000_000, jitter in 0.0f64..1.0) {
            let lifetime = Duration::from_secs(seconds);
            let wait = after_issue(lifetime, jitter);
            prop_assert!(wait >= lifetime.mul_f64(0.44) && wait <= lifetime.mul_f64(0.56));
        }

        #[test]
        fn retries_leave_time_for_another(failures in 1u32..100, remaining in 1u64..100_000, jitter in 0.0f64..1.0) {
            let remaining = Duration::from_secs(remaining);
            let wait = after_failure(failures, remaining, jitter);
            prop_assert!(wait <= remaining / 2);
            prop_assert!(wait >= Duration::from_millis(100) && wait <= Duration::from_secs(60));
        }

        #[test]
        fn an_expired_certificate_is_still_tried_for(failures in 1u32..100, jitter in 0.0f64..1.0) {
            let wait = after_failure(failures, Duration::ZERO, jitter);
            prop_assert!(wait >= Duration::from_millis(100) && wait <= Duration::from_secs(60));
        }
    }
}
