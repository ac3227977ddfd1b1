//! The writer thread: it takes all waiting orders, writes them, synchronises the disk, and only then reports success.

use std::collections::HashMap;
use std::sync::Arc;

#[cfg(test)]
use crate::disk_full::FailingDisk;
use crate::error::JournalError;
use crate::queue::{Done, Order, Queue};
use crate::state::StreamShared;
use crate::tail::Tail;

/// Files kept open for writing between groups.
const OPEN_FILES: usize = 128;

/// Writes until the queue is closed.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    /// By the streams' numbers.
    tails: HashMap<u64, Tail>,
    #[cfg(test)]
    pub(crate) disk: Option<Arc<FailingDisk>>,
}

impl Writer {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            tails: HashMap::new(),
            #[cfg(test)]
            disk: None,
        }
    }

    pub(crate) fn run(mut self) {
        while let Some(orders) = self.queue.take() {
            let mut touched = Vec::new();
            for (stream, order) in orders {
                let id = stream.id;
                if !touched.contains(&id) {
                    touched.push(id);
                }
                self.prepare(stream, order);
            }
            for id in touched {
                self.commit(id);
                self.retain(id);
                let gone = self
                    .tails
                    .get(&id)
                    .is_some_and(|tail| tail.stream.state.lock().is_removed);
                if gone {
                    self.tails.remove(&id);
                }
            }
            if self
                .tails
                .values()
                .filter(|tail| tail.file.is_some())
                .count()
                > OPEN_FILES
            {
                for tail in self.tails.values_mut() {
                    tail.file = None;
                }
            }
        }
        self.cut_unacknowledged();
    }

    /// Cuts off bytes that could not be cut off when they were refused.
    fn cut_unacknowledged(&mut self) {
        for tail in self.tails.values_mut() {
            let is_writable = {
                let state = tail.stream.state.lock();
                !state.is_removed && state.damage.is_none()
            };
            if is_writable && let Err(error) = tail.cut_unacknowledged() {
                tracing::error!(stream = %tail.stream.name, %error, "refused records stay in the file");
            }
        }
    }

    /// Puts an order into the batch of its stream. Commits the batch first if the segment would become too long.
    fn prepare(&mut self, stream: Arc<StreamShared>, order: Order) {
        let id = stream.id;
        let tail = self.tails.entry(id).or_insert_with(|| Tail::new(stream));
        let refusal = {
            let state = tail.stream.state.lock();
            if state.is_removed {
                Some(JournalError::Removed(tail.stream.name.clone()))
            } else {
                state.damage.clone().map(JournalError::Damaged)
            }
        };
        match order {
            Order::RemoveStream { done } => {
                self.commit(id);
                if let Some(tail) = self.tails.get_mut(&id) {
                    let _ = done.send(tail.remove_stream());
                }
            }
            Order::Append { done, .. } | Order::Change { done, .. } | Order::Retain { done }
                if refusal.is_some() =>
            {
                let _ = done.send(Err(refusal.unwrap_or(JournalError::Closed)));
            }
            Order::Retain { done } => {
                self.commit(id);
                self.retain(id);
                let _ = done.send(Ok(0));
            }
            Order::Append { record, done } => {
                if let Some((tail, done)) = self.room_for(id, record.size(), done) {
                    tail.add_record(&record, done);
                }
            }
            Order::Change { change, done } => {
                if let Some((tail, done)) = self.room_for(id, change.size(), done) {
                    tail.add_change(change, done);
                }
            }
        }
    }

    /// The tail of a stream, with room in its segment for what is to be written next. If another segment cannot be begun,
    /// the caller is told.
    fn room_for(&mut self, id: u64, size: usize, done: Done) -> Option<(&mut Tail, Done)> {
        if self.tails.get(&id)?.is_full(size) {
            self.commit(id);
            if let Err(error) = self.tails.get_mut(&id)?.roll() {
                let _ = done.send(Err(error));
                return None;
            }
        }
        Some((self.tails.get_mut(&id)?, done))
    }

    /// Writes and synchronises the batch of a stream, and tells the waiting callers.
    fn commit(&mut self, id: u64) {
        #[cfg(test)]
        let failing = self.disk.clone();
        let Some(tail) = self.tails.get_mut(&id) else {
            return;
        };
        if tail.batch.buffer.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut tail.batch);
        let disk = tail.write(
            &batch.buffer,
            #[cfg(test)]
            failing.as_deref(),
        );
        match disk {
            Ok(()) => tail.publish(batch),
            Err(error) => {
                tracing::error!(stream = %tail.stream.name, %error, "records were not written");
                // If the cut fails now, it is made at the latest before the next bytes are written.
                if let Err(error) = tail.cut_unacknowledged() {
                    tracing::warn!(stream = %tail.stream.name, %error, "refused records are still in the file");
                }
                for (done, _) in batch.done {
                    let _ = done.send(Err(error.clone()));
                }
            }
        }
    }

    /// Cuts a stream to its retention.
    fn retain(&mut self, id: u64) {
        if let Some(tail) = self.tails.get_mut(&id)
            && let Err(error) = tail.retain()
        {
            tracing::warn!(stream = %tail.stream.name, %error, "records that are no longer kept were not removed");
        }
    }
}
