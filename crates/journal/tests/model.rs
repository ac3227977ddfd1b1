//! A journal against a model of it, with crashes that leave any tail.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use sealbus_journal::{
    Journal, JournalConfig, JournalError, NewRecord, OpenReport, ReadFrom, Stream, StreamConfig,
};

#[derive(Clone, Debug)]
enum Step {
    /// This many records at once, each of this length.
    Append(u8, u16),
    Trim(u8),
    Remove(Vec<u8>),
    Cursor(u8, u8),
    Forget(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_u8..5, 0_u16..300).prop_map(|(count, length)| Step::Append(count, length)),
        1 => any::<u8>().prop_map(Step::Trim),
        2 => prop::collection::vec(any::<u8>(), 1..5).prop_map(Step::Remove),
        2 => (0_u8..3, any::<u8>()).prop_map(|(name, position)| Step::Cursor(name, position)),
        1 => (0_u8..3).prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ]
}

/// The retention of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    records: BTreeMap<u64, Vec<u8>>,
    end: u64,
    cursors: BTreeMap<String, u64>,
}

impl Model {
    fn read(stream: &Stream) -> Result<Model, JournalError> {
        let mut records = BTreeMap::new();
        let mut reader = stream.read(ReadFrom::Start);
        while let Some(record) = reader.next_record()? {
            assert_eq!(record.key, Bytes::from(record.number.to_string()));
            records.insert(record.number, record.payload.to_vec());
        }
        assert_eq!(stream.info().records, records.len() as u64);
        Ok(Model {
            records,
            end: stream.end(),
            cursors: stream.cursors(),
        })
    }
}

/// Small segments, so that there are several.
const CONFIG: StreamConfig = StreamConfig {
    retention: sealbus_journal::Retention {
        age: None,
        count: None,
        bytes: None,
    },
    segment_bytes: 1500,
    largest_payload: 1000,
};

fn open(folder: &Path) -> (Stream, OpenReport) {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    (journal.open_stream("s", CONFIG).unwrap(), report)
}

/// Plays the steps and returns every state, oldest first.
fn play(folder: &Path, steps: &[Step]) -> Vec<Model> {
    let (mut stream, _) = open(folder);
    let mut model = Model {
        end: 1,
        ..Model::default()
    };
    let mut states = vec![model.clone()];
    for step in steps {
        match step {
            Step::Append(count, length) => {
                let mut waiting = Vec::new();
                for _ in 0..*count {
                    let payload = vec![model.end as u8; usize::from(*length)];
                    let record = NewRecord {
                        key: model.end.to_string().into(),
                        attributes: Bytes::from_static(b"attributes"),
                        payload: payload.clone().into(),
                    };
                    waiting.push(stream.append(record).unwrap());
                    model.records.insert(model.end, payload);
                    model.end += 1;
                    states.push(model.clone());
                }
                for (written, number) in waiting.into_iter().rev().zip((1..model.end).rev()) {
                    assert_eq!(written.wait().unwrap(), number);
                }
            }
            Step::Trim(share) => {
                let before = model.end * u64::from(*share) / 256;
                stream.trim(before).unwrap().wait().unwrap();
                model.records.retain(|number, _| *number >= before);
            }
            Step::Remove(shares) => {
                let numbers: Vec<u64> = shares
                    .iter()
                    .map(|share| model.end * u64::from(*share) / 255)
                    .collect();
                stream.remove(&numbers).unwrap().wait().unwrap();
                model.records.retain(|number, _| !numbers.contains(number));
            }
            Step::Cursor(name, position) => {
                let (name, position) = (format!("cursor-{name}"), u64::from(*position));
                stream.set_cursor(&name, position).unwrap().wait().unwrap();
                model.cursors.insert(name, position);
            }
            Step::Forget(name) => {
                let name = format!("cursor-{name}");
                stream.forget_cursor(&name).unwrap().wait().unwrap();
                model.cursors.remove(&name);
            }
            Step::Reopen => {
                drop(stream);
                let (again, report) = open(folder);
                assert!(
                    report.torn.is_empty() && report.damaged.is_empty(),
                    "{report:?}"
                );
                stream = again;
            }
        }
        states.push(model.clone());
        assert_eq!(Model::read(&stream).unwrap(), model);
    }
    states
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let stream = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    let mut files: Vec<PathBuf> = fs::read_dir(stream)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_acknowledged_is_there(steps in prop::collection::vec(step(), 1..25)) {
        let folder = tempfile::tempdir().unwrap();
        let states = play(folder.path(), &steps);
        let (stream, report) = open(folder.path());
        prop_assert!(report.torn.is_empty() && report.damaged.is_empty());
        prop_assert_eq!(&Model::read(&stream).unwrap(), states.last().unwrap());
    }

    #[test]
    fn what_was_not_acknowledged_is_cut_off(
        steps in prop::collection::vec(step(), 1..12),
        tail in prop::collection::vec(any::<u8>(), 1..200),
        zeros in any::<bool>(),
        like_a_record in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let states = play(folder.path(), &steps);
        let last = files(folder.path()).pop().unwrap();
        let mut bytes = fs::read(&last).unwrap();
        let whole = bytes.len() as u64;
        if zeros {
            bytes.extend(std::iter::repeat_n(0, tail.len()));
        } else {
            if like_a_record {
                bytes.extend_from_slice(b"SJ\x01\0");
            }
            bytes.extend_from_slice(&tail);
        }
        let cut = bytes.len() as u64 - whole;
        fs::write(&last, &bytes).unwrap();
        let (stream, report) = open(folder.path());
        prop_assert!(report.damaged.is_empty());
        prop_assert_eq!(report.torn.len(), 1);
        let torn = &report.torn[0];
        prop_assert_eq!((&torn.file, torn.offset, torn.bytes), (&last, whole, cut));
        prop_assert_eq!(&Model::read(&stream).unwrap(), states.last().unwrap());
        // The journal continues as if nothing had happened.
        let record = NewRecord { key: stream.end().to_string().into(), ..NewRecord::default() };
        let number = stream.append(record).unwrap().wait().unwrap();
        prop_assert_eq!(number, states.last().unwrap().end);
        drop(stream);
        let (stream, report) = open(folder.path());
        prop_assert!(report.torn.is_empty() && report.damaged.is_empty());
        prop_assert!(Model::read(&stream).unwrap().records.contains_key(&number));
    }

    #[test]
    fn whatever_is_lost_of_the_tail_the_rest_is_there(
        steps in prop::collection::vec(step(), 1..12),
        share in 0.0_f64..1.0,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let states = play(folder.path(), &steps);
        let last = files(folder.path()).pop().unwrap();
        let bytes = fs::read(&last).unwrap();
        let kept = (bytes.len() as f64 * share) as usize;
        fs::write(&last, &bytes[..kept]).unwrap();
        let (journal, report) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
        match journal.stream("s") {
            // The beginning of a segment is on disk before the segment has its name.
            None => prop_assert!(!report.damaged.is_empty()),
            Some(_) if !report.damaged.is_empty() => {}
            Some(stream) => {
                let found = Model::read(&stream).unwrap();
                // Trimmed files are already gone when the loss reverts the trimming.
                let kept = states.last().unwrap().records.range(..found.end);
                for (number, payload) in kept {
                    prop_assert_eq!(found.records.get(number), Some(payload));
                }
                let known = states.iter().any(|state| state.end == found.end);
                prop_assert!(known, "{found:?}");
            }
        }
    }

    #[test]
    fn a_garbled_byte_is_never_read_as_something_else(
        steps in prop::collection::vec(step(), 2..12),
        file in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        change in 1_u8..=255,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let states = play(folder.path(), &steps);
        let files = files(folder.path());
        let file = &files[file.index(files.len())];
        let mut bytes = fs::read(file).unwrap();
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        fs::write(file, &bytes).unwrap();
        let (journal, report) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
        let Some(stream) = journal.stream("s") else {
            prop_assert!(!report.damaged.is_empty());
            return Ok(());
        };
        let all = &states.last().unwrap().records;
        let mut every = BTreeMap::new();
        for state in &states {
            every.extend(state.records.clone());
        }
        let mut reader = stream.read(ReadFrom::Start);
        let mut read = 0;
        let end = loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    prop_assert_eq!(every.get(&record.number), Some(&record.payload.to_vec()));
                    read += usize::from(all.contains_key(&record.number));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if end.is_ok() && report.torn.is_empty() && report.damaged.is_empty() {
            // The flip hit bytes without meaning.
            prop_assert_eq!(read, all.len());
        }
        if end.is_err() {
            prop_assert!(!report.damaged.is_empty());
        }
    }
}
