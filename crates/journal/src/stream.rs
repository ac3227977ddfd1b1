//! A stream, for its users.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;

use crate::change::{Change, MOST_STRETCHES};
use crate::error::{Damage, JournalError};
use crate::journal::Journal;
use crate::queue::{Order, Queue};
use crate::reader::{ReadFrom, Reader};
use crate::record::{LONGEST_PART, LONGEST_PAYLOAD, NewRecord, time_of};
use crate::span::Spans;
use crate::state::StreamShared;
use crate::written::Written;

/// Most cursors of a stream.
const MOST_CURSORS: usize = 65_536;
/// Longest name of a cursor, in bytes.
const LONGEST_CURSOR: usize = 1024;

/// A stream of a journal. Clones are handles to the same stream.
#[derive(Clone, Debug)]
pub struct Stream {
    pub(crate) shared: Arc<StreamShared>,
    pub(crate) queue: Arc<Queue>,
    /// Keeps the journal open.
    pub(crate) journal: Journal,
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

impl Stream {
    /// The journal that holds the stream.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The report on the stream.
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
        Ok(Written::new(written))
    }

    /// Waits until there is room for a record that [`append`](Self::append) refused with [`JournalError::Busy`].
    pub async fn room(&self) {
        self.queue.room().await;
    }

    fn change(&self, change: Change) -> Result<Written, JournalError> {
        let (done, written) = oneshot::channel();
        let size = change.size();
        let order = Order::Change { change, done };
        self.queue.put(&self.shared, order, size)?;
        Ok(Written::new(written))
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
        self.change(change)
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
        self.change(change)
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
        self.change(Change::Remove { stretches })
    }

    /// Removes all records before `number`, durably.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn trim(&self, before: u64) -> Result<Written, JournalError> {
        self.change(Change::Trim { before })
    }

    /// Whether a record is there: neither trimmed nor removed.
    pub fn contains(&self, number: u64) -> bool {
        let state = self.shared.state.lock();
        (state.first..state.next).contains(&number) && state.removed.next_outside(number) == number
    }

    /// A reader that begins at `from`.
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
        Ok(Written::new(written))
    }

    fn too_many(&self, what: &'static str, limit: usize) -> JournalError {
        JournalError::TooMany {
            stream: self.name().to_owned(),
            what,
            limit,
        }
    }
}

fn limited(part: &'static str, size: usize, limit: usize) -> Result<(), JournalError> {
    if size > limit {
        return Err(JournalError::TooLarge { part, size, limit });
    }
    Ok(())
}
