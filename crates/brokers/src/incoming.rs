//! Puts a broker's deliveries into the order in which they were sent, each message once. No I/O.
//!
//! A broker repeats a message if a connection broke, in either direction, before the message was acknowledged. A broker
//! changes the order of two messages if it refused the first one at first. The [`OrderStamp`]s reveal both.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::passed_over::PassedOver;
use crate::stamp::OrderStamp;

/// The number of senders remembered. Beyond this number, the senders not heard of for longest are forgotten.
const REMEMBERED: usize = 65_536;
/// The number of epochs remembered for one sender. A sender has one epoch at a time, and messages of earlier epochs may
/// still come.
const EPOCHS: usize = 8;
/// How many numbers below the first one seen may still come.
const LATE: u64 = 4_096;

/// The consequence of an arrival. A message in neither field is kept until those before it come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sorted<T> {
    /// These are next, in this order.
    pub(crate) next: Vec<T>,
    /// A copy that is not needed: this copy if the message was here before, or the copy that this one replaces.
    pub(crate) spare: Option<T>,
}

/// The order of the messages that one agent receives. `T` is a message.
#[derive(Debug)]
pub(crate) struct Incoming<T> {
    /// The orders, by sender and epoch.
    senders: HashMap<(Arc<str>, u64), Sender<T>>,
    /// The epochs of each sender, the one first heard of in front.
    epochs: HashMap<Arc<str>, VecDeque<u64>>,
    patience: Duration,
    /// How many senders have kept messages.
    waiting: usize,
    /// A time no later than the beginning of any of their waits.
    earliest: Option<Instant>,
}

#[derive(Debug)]
struct Sender<T> {
    /// The number that is to be delivered next.
    next: u64,
    /// Numbers below `next` that were passed over and may still come.
    missing: PassedOver,
    /// Messages that came too early.
    kept: BTreeMap<u64, T>,
    /// The time since which messages are kept and none before them has come.
    since: Option<Instant>,
    heard: Instant,
}

impl<T> Incoming<T> {
    /// Waits for a missing message no longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            senders: HashMap::new(),
            epochs: HashMap::new(),
            patience,
            waiting: 0,
            earliest: None,
        }
    }

    /// A message of `sender` has arrived.
    pub(crate) fn arrived(
        &mut self,
        sender: &Arc<str>,
        stamp: OrderStamp,
        message: T,
        now: Instant,
    ) -> Sorted<T> {
        let key = (sender.clone(), stamp.epoch);
        if !self.senders.contains_key(&key) {
            self.meet(sender, stamp.epoch);
        }
        let entry = self.senders.entry(key).or_insert_with(|| {
            // An earlier life of this agent may have taken some of the earlier numbers. Such numbers never come, or
            // come late.
            let earliest = stamp.number.saturating_sub(LATE).max(1);
            let mut missing = PassedOver::new(LATE);
            missing.add(earliest..stamp.number);
            Sender {
                next: stamp.number,
                missing,
                kept: BTreeMap::new(),
                since: None,
                heard: now,
            }
        });
        entry.heard = now;
        let mut next = Vec::new();
        let mut spare = None;
        let number = stamp.number;
        if let Some(kept) = entry.kept.get_mut(&number) {
            // The redelivered copy replaces the kept one, which perhaps can no longer be acknowledged.
            spare = Some(mem::replace(kept, message));
            entry.skip_to(stamp.base, &mut next);
        } else {
            entry.skip_to(stamp.base, &mut next);
            if number > entry.next {
                entry.kept.insert(number, message);
            } else if number == entry.next {
                next.push(message);
                entry.next = number + 1;
                entry.follow(&mut next);
            } else if entry.missing.remove(number) {
                next.push(message);
            } else {
                spare = Some(message);
            }
        }
        let before = entry.since;
        entry.since = match entry.kept.is_empty() {
            true => None,
            // An arrival shows that the rest is on its way.
            false if !next.is_empty() => Some(now),
            false => before.or(Some(now)),
        };
        match (before, entry.since) {
            (None, Some(since)) => {
                self.waiting += 1;
                self.earliest = Some(self.earliest.map_or(since, |at| at.min(since)));
            }
            (Some(_), None) => {
                self.waiting -= 1;
                if self.waiting == 0 {
                    self.earliest = None;
                }
            }
            _ => {}
        }
        Sorted { next, spare }
    }

    /// Notes that messages come again from now on. Before, none could.
    pub(crate) fn connected(&mut self, now: Instant) {
        for sender in self.senders.values_mut() {
            sender.since = sender.since.map(|_| now);
        }
        self.earliest = self.earliest.map(|_| now);
    }

    /// Hands out messages that have waited too long for an earlier one. Its sender is most likely gone.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<T> {
        let mut out = Vec::new();
        for sender in self.senders.values_mut() {
            if sender
                .since
                .is_some_and(|since| now.duration_since(since) >= self.patience)
            {
                if let Some(first) = sender.kept.keys().next().copied() {
                    let from = sender.next.max(first.saturating_sub(LATE));
                    sender.missing.add(from..first);
                    sender.next = first;
                }
                sender.follow(&mut out);
                sender.since = (!sender.kept.is_empty()).then_some(now);
            }
        }
        let waiting = || self.senders.values().filter_map(|sender| sender.since);
        self.waiting = waiting().count();
        self.earliest = waiting().min();
        out
    }

    /// The messages that wait for others before them.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &T> {
        self.senders
            .values()
            .flat_map(|sender| sender.kept.values())
    }

    /// The time at which to call [`overdue`](Self::overdue) next. That call may find nothing yet.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.earliest.map(|since| since + self.patience)
    }

    /// Notes the first arrival in a sender's epoch. A sender with many epochs cannot make others be forgotten, or fill
    /// the memory.
    fn meet(&mut self, sender: &Arc<str>, epoch: u64) {
        if self.senders.len() >= REMEMBERED {
            self.forget_some();
        }
        let epochs = self.epochs.entry(sender.clone()).or_default();
        epochs.push_back(epoch);
        if epochs.len() <= EPOCHS {
            return;
        }
        // The broker delivers a limited number without an acknowledgement, so no more are kept.
        let keeps_none = |epoch: &u64| {
            let known = self.senders.get(&(sender.clone(), *epoch));
            known.is_some_and(|known| known.kept.is_empty())
        };
        if let Some(oldest) = epochs.iter().position(keeps_none)
            && let Some(forgotten) = epochs.remove(oldest)
        {
            self.senders.remove(&(sender.clone(), forgotten));
        }
    }

    fn forget_some(&mut self) {
        let mut heard: Vec<_> = self.senders.values().map(|sender| sender.heard).collect();
        heard.sort_unstable();
        let Some(middle) = heard.get(heard.len() / 2).copied() else {
            return;
        };
        self.senders
            .retain(|_, sender| sender.heard > middle || !sender.kept.is_empty());
        let senders = &self.senders;
        self.epochs.retain(|sender, epochs| {
            epochs.retain(|epoch| senders.contains_key(&(sender.clone(), *epoch)));
            !epochs.is_empty()
        });
    }
}

impl<T> Sender<T> {
    /// Stops waiting for numbers below `base`. Messages that the broker has confirmed may still come, after later ones.
    fn skip_to(&mut self, base: u64, out: &mut Vec<T>) {
        if base > self.next {
            let rest = self.kept.split_off(&base);
            let early = mem::replace(&mut self.kept, rest);
            let from = self.next.max(base.saturating_sub(LATE));
            let mut after = from;
            for number in early.range(from..).map(|(number, _)| *number) {
                self.missing.add(after..number);
                after = number + 1;
            }
            self.missing.add(after..base);
            out.extend(early.into_values());
            self.next = base;
            self.follow(out);
        }
    }

    /// Hands out the kept messages that are next now.
    fn follow(&mut self, out: &mut Vec<T>) {
        while let Some(message) = self.kept.remove(&self.next) {
            out.push(message);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{Incoming, Sorted};
    use crate::stamp::OrderStamp;

    const PATIENCE: Duration = Duration::from_secs(10);
    const KEPT: Sorted<u64> = Sorted {
        next: Vec::new(),
        spare: None,
    };

    fn deliver<const N: usize>(next: [u64; N]) -> Sorted<u64> {
        Sorted {
            next: next.into(),
            spare: None,
        }
    }

    fn spare(spare: u64) -> Sorted<u64> {
        Sorted {
            next: Vec::new(),
            spare: Some(spare),
        }
    }

    fn stamp(number: u64, base: u64) -> OrderStamp {
        OrderStamp {
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
        assert_eq!(incoming.arrived(&sender, stamp(1, 1), 1, now), deliver([1]));
        assert_eq!(incoming.arrived(&sender, stamp(3, 1), 3, now), KEPT);
        assert_eq!(incoming.deadline(), Some(now + PATIENCE));
        assert!(incoming.overdue(now).is_empty());
        assert_eq!(incoming.overdue(now + PATIENCE), [3]);
        // The message comes after all.
        assert_eq!(incoming.arrived(&sender, stamp(2, 1), 2, now), deliver([2]));
        assert_eq!(incoming.arrived(&sender, stamp(2, 1), 2, now), spare(2));
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
            deliver([2, 3])
        );
        assert!(incoming.overdue(second(11)).is_empty());
        incoming.connected(second(100));
        assert!(incoming.overdue(second(101)).is_empty());
        assert_eq!(
            incoming.arrived(&sender, stamp(4, 1), 4, second(102)),
            deliver([4, 5])
        );
    }

    #[test]
    fn what_a_dead_connection_held_comes_late_and_is_not_lost() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        for (number, arrival) in [
            (1, deliver([1])),
            (4, KEPT),
            (3, KEPT),
            (2, deliver([2, 3, 4])),
        ] {
            assert_eq!(
                incoming.arrived(&sender, stamp(number, 1), number, now),
                arrival
            );
        }
        // One message was given up, and another had been confirmed before.
        assert_eq!(incoming.arrived(&sender, stamp(8, 7), 8, now), KEPT);
        assert_eq!(incoming.arrived(&sender, stamp(5, 1), 5, now), deliver([5]));
    }

    #[test]
    fn what_waits_and_comes_again_is_delivered_though_its_sender_gave_up_what_was_before() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        let _ = incoming.arrived(&sender, stamp(1, 1), 1, now);
        assert_eq!(incoming.arrived(&sender, stamp(5, 1), 5, now), KEPT);
        assert_eq!(incoming.arrived(&sender, stamp(5, 1), 50, now), spare(5));
        let last = Sorted {
            next: vec![500],
            spare: Some(50),
        };
        assert_eq!(incoming.arrived(&sender, stamp(5, 5), 500, now), last);
        assert_eq!(incoming.deadline(), None);
    }

    #[test]
    fn what_the_sender_gave_up_is_not_waited_for() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let sender = "a@f".into();
        let _ = incoming.arrived(&sender, stamp(1, 1), 1, now);
        assert_eq!(incoming.arrived(&sender, stamp(3, 3), 3, now), deliver([3]));
        assert_eq!(incoming.deadline(), None);
    }

    #[test]
    fn one_sender_with_many_epochs_has_no_other_forgotten() {
        let now = Instant::now();
        let mut incoming = Incoming::new(PATIENCE);
        let (honest, hostile) = ("a@f".into(), "m@f".into());
        let _ = incoming.arrived(&honest, stamp(1, 1), 1, now);
        for epoch in 0..super::REMEMBERED as u64 + 10 {
            let stamp = OrderStamp {
                epoch,
                number: u64::MAX - 1,
                base: 1,
            };
            let _ = incoming.arrived(&hostile, stamp, epoch, now);
        }
        assert_eq!(incoming.senders.len(), 1 + super::EPOCHS);
        assert_eq!(incoming.epochs.len(), 2);
        assert_eq!(incoming.arrived(&honest, stamp(1, 1), 1, now), spare(1));
        assert_eq!(incoming.arrived(&honest, stamp(2, 1), 2, now), deliver([2]));
    }

    proptest! {
        /// Messages are sent in order, some repeated and some late. Each is delivered once, and in order after the
        /// first.
        #[test]
        fn once_and_in_order(shuffled in Just((2u64..40).collect::<Vec<_>>()).prop_shuffle(),
                             repeated in proptest::collection::vec(2u64..40, 0..20)) {
            let now = Instant::now();
            let mut incoming = Incoming::new(PATIENCE);
            let sender = "a@f".into();
            let mut delivered = Vec::new();
            for number in [1].into_iter().chain(shuffled).chain(repeated) {
                delivered.extend(incoming.arrived(&sender, stamp(number, 1), number, now).next);
            }
            prop_assert_eq!(delivered, (1..40).collect::<Vec<_>>());
        }

        /// For any arrivals, and any messages that senders have given up, one copy of each message is delivered, as
        /// soon as no earlier message is waited for. No copy is forgotten, for each must be acknowledged.
        #[test]
        fn each_once_and_no_copy_forgotten(stamps in proptest::collection::vec((1u64..30, 1u64..30), 0..100)) {
            let now = Instant::now();
            let mut incoming = Incoming::new(PATIENCE);
            let sender = "a@f".into();
            // A copy: its number, and which arrival it is.
            let (mut delivered, mut spares) = (Vec::new(), Vec::new());
            let mut arrived = BTreeSet::new();
            for (copy, (a, b)) in stamps.into_iter().enumerate() {
                let (number, base) = (a.max(b), a.min(b));
                let before = delivered.len();
                let arrival = incoming.arrived(&sender, stamp(number, base), (number, copy), now);
                delivered.extend(arrival.next);
                spares.extend(arrival.spare);
                arrived.insert((number, copy));
                let is_due = number == base;
                let numbers = |copies: &[(u64, usize)]| copies.iter().map(|copy| copy.0).collect::<Vec<_>>();
                prop_assert!(!is_due || numbers(&delivered).contains(&number));
                // A waiting message is kept as its last copy, for the broker may have forgotten the others.
                prop_assert!(numbers(&delivered).contains(&number) || incoming.kept().any(|kept| *kept == (number, copy)));
                prop_assert!(delivered[before..].is_sorted());
                // A wait is known without a look at all senders.
                prop_assert_eq!(incoming.deadline().is_some(), incoming.kept().next().is_some());
                let here: Vec<_> = incoming.kept().chain(&delivered).chain(&spares).copied().collect();
                prop_assert_eq!(here.len(), arrived.len());
                prop_assert_eq!(here.into_iter().collect::<BTreeSet<_>>(), arrived.clone());
            }
            // No further message comes: waiting messages are released, gap after gap.
            while let Some(deadline) = incoming.deadline() {
                let late = incoming.overdue(deadline);
                prop_assert!(!late.is_empty());
                delivered.extend(late);
            }
            let mut numbers: Vec<_> = delivered.iter().map(|copy| copy.0).collect();
            numbers.sort_unstable();
            let sent: BTreeSet<_> = arrived.iter().map(|copy| copy.0).collect();
            prop_assert_eq!(numbers, sent.into_iter().collect::<Vec<_>>());
        }
    }
}
