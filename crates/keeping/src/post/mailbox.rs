//! The mailbox of one agent: its letters in the journal, and the facts known about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::until;
use sealbus_journal::{JournalError, ReadFrom, Stream, StreamConfig, Written};
use tokio::sync::Notify;

use super::LONGEST_LIFETIME;
use super::had::StretchStart;
use super::shares::Shares;
use super::shelf::{Shelf, ShelvedLetter};
use crate::LONGEST_KEPT;
use sealbus_control::UnixMillis;
use sealbus_control::clock::now;
use sealbus_control::post::{Cover, LetterMark};

pub(crate) const MAILBOX: &str = "mailbox/";
pub(super) const HANDED: &str = "handed";
const SEEN: &str = "seen/";
const HOPS: &str = "hops/";
/// In the note about a letter that came back: the letter may have been taken where it was.
const AGAIN: u64 = 1 << 32;
const TRAIL: &str = "trail/";

/// The time of a node on the trail is noted again after this many milliseconds.
const NOTED_FOR: UnixMillis = 24 * 3600 * 1000;

/// The letters for one agent.
pub(crate) struct KeptMailbox {
    pub(super) agent: String,
    pub(super) stream: Stream,
    pub(super) shelf: Mutex<Shelf>,
    pub(super) trail: Mutex<Trails>,
    pub(super) is_carried: Mutex<bool>,
    pub(super) news: Notify,
    /// Wakes the tasks that wait for another copy of their letter, when that copy is on the shelf or has failed.
    pub(super) written: Notify,
    /// The reason why another node does not take the letters at present.
    pub(super) held_up: Mutex<Option<String>>,
    /// Held by the task that keeps a notice about one of the letters.
    pub(super) notifying: tokio::sync::Mutex<()>,
}

/// The nodes to which letters were carried. They may still have some of them.
#[derive(Default)]
pub(super) struct Trails {
    /// The nodes, each with the time of the latest note on disk.
    pub(super) nodes: BTreeMap<String, UnixMillis>,
    /// Letters that were sent to a node that has not answered and may have them.
    pub(super) in_doubt: HashMap<String, BTreeSet<u64>>,
    /// For each silent node, the beginning of its silence and the time of the latest question.
    pub(super) silent: HashMap<String, (Instant, Instant)>,
}

impl KeptMailbox {
    pub(super) fn new(agent: String, stream: Stream, shelf: Shelf) -> Self {
        Self {
            agent,
            stream,
            shelf: Mutex::new(shelf),
            trail: Mutex::default(),
            is_carried: Mutex::new(false),
            news: Notify::new(),
            written: Notify::new(),
            held_up: Mutex::default(),
            notifying: tokio::sync::Mutex::default(),
        }
    }

    /// Loads a mailbox with the letters in its stream.
    pub(super) fn load(
        agent: String,
        stream: Stream,
        shares: &Arc<Shares>,
    ) -> Result<Self, JournalError> {
        let mut shelf = Shelf::counted_by(shares);
        let mut trail = Trails::default();
        let mut returned: HashMap<u64, (u32, bool)> = HashMap::new();
        for (name, value) in stream.cursors() {
            if let Some(stretch) = name.strip_prefix(SEEN).and_then(stretch_of) {
                shelf.was_here(stretch, value);
            } else if let Some(Ok(number)) = name.strip_prefix(HOPS).map(str::parse) {
                let hops = u32::try_from(value % AGAIN).unwrap_or(u32::MAX);
                returned.insert(number, (hops, value >= AGAIN));
            } else if let Some(node) = name.strip_prefix(TRAIL) {
                // Every letter that was carried there has been delivered or has expired.
                if value.saturating_add(LONGEST_LIFETIME.as_millis() as u64) < now() {
                    stream.forget_cursor(&name)?;
                } else {
                    trail.nodes.insert(node.to_owned(), value);
                }
            }
        }
        let mut settled = Vec::new();
        let mut reader = stream.read(ReadFrom::Start);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => match serde_json::from_slice::<Cover>(&record.attributes) {
                    Ok(mut cover) => {
                        if let Some((hops, again)) = returned.get(&record.number) {
                            cover.hops = cover.hops.max(*hops);
                            cover.again |= again;
                        }
                        let size = (record.payload.len() + cover.provenance.size()) as u64;
                        if shelf.had().was_settled(cover.mark()) {
                            settled.push(record.number);
                        } else {
                            shelf.had().note(cover.mark());
                            shelf.put(record.number, ShelvedLetter { cover, size });
                        }
                    }
                    Err(error) => tracing::error!(
                        agent, number = record.number, %error,
                        "a message that was kept cannot be read; a newer version may have written it"
                    ),
                },
                Ok(None) => break,
                // The letters in other files are delivered.
                Err(error @ JournalError::Damaged(_)) => {
                    tracing::error!(agent, %error, "messages that were kept are lost");
                    if !reader.seek_next_file() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if !settled.is_empty() {
            stream.remove(&settled)?;
        }
        shelf.was_handed(stream.cursor(HANDED).unwrap_or(0));
        shelf.begin_at(stream.end());
        let all: BTreeSet<u64> = shelf.letters().map(|(number, ..)| number).collect();
        for node in trail.nodes.keys() {
            trail.in_doubt.insert(node.clone(), all.clone());
        }
        let mailbox = Self::new(agent, stream, shelf);
        *mailbox.trail.lock() = trail;
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

    /// Opens letters with their messages.
    pub(super) fn open(&self, numbers: &[u64]) -> Result<Vec<(u64, Bytes)>, JournalError> {
        let mut opened = Vec::with_capacity(numbers.len());
        for number in numbers {
            opened.push((*number, self.read(*number)?));
        }
        Ok(opened)
    }

    /// Notes on disk the carry count of a letter that came back to where it lies, and whether it may have been taken
    /// elsewhere.
    pub(super) fn note_return(
        &self,
        number: u64,
        hops: u32,
        is_again: bool,
    ) -> Result<Written, JournalError> {
        let name = format!("{HOPS}{number}");
        let again = if is_again { AGAIN } else { 0 };
        self.stream.set_cursor(&name, u64::from(hops) | again)
    }

    /// Waits until no copy of a letter is on its way to the disk.
    pub(super) async fn until_written(&self, cover: &Cover) {
        let is_written = || (!self.shelf.lock().is_on_its_way(cover)).then_some(());
        until(&self.written, is_written).await;
    }

    /// Removes the notes about letters that are being removed, and notes that the letters were here, each with its
    /// carry count.
    pub(super) fn note_removed(
        &self,
        shelf: &mut Shelf,
        removed: &[(u64, LetterMark)],
    ) -> Result<(), JournalError> {
        let mut stretches: BTreeMap<StretchStart, u64> = BTreeMap::new();
        for (number, mark) in removed {
            if let Some((first, end)) = shelf.stretch(*mark) {
                stretches.insert((mark.origin, mark.hops, first), end);
            }
            let name = format!("{HOPS}{number}");
            if self.stream.cursor(&name).is_some() || shelf.is_being_written(*mark) {
                self.stream.forget_cursor(&name)?;
            }
        }
        for (start, end) in stretches {
            self.stream.set_cursor(&name_of(start), end)?;
            for contained in shelf.had().note_stretch(start, end) {
                self.stream.forget_cursor(&name_of(contained))?;
            }
        }
        Ok(())
    }

    /// Forgets stretches, in memory and on disk, if there are too many after letters of these origins were removed.
    pub(super) fn forget_surplus(&self, origins: &BTreeSet<u64>) -> Result<(), JournalError> {
        let mut shelf = self.shelf.lock();
        for origin in origins {
            while let Some(surplus) = shelf.had().surplus(*origin) {
                self.stream.forget_cursor(&name_of(surplus))?;
                shelf.forget_stretch(surplus);
            }
        }
        Ok(())
    }

    /// Puts a node on the trail before letters are carried to it. It stays there after a restart of this node.
    pub(super) async fn lead_to(&self, node: &str, now: UnixMillis) -> Result<(), JournalError> {
        let noted = self.trail.lock().nodes.get(node).copied();
        if noted.is_some_and(|noted| now < noted.saturating_add(NOTED_FOR)) {
            return Ok(());
        }
        self.stream
            .set_cursor(&format!("{TRAIL}{node}"), now)?
            .await?;
        self.trail.lock().nodes.insert(node.to_owned(), now);
        Ok(())
    }

    /// Clears the doubts about letters that are no longer here.
    pub(super) fn forget_doubts(&self, numbers: &[u64]) {
        let mut trail = self.trail.lock();
        for in_doubt in trail.in_doubt.values_mut() {
            for number in numbers {
                in_doubt.remove(number);
            }
        }
    }

    /// Takes nodes off the trail that no longer have letters from here.
    pub(super) fn forget_trail(&self, nodes: &BTreeSet<String>) -> Result<(), JournalError> {
        for node in nodes {
            self.stream.forget_cursor(&format!("{TRAIL}{node}"))?;
            let mut trail = self.trail.lock();
            trail.nodes.remove(node);
            trail.in_doubt.remove(node);
            trail.silent.remove(node);
        }
        Ok(())
    }
}

/// The name of the cursor that marks a stretch's end.
fn name_of((origin, hops, first): StretchStart) -> String {
    format!("{SEEN}{origin:016x}/{hops:x}/{first}")
}

/// The first letter of a stretch, from the name of the cursor that marks the stretch's end.
fn stretch_of(name: &str) -> Option<LetterMark> {
    let mut parts = name.split('/');
    let mark = LetterMark {
        origin: u64::from_str_radix(parts.next()?, 16).ok()?,
        hops: u32::from_str_radix(parts.next()?, 16).ok()?,
        sequence: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(mark)
}

pub(super) fn mailbox_config() -> StreamConfig {
    StreamConfig {
        segment_bytes: 4 << 20,
        largest_payload: LONGEST_KEPT,
        ..StreamConfig::default()
    }
}
