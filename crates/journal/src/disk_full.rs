//! Tests with a disk that takes only a number of bytes, or does not synchronise.

mod errors;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sealbus_files::Positions;

use crate::{Journal, JournalConfig, JournalError, NewRecord, ReadFrom, Stream, StreamConfig};

/// A disk that fails when a test says so.
#[derive(Debug, Default)]
pub(crate) struct FailingDisk {
    /// How many more bytes it takes.
    pub(crate) room: AtomicU64,
    /// Whether the disk writes but then does not synchronise.
    pub(crate) refuses_to_synchronise: AtomicBool,
    /// Whether the redo log finds no room. It needs more room than the streams' files.
    pub(crate) refuses_log: AtomicBool,
    /// Whether refused records and entries cannot be cut off.
    pub(crate) refuses_to_cut: AtomicBool,
    /// Whether the segments behind the redo log do not reach the disk.
    pub(crate) refuses_to_settle: AtomicBool,
    /// Whether the folders of removed streams stay.
    pub(crate) refuses_to_remove: AtomicBool,
    /// How often records were synchronised.
    synchronised: AtomicU64,
    /// How often somebody tried to write.
    writes: AtomicU64,
    /// Held by a test that lets the disk wait.
    gate: Mutex<()>,
    /// Held by a test that lets the segments behind the redo log wait.
    settling: Mutex<()>,
}

/// The folders whose names do not get to the disk.
static UNNAMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The folders whose names this thread has synchronised.
    static NAMED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// Calls `sealbus_files::sync_folder`, unless a test lets it fail.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if UNNAMED.lock().contains(folder) {
        return Err(io::Error::other("the disk refuses to"));
    }
    NAMED.with_borrow_mut(|named| named.push(folder.to_owned()));
    sealbus_files::sync_folder(folder)
}

impl FailingDisk {
    fn with_room(bytes: u64) -> Arc<Self> {
        let disk = Self::default();
        disk.room.store(bytes, Ordering::SeqCst);
        Arc::new(disk)
    }

    /// Fails as a full disk would, after it has written as much as it still can.
    pub(crate) fn write(&self, file: &File, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock());
        let left = self.room.load(Ordering::SeqCst) as usize;
        if left < buffer.len() {
            file.write_all_from(&buffer[..left], offset)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room.fetch_sub(buffer.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn synchronise(disk: &Option<Arc<Self>>) -> io::Result<()> {
        if let Some(disk) = disk {
            disk.synchronised.fetch_add(1, Ordering::SeqCst);
        }
        Self::check(disk, |disk| &disk.refuses_to_synchronise)
    }

    pub(crate) fn settle(disk: &Option<Arc<Self>>) -> io::Result<()> {
        if let Some(disk) = disk {
            drop(disk.settling.lock());
        }
        Self::check(disk, |disk| &disk.refuses_to_settle)
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
        self.open_with(folder, JournalConfig::default())
    }

    fn open_with(self: &Arc<Self>, folder: &Path, config: JournalConfig) -> Journal {
        let disk = self.clone();
        Journal::open_with(folder, config, |writer| writer.fail_with(disk))
            .unwrap()
            .0
    }
}

fn record(payload: &str) -> NewRecord {
    NewRecord {
        payload: payload.to_owned().into(),
        ..NewRecord::default()
    }
}

fn append(stream: &Stream, payload: &str) -> Result<u64, JournalError> {
    stream.append(record(payload)).unwrap().wait()
}

/// Opens the journal again, which must be whole, and reads the payloads of its stream `s`.
fn payloads(folder: &Path) -> Vec<String> {
    payloads_of(folder, "s")
}

fn payloads_of(folder: &Path, stream: &str) -> Vec<String> {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    assert!(
        report.torn.is_empty() && report.damaged.is_empty(),
        "{report:?}"
    );
    let mut reader = journal.stream(stream).unwrap().read(ReadFrom::Start);
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
    // Shorter records must have no stale bytes behind them.
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

/// Everything goes through the redo log.
const LOGGED: JournalConfig = JournalConfig {
    waiting_bytes: 1 << 20,
    separate_streams: 0,
    redo_bytes: 1 << 20,
};

/// Its redo log is full after two records of 200 bytes.
const SHORT_LOG: JournalConfig = JournalConfig {
    redo_bytes: 500,
    ..LOGGED
};

/// A copy of a journal that is in use, as a crash would leave it. The journal may remove settled files of its redo log
/// meanwhile. If a file goes during the copy, the copy is made again.
fn crashed(folder: &Path) -> tempfile::TempDir {
    let log = || {
        let files = fs::read_dir(folder.join("redo")).unwrap();
        files.map(|it| it.unwrap().path()).collect::<BTreeSet<_>>()
    };
    loop {
        let (copy, before) = (tempfile::tempdir().unwrap(), log());
        let mut command = std::process::Command::new("cp");
        command.arg("-r").arg(folder.join(".")).arg(copy.path());
        let copied = command.output().unwrap();
        if log() == before {
            assert!(copied.status.success(), "{copied:?}");
            return copy;
        }
    }
}

#[test]
fn a_group_of_many_streams_is_synchronised_once() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let open = |number| journal.open_stream(&format!("s{number}"), StreamConfig::default());
    let streams: Vec<Stream> = (0..50).map(|number| open(number).unwrap()).collect();
    let gate = disk.gate.lock();
    let appends = streams
        .iter()
        .map(|stream| stream.append(NewRecord::default()));
    let waiting: Vec<_> = appends.map(Result::unwrap).collect();
    drop(gate);
    for written in waiting {
        assert_eq!(written.wait().unwrap(), 1);
    }
    // The writer may have begun with one or two streams, each on its own, before the others came.
    let count = disk.synchronised.load(Ordering::SeqCst);
    assert!((1..=3).contains(&count), "{count}");
    let mut reader = streams[49].read(ReadFrom::Start);
    assert_eq!(reader.next_record().unwrap().unwrap().number, 1);
}

#[test]
fn what_the_redo_log_refuses_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open_with(folder.path(), LOGGED);
    let streams = ["s", "t", "u"].map(|name| journal.open_stream(name, short_segments()).unwrap());
    let append_to_all = |text: &str| {
        let written = streams
            .each_ref()
            .map(|stream| stream.append(record(text)).unwrap());
        written.map(|written| written.wait().is_ok())
    };
    assert_eq!(append_to_all("one"), [true; 3]);
    disk.room.store(20, Ordering::SeqCst);
    assert_eq!(append_to_all("no room"), [false; 3]);
    disk.room.store(100_000, Ordering::SeqCst);
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    assert_eq!(append_to_all("not synchronised"), [false; 3]);
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    assert_eq!(payloads(crashed(folder.path()).path()), ["one"]);
    disk.refuses_log.store(true, Ordering::SeqCst);
    assert_eq!(append_to_all("two"), [true; 3]);
    disk.refuses_log.store(false, Ordering::SeqCst);
    assert_eq!(append_to_all("three"), [true; 3]);
    assert_eq!(append_to_all("four"), [true; 3]);

    // While refused entries cannot be cut off, they would overwrite whatever is written.
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    disk.refuses_to_cut.store(true, Ordering::SeqCst);
    assert_eq!(append_to_all("not cut off"), [false; 3]);
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    assert_eq!(append_to_all("after what is not cut off"), [false; 3]);
    disk.refuses_to_cut.store(false, Ordering::SeqCst);
    let long = "x".repeat(390);
    assert_eq!(append_to_all(&long), [true; 3]);
    let expected = [
        "one".to_owned(),
        "two".to_owned(),
        "three".to_owned(),
        "four".to_owned(),
        long,
    ];
    let copy = crashed(folder.path());
    drop((streams, journal));
    for name in ["s", "t", "u"] {
        assert_eq!(payloads_of(copy.path(), name), expected);
        assert_eq!(payloads_of(folder.path(), name), expected);
    }
}

/// The stream's folder has another name, and its files are still there. A record that only the redo log has would be
/// acknowledged, and then lost when the journal is opened again.
#[test]
fn a_stream_whose_files_cannot_be_removed_is_removed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open_with(folder.path(), LOGGED);
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    disk.refuses_to_remove.store(true, Ordering::SeqCst);
    journal.remove_stream(&stream).unwrap().wait().unwrap();
    let rest = |journal: &Path| journal.join("removed-1-s");
    assert!(rest(folder.path()).exists());
    let refused = append(&stream, "two");
    assert!(
        matches!(refused, Err(JournalError::Removed(_))),
        "{refused:?}"
    );
    let mut reader = stream.read(ReadFrom::Start);
    assert!(matches!(
        reader.next_record(),
        Err(JournalError::Removed(_))
    ));
    assert!(journal.stream("s").is_none());
    // The stream's name is free.
    let renewed = journal.open_stream("s", StreamConfig::default()).unwrap();
    assert_eq!(append(&renewed, "three").unwrap(), 1);
    let copy = crashed(folder.path());
    drop((reader, stream, renewed, journal));
    for journal in [copy.path(), folder.path()] {
        assert_eq!(payloads(journal), ["three"]);
        assert!(!rest(journal).exists());
    }
}

#[test]
fn the_redo_log_stays_until_the_segments_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(1_000_000);
    let journal = disk.open_with(folder.path(), SHORT_LOG);
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    let logs = || fs::read_dir(folder.path().join("redo")).unwrap().count();
    let long = "x".repeat(200);
    disk.refuses_to_settle.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        append(&stream, &long).unwrap();
    }
    assert!(logs() > 5, "{}", logs());
    let copy = crashed(folder.path());
    for segment in fs::read_dir(copy.path().join("1-s")).unwrap() {
        let segment = File::options()
            .write(true)
            .open(segment.unwrap().path())
            .unwrap();
        segment.set_len(40).unwrap();
    }
    assert_eq!(payloads(copy.path()), vec![long.clone(); 20]);
    disk.refuses_to_settle.store(false, Ordering::SeqCst);
    // Each next file waits for the one before.
    for _ in 0..10 {
        append(&stream, &long).unwrap();
    }
    assert!(logs() <= 2, "{}", logs());
    drop((stream, journal));
    assert!(!folder.path().join("redo").exists());
    assert_eq!(payloads(folder.path()), vec![long; 30]);
}
