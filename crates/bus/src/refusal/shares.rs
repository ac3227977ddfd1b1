//! The shares of a log, for each source and for all together: so many lines at once, then one more in each period.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The log lines allowed about one source.
const SOURCE: Allowance = Allowance {
    at_once: 5,
    every: Duration::from_secs(60),
};
/// The log lines allowed about all sources together.
const ALL: Allowance = Allowance {
    at_once: 50,
    every: Duration::from_secs(2),
};
/// The number of sources that are told apart. If there are more, the quietest are forgotten.
pub(super) const SOURCES: usize = 1024;

/// How often something may be done.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// How often at once.
    pub at_once: u32,
    /// The period after which it may be done once more.
    pub every: Duration,
}

/// The unused part of an allowance. Times count from any fixed moment.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u32,
    since: Duration,
}

impl Budget {
    /// The whole of an allowance.
    pub fn new(allowance: Allowance, now: Duration) -> Self {
        Self {
            left: allowance.at_once,
            since: now,
        }
    }

    fn has_some(&mut self, allowance: Allowance, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since);
        let more = passed.as_millis() / allowance.every.as_millis().max(1);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(allowance.at_once);
            self.since = now;
        }
        self.left > 0
    }

    /// Takes one out, if there is one.
    pub fn take(&mut self, allowance: Allowance, now: Duration) -> bool {
        let has_some = self.has_some(allowance, now);
        self.left -= u32::from(has_some);
        has_some
    }
}

/// The unused shares of a log.
#[derive(Debug)]
pub struct LogShares {
    start: Instant,
    all: Budget,
    pub(super) sources: HashMap<String, Budget>,
    /// The number of lines that were left out since the last one.
    left_out: u64,
}

impl Default for LogShares {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            all: Budget::new(ALL, Duration::ZERO),
            sources: HashMap::new(),
            left_out: 0,
        }
    }
}

impl LogShares {
    /// Whether to write a line about this source now. If so, returns the number of lines left out since the last one.
    pub fn admit(&mut self, source: String) -> Option<u64> {
        self.admit_at(source, self.start.elapsed())
    }

    pub(super) fn admit_at(&mut self, source: String, now: Duration) -> Option<u64> {
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            // A source with its whole allowance left behaves as if it were new.
            self.sources
                .retain(|_, budget| !budget.has_some(SOURCE, now) || budget.left < SOURCE.at_once);
            if self.sources.len() >= SOURCES {
                self.left_out += 1;
                return None;
            }
        }
        let own = self
            .sources
            .entry(source)
            .or_insert_with(|| Budget::new(SOURCE, now));
        if !own.has_some(SOURCE, now) || !self.all.take(ALL, now) {
            self.left_out += 1;
            return None;
        }
        own.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}
