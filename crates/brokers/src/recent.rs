//! Messages that the broker confirmed lately, and that may end with it. No I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a confirmed message is kept. A message that waits longer at the broker waits for an agent that is away or
/// slow. Its receiver may have a new process by then, which cannot tell a repeated message.
const LATELY: Duration = Duration::from_secs(30);

/// A message that the broker confirmed.
#[derive(Debug)]
struct Confirmed<M> {
    order: u64,
    message: M,
    bytes: usize,
    at: Instant,
}

/// Messages that the broker confirmed lately, in the order of their confirmations. The oldest ones are dropped first.
#[derive(Debug)]
pub(crate) struct Recent<M> {
    confirmed: VecDeque<Confirmed<M>>,
    bytes: usize,
    most: (usize, usize),
}

impl<M> Recent<M> {
    /// Keeps no more than this number of messages, and no more than this number of bytes.
    pub(crate) fn new(messages: usize, bytes: usize) -> Self {
        Self {
            confirmed: VecDeque::new(),
            bytes: 0,
            most: (messages, bytes),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.confirmed.is_empty()
    }

    /// Notes that the broker has confirmed a message of `bytes` bytes at `now`.
    pub(crate) fn confirmed(&mut self, order: u64, message: M, bytes: usize, now: Instant) {
        self.bytes += bytes;
        self.confirmed.push_back(Confirmed {
            order,
            message,
            bytes,
            at: now,
        });
        self.expire(now);
    }

    /// Drops messages that are too old at `now`, or too many.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.confirmed.front() {
            let is_late = now.duration_since(oldest.at) >= LATELY;
            let is_full = self.confirmed.len() > self.most.0 || self.bytes > self.most.1;
            if !is_late && !is_full {
                return;
            }
            self.bytes -= oldest.bytes;
            self.confirmed.pop_front();
        }
        self.confirmed.shrink_to(64);
    }

    /// Hands out the messages with their orders, because the broker may have lost them. They were not too old when it
    /// was last there.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u64, M)> + use<M> {
        self.bytes = 0;
        let taken = std::mem::take(&mut self.confirmed);
        taken.into_iter().map(|it| (it.order, it.message))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::{LATELY, Recent};

    proptest! {
        #[test]
        fn the_latest_are_kept_within_the_limits(sizes in proptest::collection::vec((1usize..40, 0u32..20), 1..60)) {
            let mut recent = Recent::new(8, 100);
            let mut now = Instant::now();
            let mut all: Vec<(u64, usize, Instant)> = Vec::new();
            for (order, (size, seconds)) in (0..).zip(sizes) {
                now += std::time::Duration::from_secs(seconds.into());
                recent.confirmed(order, size, size, now);
                all.push((order, size, now));
            }
            let mut bytes = 0;
            let is_kept = |(count, (_, size, at)): &(usize, &(u64, usize, Instant))| {
                bytes += size;
                *count < 8 && bytes <= 100 && now.duration_since(*at) < LATELY
            };
            let mut expected: Vec<_> = all.iter().rev().enumerate().take_while(is_kept).map(|(_, it)| (it.0, it.1)).collect();
            expected.reverse();
            prop_assert_eq!(recent.take().collect::<Vec<_>>(), expected);
            prop_assert_eq!(recent.take().count(), 0);
        }
    }

    #[test]
    fn nothing_old_is_handed_out() {
        let now = Instant::now();
        let mut recent = Recent::new(8, 100);
        recent.confirmed(1, (), 1, now);
        recent.expire(now + LATELY);
        assert_eq!(recent.take().count(), 0);
    }
}
