//! The events that wait for one subscriber.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::event::{ChannelHeader, ReceivedEvent};
use super::flow::{FlowPolicy, QueueLimits};
use super::qos::Priority;
use sealbus_bus::MESSAGE_OVERHEAD;
use sealbus_bus::Moment;

/// The time between two [`FlowReport`]s of one subscription.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The facts that the queue needs about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTerms {
    /// The priority. Items of higher priority are handed out first.
    pub priority: Priority,
    /// The moment until which the item is held back.
    pub valid_from: Option<Moment>,
    /// The moment from which the item is no longer handed out.
    pub expiry: Option<Moment>,
    /// The bytes that the item counts as.
    pub cost: usize,
}

impl QueueTerms {
    /// The terms of a message with this header and this many bytes of payload.
    pub fn new(header: &ChannelHeader, size: usize) -> Self {
        Self {
            priority: header.qos.priority,
            valid_from: header.valid_from,
            expiry: header.expiry,
            cost: size.saturating_add(MESSAGE_OVERHEAD),
        }
    }
}

impl From<&ReceivedEvent> for QueueTerms {
    fn from(event: &ReceivedEvent) -> Self {
        Self::new(&event.header, event.size())
    }
}

/// The outcome for an item that was [pushed](SubscriptionQueue::push).
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed<T> {
    /// The queue has the item. Others may have been lost to make room for it.
    Taken,
    /// The item is lost: it had already expired, or the policy dropped it.
    Lost,
    /// The queue has no room, and its policy pushes back: the publisher must wait.
    Full(T),
    /// The subscription is disconnected, just now or earlier.
    Disconnected(T),
}

/// The reason why an item was not handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The item has expired.
    Expired,
    /// The policy dropped the item.
    Dropped,
}

/// The counters of a queue so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Items taken.
    pub taken: u64,
    /// Items handed out.
    pub handed_out: u64,
    /// Items that expired before they were handed out.
    pub expired: u64,
    /// Items that the policy dropped.
    pub dropped: u64,
    /// How often an item was not taken, so that its publisher had to wait.
    pub pushed_back: u64,
    /// The number of items that were withheld because the subscription's filter could not be evaluated for them. A
    /// publisher in another process reports such items within a second.
    pub filter_errors: u64,
    /// The number of items that passed the subscription by, for one of two reasons: its process was given up because it
    /// was silent, or the subscription pushed back for too long without taking anything.
    pub missed: u64,
}

/// The log line about a policy that has acted: one line at once, then at most one every ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// The policy.
    pub policy: FlowPolicy,
    /// The number of items that the policy dropped since the last report.
    pub dropped: u64,
    /// The number of items whose publisher had to wait since the last report.
    pub pushed_back: u64,
    /// Whether the policy ended the subscription.
    pub disconnected: bool,
}

impl fmt::Display for FlowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the subscriber is slower than its channel: ")?;
        match (self.disconnected, self.policy) {
            (true, _) => f.write_str("the subscription was disconnected"),
            (false, FlowPolicy::PushBack) => {
                write!(f, "publishers had to wait {} times", self.pushed_back)
            }
            (false, policy) => write!(f, "{} events were dropped ({policy})", self.dropped),
        }
    }
}

/// An entry fits into a cache line: an event goes into many queues, and each one must fetch its own line.
struct Entry<T> {
    item: T,
    cost: usize,
    expiry: Option<Moment>,
    /// Counts up. A lane is sorted by it.
    sequence: u64,
}

/// Where an item waits: among the valid ones of its priority, or held until it becomes valid.
#[derive(Clone, Copy)]
enum WaitingIn {
    Lane,
    Held(Moment),
}

/// A bounded queue of the items that wait for one subscriber. Items of higher priority come out first, and items of one
/// priority in order. An item that is not valid yet is held, and takes its place behind the others when it becomes
/// valid. An expired item never comes out. When there is no room, the [`FlowPolicy`] decides.
///
/// The queue reads no clock: each call gives the time. Items that will not be handed out go to the caller in `lost`, so
/// that it can settle their publishers' accounts.
pub struct SubscriptionQueue<T> {
    policy: FlowPolicy,
    limits: QueueLimits,
    lanes: [VecDeque<Entry<T>>; Priority::COUNT],
    /// A bit for each lane that holds something.
    occupied: u16,
    held: BTreeMap<(Moment, u64), (Priority, Entry<T>)>,
    expiring: BTreeMap<(Moment, u64), (Priority, WaitingIn)>,
    events: usize,
    bytes: usize,
    next_sequence: u64,
    is_disconnected: bool,
    counters: QueueCounters,
    reported: QueueCounters,
    next_report: Moment,
}

impl<T> SubscriptionQueue<T> {
    /// An empty queue. It holds no buffer yet.
    pub fn new(policy: FlowPolicy, limits: QueueLimits) -> Self {
        Self {
            policy,
            limits,
            lanes: Default::default(),
            occupied: 0,
            held: BTreeMap::new(),
            expiring: BTreeMap::new(),
            events: 0,
            bytes: 0,
            next_sequence: 0,
            is_disconnected: false,
            counters: QueueCounters::default(),
            reported: QueueCounters::default(),
            next_report: Moment::default(),
        }
    }

    /// Takes an item, or follows the policy if there is no room.
    pub fn push(
        &mut self,
        item: T,
        terms: QueueTerms,
        now: Moment,
        lost: &mut Vec<(T, Loss)>,
    ) -> Pushed<T> {
        self.advance(now, lost);
        if self.is_disconnected {
            return Pushed::Disconnected(item);
        }
        if terms.expiry.is_some_and(|expiry| now >= expiry) {
            self.counters.expired += 1;
            lost.push((item, Loss::Expired));
            return Pushed::Lost;
        }
        if !self.has_room(terms.cost) {
            match self.policy {
                FlowPolicy::PushBack => {
                    self.counters.pushed_back += 1;
                    return Pushed::Full(item);
                }
                FlowPolicy::Disconnect => {
                    self.is_disconnected = true;
                    return Pushed::Disconnected(item);
                }
                FlowPolicy::DropNewest => return self.drop_item(item, lost),
                FlowPolicy::DropOldest => {
                    while !self.has_room(terms.cost) {
                        let Some(entry) = self.take_least(terms.priority) else {
                            return self.drop_item(item, lost);
                        };
                        self.counters.dropped += 1;
                        lost.push((entry.item, Loss::Dropped));
                    }
                }
            }
        }
        self.put(item, terms, now);
        Pushed::Taken
    }

    /// Takes an item even if there is no room. Meant for items that were accepted before, such as those that a
    /// publisher sent on credit.
    pub fn push_accepted(
        &mut self,
        item: T,
        terms: QueueTerms,
        now: Moment,
        lost: &mut Vec<(T, Loss)>,
    ) {
        self.advance(now, lost);
        if terms.expiry.is_some_and(|expiry| now >= expiry) {
            self.counters.expired += 1;
            lost.push((item, Loss::Expired));
        } else {
            self.put(item, terms, now);
        }
    }

    fn put(&mut self, item: T, terms: QueueTerms, now: Moment) {
        self.counters.taken += 1;
        self.events += 1;
        self.bytes += terms.cost;
        let sequence = self.next_sequence();
        let entry = Entry {
            item,
            cost: terms.cost,
            expiry: terms.expiry,
            sequence,
        };
        let place = match terms.valid_from.filter(|from| *from > now) {
            Some(from) => {
                self.held.insert((from, sequence), (terms.priority, entry));
                WaitingIn::Held(from)
            }
            None => {
                self.push_lane(terms.priority, entry);
                WaitingIn::Lane
            }
        };
        if let Some(expiry) = terms.expiry {
            self.expiring
                .insert((expiry, sequence), (terms.priority, place));
        }
    }

    /// The next item, if one may be handed out now.
    pub fn pop(&mut self, now: Moment, lost: &mut Vec<(T, Loss)>) -> Option<T> {
        self.advance(now, lost);
        let highest = self.occupied.checked_ilog2()? as usize;
        let entry = self.pop_lane(highest)?;
        self.settle(&entry);
        self.counters.handed_out += 1;
        Some(entry.item)
    }

    /// Advances the time: releases items that have become valid, and gives up items that have expired.
    pub fn advance(&mut self, now: Moment, lost: &mut Vec<(T, Loss)>) {
        while let Some(first) = self.expiring.first_entry() {
            let (expiry, sequence) = *first.key();
            if expiry > now {
                break;
            }
            let (priority, place) = first.remove();
            let entry = match place {
                WaitingIn::Held(from) => {
                    let held = self.held.remove(&(from, sequence));
                    held.map(|(_, entry)| entry)
                }
                WaitingIn::Lane => {
                    let number = usize::from(priority.get());
                    let lane = &mut self.lanes[number];
                    let found = lane
                        .binary_search_by_key(&sequence, |entry| entry.sequence)
                        .ok()
                        .and_then(|index| lane.remove(index));
                    self.note_lane(number);
                    found
                }
            };
            if let Some(entry) = entry {
                self.settle(&entry);
                self.counters.expired += 1;
                lost.push((entry.item, Loss::Expired));
            }
        }
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (priority, mut entry) = first.remove();
            let sequence = self.next_sequence();
            if let Some(expiry) = entry.expiry {
                self.expiring.remove(&(expiry, entry.sequence));
                self.expiring
                    .insert((expiry, sequence), (priority, WaitingIn::Lane));
            }
            entry.sequence = sequence;
            self.push_lane(priority, entry);
        }
    }

    /// The time at which [`advance`](Self::advance) next has an effect.
    pub fn next_change(&self) -> Option<Moment> {
        let valid = self.held.first_key_value().map(|(key, _)| key.0);
        let expires = self.expiring.first_key_value().map(|(key, _)| key.0);
        valid.into_iter().chain(expires).min()
    }

    /// Whether an item can be handed out now.
    pub fn is_ready(&self) -> bool {
        self.events > self.held.len()
    }

    /// Whether there is room for an item of this many bytes. An empty queue takes any item.
    pub fn has_room(&self, cost: usize) -> bool {
        self.events == 0
            || (self.events < self.limits.events
                && self.bytes.saturating_add(cost) <= self.limits.bytes)
    }

    /// The lowest priority of the items that can be handed out now.
    pub(crate) fn lowest_waiting(&self) -> Option<Priority> {
        Priority::new(u8::try_from(self.occupied.trailing_zeros()).ok()?)
    }

    /// Whether an item is held until it becomes valid.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Counts an item that is handed out and was never in the queue.
    pub(crate) fn count_passing(&mut self) {
        self.counters.taken += 1;
        self.counters.handed_out += 1;
    }

    /// The number of waiting items, including held ones.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The bytes of the waiting items.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The policy of a full queue.
    pub fn policy(&self) -> FlowPolicy {
        self.policy
    }

    /// How much the queue holds.
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// The counters so far.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// The log line to write now, if the policy has acted since the last report.
    pub fn report(&mut self, now: Moment) -> Option<FlowReport> {
        let dropped = self.counters.dropped - self.reported.dropped;
        let pushed_back = self.counters.pushed_back - self.reported.pushed_back;
        let has_news = dropped > 0 || pushed_back > 0 || self.is_disconnected;
        if !has_news || now < self.next_report {
            return None;
        }
        self.reported = self.counters;
        // A disconnection is reported once.
        self.next_report = if self.is_disconnected {
            Moment::MAX
        } else {
            now.plus(REPORT_INTERVAL)
        };
        Some(FlowReport {
            policy: self.policy,
            dropped,
            pushed_back,
            disconnected: self.is_disconnected,
        })
    }

    /// The items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let lanes = self.lanes.iter().flatten();
        let held = self.held.values().map(|(_, entry)| entry);
        lanes.chain(held).map(|entry| &entry.item)
    }

    /// Takes out all items, in the order in which they would have been handed out. Held items come last.
    pub fn drain(&mut self) -> Vec<T> {
        self.expiring.clear();
        self.occupied = 0;
        self.events = 0;
        self.bytes = 0;
        let lanes = self.lanes.iter_mut().rev().flat_map(|lane| lane.drain(..));
        let held = std::mem::take(&mut self.held).into_values();
        let held = held.map(|(_, entry)| entry);
        lanes.chain(held).map(|entry| entry.item).collect()
    }

    fn drop_item(&mut self, item: T, lost: &mut Vec<(T, Loss)>) -> Pushed<T> {
        self.counters.dropped += 1;
        lost.push((item, Loss::Dropped));
        Pushed::Lost
    }

    /// Takes out an item that an item of this priority may displace: the oldest item of the lowest priority that is not
    /// higher, or else the item that is held longest.
    fn take_least(&mut self, priority: Priority) -> Option<Entry<T>> {
        let lowest = self.occupied.trailing_zeros() as usize;
        let from_lane = match lowest <= usize::from(priority.get()) {
            true => self.pop_lane(lowest),
            false => None,
        };
        let entry = match from_lane {
            Some(entry) => entry,
            None => self.held.pop_last()?.1.1,
        };
        self.settle(&entry);
        Some(entry)
    }

    fn settle(&mut self, entry: &Entry<T>) {
        self.events -= 1;
        self.bytes -= entry.cost;
        if let Some(expiry) = entry.expiry {
            self.expiring.remove(&(expiry, entry.sequence));
        }
    }

    fn push_lane(&mut self, priority: Priority, entry: Entry<T>) {
        let number = usize::from(priority.get());
        self.occupied |= 1 << number;
        self.lanes[number].push_back(entry);
    }

    fn pop_lane(&mut self, number: usize) -> Option<Entry<T>> {
        let entry = self.lanes.get_mut(number)?.pop_front();
        self.note_lane(number);
        entry
    }

    /// Notes that something may have been taken out of a lane.
    fn note_lane(&mut self, number: usize) {
        if self.lanes[number].is_empty() {
            self.occupied &= !(1 << number);
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }
}

impl<T> fmt::Debug for SubscriptionQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionQueue")
            .field("policy", &self.policy)
            .field("events", &self.events)
            .field("bytes", &self.bytes)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
