//! Estimates how long the messages in a mailbox have been there, from regular looks at their number. Free of I/O.

use std::collections::VecDeque;
use std::time::Instant;

/// The times at which messages came into a mailbox that is read in order. A message counts from the first look at which
/// it was there.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// How many messages were taken.
    taken: u64,
    /// The number of messages that had come, in all, at a time. Both rise.
    looks: VecDeque<(u64, Instant)>,
}

impl Arrivals {
    /// Notes that this many messages are in the mailbox now.
    pub(crate) fn look(&mut self, waiting: usize, now: Instant) {
        let come = self.taken + waiting as u64;
        if self.looks.back().is_none_or(|(known, _)| *known < come) {
            self.looks.push_back((come, now));
        }
    }

    /// Notes that a message is taken. Returns the time since which it was known to be there.
    pub(crate) fn take(&mut self, now: Instant) -> Instant {
        self.taken += 1;
        while self
            .looks
            .front()
            .is_some_and(|(come, _)| *come < self.taken)
        {
            self.looks.pop_front();
        }
        self.looks.front().map_or(now, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_count_from_the_first_look_at_them() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.take(at(1)), at(1));
        arrivals.look(2, at(2));
        arrivals.look(2, at(3));
        arrivals.look(3, at(4));
        assert_eq!(arrivals.take(at(9)), at(2));
        assert_eq!(arrivals.take(at(9)), at(2));
        assert_eq!(arrivals.take(at(9)), at(4));
        assert_eq!(arrivals.take(at(9)), at(9));
        arrivals.look(0, at(10));
        arrivals.look(1, at(11));
        assert_eq!(arrivals.take(at(12)), at(11));
    }
}
