//! How long messages and events wait for the keys of agents. An agent that states none must not hold up those that write to
//! it, or publish what it reads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{MOST, PATIENCE};

/// The time to wait regains a tenth of the time that passes.
const REGAINED: u32 = 10;
/// The shortest wait. Many short ones would be one long wait.
const LEAST: Duration = Duration::from_secs(1);

/// The time for which the agents of this process have waited for each other agent's key.
#[derive(Default)]
pub(super) struct Waits(HashMap<String, Spent>);

#[derive(Clone, Copy)]
struct Spent {
    time: Duration,
    /// The moment until which it is counted.
    at: Instant,
}

impl Spent {
    fn left_over(self, now: Instant) -> Duration {
        let regained = now.saturating_duration_since(self.at) / REGAINED;
        self.time.saturating_sub(regained)
    }
}

impl Waits {
    /// How long the key of an agent is waited for now.
    pub(super) fn left(&self, agent: &str, now: Instant) -> Duration {
        let spent = self.0.get(agent);
        let spent = spent.map_or(Duration::ZERO, |spent| spent.left_over(now));
        let left = PATIENCE.saturating_sub(spent);
        if left >= LEAST { left } else { Duration::ZERO }
    }

    /// Somebody has waited for the key of an agent since then. Several waits at a time count once.
    pub(super) fn spend(&mut self, agent: &str, since: Instant, now: Instant) {
        let known = self.0.get(agent).copied();
        let since = known.map_or(since, |known| since.max(known.at));
        let waited = now.saturating_duration_since(since);
        if waited.is_zero() {
            return;
        }
        if known.is_none() && self.0.len() >= MOST {
            self.forget(now);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        let before = known.map_or(Duration::ZERO, |known| known.left_over(since));
        let time = before.saturating_add(waited).min(PATIENCE);
        self.0.insert(agent.to_owned(), Spent { time, at: now });
    }

    /// Forgets the agents that have all their time again.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, spent| !spent.left_over(now).is_zero());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_a_key_costs_ten_seconds_and_a_tenth_of_the_time() {
        let begun = Instant::now();
        let (mut waits, mut now, mut waited) = (Waits::default(), begun, Duration::ZERO);
        while now < begun + Duration::from_secs(1000) {
            let left = waits.left("mallory@factory", now);
            if left.is_zero() {
                now += Duration::from_millis(1);
                continue;
            }
            waits.spend("mallory@factory", now, now + left);
            now += left;
            waited += left;
        }
        let seconds = waited.as_secs();
        assert!((99..=111).contains(&seconds), "{seconds} s");
        assert_eq!(waits.left("alice@factory", now), PATIENCE);
    }

    #[test]
    fn waits_at_one_time_count_once_and_are_forgotten() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        let later = begun + PATIENCE / 2;
        for _ in 0..100 {
            waits.spend("bob@factory", begun, later);
        }
        assert_eq!(waits.left("bob@factory", later), PATIENCE / 2);
        waits.forget(later + PATIENCE * REGAINED / 2);
        assert!(waits.0.is_empty());
    }

    #[test]
    fn there_is_an_end_to_the_agents_that_are_counted() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        for number in 0..3 * MOST {
            waits.spend(&format!("m{number}@factory"), begun, begun + LEAST);
            assert!(waits.0.len() <= MOST);
        }
    }
}
