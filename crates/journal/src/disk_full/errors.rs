//! Errors whose effects outlast them: names that do not get to the disk, errors that the system reports once, and cuts
//! that fail.

use super::*;
use crate::change::{Change, MOST_STRETCHES};
use crate::replay::read_log;
use crate::segment::file_name;
use crate::state::StreamShared;
use crate::tail::snapshot;

/// The names in a folder do not get to the disk as long as this value exists.
struct Unnamed(PathBuf);

impl Unnamed {
    fn new(folder: PathBuf) -> Self {
        UNNAMED.lock().insert(folder.clone());
        Self(folder)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        UNNAMED.lock().remove(&self.0);
    }
}

impl FailingDisk {
    /// Waits until the next bytes are to be written. The caller holds the gate.
    fn wait_for_write(&self, before: u64) {
        while self.writes.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}

/// Zeroes the records of the stream `s`, as on a disk that did not take them.
fn lose(journal: &Path) {
    let path = journal.join("1-s").join(file_name(1));
    let mut bytes = fs::read(&path).unwrap();
    bytes[40..].fill(0);
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_segment_whose_name_may_not_be_on_disk_takes_no_records() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let long = "x".repeat(390);
    let stream = journal.open_stream("s", short_segments()).unwrap();
    append(&stream, "one").unwrap();
    let unnamed = Unnamed::new(folder.path().join("1-s"));
    append(&stream, &long).unwrap_err();
    // There is room for it in the segment before.
    append(&stream, "refused").unwrap_err();
    drop(unnamed);
    assert_eq!(append(&stream, "two").unwrap(), 2);
    assert_eq!(append(&stream, "three").unwrap(), 3);

    // The same with a segment without records: another takes its place under the same name.
    let changed = journal.open_stream("t", short_segments()).unwrap();
    changed.set_cursor("c", 7).unwrap().wait().unwrap();
    let unnamed = Unnamed::new(folder.path().join("2-t"));
    append(&changed, &long).unwrap_err();
    append(&changed, "refused").unwrap_err();
    // Retention does not pass over it either.
    changed.retain().unwrap().wait().unwrap();
    append(&changed, "refused").unwrap_err();
    drop(unnamed);
    assert_eq!(append(&changed, "one").unwrap(), 1);
    drop((stream, changed, journal));
    assert_eq!(payloads(folder.path()), ["one", "two", "three"]);
    assert_eq!(payloads_of(folder.path(), "t"), ["one"]);
    let (journal, _) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
    assert_eq!(journal.stream("t").unwrap().cursor("c"), Some(7));
}

#[test]
fn a_stream_that_could_not_be_made_leaves_no_other_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let open = || journal.open_stream("s", StreamConfig::default());
    let unnamed = Unnamed::new(folder.path().to_owned());
    open().unwrap_err();
    drop(unnamed);
    assert!(!folder.path().join("1-s").exists());
    let unnamed = Unnamed::new(folder.path().join("2-s"));
    let stream = open().unwrap();
    append(&stream, "refused").unwrap_err();
    drop(unnamed);
    assert_eq!(append(&stream, "one").unwrap(), 1);
    drop((stream, journal));
    let entries = fs::read_dir(folder.path()).unwrap();
    let folders = entries.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 1);
    assert_eq!(payloads(folder.path()), ["one"]);
}

#[test]
fn a_redo_log_whose_name_may_not_be_on_disk_takes_no_entries() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(1_000_000);
    let journal = disk.open_with(folder.path(), SHORT_LOG);
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    let log = folder.path().join("redo");
    let entries = || {
        let mut count = 0;
        for file in fs::read_dir(&log).unwrap() {
            let file = File::open(file.unwrap().path()).unwrap();
            let damage = read_log(file, true, |_, _| {
                count += 1;
                Ok(())
            });
            assert_eq!(damage.unwrap(), None);
        }
        count
    };
    disk.refuses_to_settle.store(true, Ordering::SeqCst);
    let long = "x".repeat(200);
    let unnamed = Unnamed::new(log.clone());
    append(&stream, &long).unwrap();
    append(&stream, &long).unwrap();
    assert_eq!(entries(), 0);
    drop(unnamed);
    append(&stream, &long).unwrap();
    append(&stream, &long).unwrap();
    assert_eq!(entries(), 2);
    // Its file is full.
    let unnamed = Unnamed::new(log.clone());
    append(&stream, &long).unwrap();
    assert_eq!(entries(), 2);
    drop(unnamed);
    append(&stream, &long).unwrap();
    assert_eq!(entries(), 3);
    let copy = crashed(folder.path());
    drop((stream, journal));
    for journal in [copy.path(), folder.path()] {
        assert_eq!(payloads(journal), vec![long.clone(); 6]);
    }
}

/// The system reports the loss of bytes to one of those that wait for the file, and only once.
#[test]
fn bytes_that_a_failed_synchronisation_may_have_lost_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(1_000_000);
    let journal = disk.open_with(folder.path(), LOGGED);
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    // It is too long for the log.
    append(&stream, &"x".repeat(200_000)).unwrap_err();
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    lose(folder.path());
    drop((stream, journal));
    assert!(!folder.path().join("redo").exists());
    assert_eq!(payloads(folder.path()), ["one"]);
}

#[test]
fn a_failure_while_the_redo_log_is_settled_keeps_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(1_000_000);
    let journal = disk.open_with(folder.path(), SHORT_LOG);
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    let long = "x".repeat(200);
    let settling = disk.settling.lock();
    // The third begins another file, and the first file waits.
    for _ in 0..3 {
        append(&stream, &long).unwrap();
    }
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    append(&stream, &"x".repeat(200_000)).unwrap_err();
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    lose(folder.path());
    drop(settling);
    for _ in 0..2 {
        append(&stream, &long).unwrap();
    }
    drop((stream, journal));
    assert!(!folder.path().join("redo").exists());
    assert_eq!(payloads(folder.path()), vec![long; 5]);
}

#[test]
fn a_removal_counts_once_the_disk_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    let remove = || journal.remove_stream(&stream).unwrap().wait();
    let unnamed = Unnamed::new(folder.path().to_owned());
    remove().unwrap_err();
    assert!(journal.stream("s").is_none());
    remove().unwrap_err();
    drop((stream, journal));
    Journal::open(folder.path(), JournalConfig::default()).unwrap_err();
    drop(unnamed);
    // A power cut would bring it back.
    let [removed, there] = ["removed-1-s", "1-s"].map(|name| folder.path().join(name));
    fs::rename(&removed, &there).unwrap();
    assert_eq!(payloads(folder.path()), ["one"]);

    let journal = disk.open(folder.path());
    let stream = journal.stream("s").unwrap();
    let unnamed = Unnamed::new(folder.path().to_owned());
    let removal = journal.remove_stream(&stream).unwrap();
    removal.wait().unwrap_err();
    drop(unnamed);
    let removal = journal.remove_stream(&stream).unwrap();
    removal.wait().unwrap();
    drop((stream, journal));
    let journal = disk.open(folder.path());
    assert!(journal.streams().is_empty() && !removed.exists());
}

#[test]
fn a_cut_that_did_not_get_to_the_disk_is_synchronised_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    append(&stream, "refused").unwrap_err();
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    let before = disk.synchronised.load(Ordering::SeqCst);
    append(&stream, "two").unwrap();
    // The cut, and the record.
    assert_eq!(disk.synchronised.load(Ordering::SeqCst) - before, 2);
    drop((stream, journal));
    assert_eq!(payloads(folder.path()), ["one", "two"]);
}

/// After a crash, the log is written before the refused records, and the second of them would follow.
#[test]
fn records_that_could_not_be_cut_off_do_not_follow_those_of_the_redo_log() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(10_000_000);
    let journal = disk.open_with(folder.path(), LOGGED);
    let [stream, other] =
        ["s", "t"].map(|name| journal.open_stream(name, StreamConfig::default()).unwrap());
    append(&stream, "one").unwrap();
    disk.refuses_to_synchronise.store(true, Ordering::SeqCst);
    disk.refuses_to_cut.store(true, Ordering::SeqCst);
    // Each of these groups is too long for the log. The first one holds up the writer.
    let long = "x".repeat(200_000);
    let (gate, before) = (disk.gate.lock(), disk.writes.load(Ordering::SeqCst));
    let held = other.append(record(&long)).unwrap();
    disk.wait_for_write(before);
    let group = ["new", long.as_str()].map(|payload| stream.append(record(payload)).unwrap());
    drop(gate);
    held.wait().unwrap_err();
    for refused in group {
        refused.wait().unwrap_err();
    }
    disk.refuses_to_synchronise.store(false, Ordering::SeqCst);
    append(&stream, "new").unwrap_err();
    disk.refuses_to_cut.store(false, Ordering::SeqCst);
    assert_eq!(append(&stream, "new").unwrap(), 2);
    let copy = crashed(folder.path());
    drop((stream, other, journal));
    for journal in [copy.path(), folder.path()] {
        assert_eq!(payloads(journal), ["one", "new"]);
    }
}

#[test]
fn a_change_concerns_the_records_before_it_also_in_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::with_room(100_000);
    let journal = disk.open(folder.path());
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    let (gate, before) = (disk.gate.lock(), disk.writes.load(Ordering::SeqCst));
    let held = stream.append(record("two")).unwrap();
    disk.wait_for_write(before);
    let trimmed = stream.trim(u64::MAX).unwrap();
    let removed = stream.remove(&[3]).unwrap();
    let third = stream.append(record("three")).unwrap();
    drop(gate);
    for written in [held, trimmed, removed] {
        written.wait().unwrap();
    }
    assert_eq!(third.wait().unwrap(), 3);
    let numbers = |stream: &Stream| {
        let mut reader = stream.read(ReadFrom::Start);
        let next = || reader.next_record().unwrap().map(|record| record.number);
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&stream), [3]);
    drop((stream, journal));
    let stream = disk.open(folder.path()).stream("s").unwrap();
    assert_eq!(numbers(&stream), [3]);
}

/// Records say how much of their file was on disk before them. A process that was killed leaves more than that.
#[test]
fn bytes_of_an_earlier_process_get_to_the_disk_before_others_follow() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path(), JournalConfig::default());
    let (journal, _) = open().unwrap();
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "one").unwrap();
    drop((stream, journal));
    drop(NAMED.take());
    let _journal = open().unwrap();
    assert!(NAMED.take().contains(&folder.path().join("1-s")));
}

#[test]
fn many_removals_are_noted_in_records_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1-s");
    let stream = StreamShared::make(path, 1, "s", StreamConfig::default()).unwrap();
    let mut state = stream.state.lock();
    let count = MOST_STRETCHES as u64 + 1;
    state.next = 2 * count + 2;
    for number in 1..=count {
        state.removed.add(2 * number, 2 * number + 1);
    }
    let lengths = snapshot(&state).into_iter().map(|change| match change {
        Change::Remove { stretches } => stretches.len(),
        _ => 0,
    });
    let lengths: Vec<usize> = lengths.filter(|length| *length > 0).collect();
    assert_eq!(lengths, [MOST_STRETCHES, 1]);
}
