//! The items in the line of a mailbox: single messages, and rows of them.

use std::collections::VecDeque;

use super::entry::{Entry, IN_A_ROUND, Order, cost_of};
use crate::message::ReceivedMessage;

pub(super) enum Item {
    One(Entry),
    Row(Row),
}

impl Item {
    #[inline]
    pub(super) fn order(&self) -> Order {
        match self {
            Self::One(entry) => entry.order,
            Self::Row(row) => row.order,
        }
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::One(entry) => Some(entry),
            Self::Row(_) => None,
        }
    }

    #[inline]
    pub(super) fn into_entry(self) -> Option<Entry> {
        match self {
            Self::One(entry) => Some(entry),
            Self::Row(_) => None,
        }
    }
}

/// Messages that came, and have their turns, directly one after the other. Mostly, one sender sent them.
pub(super) struct Row {
    /// The order of the first message.
    order: Order,
    window: u32,
    messages: VecDeque<ReceivedMessage>,
}

impl Row {
    /// A row that begins with this order and has no messages yet. `room` is empty.
    pub(super) fn new(order: Order, window: u32, room: VecDeque<ReceivedMessage>) -> Self {
        Self {
            order,
            window,
            messages: room,
        }
    }

    /// Whether a message of this order and window comes next after the last one.
    #[inline]
    pub(super) fn is_followed_by(&self, order: Order, window: u32) -> bool {
        window == self.window && order == self.order.after(self.messages.len() as u64)
    }

    #[inline]
    pub(super) fn push(&mut self, message: ReceivedMessage) {
        self.messages.push_back(message);
    }

    pub(super) fn extend(&mut self, messages: impl Iterator<Item = ReceivedMessage>) {
        self.messages.extend(messages);
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Takes the first message out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let message = self.messages.pop_front()?;
        let order = self.order;
        self.order = order.after(1);
        Some(Entry {
            cost: cost_of(&message),
            message,
            order,
            window: self.window,
            receipt: None,
        })
    }

    /// The cost of the first `count` messages.
    pub(super) fn cost(&self, count: usize) -> u64 {
        let messages = self.messages.iter().take(count);
        messages.map(|message| u64::from(cost_of(message))).sum()
    }

    /// Takes the first `count` messages out.
    pub(super) fn drain(&mut self, count: usize) -> impl Iterator<Item = ReceivedMessage> {
        self.order = self.order.after(count as u64);
        self.messages.drain(..count)
    }

    /// How many messages have their turn before `next`.
    pub(super) fn count_before(&self, next: Order) -> usize {
        let until = |round: u64| (round * IN_A_ROUND).saturating_sub(self.order.turn);
        let round = next.round();
        // The messages of that round that came earlier.
        let arrived = next.arrival.saturating_sub(self.order.arrival);
        let before = arrived.clamp(until(round), until(round + 1));
        usize::try_from(before).map_or(self.len(), |before| before.min(self.len()))
    }

    /// The room of a row without messages.
    pub(super) fn into_room(self) -> VecDeque<ReceivedMessage> {
        self.messages
    }
}
