//! Puts what a broker delivers into the order it was sent in, each message once. No I/O.
//!
//! A broker repeats a message when a connection broke before it was acknowledged, in either direction, and changes the
//! order of two when it did not accept the first at first. The [`Stamp`]s tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stamp::Stamp;

/// Correspondents remembered; beyond it those not heard of longest are forgotten.
const REMEMBERED: usize = 65_536;
/// Numbers below the first one seen that may still come.
const LATE: u64 = 4_096;

/// What to do with a message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<T> {
    /// These are next, in this order.
    Deliver(Vec<T>),
    /// Kept until the ones before it come.
    Kept,
    /// It was here before.
    Duplicate(T),
}

/// The order of what one agent receives. `T` is a message.
#[derive(Debug)]
pub(crate) struct Incoming<T> {
    /// By sender and epoch.
    senders: HashMap<(Arc<str>, u64), Sender<T>>,
    patience: Duration,
}

#[derive(Debug)]
struct Sender<T> {
    /// The number that is to be delivered next.
    next: u64,
    /// Numbers below `next` that were passed over and may still come.
    missing: BTreeSet<u64>,
    /// Those that came too early.
    kept: BTreeMap<u64, T>,
    /// Since when something is kept and nothing before it has come.
    since: Option<Instant>,
    heard: Instant,
}

impl<T> Incoming<T> {
    /// Waits for a missing message no longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            senders: HashMap::new(),
            patience,
        }
    }

    /// A message of `sender` has arrived.
    pub(crate) fn arrived(
        &mut self,
        sender: &Arc<str>,
        stamp: Stamp,
        message: T,
        now: Instant,
    ) -> Arrival<T> {
        let key = (sender.clone(), stamp.epoch);
        if !self.senders.contains_key(&key) && self.senders.len() >= REMEMBERED {
            self.forget_some();
        }
        let entry = self.senders.entry(key).or_insert_with(|| {
            // Which of the numbers before it an earlier life of this agent had taken is not known; they do not
            // come, or come late.
            let earliest = stamp.number.saturating_sub(LATE).max(1);
            Sender {
                next: stamp.number,
                missing: (earliest..stamp.number).collect(),
                kept: BTreeMap::new(),
                since: None,
                heard: now,
            }
        });
        entry.heard = now;
        let mut out = Vec::new();
        entry.skip_to(stamp.base, &mut out);
        let number = stamp.number;
        if number < entry.next {
            if !entry.missing.remove(&number) {
                return Arrival::Duplicate(message);
            }
            out.push(message);
        } else if number == entry.next {
            entry.kept.remove(&number);
            out.push(message);
            entry.next = number + 1;
            entry.follow(&mut out);
        } else {
            // Redelivered, it takes the place of the one that cannot be acknowledged any more.
            entry.kept.insert(number, message);
        }
        entry.since = match entry.kept.is_empty() {
            true => None,
            // What comes shows that the rest is on its way.
            false if !out.is_empty() => Some(now),
            false => entry.since.or(Some(now)),
        };
        if out.is_empty() {
            Arrival::Kept
        } else {
            Arrival::Deliver(out)
        }
    }

    /// Messages come again from now on; before, none could.
    pub(crate) fn connected(&mut self, now: Instant) {
        for sender in self.senders.values_mut() {
            sender.since = sender.since.map(|_| now);
        }
    }

    /// What has waited too long for a message before it: its sender is gone, most likely.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<T> {
        let mut out = Vec::new();
        for sender in self.senders.values_mut() {
            if sender
                .since
                .is_some_and(|since| now.duration_since(since) >= self.patience)
            {
                if let Some(first) = sender.kept.keys().next().copied() {
                    let from = sender.next.max(first.saturating_sub(LATE));
                    sender.missing.extend(from..first);
                    sender.next = first;
                }
                sender.follow(&mut out);
                sender.since = (!sender.kept.is_empty()).then_some(now);
            }
        }
        out
    }

    /// What waits for messages before it.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &T> {
        self.senders
            .values()
            .flat_map(|sender| sender.kept.values())
    }

    /// When [`overdue`](Self::overdue) should be asked next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting = self.senders.values().filter_map(|sender| sender.since);
        waiting.min().map(|since| since + self.patience)
    }

    fn forget_some(&mut self) {
        let mut heard: Vec<_> = self.senders.values().map(|sender| sender.heard).collect();
        heard.sort_unstable();
        let Some(middle) = heard.get(heard.len() / 2).copied() else {
            return;
        };
        self.senders
            .retain(|_, sender| sender.heard > middle || !sender.kept.is_empty());
    }
}

impl<T> Sender<T> {
    /// Nothing below `base` is waited for. What the broker has confirmed may still come, after what was sent later.
    fn skip_to(&mut self, base: u64, out: &mut Vec<T>) {
        if base > self.next {
            let rest = self.kept.split_off(&base);
            let early = mem::replace(&mut self.kept, rest);
            let from = self.next.max(base.saturating_sub(LATE));
            let absent = (from..base).filter(|number| !early.contains_key(number));
            self.missing.extend(absent);
            while self.missing.len() as u64 > LATE {
                self.missing.pop_first();
            }
            out.extend(early.into_values());
            self.next = base;
            self.follow(out);
        }
    }

    /// Those kept that are next now.
    fn follow(&mut self, out: &mut Vec<T>) {
        while let Some(message) = self.kept.remove(&self.next) {
            out.push(message);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{Arrival, Incoming};
    use crate::rabbitmq::stamp::Stamp;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn stamp(number: u64, base: u64) -> Stamp {
        Stamp {
            epoch: 7,
            number,
            base,
        }
    }

    #[test]
    fn a_gap_is_waited_for_then_given_up() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        assert_eq!(
            incoming.arrived(&sender, stamp(1, 1), 1, now),
            Arrival::Deliver(vec![1])
        );
        assert_eq!(
            incoming.arrived(&sender, stamp(3, 1), 3, now),
            Arrival::Kept
        );
        assert_eq!(incoming.deadline(), Some(now + PATIENCE));
        assert!(incoming.overdue(now).is_empty());
        assert_eq!(incoming.overdue(now + PATIENCE), [3]);
        // It comes after all.
        assert_eq!(
            incoming.arrived(&sender, stamp(2, 1), 2, now),
            Arrival::Deliver(vec![2])
        );
        assert_eq!(
            incoming.arrived(&sender, stamp(2, 1), 2, now),
            Arrival::Duplicate(2)
        );
    }

    #[test]
    fn who_goes_on_or_was_away_is_waited_for_anew() {
        let start = Instant::now();
        let second = |seconds| start + Duration::from_secs(seconds);
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        let _ = incoming.arrived(&sender, stamp(1, 1), 1, start);
        for number in [3, 5] {
            let _ = incoming.arrived(&sender, stamp(number, 1), number, start);
        }
        assert_eq!(
            incoming.arrived(&sender, stamp(2, 1), 2, second(9)),
            Arrival::Deliver(vec![2, 3])
        );
        assert!(incoming.overdue(second(11)).is_empty());
        incoming.connected(second(100));
        assert!(incoming.overdue(second(101)).is_empty());
        assert_eq!(
            incoming.arrived(&sender, stamp(4, 1), 4, second(102)),
            Arrival::Deliver(vec![4, 5])
        );
    }

    #[test]
    fn what_a_dead_connection_held_comes_late_and_is_not_lost() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        for (number, arrival) in [
            (1, Arrival::Deliver(vec![1])),
            (4, Arrival::Kept),
            (3, Arrival::Kept),
            (2, Arrival::Deliver(vec![2, 3, 4])),
        ] {
            assert_eq!(
                incoming.arrived(&sender, stamp(number, 1), number, now),
                arrival
            );
        }
        // One was given up, and another had been confirmed before.
        assert_eq!(
            incoming.arrived(&sender, stamp(8, 7), 8, now),
            Arrival::Kept
        );
        assert_eq!(
            incoming.arrived(&sender, stamp(5, 1), 5, now),
            Arrival::Deliver(vec![5])
        );
    }

    #[test]
    fn what_the_sender_gave_up_is_not_waited_for() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        let _ = incoming.arrived(&sender, stamp(1, 1), 1, now);
        assert_eq!(
            incoming.arrived(&sender, stamp(3, 3), 3, now),
            Arrival::Deliver(vec![3])
        );
        assert_eq!(incoming.deadline(), None);
    }

    proptest! {
        /// Sent in order with some repeated and some late: each is delivered once, and in order after the first.
        #[test]
        fn once_and_in_order(shuffled in Just((2u64..40).collect::<Vec<_>>()).prop_shuffle(),
                             repeated in proptest::collection::vec(2u64..40, 0..20)) {
            let now = Instant::now();
            let mut incoming = Incoming::new(PATIENCE);
            let sender = "a@f".into();
            let mut delivered = Vec::new();
            for number in [1].into_iter().chain(shuffled).chain(repeated) {
                if let Arrival::Deliver(more) = incoming.arrived(&sender, stamp(number, 1), number, now) {
                    delivered.extend(more);
                }
            }
            prop_assert_eq!(delivered, (1..40).collect::<Vec<_>>());
        }

        /// Whatever comes, nothing is delivered twice and nothing panics.
        #[test]
        fn never_twice(stamps in proptest::collection::vec((1u64..30, 1u64..30), 0..100)) {
            let now = Instant::now();
            let mut incoming = Incoming::new(PATIENCE);
            let sender = "a@f".into();
            let mut delivered = Vec::new();
            for (a, b) in stamps {
                let number = a.max(b);
                if let Arrival::Deliver(more) =
                    incoming.arrived(&sender, stamp(number, a.min(b)), number, now)
                {
                    delivered.extend(more);
                }
            }
            delivered.extend(incoming.overdue(now + PATIENCE));
            let mut once = delivered.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), delivered.len());
        }
    }
}
