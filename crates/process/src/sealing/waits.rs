//! How long messages and events wait for the keys of agents. An agent that states no key must not hold up agents that
//! write to it, or that publish on channels that it reads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sealbus_bus::Patience;

use super::MOST;

/// The time for which the agents of this process have waited for the key of each other agent.
#[derive(Default)]
pub(super) struct Waits(HashMap<String, Patience>);

impl Waits {
    /// How long to wait for the key of an agent now.
    pub(super) fn left(&self, agent: &str, now: Instant) -> Duration {
        let patience = self.0.get(agent).copied().unwrap_or_default();
        patience.left(now).unwrap_or_default()
    }

    /// Somebody has waited for the key of an agent since then. Several waits at a time count once.
    pub(super) fn spend(&mut self, agent: &str, since: Instant, now: Instant) {
        if since >= now {
            return;
        }
        if !self.0.contains_key(agent) && self.0.len() >= MOST {
            self.forget(now);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        let patience = self.0.entry(agent.to_owned()).or_default();
        patience.spend(since, now);
    }

    /// Forgets the agents whose time is complete again.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, patience| !patience.is_whole(now));
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
        assert_eq!(waits.left("alice@factory", now), Patience::MOST);
    }

    #[test]
    fn waits_at_one_time_count_once_and_are_forgotten() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        let later = begun + Patience::MOST / 2;
        for _ in 0..100 {
            waits.spend("bob@factory", begun, later);
        }
        assert_eq!(waits.left("bob@factory", later), Patience::MOST / 2);
        waits.forget(later + 10 * Patience::MOST / 2);
        assert!(waits.0.is_empty());
    }

    #[test]
    fn there_is_an_end_to_the_agents_that_are_counted() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        for number in 0..3 * MOST {
            waits.spend(&format!("m{number}@factory"), begun, begun + Patience::MOST);
            assert!(waits.0.len() <= MOST);
        }
    }
}
