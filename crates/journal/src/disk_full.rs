//! Tests with a disk that takes only so many bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Journal, JournalConfig, JournalError, NewRecord, ReadFrom, StreamConfig};

#[test]
fn a_full_disk_acknowledges_nothing_and_is_recovered_from() {
    let folder = tempfile::tempdir().unwrap();
    let room = Arc::new(AtomicU64::new(1000));
    let given = room.clone();
    let config = JournalConfig::default();
    let (journal, _) =
        Journal::open_with(folder.path(), config, |writer| writer.room = Some(given)).unwrap();
    let stream = journal.open_stream("s", StreamConfig::default()).unwrap();
    let append = |number: u64| {
        let payload = format!("{number} {}", "x".repeat(100));
        let record = NewRecord {
            payload: payload.into(),
            ..NewRecord::default()
        };
        stream.append(record).unwrap().wait()
    };
    let written = (1..).take_while(|number| append(*number).is_ok()).count() as u64;
    assert!((3..9).contains(&written), "{written}");
    assert!(matches!(append(0), Err(JournalError::NoRoom(_))));
    assert_eq!(stream.end(), written + 1);
    // Shorter ones find no stale bytes behind them.
    room.store(100_000, Ordering::SeqCst);
    let short = stream.append(NewRecord::default()).unwrap().wait().unwrap();
    assert_eq!(short, written + 1);
    assert_eq!(append(short + 1).unwrap(), short + 1);
    drop((stream, journal));
    let (journal, report) = Journal::open(folder.path(), config).unwrap();
    assert!(
        report.torn.is_empty() && report.damaged.is_empty(),
        "{report:?}"
    );
    let mut reader = journal.stream("s").unwrap().read(ReadFrom::Start);
    let mut count = 0;
    while let Some(record) = reader.next_record().unwrap() {
        count += 1;
        assert_eq!(record.number, count);
    }
    assert_eq!(count, short + 1);
}
