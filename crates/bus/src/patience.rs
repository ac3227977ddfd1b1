//! The limit on the waits of a process's agents for one other agent, so that it does not hold them up.

use std::time::{Duration, Instant};

/// One part in this many of the time that passes is added to the time left.
const REGAINED: u32 = 10;
/// The shortest wait. Many shorter waits would add up to a long one.
const LEAST: Duration = Duration::from_secs(1);

/// The time that the agents of a process have waited for one other agent. All their waits together last at most
/// [`MOST`](Self::MOST), and a tenth of the time that passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    spent: Duration,
    /// The moment until which the waits are counted; `None` before the first one.
    at: Option<Instant>,
}

impl Patience {
    /// The longest time of all waits together.
    pub const MOST: Duration = Duration::from_secs(10);

    /// How long an agent may wait now; `None` if it may not.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = Self::MOST.saturating_sub(self.spent(now));
        (left >= LEAST).then_some(left)
    }

    /// Whether none of the time is spent.
    pub fn is_whole(&self, now: Instant) -> bool {
        self.spent(now).is_zero()
    }

    /// Notes that an agent has waited from `since` to `now`. Waits at the same time count once.
    pub fn spend(&mut self, since: Instant, now: Instant) {
        let since = self.at.map_or(since, |at| since.max(at));
        let waited = now.saturating_duration_since(since);
        if waited.is_zero() {
            return;
        }
        self.spent = self.spent(since).saturating_add(waited).min(Self::MOST);
        self.at = Some(now);
    }

    fn spent(&self, now: Instant) -> Duration {
        let passed = self.at.map(|at| now.saturating_duration_since(at));
        self.spent
            .saturating_sub(passed.unwrap_or_default() / REGAINED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_room_costs_ten_seconds_and_a_tenth_of_the_time() {
        let begun = Instant::now();
        let (mut patience, mut now) = (Patience::default(), begun);
        let (mut waited, mut refused) = (Duration::ZERO, 0);
        while now < begun + Duration::from_secs(1000) {
            match patience.left(now) {
                Some(left) => {
                    patience.spend(now, now + left);
                    now += left;
                    waited += left;
                }
                None => {
                    now += Duration::from_millis(1);
                    refused += 1;
                }
            }
        }
        let seconds = waited.as_secs();
        assert!((99..=111).contains(&seconds), "{seconds} s");
        assert!(refused > 800_000);
    }

    #[test]
    fn waits_at_one_time_count_once() {
        let (mut patience, begun) = (Patience::default(), Instant::now());
        assert!(patience.is_whole(begun));
        let later = begun + Patience::MOST / 2;
        for _ in 0..100 {
            patience.spend(begun, later);
        }
        assert_eq!(patience.left(later), Some(Patience::MOST / 2));
        let regained = later + Patience::MOST * REGAINED / 2;
        assert!(!patience.is_whole(later) && patience.is_whole(regained));
    }
}
