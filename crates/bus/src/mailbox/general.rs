//! The messages of a mailbox that belong to no conversation, and an index of those that name one.

use std::collections::hash_map::{Entry as Place, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::mem;

use super::entry::{Entry, Order};
use super::turns::Turns;
use crate::message::ReceivedMessage;

/// From this many waiting messages on, their senders take turns.
const CROWD: usize = 32;
/// The most entries that are moved to put a message before others.
const FAR: usize = 1024;

/// The queue of the messages that belong to no conversation, in the order in which they came. If many wait, their senders
/// take turns; the messages of one sender stay in their order.
#[derive(Default)]
pub(super) struct General {
    entries: VecDeque<Entry>,
    /// Made when it is first asked. Boxed: many agents have no conversations.
    index: Option<Box<Index>>,
    /// The highest round of which a message was taken.
    round: u64,
    /// The senders take turns, until no message waits.
    is_crowded: bool,
    /// Made when it is first asked. Boxed: many mailboxes are never crowded.
    turns: Option<Box<Turns>>,
}

/// The places of the entries with a conversation-id, by the hash of the id. Ids with the same hash share a line.
#[derive(Default)]
struct Index {
    hasher: RandomState,
    lines: HashMap<u64, VecDeque<Order>>,
}

impl Index {
    fn hash(&self, entry: &Entry) -> Option<u64> {
        let message = entry.message.message();
        let id = message.conversation_id()?;
        Some(self.hasher.hash_one(&*id.text()?))
    }

    fn insert(&mut self, entry: &Entry) {
        if let Some(hash) = self.hash(entry) {
            let line = self.lines.entry(hash).or_default();
            let place = line.partition_point(|order| *order < entry.order);
            line.insert(place, entry.order);
        }
    }

    fn remove(&mut self, entry: &Entry) {
        if let Some(hash) = self.hash(entry)
            && let Place::Occupied(mut line) = self.lines.entry(hash)
        {
            if let Ok(place) = line.get().binary_search(&entry.order) {
                line.get_mut().remove(place);
            }
            if line.get().is_empty() {
                line.remove();
            }
        }
    }
}

impl General {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The place of a message that comes as the `arrival`th.
    #[inline]
    pub(super) fn order(&mut self, message: &ReceivedMessage, arrival: u64) -> Order {
        let round = match self.entries.len() < CROWD && !self.is_crowded {
            true => self.round,
            false => self.turn(message, arrival),
        };
        Order { round, arrival }
    }

    /// The round in which it is the turn of a message.
    fn turn(&mut self, message: &ReceivedMessage, arrival: u64) -> u64 {
        let turns = self.turns.get_or_insert_default();
        if !self.is_crowded {
            self.is_crowded = true;
            for entry in &self.entries {
                turns.take(&entry.message, entry.order.round);
            }
        }
        let round = turns.take(message, self.round);
        turns.forget_before(self.round, self.entries.len());
        let order = Order { round, arrival };
        let last = match self.entries.back() {
            Some(entry) if entry.order > order => entry.order.round,
            _ => return round,
        };
        let (length, place) = (self.entries.len(), self.place(order));
        if place.min(length - place) <= FAR {
            return round;
        }
        // Its sender has many messages before it in any case.
        self.turns
            .as_mut()
            .map_or(round, |it| it.take(message, last))
    }

    /// Adds an entry. Returns whether it is the last one.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        let is_last = self.entries.back().is_none_or(|it| it.order < entry.order);
        if !is_last {
            self.insert(entry);
            return false;
        }
        if let Some(index) = &mut self.index {
            index.insert(&entry);
        }
        self.entries.push_back(entry);
        true
    }

    /// Adds an entry whose place is before others.
    pub(super) fn insert(&mut self, entry: Entry) {
        if let Some(index) = &mut self.index {
            index.insert(&entry);
        }
        let place = self.place(entry.order);
        self.entries.insert(place, entry);
    }

    fn place(&self, order: Order) -> usize {
        self.entries.partition_point(|it| it.order < order)
    }

    /// Takes out the entry whose turn it is.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.taken(&entry);
        Some(entry)
    }

    /// Takes out an entry out of its turn.
    pub(super) fn remove(&mut self, place: usize) -> Option<Entry> {
        let entry = self.entries.remove(place)?;
        self.taken(&entry);
        Some(entry)
    }

    #[inline]
    fn taken(&mut self, entry: &Entry) {
        self.round = self.round.max(entry.order.round);
        if let Some(index) = &mut self.index {
            index.remove(entry);
        }
        if self.is_crowded && self.entries.is_empty() {
            self.is_crowded = false;
            // Conversations may hold messages of the last round.
            self.round = self.turns.as_mut().map_or(self.round, |it| it.end());
        }
    }

    /// Takes all entries out.
    pub(super) fn take(&mut self) -> VecDeque<Entry> {
        if let Some(index) = &mut self.index {
            index.lines.clear();
        }
        mem::take(&mut self.entries)
    }

    /// Takes out the entries with this conversation-id, oldest first, and perhaps some others.
    pub(super) fn take_named(&mut self, id: &str) -> Vec<Entry> {
        let index = self.index.get_or_insert_with(|| {
            let mut index = Box::<Index>::default();
            self.entries.iter().for_each(|entry| index.insert(entry));
            index
        });
        let line = index.lines.remove(&index.hasher.hash_one(id));
        let mut named = Vec::new();
        for order in line.into_iter().flatten() {
            let place = self.place(order);
            named.extend(self.entries.remove(place));
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use sealbus_fipa::{AclMessage, Performative};

    use super::*;
    use crate::message::{Provenance, ReceivedMessage};

    fn entry(arrival: u64, id: u8) -> Entry {
        let message = AclMessage::new(Performative::Inform);
        let message = match id {
            0 => message,
            id => message.with_conversation_id(format!("talk-{id}").as_str()),
        };
        Entry {
            message: ReceivedMessage::shared(Arc::new(message), Provenance::SameProcess),
            order: Order { round: 0, arrival },
            cost: 0,
            window: 0,
            receipt: None,
        }
    }

    fn named(entry: &Entry, id: &str) -> bool {
        let message = entry.message.message();
        let named = message.conversation_id().and_then(|it| it.text());
        named.is_some_and(|it| it == id)
    }

    fn orders<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u64> {
        entries
            .into_iter()
            .map(|entry| entry.order.arrival)
            .collect()
    }

    proptest! {
        /// After any sequence of arrivals and removals, the index finds the same messages as a look at every message,
        /// and loses none.
        #[test]
        fn the_index_finds_all_messages_of_a_name(
            steps in vec((0u8..6, 0u8..4, any::<prop::sample::Index>()), 1..80),
        ) {
            let mut queue = General::default();
            let mut away = Vec::new();
            for (number, (step, id, place)) in (1..).zip(steps) {
                match step {
                    0 | 1 => drop(queue.push(entry(number, id))),
                    2 => drop(queue.pop_front()),
                    3 if !queue.is_empty() => away.extend(queue.remove(place.index(queue.len()))),
                    4 => away.drain(..).for_each(|entry| queue.insert(entry)),
                    5 => {
                        let id = format!("talk-{id}");
                        let expected = orders(queue.iter().filter(|entry| named(entry, &id)));
                        let before = queue.len();
                        let mut taken = queue.take_named(&id);
                        prop_assert_eq!(queue.len() + taken.len(), before);
                        taken.retain(|entry| named(entry, &id));
                        prop_assert_eq!(orders(&taken), expected);
                        away.extend(taken);
                    }
                    _ => {}
                }
                prop_assert!(orders(queue.iter()).is_sorted());
            }
        }
    }
}
