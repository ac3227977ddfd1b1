//! Recovery: opens the files that an earlier process left.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::change::Change;
use crate::error::{Damage, JournalError};
use crate::record::Kind;
use crate::report::{OpenReport, TornTail};
use crate::segment::{End, Segment, SegmentHeader, UNFINISHED, file_name, scan};
use crate::span::Spans;
use crate::state::{StreamConfig, StreamShared, StreamState};
use crate::tail::{REMOVED, remove_aside, remove_folder};

/// The longest file that is taken for a segment. No segment was ever written longer.
pub(crate) const LONGEST_FILE: u64 = (1 << 30) + (256 << 20);
/// No segment has a longer header.
pub(crate) const LONGEST_HEADER: u64 = 4096;

/// The streams of a journal, by name.
pub(crate) type ByName = HashMap<String, Arc<StreamShared>>;

/// Opens the streams of a journal's folder. Also returns the highest number of a stream's folder.
pub(crate) fn open_streams(
    folder: &Path,
    report: &mut OpenReport,
) -> Result<(ByName, u64), JournalError> {
    let mut folders = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default();
        let is_aside = name.to_string_lossy().starts_with(REMOVED);
        if is_aside {
            remove_aside(&path)?;
        } else if let Some(id) = id_of(&path) {
            folders.push((id, path));
        }
    }
    folders.sort();
    let (mut streams, mut last) = (ByName::new(), 0);
    for (id, path) in folders {
        // The number of a folder that cannot be opened counts, too, because the redo log finds folders by their
        // numbers.
        last = id;
        if let Some(stream) = open_stream(&path, id, report)? {
            insert(&mut streams, Arc::new(stream), report)?;
        }
    }
    Ok((streams, last))
}

/// Adds a stream. Of several folders with one name, the newest with contents counts. A failed attempt to make the stream
/// may have left an empty folder, and a power cut may have brought back a removed stream of that name.
fn insert(
    streams: &mut ByName,
    stream: Arc<StreamShared>,
    report: &mut OpenReport,
) -> Result<(), JournalError> {
    let mut earlier = match streams.entry(stream.name.clone()) {
        Entry::Occupied(earlier) => earlier,
        Entry::Vacant(free) => {
            free.insert(stream);
            return Ok(());
        }
    };
    let other = match stream.is_blank() {
        true => stream,
        false => earlier.insert(stream),
    };
    if other.is_blank() {
        return remove_folder(&other.folder);
    }
    let counts = earlier.get().folder.display();
    report.damaged.push(Damage {
        problem: format!(
            "it is the stream {} once more, and {counts} counts",
            other.name
        ),
        file: other.folder.clone(),
        offset: 0,
    });
    Ok(())
}

/// The number of the stream that a folder belongs to.
pub(crate) fn id_of(folder: &Path) -> Option<u64> {
    let name = folder.file_name()?.to_str()?;
    name.split('-').next()?.parse().ok()
}

pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let failed = |error| JournalError::file("read", folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn open_stream(
    folder: &Path,
    id: u64,
    report: &mut OpenReport,
) -> Result<Option<StreamShared>, JournalError> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("segment") => files.push(path),
            Some(UNFINISHED) => {
                fs::remove_file(&path)
                    .map_err(|error| JournalError::file("remove", &path, error))?;
            }
            _ => {}
        }
    }
    let Some(newest) = files.len().checked_sub(1) else {
        // Nothing was ever acknowledged here.
        let _ = fs::remove_dir(folder);
        return Ok(None);
    };
    let mut opened = Opened::default();
    for (index, path) in files.into_iter().enumerate() {
        opened.take(path, index == newest, report)?;
    }
    let Some(name) = opened.name else {
        return Ok(None);
    };
    let mut state = opened.state;
    state.settle();
    report.records += state.next - state.first;
    let end = watch::Sender::new(state.next);
    Ok(Some(StreamShared {
        id,
        name,
        folder: folder.to_owned(),
        state: Mutex::new(state),
        end,
    }))
}

/// A stream while its segments are checked.
struct Opened {
    name: Option<String>,
    state: StreamState,
    /// Whether the segment before is damaged. That was reported.
    is_interrupted: bool,
}

impl Default for Opened {
    fn default() -> Self {
        Self {
            name: None,
            is_interrupted: false,
            state: StreamState {
                config: StreamConfig::default(),
                segments: Vec::new(),
                first: 0,
                next: 0,
                last_micros: 0,
                cursors: BTreeMap::new(),
                removed: Spans::default(),
                damage: None,
                found: None,
                is_removed: false,
            },
        }
    }
}

impl Opened {
    fn take(
        &mut self,
        path: PathBuf,
        is_newest: bool,
        report: &mut OpenReport,
    ) -> Result<(), JournalError> {
        let (bytes, is_too_long) = read(&path)?;
        let header = match SegmentHeader::read(&bytes) {
            Ok(header) => header,
            Err(problem) => {
                self.damaged(path, 0, problem.to_owned(), is_newest, report);
                return Ok(());
            }
        };
        if self.name.as_ref().is_some_and(|name| *name != header.name) {
            let problem = format!("it belongs to another stream, {}", header.name);
            self.damaged(path, 0, problem, is_newest, report);
            return Ok(());
        }
        if path.file_name() != Some(OsStr::new(&file_name(header.first))) {
            let problem = format!(
                "it begins with record {}, and its name says otherwise",
                header.first
            );
            self.damaged(path, 0, problem, is_newest, report);
            return Ok(());
        }
        self.name = Some(header.name.clone());
        self.state.last_micros = self.state.last_micros.max(header.micros);
        if self.state.segments.is_empty() {
            self.state.first = header.first;
        } else if self.state.next != header.first && !self.is_interrupted {
            let problem = format!(
                "it begins with record {}, and record {} is to follow",
                header.first, self.state.next
            );
            let before = self
                .state
                .segments
                .last()
                .map(|segment| segment.path.clone());
            self.damaged(before.unwrap_or_default(), 0, problem, false, report);
        }
        self.is_interrupted = false;
        self.state.next = header.first;
        // Each segment begins with the stream's cursors and removals.
        self.state.cursors.clear();
        self.state.removed = Spans::default();
        if is_too_long {
            let problem = "it is longer than any segment may be".to_owned();
            self.damaged(path.clone(), LONGEST_FILE, problem, is_newest, report);
            // Nothing in it is read.
            let segment = Arc::new(Segment::new(path, header));
            self.state.segments.push(segment);
            return Ok(());
        }
        self.records(path, &bytes, header, is_newest, report)
    }

    fn records(
        &mut self,
        path: PathBuf,
        bytes: &[u8],
        header: SegmentHeader,
        is_newest: bool,
        report: &mut OpenReport,
    ) -> Result<(), JournalError> {
        let segment = Segment::new(path, header);
        let mut readable = segment.readable.lock().clone();
        let state = &mut self.state;
        let mut nonsense = None;
        let end = scan(bytes, &segment.header, is_newest, |header, offset, body| {
            readable.length = (offset + header.length()) as u32;
            if header.kind == Kind::Record {
                readable.note(header.number, offset as u32);
                readable.next = header.number + 1;
                state.next = header.number + 1;
                state.last_micros = state.last_micros.max(header.micros);
                return;
            }
            let (key, _, payload) = header.split(body);
            match Change::read(header.kind, key, payload) {
                Some(change) => state.apply(&change),
                None => nonsense = Some(offset as u64),
            }
        });
        let path = segment.path.clone();
        match end {
            End::Whole => {}
            End::Torn { offset, problem } => {
                cut(&path, offset as u64)?;
                report.torn.push(TornTail {
                    stream: segment.header.name.clone(),
                    file: path.clone(),
                    offset: offset as u64,
                    bytes: (bytes.len() - offset) as u64,
                    problem: problem.to_owned(),
                });
            }
            End::Damaged { offset, problem } => {
                // Readers must come to the damage.
                readable.length = bytes.len() as u32;
                readable.next = u64::MAX;
                self.damaged(
                    path.clone(),
                    offset as u64,
                    problem.to_owned(),
                    is_newest,
                    report,
                );
            }
        }
        if let Some(offset) = nonsense {
            let problem = "a cursor, removal or trimming makes no sense".to_owned();
            self.damaged(path, offset, problem, is_newest, report);
        }
        *segment.readable.lock() = readable;
        self.state.segments.push(Arc::new(segment));
        Ok(())
    }

    fn damaged(
        &mut self,
        file: PathBuf,
        offset: u64,
        problem: String,
        is_newest: bool,
        report: &mut OpenReport,
    ) {
        let damage = Damage {
            file,
            offset,
            problem,
        };
        self.is_interrupted = true;
        if is_newest {
            self.state.damage = Some(damage.clone());
        }
        self.state.found.get_or_insert_with(|| damage.clone());
        report.damaged.push(damage);
    }
}

/// The bytes of a file, or the first ones and true if it is too long for a segment.
fn read(path: &Path) -> Result<(Vec<u8>, bool), JournalError> {
    let failed = |error| JournalError::file("read", path, error);
    let length = fs::metadata(path).map_err(failed)?.len();
    if length <= LONGEST_FILE {
        return Ok((fs::read(path).map_err(failed)?, false));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(LONGEST_HEADER);
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, true))
}

/// Cuts a torn tail off.
fn cut(path: &Path, length: u64) -> Result<(), JournalError> {
    let cut = File::options().write(true).open(path).and_then(|file| {
        file.set_len(length)?;
        file.sync_all()
    });
    cut.map_err(|error| JournalError::file("shorten", path, error))
}
