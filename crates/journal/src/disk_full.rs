//! Tests with a disk that takes only a number of bytes, or does not synchronise.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealbus_files::Positions;

use crate::{Journal, JournalConfig, JournalError, NewRecord, ReadFrom, Stream, StreamConfig};

/// A disk that fails when a test says so.
#[derive(Debug, Default)]
pub(crate) struct FailingDisk {
    /// How many more bytes it takes.
    pub(crate) room: AtomicU64,
    /// Whether the disk writes but then does not synchronise.
    pub(crate) refuses_to_synchronise: AtomicBool,
    /// Whether refused bytes cannot be cut off.
    pub(crate) refuses_to_cut: AtomicBool,
    /// Whether the segments behind the redo log do not reach the disk.
    pub(crate) refuses_to_settle: AtomicBool,
}

impl FailingDisk {
    fn with_room(bytes: u64) -> Arc<Self> {
        let disk = Self::default();
        disk.room.store(bytes, Ordering::SeqCst);
        Arc::new(disk)
    }

    /// Fails as a full disk would, after it has written as much as it still can.
    pub(crate) fn write(&self, file: &File, buffer: &[u8], offset: u64) -> io::Result<()> {
        let left = self.room.load(Ordering::SeqCst) as usize;
        if left < buffer.len() {
            file.write_all_from(&buffer[..left], offset)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room.fetch_sub(buffer.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn check(disk: &Option<Arc<Self>>, of: fn(&Self) -> &AtomicBool) -> io::Result<()> {
        match disk {
            Some(disk) if of(disk).load(Ordering::SeqCst) => {
                Err(io::Error::other("the disk refuses to"))
            }
            _ => Ok(()),
        }
    }

    fn open(self: &Arc<Self>, folder: &Path) -> Journal {
        let config = JournalConfig::default();
        let disk = self.clone();
        Journal::open_with(folder, config, |writer| writer.fail_with(disk))
            .unwrap()
            .0
    }
}

fn append(stream: &Stream, payload: &str) -> Result<u64, JournalError> {
    let record = NewRecord {
        payload: payload.to_owned().into(),
        ..NewRecord::default()
    };
    stream.append(record).unwrap().wait()
}

/// Opens the journal again, which must be whole, and reads the payloads of its stream `s`.
fn payloads(folder: &Path) -> Vec<String> {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    assert!(
        report.torn.is_empty() && report.damaged.is_empty(),
        "{report:?}"
    );
    let mut reader = journal.stream("s").unwrap().read(ReadFrom::Start);
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.number, payloads.len() as u64 + 1);
        payloads.push(String::from_utf8(record.payload.to_vec()).unwrap());
    }
    payloads
}

#[test]
fn a_full_disk_acknowledges_nothing_and_is_recovered_from() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(1000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    let long = "x".repeat(100);
    let written = (1..).take_while(|_| append(&stream, &long).is_ok()).count();
    assert!((3..9).contains(&written), "{written}");
    assert!(matches!(
        append(&stream, &long),
        Err(JournalError::NoRoom(_))
    ));
    assert_eq!(stream.end(), written as u64 + 1);
    // Shorter ones find no stale bytes behind them.
    disk.room.store(100_000, Ordering::SeqCst);
    append(&stream, "").unwrap();
    append(&stream, "last").unwrap();
    drop((stream, journal));
    let mut expected = vec![long; written];
    expected.extend(["".to_owned(), "last".to_owned()]);
    assert_eq!(payloads(folder.path()), expected);
}

/// Two records fill a segment, so that the next long record begins another.
fn short_segments() -> StreamConfig {
    StreamConfig {
        segment_bytes: 400,
        ..StreamConfig::default()
    }
}

#[test]
fn a_segment_that_a_full_disk_left_torn_is_whole_once_the_next_begins() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", short_segments()).unwrap();
    append(&stream, "one").unwrap();
    disk.room.store(20, Ordering::SeqCst);
    append(&stream, "refused").unwrap_err();
    disk.room.store(100_000, Ordering::SeqCst);
    let long = "x".repeat(390);
    assert_eq!(append(&stream, &long).unwrap(), 2);
    drop((stream, journal));
    assert_eq!(payloads(folder.path()), ["one".to_owned(), long]);
}

#[test]
fn records_that_were_refused_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", short_segments()).unwrap();
    append(&stream, "one").unwrap();
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    append(&stream, "refused").unwrap_err();
    drop((stream, journal));
    assert_eq!(payloads(folder.path()), ["one"]);

    // The same with a segment that is followed by another.
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", short_segments()).unwrap();
    append(&stream, "refused").unwrap_err();
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    let long = "x".repeat(390);
    assert_eq!(append(&stream, &long).unwrap(), 2);
    drop((stream, journal));
    assert_eq!(payloads(folder.path()), ["one".to_owned(), long]);
}
