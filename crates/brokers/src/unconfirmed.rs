//! Messages that one agent or one process has sent and the broker has not confirmed yet. No I/O.
//!
//! The first message to a receiver goes alone: the next ones follow when the broker has it. A receiver that has heard
//! nothing of a sender takes the first message that comes as the beginning, and the broker may refuse one message and
//! take the next.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sealbus_bus::{Rejected, UndeliverableReason};

use crate::recent::Recent;
use crate::stamp::OrderStamp;

/// The number of refusals of one message on a connection, before another connection is tried.
const REFUSALS: u32 = 20;

/// The number of receivers remembered. Beyond it, settled receivers that were not written to for longest are forgotten.
const REMEMBERED: usize = 4_096;

/// The room for refusals, besides the room for messages. A sender must not wait for its refusal because others write
/// much.
const RESERVE: Room = Room {
    messages: 1024,
    bytes: 8 << 20,
};

/// How much may be accepted and not confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// A message that was accepted.
#[derive(Debug)]
struct Accepted<T> {
    receiver: Arc<str>,
    number: u64,
    payload: Bytes,
    note: T,
    since: Instant,
    /// How often the broker refused the message on the present connection.
    refusals: u32,
}

/// A message to be published now.
#[derive(Debug)]
pub(crate) struct Publication<T> {
    /// The name of the message in the broker's answer.
    pub(crate) order: u64,
    pub(crate) receiver: Arc<str>,
    pub(crate) payload: Bytes,
    pub(crate) note: T,
    pub(crate) stamp: OrderStamp,
}

/// The messages to one receiver.
#[derive(Debug)]
struct Line<T> {
    /// The last number given.
    last: u64,
    /// The highest number that was given up.
    given_up: u64,
    /// Numbers accepted and not settled.
    open: BTreeSet<u64>,
    /// Some messages came back. When the others have come too, all go back to the bus.
    returned: Option<BTreeMap<u64, (T, Bytes)>>,
    /// The order of the message accepted last.
    used: u64,
    /// Whether the broker has had a message, so that its receiver knows where the numbers begin.
    has_begun: bool,
}

impl<T> Line<T> {
    /// A line whose numbers follow `floor`.
    fn above(floor: u64) -> Self {
        Self {
            last: floor,
            given_up: floor,
            open: BTreeSet::new(),
            returned: None,
            used: 0,
            has_begun: false,
        }
    }

    fn is_settled(&self) -> bool {
        self.open.is_empty() && self.returned.is_none()
    }
}

/// News for the bus.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// All messages to a receiver without a queue have come back.
    Returned {
        receiver: Arc<str>,
        messages: Vec<(T, Bytes)>,
    },
    /// A message is lost.
    Undeliverable {
        receiver: Arc<str>,
        payload: Bytes,
        note: T,
        reason: UndeliverableReason,
    },
}

/// Messages that one agent or one process has sent and the broker has not confirmed yet. `T` is the owner's note on
/// each.
#[derive(Debug)]
pub(crate) struct Unconfirmed<T> {
    epoch: u64,
    room: Room,
    next_order: u64,
    /// The messages to be published, by the order of acceptance.
    waiting: BTreeMap<u64, Accepted<T>>,
    /// The messages to be published once the broker has the first message to their receiver.
    held: BTreeMap<u64, Accepted<T>>,
    /// The messages published on the present connection.
    published: BTreeMap<u64, Accepted<T>>,
    lines: HashMap<Arc<str>, Line<T>>,
    /// The upper bound of the numbers given to forgotten receivers.
    floor: u64,
    bytes: usize,
    /// Messages that were confirmed lately, if the broker may lose them.
    recent: Option<Recent<Accepted<T>>>,
}

impl<T: Clone> Unconfirmed<T> {
    pub(crate) fn new(epoch: u64, room: Room) -> Self {
        Self {
            epoch,
            room,
            next_order: 0,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            published: BTreeMap::new(),
            lines: HashMap::new(),
            floor: 0,
            bytes: 0,
            recent: None,
        }
    }

    /// Also keeps confirmed messages, for a broker that may lose them: as many as may be unconfirmed.
    pub(crate) fn at_risk(mut self) -> Self {
        self.recent = Some(Recent::new(self.room.messages, self.room.bytes));
        self
    }

    /// Whether nothing waits for the broker.
    pub(crate) fn is_settled(&self) -> bool {
        self.count() == 0
    }

    /// Messages that are not settled.
    fn count(&self) -> usize {
        self.waiting.len() + self.held.len() + self.published.len()
    }

    /// Whether something can be published.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there is something to publish, or something that the broker may have lost.
    pub(crate) fn needs_connection(&self) -> bool {
        let at_risk = self.recent.as_ref();
        self.is_waiting() || at_risk.is_some_and(|recent| !recent.is_empty())
    }

    pub(crate) fn has_room(&self) -> bool {
        self.fits(self.room)
    }

    fn fits(&self, room: Room) -> bool {
        self.count() < room.messages && self.bytes < room.bytes
    }

    /// Whether something waits for the broker's answers: messages behind a first one, or soon senders, because half of
    /// the room is taken.
    pub(crate) fn needs_answers(&self) -> bool {
        !self.held.is_empty()
            || 2 * self.count() >= self.room.messages
            || 2 * self.bytes >= self.room.bytes
    }

    /// Checks that a message to `receiver` would be accepted.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check(&self, receiver: &str) -> Result<(), Rejected> {
        self.check_within(self.room, receiver)
    }

    /// Checks that a refusal to `receiver` would be accepted.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check_refusal(&self, receiver: &str) -> Result<(), Rejected> {
        let room = Room {
            messages: self.room.messages + RESERVE.messages,
            bytes: self.room.bytes + RESERVE.bytes,
        };
        self.check_within(room, receiver)
    }

    fn check_within(&self, room: Room, receiver: &str) -> Result<(), Rejected> {
        if let Some(line) = self.lines.get(receiver)
            && line.returned.is_some()
        {
            return Err(Rejected::Moving);
        }
        if self.fits(room) {
            Ok(())
        } else {
            Err(Rejected::Congested)
        }
    }

    /// Accepts a message that [`check`](Self::check) has passed.
    pub(crate) fn accept(&mut self, receiver: &Arc<str>, payload: Bytes, note: T, now: Instant) {
        if self.lines.len() >= REMEMBERED && !self.lines.contains_key(receiver) {
            self.forget_some();
        }
        let floor = self.floor;
        let line = self.lines.entry(receiver.clone());
        let line = line.or_insert_with(|| Line::above(floor));
        let follows = !line.has_begun && !line.open.is_empty();
        line.used = self.next_order;
        line.last += 1;
        line.open.insert(line.last);
        self.bytes += payload.len();
        let accepted = Accepted {
            receiver: receiver.clone(),
            number: line.last,
            payload,
            note,
            since: now,
            refusals: 0,
        };
        let queue = if follows {
            &mut self.held
        } else {
            &mut self.waiting
        };
        queue.insert(self.next_order, accepted);
        self.next_order += 1;
    }

    /// Forgets half of the receivers that have confirmed everything. It is not known whether they have taken the
    /// confirmed messages. Their next message has a number above all earlier ones, and says that no earlier message is
    /// waited for.
    fn forget_some(&mut self) {
        let settled = self.lines.values().filter(|line| line.is_settled());
        let mut used: Vec<_> = settled.map(|line| line.used).collect();
        used.sort_unstable();
        let Some(middle) = used.get(used.len() / 2).copied() else {
            return;
        };
        let floor = &mut self.floor;
        self.lines.retain(|_, line| {
            let stays = !line.is_settled() || line.used > middle;
            if !stays {
                *floor = line.last.max(*floor);
            }
            stays
        });
    }

    /// The next message to publish. It counts as published from now on.
    pub(crate) fn publish(&mut self) -> Option<Publication<T>> {
        let (order, accepted) = self.waiting.pop_first()?;
        let base = self
            .lines
            .get(&accepted.receiver)
            .map_or(1, |line| accepted.number.min(line.given_up + 1));
        let publication = Publication {
            order,
            receiver: accepted.receiver.clone(),
            payload: accepted.payload.clone(),
            note: accepted.note.clone(),
            stamp: OrderStamp {
                epoch: self.epoch,
                number: accepted.number,
                base,
            },
        };
        self.published.insert(order, accepted);
        Some(publication)
    }

    /// The first message whose answer is awaited.
    pub(crate) fn first_published(&self) -> Option<u64> {
        self.published.keys().next().copied()
    }

    /// Whether the answer to this message is awaited.
    pub(crate) fn is_published(&self, order: u64) -> bool {
        self.published.contains_key(&order)
    }

    /// Notes that the broker has the message at `now`.
    pub(crate) fn confirmed(&mut self, order: u64, now: Instant) -> Option<Outcome<T>> {
        let accepted = self.published.remove(&order)?;
        let length = accepted.payload.len();
        self.bytes -= length;
        if let Some(line) = self.lines.get_mut(&accepted.receiver)
            && !line.has_begun
        {
            line.has_begun = true;
            let freed = |_: &u64, held: &mut Accepted<T>| held.receiver == accepted.receiver;
            self.waiting.extend(self.held.extract_if(.., freed));
        }
        let outcome = self.settle(&accepted.receiver, accepted.number);
        if let Some(recent) = &mut self.recent {
            recent.confirmed(order, accepted, length, now);
        }
        outcome
    }

    /// Forgets messages that were confirmed long before `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        if let Some(recent) = &mut self.recent {
            recent.expire(now);
        }
    }

    /// Notes that the broker refused the message this time. The message is published again. Returns whether that needs
    /// a new connection.
    ///
    /// In a cluster, a connection may go on asking a broker that has died, and refuse everything for a queue whose new
    /// leader would take it.
    #[must_use]
    pub(crate) fn refused(&mut self, order: u64) -> bool {
        let Some(mut accepted) = self.published.remove(&order) else {
            return false;
        };
        accepted.refusals += 1;
        let is_stuck = accepted.refusals >= REFUSALS;
        self.waiting.insert(order, accepted);
        is_stuck
    }

    /// Notes that there is no queue for the message.
    pub(crate) fn unroutable(&mut self, order: u64) -> Option<Outcome<T>> {
        let accepted = self.published.remove(&order)?;
        self.bytes -= accepted.payload.len();
        let line = self.lines.get_mut(&accepted.receiver)?;
        line.given_up = line.given_up.max(accepted.number);
        line.has_begun = false;
        let returned = line.returned.get_or_insert_default();
        returned.insert(accepted.number, (accepted.note, accepted.payload));
        // Waiting messages would come back as well.
        let same = |_: &u64, waiting: &mut Accepted<T>| waiting.receiver == accepted.receiver;
        let ahead = self.waiting.extract_if(.., same);
        for (_, waiting) in ahead.chain(self.held.extract_if(.., same)) {
            self.bytes -= waiting.payload.len();
            line.open.remove(&waiting.number);
            line.given_up = line.given_up.max(waiting.number);
            returned.insert(waiting.number, (waiting.note, waiting.payload));
        }
        self.settle(&accepted.receiver, accepted.number)
    }

    fn settle(&mut self, receiver: &Arc<str>, number: u64) -> Option<Outcome<T>> {
        let line = self.lines.get_mut(receiver)?;
        line.open.remove(&number);
        if !line.open.is_empty() {
            return None;
        }
        // The map is emptied, not removed: until the bus has the messages, nothing newer may be accepted.
        let messages = std::mem::take(line.returned.as_mut()?);
        Some(Outcome::Returned {
            receiver: receiver.clone(),
            messages: messages.into_values().collect(),
        })
    }

    /// Notes that the bus has the messages that came back from `receiver`.
    pub(crate) fn settled(&mut self, receiver: &str) {
        if let Some(line) = self.lines.get_mut(receiver) {
            line.returned = None;
        }
    }

    /// Publishes messages that were confirmed lately again, from `now` on. The broker may have lost them before the
    /// connection was gone.
    pub(crate) fn may_have_lost(&mut self, now: Instant) {
        let at_risk = self.recent.as_mut().map(Recent::take);
        let mut receivers = HashSet::new();
        for (order, mut accepted) in at_risk.into_iter().flatten() {
            let floor = self.floor;
            let line = self.lines.entry(accepted.receiver.clone());
            let line = line.or_insert_with(|| Line::above(floor));
            // The receiver has no queue any more, and the bus gets its messages back.
            if line.returned.is_some() {
                continue;
            }
            // The receiver may have had none of them.
            line.has_begun = false;
            line.open.insert(accepted.number);
            self.bytes += accepted.payload.len();
            accepted.since = now;
            receivers.insert(accepted.receiver.clone());
            self.held.insert(order, accepted);
        }
        if receivers.is_empty() {
            return;
        }
        let later = |_: &u64, waiting: &mut Accepted<T>| receivers.contains(&waiting.receiver);
        self.held.extend(self.waiting.extract_if(.., later));
        self.begin_anew();
    }

    /// Notes that the connection is gone. Unconfirmed messages are published again on the next one.
    pub(crate) fn disconnected(&mut self) {
        let mut again = std::mem::take(&mut self.published);
        self.waiting.append(&mut again);
        for accepted in self.waiting.values_mut() {
            accepted.refusals = 0;
        }
    }

    /// Gives up messages that have waited for longer than `patience` at `now`.
    pub(crate) fn give_up(
        &mut self,
        patience: Duration,
        now: Instant,
        why: &UndeliverableReason,
    ) -> Vec<Outcome<T>> {
        let is_old =
            |_: &u64, accepted: &mut Accepted<T>| now.duration_since(accepted.since) >= patience;
        let mut too_old: BTreeMap<_, _> = self.waiting.extract_if(.., is_old).collect();
        too_old.extend(self.held.extract_if(.., is_old));
        let mut outcomes = Vec::new();
        for accepted in too_old.into_values() {
            self.bytes -= accepted.payload.len();
            if let Some(line) = self.lines.get_mut(&accepted.receiver) {
                line.given_up = line.given_up.max(accepted.number);
            }
            outcomes.extend(self.settle(&accepted.receiver, accepted.number));
            outcomes.push(Outcome::Undeliverable {
                receiver: accepted.receiver,
                payload: accepted.payload,
                note: accepted.note,
                reason: why.clone(),
            });
        }
        if !self.held.is_empty() {
            self.begin_anew();
        }
        outcomes
    }

    /// For each receiver that has no message under way, lets the first of the held messages go.
    fn begin_anew(&mut self) {
        let under_way = self.waiting.values().chain(self.published.values());
        let mut begun: HashSet<_> = under_way.map(|first| first.receiver.clone()).collect();
        let is_first = |_: &u64, held: &mut Accepted<T>| begun.insert(held.receiver.clone());
        self.waiting.extend(self.held.extract_if(.., is_first));
    }
}

#[cfg(test)]
mod tests;
