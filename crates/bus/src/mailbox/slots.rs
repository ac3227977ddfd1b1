//! Where the messages of a queue lie: none moves before it is taken out, however their order changes.

use std::collections::VecDeque;
use std::mem;

use super::entry::{Entry, Order, cost_of};
use crate::message::ReceivedMessage;

/// Where an entry, or the rest of a row, lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Of a row, the order of its first message.
    pub(super) order: Order,
    pub(super) slot: u32,
}

/// Messages of one sender that came together. Each has its turn a round after the one before it.
pub(super) struct Row {
    pub(super) messages: VecDeque<ReceivedMessage>,
    pub(super) window: u32,
}

impl Row {
    /// An entry for a message of the row.
    pub(super) fn entry(message: ReceivedMessage, order: Order, window: u32) -> Entry {
        Entry {
            cost: cost_of(&message),
            message,
            order,
            window,
            receipt: None,
        }
    }

    /// How many messages have their turn before `next`, if the first one's order is `first`.
    pub(super) fn count_before(first: Order, next: Order) -> usize {
        let rounds = next.round.saturating_sub(first.round);
        let is_first = first.after(rounds) < next;
        usize::try_from(rounds + u64::from(is_first)).unwrap_or(usize::MAX)
    }
}

pub(super) enum Slot {
    Empty,
    One(Entry),
    Row(Row),
}

/// The entries, none of which moves before it is taken out.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// The slots that are empty.
    free: Vec<u32>,
}

impl Slots {
    #[inline]
    pub(super) fn put(&mut self, content: Slot) -> u32 {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.slots.get_mut(slot as usize)
        {
            *place = content;
            return slot;
        }
        // A mailbox holds far fewer messages.
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(content);
        slot
    }

    /// The entry at a place; `None` for a row.
    pub(super) fn get(&self, place: &Place) -> Option<&Entry> {
        match self.slots.get(place.slot as usize)? {
            Slot::One(entry) => Some(entry),
            Slot::Empty | Slot::Row(_) => None,
        }
    }

    #[inline]
    pub(super) fn row(&mut self, place: Place) -> Option<&mut Row> {
        match self.slots.get_mut(place.slot as usize)? {
            Slot::Row(row) => Some(row),
            Slot::Empty | Slot::One(_) => None,
        }
    }

    #[inline]
    pub(super) fn take(&mut self, place: Place) -> Slot {
        let slot = self.slots.get_mut(place.slot as usize);
        self.free.push(place.slot);
        slot.map_or(Slot::Empty, |slot| mem::replace(slot, Slot::Empty))
    }

    #[inline]
    pub(super) fn take_one(&mut self, place: Place) -> Option<Entry> {
        match self.take(place) {
            Slot::One(entry) => Some(entry),
            Slot::Empty | Slot::Row(_) => None,
        }
    }
}
