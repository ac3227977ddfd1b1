//! Journals as their users see them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sealbus_journal::{
    Journal, JournalConfig, JournalError, NewRecord, ReadFrom, Reader, Retention, Stream,
    StreamConfig,
};

fn journal(folder: &Path) -> Journal {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    assert!(
        report.torn.is_empty() && report.damaged.is_empty(),
        "{report:?}"
    );
    journal
}

fn text(text: &str) -> NewRecord {
    NewRecord {
        payload: text.to_owned().into(),
        ..NewRecord::default()
    }
}

fn append(stream: &Stream, payload: &str) -> u64 {
    stream.append(text(payload)).unwrap().wait().unwrap()
}

fn rest(reader: &mut Reader) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        texts.push(String::from_utf8(record.payload.to_vec()).unwrap());
    }
    texts
}

fn small(retention: Retention) -> StreamConfig {
    StreamConfig {
        retention,
        segment_bytes: 400,
        ..StreamConfig::default()
    }
}

#[test]
fn a_reader_begins_where_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let stream = journal(folder.path())
        .open_stream("s", small(Retention::default()))
        .unwrap();
    for number in 1..=9 {
        append(&stream, &format!("early {number}"));
    }
    while SystemTime::now() <= stream.info().last.unwrap() {}
    let then = SystemTime::now();
    for number in 10..=20 {
        append(&stream, &format!("late {number}"));
    }
    stream.remove(&[19]).unwrap().wait().unwrap();
    let first = |from| {
        stream
            .read(from)
            .next_record()
            .unwrap()
            .map(|record| record.number)
    };
    assert_eq!(first(ReadFrom::Start), Some(1));
    assert_eq!(first(ReadFrom::Number(0)), Some(1));
    assert_eq!(first(ReadFrom::Number(7)), Some(7));
    assert_eq!(first(ReadFrom::Number(19)), Some(20));
    assert_eq!(first(ReadFrom::Time(then)), Some(10));
    assert_eq!(first(ReadFrom::Time(SystemTime::UNIX_EPOCH)), Some(1));
    assert_eq!(first(ReadFrom::Last(3)), Some(17));
    assert_eq!(first(ReadFrom::Last(1000)), Some(1));
    assert_eq!(first(ReadFrom::End), None);
    assert_eq!(first(ReadFrom::Number(21)), None);
    assert_eq!(
        rest(&mut stream.read(ReadFrom::Last(2))),
        ["late 18", "late 20"]
    );
}

#[tokio::test]
async fn a_reader_follows_the_tail() {
    let folder = tempfile::tempdir().unwrap();
    let stream = journal(folder.path())
        .open_stream("s", small(Retention::default()))
        .unwrap();
    let mut reader = stream.read(ReadFrom::End);
    let writing = tokio::task::spawn_blocking(move || {
        for number in 0..100 {
            append(&stream, &number.to_string());
        }
    });
    let mut read = Vec::new();
    while read.len() < 100 {
        tokio::time::timeout(Duration::from_secs(60), reader.ready())
            .await
            .unwrap();
        read.extend(rest(&mut reader));
    }
    writing.await.unwrap();
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(read, expected);
}

#[test]
fn many_writers_are_written_together_and_each_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let stream = journal(folder.path())
        .open_stream("s", StreamConfig::default())
        .unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let stream = stream.clone();
            std::thread::spawn(move || {
                let waiting: Vec<_> = (0..500)
                    .map(|number| {
                        let record = NewRecord {
                            key: Bytes::from(vec![writer]),
                            ..text(&number.to_string())
                        };
                        stream.append(record).unwrap()
                    })
                    .collect();
                let numbers: Vec<u64> = waiting
                    .into_iter()
                    .map(|written| written.wait().unwrap())
                    .collect();
                assert!(numbers.is_sorted());
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let mut reader = stream.read(ReadFrom::Start);
    let mut next = [0; 8];
    while let Some(record) = reader.next_record().unwrap() {
        let writer = usize::from(record.key[0]);
        assert_eq!(record.payload, Bytes::from(next[writer].to_string()));
        next[writer] += 1;
    }
    assert_eq!(next, [500; 8]);
}

#[test]
fn a_stream_keeps_so_many_records() {
    let folder = tempfile::tempdir().unwrap();
    let retention = Retention {
        count: Some(5),
        ..Retention::default()
    };
    let stream = journal(folder.path())
        .open_stream("s", small(retention))
        .unwrap();
    for number in 1..=100 {
        append(&stream, &number.to_string());
    }
    assert_eq!(
        rest(&mut stream.read(ReadFrom::Start)),
        ["96", "97", "98", "99", "100"]
    );
    stream.retain().unwrap().wait().unwrap();
    let info = stream.info();
    assert_eq!((info.first, info.end, info.records), (96, 101, 5));
    assert!(info.bytes < 2000, "{info:?}");
}

#[test]
fn a_stream_keeps_so_many_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let retention = Retention {
        bytes: Some(2000),
        ..Retention::default()
    };
    let stream = journal(folder.path())
        .open_stream("s", small(retention))
        .unwrap();
    for number in 1..=300 {
        append(&stream, &number.to_string());
    }
    stream.retain().unwrap().wait().unwrap();
    let info = stream.info();
    assert!(info.bytes <= 2000 && info.records > 5, "{info:?}");
    let read = rest(&mut stream.read(ReadFrom::Start));
    assert_eq!(read.len() as u64, info.records);
    assert_eq!(read.last().unwrap(), "300");
}

#[test]
fn what_is_too_old_goes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let stream = journal
        .open_stream("s", small(Retention::default()))
        .unwrap();
    for number in 1..=50 {
        append(&stream, &number.to_string());
    }
    while SystemTime::now() <= stream.info().last.unwrap() {}
    let retention = Retention {
        age: Some(Duration::from_micros(1)),
        ..Retention::default()
    };
    let stream = journal.open_stream("s", small(retention)).unwrap();
    assert_eq!(rest(&mut stream.read(ReadFrom::Start)), [""; 0]);
    stream.retain().unwrap().wait().unwrap();
    let info = stream.info();
    assert!(
        info.records == 0 && info.end == 51 && info.bytes < 400,
        "{info:?}"
    );
}

#[test]
fn an_emptied_stream_gives_its_file_up() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    stream.set_cursor("c", 7).unwrap().wait().unwrap();
    for _ in 0..20 {
        append(&stream, &"long ".repeat(2000));
    }
    assert!(stream.info().bytes > 200_000);
    stream.trim(21).unwrap().wait().unwrap();
    stream.retain().unwrap().wait().unwrap();
    assert!(stream.info().bytes < 1000);
    assert_eq!((stream.cursor("c"), append(&stream, "on")), (Some(7), 21));
}

#[test]
fn one_process_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = journal(folder.path());
    let second = Journal::open(folder.path(), JournalConfig::default());
    let Err(JournalError::InUse { holder, .. }) = second else {
        panic!("{second:?}");
    };
    assert_eq!(holder, format!("the process {}", std::process::id()));
    let stream = first.open_stream("s", StreamConfig::default()).unwrap();
    drop(first);
    // A stream keeps the journal open.
    assert!(Journal::open(folder.path(), JournalConfig::default()).is_err());
    let closed = stream.journal().clone();
    closed.close();
    journal(folder.path());
    assert!(matches!(
        stream.append(text("x")),
        Err(JournalError::Closed)
    ));
    assert!(matches!(
        closed.open_stream("t", StreamConfig::default()),
        Err(JournalError::Closed)
    ));
}

#[test]
fn limits_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let config = JournalConfig {
        waiting_bytes: 100,
        ..JournalConfig::default()
    };
    let (journal, _) = Journal::open(folder.path(), config).unwrap();
    assert!(matches!(
        journal.open_stream("", StreamConfig::default()),
        Err(JournalError::IllegalName { .. })
    ));
    let config = StreamConfig {
        largest_payload: 1000,
        ..StreamConfig::default()
    };
    let stream = journal.open_stream("s", config).unwrap();
    let error = stream.append(text(&"x".repeat(1001))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the payload has 1001 bytes and the limit is 1000"
    );
    let record = NewRecord {
        key: Bytes::from(vec![0; 65_536]),
        ..NewRecord::default()
    };
    assert!(matches!(
        stream.append(record),
        Err(JournalError::TooLarge { .. })
    ));
    // Some of this many records at once are refused, at any speed of the writer, and the rest are written.
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for _ in 0..10_000 {
        match stream.append(text(&"x".repeat(90))) {
            Ok(written) => accepted.push(written),
            Err(JournalError::Busy { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    let count = accepted.len() as u64;
    for written in accepted {
        written.wait().unwrap();
    }
    assert_eq!(stream.info().records, count);
}

#[test]
fn a_removed_stream_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let one = journal(folder.path());
    let stream = one.open_stream("s", StreamConfig::default()).unwrap();
    append(&stream, "lost");
    one.remove_stream(&stream).unwrap().wait().unwrap();
    assert!(one.stream("s").is_none());
    assert!(matches!(
        stream.append(text("x")).unwrap().wait(),
        Err(JournalError::Removed(_))
    ));
    let again = one.open_stream("s", StreamConfig::default()).unwrap();
    assert_eq!(append(&again, "new"), 1);
    drop((one, stream, again));
    let again = journal(folder.path()).stream("s").unwrap();
    assert_eq!(rest(&mut again.read(ReadFrom::Start)), ["new"]);
}

#[test]
fn a_damaged_file_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    {
        let stream = journal(folder.path())
            .open_stream("s", small(Retention::default()))
            .unwrap();
        for number in 1..=30 {
            append(&stream, &number.to_string());
        }
    }
    let stream_folder = folder.path().join("1-s");
    let mut files: Vec<_> = fs::read_dir(&stream_folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 2);
    // In the middle of a file that is no longer written.
    let mut bytes = fs::read(&files[1]).unwrap();
    let place = bytes.len() - 5;
    bytes[place] ^= 1;
    bytes[place - 4] ^= 1;
    fs::write(&files[1], bytes).unwrap();
    let (journal, report) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
    assert_eq!(report.damaged[0].file, files[1]);
    let stream = journal.stream("s").unwrap();
    let mut reader = stream.read(ReadFrom::Start);
    let error = loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the damage was passed over"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        error.contains(files[1].to_str().unwrap()) && error.contains("at byte"),
        "{error}"
    );
    // Later records can be read and written.
    assert_eq!(stream.info().damage, Some(report.damaged[0].clone()));
    let behind = reader.position();
    assert!(reader.next_record().is_err() && reader.position() == behind);
    assert!(reader.seek_next_file() && reader.position() > behind);
    assert!(matches!(rest(&mut reader).as_slice(), [.., last] if last == "30"));
    assert!(!reader.seek_next_file());
    assert_eq!(append(&stream, "more"), 31);
    assert_eq!(
        rest(&mut stream.read(ReadFrom::Number(29))),
        ["29", "30", "more"]
    );
    drop((journal, stream, reader));
    // The damage lies in the file being written, before bytes that are known to have been on disk.
    let last = {
        let mut files: Vec<_> = fs::read_dir(&stream_folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files.pop().unwrap()
    };
    let mut bytes = fs::read(&last).unwrap();
    let place = bytes.windows(2).position(|two| two == b"SJ").unwrap();
    bytes[place + 30] ^= 1;
    fs::write(&last, bytes).unwrap();
    let (journal, report) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
    assert!(
        report.torn.is_empty() && report.damaged.len() == 2,
        "{report:?}"
    );
    let stream = journal.stream("s").unwrap();
    assert!(matches!(
        stream.append(text("x")).unwrap().wait(),
        Err(JournalError::Damaged(_))
    ));
    let first = stream.info().end;
    let error = stream.read(ReadFrom::Number(first)).next_record();
    assert!(matches!(error, Err(JournalError::Damaged(_))), "{error:?}");
}

#[test]
fn changes_without_end_take_little_room() {
    let folder = tempfile::tempdir().unwrap();
    let opened = journal(folder.path());
    let stream = opened
        .open_stream("s", small(Retention::default()))
        .unwrap();
    for number in 1..=10 {
        append(&stream, "kept");
        for position in 0..100 {
            let position = number * 1000 + position;
            stream.set_cursor("c", position).unwrap().wait().unwrap();
        }
    }
    // Ten records, and at most a segment of changes behind each.
    let bytes = stream.info().bytes;
    assert!(bytes < 10 * 1000, "{bytes} bytes");
    assert_eq!(rest(&mut stream.read(ReadFrom::Start)), ["kept"; 10]);
    opened.close();
    let stream = journal(folder.path()).stream("s").unwrap();
    assert_eq!(stream.cursor("c"), Some(10_099));
    assert_eq!(rest(&mut stream.read(ReadFrom::Start)), ["kept"; 10]);
}

#[test]
fn a_file_that_is_too_long_damages_its_stream_alone() {
    let folder = tempfile::tempdir().unwrap();
    let opened = journal(folder.path());
    for name in ["long", "short"] {
        let stream = opened
            .open_stream(name, small(Retention::default()))
            .unwrap();
        for number in 0..10 {
            append(&stream, &format!("{number} {}", "x".repeat(200)));
        }
    }
    opened.close();
    let files = |name: &str| {
        let folders = fs::read_dir(folder.path()).unwrap();
        let mut folders = folders.map(|entry| entry.unwrap().path());
        let of_stream = folders.find(|path| path.to_string_lossy().ends_with(name));
        let files = fs::read_dir(of_stream.unwrap()).unwrap();
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let files = files("-long");
    for too_long in [&files[1], &files[files.len() - 1]] {
        // The file takes no room on the disk.
        let file = fs::File::options().write(true).open(too_long).unwrap();
        file.set_len(2 << 30).unwrap();
    }
    let (opened, report) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
    assert_eq!(report.damaged.len(), 2, "{report:?}");
    let whole = opened.stream("short").unwrap();
    assert_eq!(rest(&mut whole.read(ReadFrom::Start)).len(), 10);
    append(&whole, "more");
    let damaged = opened.stream("long").unwrap();
    let mut reader = damaged.read(ReadFrom::Start);
    assert_eq!(reader.next_record().unwrap().unwrap().number, 1);
    assert!(matches!(
        reader.next_record(),
        Err(JournalError::Damaged(_))
    ));
    assert!(reader.seek_next_file());
    assert!(reader.next_record().unwrap().is_some());
    assert!(matches!(
        damaged.append(text("more")).unwrap().wait(),
        Err(JournalError::Damaged(_))
    ));
}
