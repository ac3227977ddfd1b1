//! A stream as its users see it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::change::Change;
use crate::error::{Damage, JournalError};
use crate::journal::Journal;
use crate::queue::{Order, Queue};
use crate::reader::{ReadFrom, Reader};
use crate::record::{LONGEST_PART, LONGEST_PAYLOAD, NewRecord, micros_of, time_of};
use crate::retention::Retention;
use crate::segment::Segment;
use crate::span::Spans;

/// Most cursors of a stream.
const MOST_CURSORS: usize = 65_536;
/// The most separate stretches of removed records in a stream.
const MOST_STRETCHES: usize = 65_536;
/// Longest name of a cursor, in bytes.
const LONGEST_CURSOR: usize = 1024;

/// How a stream is kept. The configuration may differ each time the journal is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// How much is kept.
    pub retention: Retention,
    /// The approximate length of a segment file, in bytes; up to 1 GiB.
    pub segment_bytes: u32,
    /// Longest payload in bytes; up to 64 MiB.
    pub largest_payload: usize,
}

impl Default for StreamConfig {
    /// The default keeps everything, in files of 16 MiB, with payloads of up to 16 MiB.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            segment_bytes: 16 << 20,
            largest_payload: 16 << 20,
        }
    }
}

/// A stream of a journal. Clones are handles to the same stream.
#[derive(Clone, Debug)]
pub struct Stream {
    pub(crate) shared: Arc<StreamShared>,
    pub(crate) queue: Arc<Queue>,
    /// Keeps it open.
    pub(crate) journal: Journal,
}

/// The shared state of the handles, the readers and the writer of a stream.
#[derive(Debug)]
pub(crate) struct StreamShared {
    /// The stream's number in its journal.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) state: Mutex<StreamState>,
    /// Number after the last record on disk.
    pub(crate) end: watch::Sender<u64>,
}

/// The part of a stream that is on disk.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) config: StreamConfig,
    /// Ascending; never empty.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// First record that is not trimmed.
    pub(crate) first: u64,
    /// Number of the next record.
    pub(crate) next: u64,
    pub(crate) last_micros: u64,
    pub(crate) cursors: BTreeMap<String, u64>,
    pub(crate) removed: Spans,
    /// Why it cannot be written.
    pub(crate) damage: Option<Damage>,
    /// The first damage found on opening, wherever it lies.
    pub(crate) found: Option<Damage>,
    pub(crate) is_removed: bool,
}

/// The report on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number of the first record that is kept.
    pub first: u64,
    /// Number after the last record.
    pub end: u64,
    /// Records that are kept: neither trimmed nor removed.
    pub records: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// The time of the last record; `None` if there was none.
    pub last: Option<SystemTime>,
    /// The damage found on opening, if any. Damage in the newest file comes first, since the stream cannot be appended
    /// to then.
    pub damage: Option<Damage>,
}

impl StreamState {
    /// Carries a change out that is on disk.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Cursor { name, position } => match position {
                Some(position) => {
                    self.cursors.insert(name.clone(), *position);
                }
                None => {
                    self.cursors.remove(name);
                }
            },
            Change::Remove { stretches } => {
                for (first, end) in stretches {
                    self.removed.add(*first, (*end).min(self.next));
                }
                self.settle();
            }
            Change::Trim { before } => {
                self.first = self.first.max(*before).min(self.next);
                self.settle();
            }
        }
    }

    /// Makes the trimmed and the removed records agree, and keeps to the most records.
    pub(crate) fn settle(&mut self) {
        if let Some(count) = self.config.retention.count {
            self.first = self.first.max(self.next.saturating_sub(count));
        }
        self.removed.forget_below(self.first);
        self.first = self.removed.next_outside(self.first).min(self.next);
        self.removed.forget_below(self.first);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.readable.lock().length))
            .sum()
    }
}

impl Stream {
    /// The journal it is in.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The known facts about it.
    pub fn info(&self) -> StreamInfo {
        let state = self.shared.state.lock();
        StreamInfo {
            first: state.first,
            end: state.next,
            records: state.next - state.first - state.removed.count(),
            bytes: state.bytes(),
            last: (state.next > 1).then(|| time_of(state.last_micros)),
            damage: state.damage.clone().or_else(|| state.found.clone()),
        }
    }

    /// Number after the last record on disk.
    pub fn end(&self) -> u64 {
        *self.shared.end.borrow()
    }

    /// Appends a record. It is written after all records that were appended to this stream before.
    ///
    /// The returned future resolves with the record's number once the record is on disk. The record is written even if
    /// the future is dropped.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`], and [`JournalError::Busy`] if too much waits to be written.
    pub fn append(&self, record: NewRecord) -> Result<Written, JournalError> {
        let largest = self.shared.state.lock().config.largest_payload;
        limited("key", record.key.len(), LONGEST_PART)?;
        limited("attributes", record.attributes.len(), LONGEST_PART)?;
        limited(
            "payload",
            record.payload.len(),
            largest.min(LONGEST_PAYLOAD),
        )?;
        let (done, written) = oneshot::channel();
        let size = record.size();
        let order = Order::Append { record, done };
        self.queue.put(&self.shared, order, size)?;
        Ok(Written(written))
    }

    /// Waits until there is room for a record that [`append`](Self::append) refused with [`JournalError::Busy`].
    pub async fn room(&self) {
        self.queue.room().await;
    }

    fn change(&self, change: Change, size: usize) -> Result<Written, JournalError> {
        let (done, written) = oneshot::channel();
        let order = Order::Change { change, done };
        self.queue.put(&self.shared, order, size)?;
        Ok(Written(written))
    }

    /// Keeps `position` under `name`, durably. The future returns `position`.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`JournalError::TooMany`].
    pub fn set_cursor(&self, name: &str, position: u64) -> Result<Written, JournalError> {
        limited("cursor name", name.len(), LONGEST_CURSOR)?;
        {
            let state = self.shared.state.lock();
            if state.cursors.len() >= MOST_CURSORS && !state.cursors.contains_key(name) {
                return Err(self.too_many("cursors", MOST_CURSORS));
            }
        }
        let change = Change::Cursor {
            name: name.to_owned(),
            position: Some(position),
        };
        self.change(change, name.len() + 48)
    }

    /// Forgets a cursor.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn forget_cursor(&self, name: &str) -> Result<Written, JournalError> {
        limited("cursor name", name.len(), LONGEST_CURSOR)?;
        let change = Change::Cursor {
            name: name.to_owned(),
            position: None,
        };
        self.change(change, name.len() + 48)
    }

    /// The position of a cursor, as it is on disk.
    pub fn cursor(&self, name: &str) -> Option<u64> {
        self.shared.state.lock().cursors.get(name).copied()
    }

    /// All cursors.
    pub fn cursors(&self) -> BTreeMap<String, u64> {
        self.shared.state.lock().cursors.clone()
    }

    /// Removes records, durably: they are no longer read. A record that does not exist yet cannot be removed.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`JournalError::TooMany`] if too many stretches of removed records lie between
    /// kept records.
    pub fn remove(&self, numbers: &[u64]) -> Result<Written, JournalError> {
        let mut spans = Spans::default();
        for number in numbers {
            spans.add(*number, number.saturating_add(1));
        }
        let stretches: Vec<(u64, u64)> = spans.iter().collect();
        let kept = self.shared.state.lock().removed.stretches();
        if kept + stretches.len() > MOST_STRETCHES {
            return Err(self.too_many("separate removals", MOST_STRETCHES));
        }
        let size = stretches.len() * 16 + 48;
        self.change(Change::Remove { stretches }, size)
    }

    /// Removes all records before `number`, durably.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn trim(&self, before: u64) -> Result<Written, JournalError> {
        self.change(Change::Trim { before }, 48)
    }

    /// Whether a record is there: neither trimmed nor removed.
    pub fn contains(&self, number: u64) -> bool {
        let state = self.shared.state.lock();
        (state.first..state.next).contains(&number) && state.removed.next_outside(number) == number
    }

    /// Reads from there on.
    pub fn read(&self, from: ReadFrom) -> Reader {
        Reader::new(self.shared.clone(), from)
    }

    /// Removes files of which nothing is kept. The journal does this itself as it writes. A stream without new records
    /// needs this call.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn retain(&self) -> Result<Written, JournalError> {
        let (done, written) = oneshot::channel();
        self.queue.put(&self.shared, Order::Retain { done }, 0)?;
        Ok(Written(written))
    }

    fn too_many(&self, what: &'static str, limit: usize) -> JournalError {
        JournalError::TooMany {
            stream: self.name().to_owned(),
            what,
            limit,
        }
    }

    /// The number of the first kept record that was written at `time` or later, or the end.
    pub(crate) fn segment_at(shared: &StreamShared, time: SystemTime) -> u64 {
        let micros = micros_of(time);
        let state = shared.state.lock();
        let after = state
            .segments
            .partition_point(|segment| segment.header.micros < micros);
        let before = after.saturating_sub(1);
        state.segments[before].header.first.max(state.first)
    }
}

fn limited(part: &'static str, size: usize, limit: usize) -> Result<(), JournalError> {
    if size > limit {
        return Err(JournalError::TooLarge { part, size, limit });
    }
    Ok(())
}

/// Resolves once the order is on disk: with the record's number, or with the number that the change is about.
#[derive(Debug)]
pub struct Written(oneshot::Receiver<Result<u64, JournalError>>);

impl Written {
    pub(crate) fn new(written: oneshot::Receiver<Result<u64, JournalError>>) -> Self {
        Self(written)
    }

    /// Waits for the disk on a thread that may block. Never call this from an async task.
    ///
    /// # Errors
    /// The reason why the order was not written.
    pub fn wait(self) -> Result<u64, JournalError> {
        self.0.blocking_recv().unwrap_or(Err(JournalError::Closed))
    }
}

impl Future for Written {
    type Output = Result<u64, JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|written| written.unwrap_or(Err(JournalError::Closed)))
    }
}
