//! The writer thread: it takes all waiting orders, writes them, synchronises the disk, and only then reports success.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[cfg(test)]
use crate::disk_full::FailingDisk;
use crate::error::JournalError;
use crate::queue::{Done, Order, Queue};
use crate::redo::Redo;
use crate::replay::LARGEST;
use crate::state::StreamShared;
use crate::tail::{Batch, Tail};

/// Files kept open for writing between groups.
const OPEN_FILES: usize = 128;
/// Most bytes that are written into the redo log at once.
const GROUP: usize = 64 << 20;

/// Writes until the queue is closed.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    /// The tails, by the streams' numbers.
    tails: HashMap<u64, Tail>,
    redo: Redo,
    /// Streams of which the redo log has bytes that their files do not have.
    deferred: HashSet<u64>,
    deferred_bytes: usize,
    /// When so many bytes are deferred, they are written into the files.
    most_deferred: usize,
    separate_streams: usize,
    #[cfg(test)]
    disk: Option<Arc<FailingDisk>>,
}

impl Writer {
    pub(crate) fn new(queue: Arc<Queue>, redo: Redo, separate_streams: usize) -> Self {
        Self {
            queue,
            tails: HashMap::new(),
            deferred: HashSet::new(),
            deferred_bytes: 0,
            most_deferred: redo.file_bytes as usize / 4,
            redo,
            separate_streams,
            #[cfg(test)]
            disk: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn fail_with(&mut self, disk: Arc<FailingDisk>) {
        self.redo.disk = Some(disk.clone());
        self.disk = Some(disk);
    }

    pub(crate) fn run(mut self) {
        while let Some(orders) = self.queue.take() {
            // After a crash, refused entries would overwrite the bytes that are written now.
            if let Err(error) = self.redo.cut() {
                for (_, order) in orders {
                    let _ = order.done().send(Err(error.clone()));
                }
                continue;
            }
            let mut touched = HashSet::new();
            for (stream, order) in orders {
                touched.insert(stream.id);
                self.prepare(stream, order);
            }
            self.commit_all(&touched);
            if self.redo.cut().is_err() {
                continue;
            }
            for id in touched {
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
        let written = self.write_deferred();
        self.redo.close(written);
    }

    /// Commits the batches of these streams. Many batches go together into the redo log. A batch is committed on its own
    /// if there are few, if it is too large to gain from the log, or if refused bytes must be cut off first.
    fn commit_all(&mut self, ids: &HashSet<u64>) {
        let (mut small, mut large): (Vec<u64>, Vec<u64>) = ids.iter().partition(|id| {
            self.tails.get(id).is_some_and(|tail| {
                (1..=LARGEST).contains(&tail.batch.buffer.len()) && !tail.holds_refused()
            })
        });
        if small.len() <= self.separate_streams {
            large.append(&mut small);
        } else if let Err(error) = self.begin() {
            tracing::warn!(%error, "cannot begin the redo log: each stream is synchronised on its own");
            large.append(&mut small);
        }
        for id in large {
            self.commit(id);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        // Neighbours are often neighbours on disk, too.
        small.sort_unstable();
        for id in small {
            let Some(tail) = self.tails.get_mut(&id) else {
                continue;
            };
            let batch = std::mem::take(&mut tail.batch);
            self.redo.add(id, tail.segment(), &batch.buffer);
            bytes += batch.buffer.len();
            group.push((id, batch));
            if bytes > GROUP {
                bytes = 0;
                self.synchronise(std::mem::take(&mut group));
            }
        }
        self.synchronise(group);
        if self.deferred_bytes > self.most_deferred
            && let Err(error) = self.write_deferred()
        {
            tracing::warn!(%error, "records that the redo log has could not be written into their files yet");
        }
    }

    /// Makes room in the redo log.
    fn begin(&mut self) -> Result<(), JournalError> {
        if self.redo.is_full() {
            self.write_deferred()?;
        }
        self.redo.begin()
    }

    /// Synchronises a group in the redo log, and tells the waiting callers. If the log does not take it, each stream is
    /// synchronised on its own, which takes less room.
    fn synchronise(&mut self, group: Vec<(u64, Batch)>) {
        let synchronised = self.redo.commit();
        let is_clean = self.redo.cut().is_ok();
        for (id, batch) in group {
            let Some(tail) = self.tails.get_mut(&id) else {
                continue;
            };
            match &synchronised {
                Ok(()) => {
                    self.deferred.insert(id);
                    self.deferred_bytes += batch.buffer.len();
                    tail.publish(batch, true);
                }
                Err(_) if is_clean => {
                    tail.batch = batch;
                    self.commit(id);
                }
                Err(error) => tail.refuse(batch, error),
            }
        }
    }

    /// Writes the bytes that only the redo log has into the files.
    fn write_deferred(&mut self) -> Result<(), JournalError> {
        // If it fails, it is tried again after as many further bytes.
        self.deferred_bytes = 0;
        let mut failed = Ok(());
        let mut ids: Vec<u64> = self.deferred.drain().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(tail) = self.tails.get_mut(&id) else {
                continue;
            };
            if tail.stream.state.lock().is_removed {
                continue;
            }
            let is_open = tail.file.is_some();
            if let Err(error) = tail.write_deferred() {
                self.deferred.insert(id);
                failed = Err(error);
            }
            if !is_open {
                tail.file = None;
            }
        }
        failed
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
        let suspect = &self.redo.suspect;
        let tail = (self.tails.entry(id)).or_insert_with(|| Tail::new(stream, suspect.clone()));
        #[cfg(test)]
        tail.disk.clone_from(&self.disk);
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

    /// The tail of a stream, with room in its segment for the next `size` bytes. If another segment cannot be begun, the
    /// caller is told.
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
        let Some(tail) = self.tails.get_mut(&id) else {
            return;
        };
        if tail.batch.buffer.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut tail.batch);
        match tail.write(&batch.buffer) {
            Ok(()) => tail.publish(batch, false),
            Err(error) => tail.refuse(batch, &error),
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
