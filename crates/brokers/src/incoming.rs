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
    /// The messages that are next, in this order.
    pub(crate) next: Vec<T>,
    /// A copy that is not needed: this copy if the message was here before, or the copy that this one replaces.
    pub(crate) spare: Option<T>,
}

/// The place of a message that arrives now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderPlace {
    /// The message is here, or was handed out.
    Known,
    /// The message is handed out now.
    Next,
    /// The message waits for an earlier one.
    Early,
}

/// The order of the messages that one agent receives. `T` is a message.
#[derive(Debug)]
pub(crate) struct IncomingOrder<T> {
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

impl<T> IncomingOrder<T> {
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

    /// The place of a message of `sender` if it [arrived](Self::arrived) now.
    pub(crate) fn place(&self, sender: &Arc<str>, stamp: OrderStamp) -> OrderPlace {
        let Some(known) = self.senders.get(&(sender.clone(), stamp.epoch)) else {
            return OrderPlace::Next;
        };
        if known.kept.contains_key(&stamp.number) {
            return OrderPlace::Known;
        }
        if stamp.number < known.next {
            return match known.missing.contains(stamp.number) {
                true => OrderPlace::Next,
                false => OrderPlace::Known,
            };
        }
        let mut next = known.next.max(stamp.base);
        while known.kept.contains_key(&next) {
            next += 1;
        }
        match stamp.number > next {
            true => OrderPlace::Early,
            false => OrderPlace::Next,
        }
    }

    /// Takes a message of `sender` that has arrived.
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

    /// Notes that no missing message could come between `from` and `to`.
    pub(crate) fn paused(&mut self, from: Instant, to: Instant) {
        if self.waiting == 0 {
            return;
        }
        let later = |since: Instant| since + to.duration_since(since.max(from));
        for sender in self.senders.values_mut() {
            sender.since = sender.since.map(later);
        }
        self.earliest = self.earliest.map(later);
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
mod tests;
