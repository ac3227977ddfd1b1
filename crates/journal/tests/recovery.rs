//! Folders and files that are not as a journal leaves them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sealbus_journal::{
    Journal, JournalConfig, JournalError, NewRecord, OpenReport, ReadFrom, Stream, StreamConfig,
};

/// Everything goes through the redo log.
const LOGGED: JournalConfig = JournalConfig {
    waiting_bytes: 1 << 20,
    separate_streams: 0,
    redo_bytes: 1 << 20,
};

fn open(folder: &Path) -> (Journal, OpenReport) {
    Journal::open(folder, LOGGED).unwrap()
}

fn append(stream: &Stream, payload: &str) -> Result<u64, JournalError> {
    let record = NewRecord {
        payload: payload.to_owned().into(),
        ..NewRecord::default()
    };
    stream.append(record).unwrap().wait()
}

/// Makes a stream with these records, and closes the journal.
fn fill(folder: &Path, stream: &str, payloads: &[&str]) {
    let (journal, _) = open(folder);
    let config = StreamConfig {
        segment_bytes: 400,
        ..StreamConfig::default()
    };
    let stream = journal.open_stream(stream, config).unwrap();
    for payload in payloads {
        append(&stream, payload).unwrap();
    }
}

fn payloads(journal: &Journal, stream: &str) -> Vec<String> {
    let mut reader = journal.stream(stream).unwrap().read(ReadFrom::Start);
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        payloads.push(String::from_utf8(record.payload.to_vec()).unwrap());
    }
    payloads
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in files(from) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn of_two_folders_of_one_name_the_newest_with_contents_counts() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let put = |number: u32, payloads: &[&str]| {
        let made = place.path().join(format!("made-{number}"));
        fill(&made, "s", payloads);
        fs::create_dir_all(&folder).unwrap();
        fs::rename(made.join("1-s"), folder.join(format!("{number}-s"))).unwrap();
    };
    // An attempt to make the stream left the first one.
    put(9, &[]);
    put(10, &["old"]);
    let (journal, report) = open(&folder);
    assert!(report.damaged.is_empty(), "{report:?}");
    assert_eq!(payloads(&journal, "s"), ["old"]);
    drop(journal);
    assert!(!folder.join("9-s").exists());
    // Another attempt.
    put(11, &[]);
    let (journal, report) = open(&folder);
    assert!(report.damaged.is_empty(), "{report:?}");
    assert_eq!(payloads(&journal, "s"), ["old"]);
    drop(journal);
    // The stream was removed and made once more, and a power cut brought it back.
    put(100, &["new"]);
    let (journal, report) = open(&folder);
    let [damage] = &report.damaged[..] else {
        panic!("{report:?}");
    };
    assert_eq!(damage.file, folder.join("10-s"));
    assert_eq!(payloads(&journal, "s"), ["new"]);
    assert!(folder.join("10-s").exists());
}

#[test]
fn the_redo_log_finds_its_streams_beside_a_folder_that_cannot_be_opened() {
    let place = tempfile::tempdir().unwrap();
    let [folder, crashed] = ["journal", "crashed"].map(|name| place.path().join(name));
    fill(&folder, "t", &["lost"]);
    let file = files(&folder.join("1-t")).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[0] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (journal, report) = open(&folder);
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "kept").unwrap();
    copy(&folder, &crashed);
    let (journal, _) = open(&crashed);
    assert_eq!(payloads(&journal, "s"), ["kept"]);
}

#[test]
fn a_file_under_the_name_of_another_is_not_written() {
    let place = tempfile::tempdir().unwrap();
    let long = "x".repeat(200);
    fill(place.path(), "s", &[long.as_str(); 6]);
    let folder = place.path().join("1-s");
    let first = files(&folder).remove(0);
    let misnamed = folder.join(format!("{:020}.segment", 1000));
    fs::rename(&first, &misnamed).unwrap();
    let (journal, report) = open(place.path());
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert_eq!(report.damaged[0].file, misnamed);
    let stream = journal.stream("s").unwrap();
    assert_eq!(stream.end(), 7);
    let refused = append(&stream, "more");
    assert!(
        matches!(refused, Err(JournalError::Damaged(_))),
        "{refused:?}"
    );
}

#[test]
fn a_record_that_is_gone_is_not_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let long = "x".repeat(390);
    fill(place.path(), "s", &["one", "two", "three", long.as_str()]);
    let first = files(&place.path().join("1-s")).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    // The file's header has 40 bytes, and each record 48.
    bytes.drain(88..136);
    fs::write(&first, bytes).unwrap();
    let (journal, report) = open(place.path());
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    let mut reader = journal.stream("s").unwrap().read(ReadFrom::Start);
    assert_eq!(reader.next_record().unwrap().unwrap().number, 1);
    let next = reader.next_record();
    assert!(matches!(next, Err(JournalError::Damaged(_))), "{next:?}");
    assert!(reader.seek_next_file());
    assert_eq!(reader.next_record().unwrap().unwrap().number, 4);
}

#[cfg(unix)]
#[test]
fn a_redo_log_that_cannot_be_looked_at_is_not_an_absent_one() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), "s", &["one"]);
    let log = place.path().join("redo");
    // It leads to itself.
    std::os::unix::fs::symlink("redo", &log).unwrap();
    let refused = Journal::open(place.path(), LOGGED);
    assert!(
        matches!(&refused, Err(JournalError::File { path, .. }) if *path == log),
        "{refused:?}"
    );
}
