//! The messages of a mailbox that belong to no conversation, and an index of those that name a conversation.

use std::collections::hash_map::{Entry as Line, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::{iter, mem};

use super::entry::{Entry, IN_A_ROUND, Order};
use super::line::{Item, Row};
use super::turns::Turns;
use crate::message::ReceivedMessage;

/// The number of waiting messages from which their senders take turns.
const CROWD: usize = 32;
/// The most items that are moved to put a message in front of others.
const FAR: usize = 1024;
/// The number of messages in succession from one sender after which its next ones form a row.
pub(super) const SHORTEST_ROW: usize = 8;
/// The room of an ended row is kept if it holds at most so many messages.
const ROOM: usize = 1024;
/// The most messages with one conversation-id that a search looks at. A conversation leaves few in the mailbox, and its
/// peer must not make a search long.
const LOOKED_AT: usize = 64;

/// The queue of the messages that belong to no conversation, in the order of their arrival. If many wait, their senders
/// take turns; the messages of one sender stay in order.
#[derive(Default)]
pub(super) struct General {
    line: VecDeque<Item>,
    /// The number of messages, including those in rows.
    count: usize,
    /// The number of rows in the line.
    rows: usize,
    /// The room of an ended row, for the next one.
    room: VecDeque<ReceivedMessage>,
    /// Whether somebody looks at single messages. Reset when no message waits.
    is_looked_at: bool,
    /// Made on the first search by name. Boxed: many agents have no conversations.
    index: Option<Box<Index>>,
    /// The highest round of which a message was taken.
    round: u64,
    /// Whether the senders take turns. Reset when no message waits.
    is_crowded: bool,
    /// Made at the first crowd. Boxed: many mailboxes are never crowded.
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
            && let Line::Occupied(mut line) = self.lines.entry(hash)
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
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All messages in their order, one by one.
    pub(super) fn iter(&mut self) -> impl Iterator<Item = &Entry> {
        self.unroll();
        self.is_looked_at = !self.is_empty();
        self.line.iter().filter_map(Item::entry)
    }

    /// The place of a message that comes as the `arrival`th.
    #[inline]
    pub(super) fn order(&mut self, message: &ReceivedMessage, arrival: u64) -> Order {
        let turn = match self.count < CROWD && !self.is_crowded {
            true => self.round * IN_A_ROUND,
            false => self.turn(message, arrival),
        };
        Order { turn, arrival }
    }

    /// The turn of a message in a crowd.
    fn turn(&mut self, message: &ReceivedMessage, arrival: u64) -> u64 {
        let turns = self.turns.get_or_insert_default();
        if !self.is_crowded {
            self.is_crowded = true;
            // There are rows only in a crowd, so all items are single entries here.
            for entry in self.line.iter().filter_map(Item::entry) {
                turns.take(&entry.message, entry.order.round(), 1);
            }
        }
        let turn = turns.take(message, self.round, 1);
        turns.forget_before(self.round, self.count);
        let order = Order { turn, arrival };
        let last = match self.line.back() {
            Some(last) if last.order() > order => last.order().round(),
            _ => return turn,
        };
        let (length, place) = (self.line.len(), self.place(order));
        if place.min(length - place) <= FAR {
            return turn;
        }
        // The move would be too far. The message goes to the end, since its sender has many messages before it in any case.
        self.turns
            .as_mut()
            .map_or(turn, |it| it.take(message, last, 1))
    }

    /// Adds an entry. Returns whether it is the last one.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if let Some(index) = &mut self.index {
            index.insert(&entry);
        }
        self.count += 1;
        if entry.may_be_in_row() && self.takes_rows() {
            let Entry { order, window, .. } = entry;
            if let Some(row) = self.last_row(order, window) {
                row.push(entry.message);
                return true;
            }
            let repeats = self.turns.as_ref().map_or(0, |turns| turns.repeats());
            if repeats >= SHORTEST_ROW && self.line.back().is_none_or(|it| it.order() < order) {
                return self.begin_row(order, window, iter::once(entry.message));
            }
        }
        self.line_up(Item::One(entry))
    }

    /// The row at the end of the line, if a message of this order and window comes next in it.
    #[inline]
    fn last_row(&mut self, order: Order, window: u32) -> Option<&mut Row> {
        match self.line.back_mut() {
            Some(Item::Row(row)) if row.is_followed_by(order, window) => Some(row),
            _ => None,
        }
    }

    /// Adds a row of these messages; `order` is that of the first. Returns whether the row is the last item.
    fn begin_row(
        &mut self,
        order: Order,
        window: u32,
        messages: impl Iterator<Item = ReceivedMessage>,
    ) -> bool {
        self.rows += 1;
        let mut row = Row::new(order, window, mem::take(&mut self.room));
        row.extend(messages);
        self.line_up(Item::Row(row))
    }

    /// Puts an item into the line. Returns whether it is the last one.
    #[inline]
    fn line_up(&mut self, item: Item) -> bool {
        let order = item.order();
        let is_last = self.line.back().is_none_or(|it| it.order() < order);
        match is_last {
            true => self.line.push_back(item),
            false => self.line.insert(self.place(order), item),
        }
        is_last
    }

    /// Whether messages may be in rows. They are single in quiet mailboxes, and for readers that look at single messages.
    #[inline]
    pub(super) fn takes_rows(&self) -> bool {
        self.is_crowded && !self.is_looked_at && self.index.is_none()
    }

    /// Adds messages of one sender; the first of them is the `arrival`th message.
    pub(super) fn push_row(
        &mut self,
        messages: impl ExactSizeIterator<Item = ReceivedMessage>,
        arrival: u64,
        window: u32,
    ) {
        let count = messages.len();
        let mut messages = messages.peekable();
        let Some(first) = messages.peek() else {
            return;
        };
        let turns = self.turns.get_or_insert_default();
        let turn = turns.take(first, self.round, count as u64);
        turns.forget_before(self.round, self.count);
        self.count += count;
        let order = Order { turn, arrival };
        match self.last_row(order, window) {
            Some(row) => row.extend(messages),
            None => drop(self.begin_row(order, window, messages)),
        }
    }

    fn place(&self, order: Order) -> usize {
        self.line.partition_point(|it| it.order() < order)
    }

    /// Takes out the entry whose turn it is.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Entry> {
        // An entry is large, so it is moved only once, at the end.
        let front = self.line.front()?;
        let order = front.order();
        // There are no rows while there is an index.
        if let (Some(index), Item::One(entry)) = (&mut self.index, front) {
            index.remove(entry);
        }
        self.count -= 1;
        self.taken(order.round());
        if let Some(Item::Row(row)) = self.line.front_mut() {
            let entry = row.pop();
            self.go_on();
            return entry;
        }
        self.line.pop_front().and_then(Item::into_entry)
    }

    /// Puts the first row, of which messages were taken, where its next message has its turn.
    #[inline]
    fn go_on(&mut self) {
        let Some(Item::Row(row)) = self.line.front() else {
            return;
        };
        let (order, is_over) = (row.order(), row.len() == 0);
        let is_next = self.line.get(1).is_none_or(|it| it.order() > order);
        if is_next && !is_over {
            return;
        }
        match self.line.pop_front() {
            Some(Item::Row(row)) if is_over => {
                self.rows -= 1;
                let room = row.into_room();
                if (self.room.capacity()..=ROOM).contains(&room.capacity()) {
                    self.room = room;
                }
            }
            item => drop(item.map(|item| self.line_up(item))),
        }
    }

    /// If a row has its turn, takes out those of its messages that come before all others, at most `most`. Returns
    /// their window and their cost.
    pub(super) fn pop_row(
        &mut self,
        out: &mut Vec<ReceivedMessage>,
        most: usize,
    ) -> Option<(u32, u64)> {
        let next = self.line.get(1).map(Item::order);
        let Item::Row(row) = self.line.front_mut()? else {
            return None;
        };
        // The row has its turn, so its first message comes before all others.
        let before = next.map_or(row.len(), |next| row.count_before(next).max(1));
        let count = most.min(before);
        if count == 0 {
            return None;
        }
        let (window, last) = (row.window(), row.order().after(count as u64 - 1));
        let cost = row.cost(count);
        out.extend(row.drain(count));
        self.count -= count;
        self.go_on();
        self.taken(last.round());
        Some((window, cost))
    }

    /// Takes out an entry before its turn. `place` is one that [`iter`](Self::iter) showed.
    pub(super) fn remove(&mut self, place: usize) -> Option<Entry> {
        self.unroll();
        let entry = self.line.remove(place)?.into_entry()?;
        self.count -= 1;
        self.taken(entry.order.round());
        if let Some(index) = &mut self.index {
            index.remove(&entry);
        }
        Some(entry)
    }

    /// A message of this round was taken.
    #[inline]
    fn taken(&mut self, round: u64) {
        self.round = self.round.max(round);
        if self.is_empty() {
            self.is_looked_at = false;
            if self.is_crowded {
                self.is_crowded = false;
                // Conversations may hold messages of the last round that was given.
                self.round = self.turns.as_mut().map_or(self.round, |it| it.end());
            }
        }
    }

    /// Turns each message in a row into an entry of its own.
    fn unroll(&mut self) {
        if self.rows > 0 {
            let all = self.take();
            self.count = all.len();
            self.line = all.into_iter().map(Item::One).collect();
        }
    }

    /// Takes all entries out, in their order.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        if let Some(index) = &mut self.index {
            index.lines.clear();
        }
        let mut all = Vec::with_capacity(self.count);
        for item in mem::take(&mut self.line) {
            match item {
                Item::One(entry) => all.push(entry),
                Item::Row(mut row) => all.extend(iter::from_fn(|| row.pop())),
            }
        }
        if mem::take(&mut self.rows) > 0 {
            all.sort_by_key(|entry| entry.order);
        }
        self.count = 0;
        all
    }

    fn index(&mut self) -> &mut Index {
        self.unroll();
        self.index.get_or_insert_with(|| {
            let mut index = Box::<Index>::default();
            let entries = self.line.iter().filter_map(Item::entry);
            entries.for_each(|entry| index.insert(entry));
            index
        })
    }

    /// Takes out the first entry with this conversation-id that `matches`, if it is among the first of them.
    pub(super) fn remove_named(
        &mut self,
        id: &str,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<Entry> {
        let index = self.index();
        let line = index.lines.get(&index.hasher.hash_one(id))?;
        let orders: Vec<Order> = line.iter().take(LOOKED_AT).copied().collect();
        let place = orders
            .into_iter()
            .map(|order| self.place(order))
            .find(|place| {
                let entry = self.line.get(*place).and_then(Item::entry);
                entry.is_some_and(|it| is_named(it, id) && matches(&it.message))
            })?;
        self.remove(place)
    }

    /// Takes out the entries with this conversation-id, oldest first, and perhaps some others.
    pub(super) fn take_named(&mut self, id: &str) -> Vec<Entry> {
        let index = self.index();
        let line = index.lines.remove(&index.hasher.hash_one(id));
        let mut named = Vec::new();
        for order in line.into_iter().flatten() {
            let place = self.place(order);
            let place = self.line.remove(place);
            named.extend(place.and_then(Item::into_entry));
        }
        self.count -= named.len();
        named
    }
}

fn is_named(entry: &Entry, id: &str) -> bool {
    let message = entry.message.message();
    let named = message.conversation_id().and_then(|it| it.text());
    named.is_some_and(|it| it == id)
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
            order: Order { turn: 0, arrival },
            cost: 0,
            window: 0,
            receipt: None,
        }
    }

    fn orders<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u64> {
        entries
            .into_iter()
            .map(|entry| entry.order.arrival)
            .collect()
    }

    #[test]
    fn a_look_for_one_message_of_a_name_is_short() {
        let mut queue = General::default();
        for number in 1..=10_000 {
            queue.push(entry(number, 1));
        }
        for number in 10_001..=10_003 {
            queue.push(entry(number, 2));
        }
        let mut looked_at = 0;
        let none = queue.remove_named("talk-1", |_| {
            looked_at += 1;
            false
        });
        assert!(none.is_none() && looked_at == LOOKED_AT);
        let mut looked_at = 0;
        let second = queue.remove_named("talk-2", |_| {
            looked_at += 1;
            looked_at == 2
        });
        assert_eq!(orders(&second), [10_002]);
        assert!(queue.remove_named("talk-3", |_| true).is_none());
        assert_eq!(orders(&queue.take_named("talk-2")), [10_001, 10_003]);
        assert_eq!(queue.len(), 10_000);
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
                    4 => {
                        for entry in away.drain(..) {
                            queue.push(entry);
                        }
                    }
                    5 => {
                        let id = format!("talk-{id}");
                        let expected = orders(queue.iter().filter(|entry| is_named(entry, &id)));
                        let before = queue.len();
                        let mut taken = queue.take_named(&id);
                        prop_assert_eq!(queue.len() + taken.len(), before);
                        taken.retain(|entry| is_named(entry, &id));
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
