//! Rows of events that wait in a subscription behind its queue. All subscriptions that get a row share it: an entry for
//! each event in each queue would cost more than all other work for the event.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use sealbus_bus::Moment;

use super::{Consumer, Entry, State};
use crate::exchange::aftermath::{Aftermath, PeerKey, Source};
use crate::exchange::row::SharedRow;
use crate::qos::Priority;
use crate::queue::QueueTerms;

/// The waiting rows, in order.
#[derive(Default)]
pub(super) struct Rows {
    waiting: VecDeque<Arc<SharedRow>>,
    /// The place of the next event in the first row.
    next: usize,
    events: usize,
    bytes: usize,
}

impl Rows {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of events that wait, and their bytes.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.events, self.bytes)
    }

    /// The frame of the first waiting event of a process.
    pub(super) fn first_frame_of(&self, peer: PeerKey) -> Option<u64> {
        let mut first = self.next;
        let mut rows = self.waiting.iter().map(|row| (row, mem::take(&mut first)));
        let (row, place) = rows.find(|(row, _)| row.from == peer)?;
        row.events.get(place).map(|it| it.number)
    }

    fn last_priority(&self) -> Option<Priority> {
        self.waiting.back().map(|row| row.priority)
    }

    fn add(&mut self, row: Arc<SharedRow>) {
        self.events += row.events.len();
        self.bytes += row.cost;
        self.waiting.push_back(row);
    }

    /// Takes the next event out.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let row = self.waiting.front()?;
        let next = row.events.get(self.next)?;
        let entry = Entry {
            source: Source::There(row.from, next.number, next.note.clone()),
            event: next.event.clone(),
            cost: QueueTerms::from(&next.event).cost,
        };
        self.events -= 1;
        self.bytes -= entry.cost;
        self.next += 1;
        if self.next == row.events.len() {
            self.next = 0;
            self.waiting.pop_front();
        }
        Some(entry)
    }
}

impl Consumer {
    /// Takes a row if its events may wait in one piece. If not, nothing has changed.
    pub(in crate::exchange) fn put_row(
        &self,
        row: &Arc<SharedRow>,
        aftermath: &mut Aftermath,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.receive_row(row) {
            return false;
        }
        for it in &row.events {
            self.show(&it.event);
        }
        let waiting = state.rows.first_frame_of(row.from);
        aftermath.is_unread |= waiting.is_none() && !state.unread.has(row.from);
        state.rows.add(row.clone());
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl State {
    /// Counts the events of a row. Returns false if they come before others that wait, if their process has not enough
    /// credit, or if the subscription has ended.
    fn receive_row(&mut self, row: &SharedRow) -> bool {
        let lowest = self.rows.last_priority().or(self.queue.lowest_waiting());
        let is_next = lowest.is_none_or(|lowest| row.priority <= lowest) && !self.queue.holds_any();
        let ledgers = self.ledgers.as_mut();
        self.ended.is_none()
            && is_next
            && ledgers.is_some_and(|ledgers| ledgers.receive_row(row.from, row.cost))
    }

    /// Puts the events of rows into the queue. Call this before anything that looks at the events there or adds others.
    pub(super) fn dissolve_rows(&mut self) {
        while let Some(entry) = self.rows.pop() {
            if let Some(frame) = entry.source.frame() {
                self.unread.enter(frame);
            }
            let terms = QueueTerms::from(&entry.event);
            // No event in a row has a time of its own.
            let now = Moment::default();
            self.queue.push_accepted(entry, terms, now, &mut self.lost);
        }
    }

    /// Takes the next event out.
    pub(super) fn next_entry(&mut self, now: Moment) -> Option<Entry> {
        let waiting = self.queue.pop(now, &mut self.lost);
        waiting.or_else(|| {
            let entry = self.rows.pop()?;
            self.queue.count_passing();
            Some(entry)
        })
    }
}
