//! The redo log against a model: groups over many streams, with crashes that lose what was not synchronised.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sealbus_journal::fuzzing::{Place, read_log};
use sealbus_journal::{
    Journal, JournalConfig, NewRecord, OpenReport, ReadFrom, Retention, StreamConfig,
};

/// Everything goes through the log, in short files.
const CONFIG: JournalConfig = JournalConfig {
    waiting_bytes: 1 << 20,
    separate_streams: 0,
    redo_bytes: 3000,
};
/// Short segments, too.
const STREAM: StreamConfig = StreamConfig {
    retention: Retention {
        age: None,
        count: None,
        bytes: None,
    },
    segment_bytes: 700,
    largest_payload: 1000,
};

#[derive(Clone, Debug)]
enum Step {
    /// Records of these streams and lengths at once.
    Group(Vec<(u8, u16)>),
    Trim(u8, u8),
    Cursor(u8, u8),
    RemoveStream(u8),
    Reopen,
    /// The process ends here. Stretches that the log covers may be lost in the segments.
    Crash(Crash),
}

#[derive(Clone, Debug)]
struct Crash {
    /// The fate of one covered stretch after the other: it is kept, zeroed or cut off.
    fates: Vec<u8>,
    /// The beginning of a group that was not acknowledged.
    torn: Vec<u8>,
    /// Which segments a first recovery had written before it was interrupted, too.
    recovered: Vec<bool>,
}

fn step() -> impl Strategy<Value = Step> {
    let crash = (
        prop::collection::vec(0_u8..3, 1..8),
        prop::collection::vec(any::<u8>(), 0..100),
        prop::collection::vec(any::<bool>(), 1..4),
    );
    let crash = crash.prop_map(|(fates, torn, recovered)| Crash {
        fates,
        torn,
        recovered,
    });
    prop_oneof![
        6 => prop::collection::vec((0_u8..5, 0_u16..300), 1..12).prop_map(Step::Group),
        1 => (0_u8..5, any::<u8>()).prop_map(|(stream, share)| Step::Trim(stream, share)),
        1 => (0_u8..5, any::<u8>()).prop_map(|(stream, place)| Step::Cursor(stream, place)),
        1 => (0_u8..5).prop_map(Step::RemoveStream),
        1 => Just(Step::Reopen),
        2 => crash.prop_map(Step::Crash),
    ]
}

/// The kept part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    records: BTreeMap<u64, Vec<u8>>,
    end: u64,
    cursor: Option<u64>,
}

type Models = BTreeMap<String, Model>;

fn read(journal: &Journal) -> Models {
    let streams = journal.streams().into_iter().map(|stream| {
        let mut records = BTreeMap::new();
        let mut reader = stream.read(ReadFrom::Start);
        while let Some(record) = reader.next_record().unwrap() {
            records.insert(record.number, record.payload.to_vec());
        }
        let model = Model {
            records,
            end: stream.end(),
            cursor: stream.cursor("c"),
        };
        (stream.name().to_owned(), model)
    });
    streams.collect()
}

fn open(folder: &Path) -> (Journal, OpenReport) {
    Journal::open(folder, CONFIG).unwrap()
}

/// Copies a folder. The log comes first, for its files may go meanwhile.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut paths: Vec<PathBuf> = fs::read_dir(from)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort_by_key(|path| !path.ends_with("redo"));
    for path in paths {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else if let Err(error) = fs::copy(&path, &target) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            let _ = fs::remove_file(&target);
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    files.retain(|path| path.extension().is_some_and(|ending| ending == "segment"));
    files.sort();
    files
}

/// The places in the log, each with a length.
fn covered(folder: &Path) -> Vec<(Place, usize)> {
    let mut covered = Vec::new();
    for path in files(&folder.join("redo")) {
        let damage = read_log(File::open(path).unwrap(), true, |place, bytes| {
            covered.push((place, bytes.len()));
            Ok(())
        });
        assert_eq!(damage.unwrap(), None);
    }
    covered
}

fn folder_of(journal: &Path, stream: u64) -> Option<PathBuf> {
    let begin = format!("{stream}-");
    let mut paths = fs::read_dir(journal).unwrap().map(|it| it.unwrap().path());
    paths.find(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&begin)
    })
}

/// Loses what lies in the log, as far as the fates say. A stretch before one that is not in the log was synchronised
/// with it.
fn lose(journal: &Path, fates: &[u8]) {
    let mut fates = fates.iter().cycle();
    let mut ends = BTreeMap::new();
    for (place, length) in covered(journal).into_iter().rev() {
        let Some(folder) = folder_of(journal, place.stream) else {
            continue;
        };
        let path = folder.join(format!("{:020}.segment", place.first));
        let Ok(mut bytes) = fs::read(&path) else {
            continue;
        };
        let (from, end) = (place.offset as usize, place.offset as usize + length);
        let followed = *ends.entry(path.clone()).or_insert(end.max(bytes.len()));
        if bytes[8..12] != place.salt.to_le_bytes() || followed != end {
            continue;
        }
        ends.insert(path.clone(), from);
        match fates.next() {
            Some(1) if from < bytes.len() => {
                let end = end.min(bytes.len());
                bytes[from..end].fill(0);
            }
            Some(2) => bytes.truncate(from),
            _ => {}
        }
        fs::write(&path, bytes).unwrap();
    }
}

/// The journal's folder after a crash, recovered once, and once more after an interrupted recovery.
fn crash(folder: &Path, crash: &Crash, model: &Models) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let [lost, once, twice] = ["lost", "once", "twice"].map(|name| place.path().join(name));
    copy(folder, &lost);
    lose(&lost, &crash.fates);
    if let Some(newest) = files(&lost.join("redo")).pop() {
        let mut bytes = fs::read(&newest).unwrap();
        bytes.extend_from_slice(&crash.torn);
        fs::write(&newest, bytes).unwrap();
    }
    copy(&lost, &once);
    let (journal, report) = open(&once);
    assert!(report.damaged.is_empty(), "{report:?}");
    assert_eq!(read(&journal), *model);
    drop(journal);
    assert!(!once.join("redo").exists());
    copy(&lost, &twice);
    let streams = model.len() as u64 + 20;
    let segments = (1..streams).filter_map(|stream| folder_of(&once, stream));
    let segments: Vec<PathBuf> = segments.flat_map(|folder| files(&folder)).collect();
    for (path, written) in segments.iter().zip(crash.recovered.iter().cycle()) {
        let target = twice.join(path.strip_prefix(&once).unwrap());
        if *written && target.exists() {
            fs::copy(path, target).unwrap();
        }
    }
    let (journal, report) = open(&twice);
    assert!(report.damaged.is_empty(), "{report:?}");
    assert_eq!(read(&journal), *model);
    drop(journal);
    let result = tempfile::tempdir().unwrap();
    copy(&twice, result.path());
    result
}

fn append(journal: &Journal, model: &mut Models, records: &[(u8, u16)]) {
    let mut waiting = Vec::new();
    for (stream, length) in records {
        let name = format!("s{stream}");
        let stream = journal.open_stream(&name, STREAM).unwrap();
        let kept = model.entry(name).or_insert_with(|| Model {
            end: 1,
            ..Model::default()
        });
        let payload = vec![waiting.len() as u8; usize::from(*length)];
        let record = NewRecord {
            payload: payload.clone().into(),
            ..NewRecord::default()
        };
        waiting.push((stream.append(record).unwrap(), kept.end));
        kept.records.insert(kept.end, payload);
        kept.end += 1;
    }
    for (written, number) in waiting {
        assert_eq!(written.wait().unwrap(), number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_the_log_has_survives_any_loss_elsewhere(steps in prop::collection::vec(step(), 1..20)) {
        let mut folder = tempfile::tempdir().unwrap();
        let mut model = Models::new();
        let (mut journal, _) = open(folder.path());
        for step in &steps {
            match step {
                Step::Group(records) => append(&journal, &mut model, records),
                Step::Trim(stream, share) => {
                    let name = format!("s{stream}");
                    if let (Some(stream), Some(kept)) = (journal.stream(&name), model.get_mut(&name)) {
                        let before = kept.end * u64::from(*share) / 256;
                        stream.trim(before).unwrap().wait().unwrap();
                        kept.records.retain(|number, _| *number >= before);
                    }
                }
                Step::Cursor(stream, place) => {
                    let name = format!("s{stream}");
                    if let (Some(stream), Some(kept)) = (journal.stream(&name), model.get_mut(&name)) {
                        stream.set_cursor("c", u64::from(*place)).unwrap().wait().unwrap();
                        kept.cursor = Some(u64::from(*place));
                    }
                }
                Step::RemoveStream(stream) => {
                    if let Some(stream) = journal.stream(&format!("s{stream}")) {
                        journal.remove_stream(&stream).unwrap().wait().unwrap();
                        model.remove(stream.name());
                    }
                }
                Step::Reopen => {
                    journal.close();
                    prop_assert!(!folder.path().join("redo").exists());
                    let (again, report) = open(folder.path());
                    prop_assert!(report.torn.is_empty() && report.damaged.is_empty());
                    journal = again;
                }
                Step::Crash(how) => {
                    let after = crash(folder.path(), how, &model);
                    journal.close();
                    folder = after;
                    journal = open(folder.path()).0;
                }
            }
            prop_assert_eq!(&read(&journal), &model);
        }
    }

    #[test]
    fn any_bytes_in_place_of_the_log_are_survived(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        whole in any::<bool>(),
    ) {
        let (place, mut model) = (tempfile::tempdir().unwrap(), Models::new());
        let (journal, _) = open(&place.path().join("live"));
        append(&journal, &mut model, &[(0, 10), (1, 10)]);
        let copied = place.path().join("copied");
        copy(journal.folder(), &copied);
        let log = files(&copied.join("redo")).pop().unwrap();
        let mut bytes = if whole { fs::read(&log).unwrap() } else { Vec::new() };
        bytes.extend_from_slice(&tail);
        fs::write(&log, bytes).unwrap();
        let (journal, report) = open(&copied);
        prop_assert_eq!(report.damaged.is_empty(), whole);
        if whole {
            prop_assert_eq!(read(&journal), model);
        }
    }
}

#[test]
fn damage_before_later_entries_is_reported_once_and_put_aside() {
    let (place, mut model) = (tempfile::tempdir().unwrap(), Models::new());
    let (journal, _) = open(&place.path().join("live"));
    append(&journal, &mut model, &[(0, 10)]);
    append(&journal, &mut model, &[(1, 10)]);
    append(&journal, &mut model, &[(2, 10)]);
    let copied = place.path().join("copied");
    copy(journal.folder(), &copied);
    let log = files(&copied.join("redo")).pop().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    // In the second entry; the third shows that it was on disk.
    let at = bytes.len() / 2 + 20;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let (journal, report) = open(&copied);
    let [damage] = &report.damaged[..] else {
        panic!("{report:?}");
    };
    assert!(damage.file.to_string_lossy().contains("redo-damaged-"));
    assert!(damage.file.exists());
    let found = read(&journal);
    assert_eq!((&found["s0"], &found["s2"]), (&model["s0"], &model["s2"]));
    assert_eq!(found["s1"].end, 1);
    drop(journal);
    assert!(open(&copied).1.damaged.is_empty());
}

#[test]
fn a_log_that_comes_back_overwrites_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (folder, mut model) = (place.path().join("journal"), Models::new());
    let (journal, _) = open(&folder);
    append(&journal, &mut model, &[(0, 10), (1, 10), (2, 10)]);
    let renewed = journal.open_stream("s9", STREAM).unwrap();
    let set_cursor = |place| renewed.set_cursor("c", place).unwrap().wait().unwrap();
    (0..3).for_each(|place| assert_eq!(set_cursor(place), place));
    let old = place.path().join("redo");
    copy(&folder.join("redo"), &old);
    // Streams go on, one has another file of the same name, and one is begun anew under the number of another.
    let path = folder.join("4-s9").join(format!("{:020}.segment", 1));
    let salt = || fs::read(&path).unwrap()[8..12].to_vec();
    let former = salt();
    (0..20).for_each(|place| assert_eq!(set_cursor(place), place));
    assert_ne!(salt(), former);
    journal.remove_stream(&renewed).unwrap().wait().unwrap();
    drop((renewed, journal));
    let (journal, _) = open(&folder);
    let more = [(0, 20), (3, 30), (1, 400), (1, 400)];
    append(&journal, &mut model, &more);
    drop(journal);
    assert!(folder.join("4-s3").exists());
    copy(&old, &folder.join("redo"));
    let (journal, report) = open(&folder);
    assert!(report.torn.is_empty() && report.damaged.is_empty());
    assert_eq!(read(&journal), model);
}
