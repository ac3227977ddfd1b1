//! The mailbox of one agent: its letters in the journal, and what is known of them.

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_journal::{JournalError, ReadFrom, Stream, StreamConfig};
use tokio::sync::Notify;

use super::shelf::{Kept, Shelf};
use crate::LONGEST_KEPT;
use sealbus_control::post::Cover;

/// Most origins remembered for one agent; those that began first are forgotten first.
const MOST_ORIGINS: usize = 4096;

pub(super) const MAILBOX: &str = "mailbox/";
pub(super) const SEEN: &str = "seen/";
pub(super) const HANDED: &str = "handed";

/// The letters for one agent.
pub(crate) struct Mailbox {
    pub(super) agent: String,
    pub(super) stream: Stream,
    pub(super) shelf: Mutex<Shelf>,
    pub(super) is_carried: Mutex<bool>,
    pub(super) news: Notify,
    /// Why another node does not take the letters now.
    pub(super) held_up: Mutex<Option<String>>,
}

impl Mailbox {
    pub(super) fn new(agent: String, stream: Stream) -> Self {
        Self {
            agent,
            stream,
            shelf: Mutex::default(),
            is_carried: Mutex::new(false),
            news: Notify::new(),
            held_up: Mutex::default(),
        }
    }

    /// A mailbox with what its stream holds.
    pub(super) fn load(agent: String, stream: Stream) -> Result<Self, JournalError> {
        let mut shelf = Shelf::default();
        for (name, end) in stream.cursors() {
            let parts = name
                .strip_prefix(SEEN)
                .and_then(|name| name.split_once('/'));
            if let Some((origin, first)) = parts
                && let (Ok(origin), Ok(first)) = (u64::from_str_radix(origin, 16), first.parse())
            {
                shelf.remember(origin, first, end);
            }
        }
        shelf.was_handed(stream.cursor(HANDED).unwrap_or(0));
        let mut reader = stream.read(ReadFrom::Start);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => match serde_json::from_slice::<Cover>(&record.attributes) {
                    Ok(cover) => {
                        let end = cover.sequence.saturating_add(1);
                        shelf.remember(cover.origin, cover.sequence, end);
                        let size = record.payload.len() as u64;
                        shelf.put(record.number, Kept { cover, size });
                    }
                    Err(error) => tracing::error!(
                        agent, number = record.number, %error,
                        "a message that was kept cannot be read; a newer version may have written it"
                    ),
                },
                Ok(None) => break,
                // What is in other files is delivered.
                Err(error @ JournalError::Damaged(_)) => {
                    tracing::error!(agent, %error, "messages that were kept are lost");
                    if !reader.seek_next_file() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        shelf.begin_at(stream.end());
        let mailbox = Self::new(agent, stream);
        *mailbox.shelf.lock() = shelf;
        Ok(mailbox)
    }

    /// The message of a letter.
    pub(super) fn read(&self, number: u64) -> Result<Bytes, JournalError> {
        let mut reader = self.stream.read(ReadFrom::Number(number));
        match reader.next_record()? {
            Some(record) if record.number == number => Ok(record.payload),
            _ => Ok(Bytes::new()),
        }
    }

    /// Letters with what is in them.
    pub(super) fn open(&self, numbers: &[u64]) -> Result<Vec<(u64, Bytes)>, JournalError> {
        let mut opened = Vec::with_capacity(numbers.len());
        for number in numbers {
            opened.push((*number, self.read(*number)?));
        }
        Ok(opened)
    }

    /// Forgets the origins that began first, if there are too many.
    pub(super) fn forget_origins(&self) -> Result<(), JournalError> {
        let cursors = self.stream.cursors();
        let mut seen: Vec<&String> = cursors
            .keys()
            .filter(|name| name.starts_with(SEEN))
            .collect();
        // Their names begin with the second they began in.
        seen.sort();
        let surplus = seen.len().saturating_sub(MOST_ORIGINS);
        for name in seen.into_iter().take(surplus) {
            self.stream.forget_cursor(name)?;
        }
        Ok(())
    }
}

pub(super) fn mailbox_config() -> StreamConfig {
    StreamConfig {
        segment_bytes: 4 << 20,
        largest_payload: LONGEST_KEPT,
        ..StreamConfig::default()
    }
}
