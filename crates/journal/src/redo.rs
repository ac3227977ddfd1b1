//! The redo log: it makes the records of many streams durable with one `fdatasync`.
//!
//! A group of records is written into the log alone, each stream's as an entry, and synchronised there. The bytes stay in
//! memory, too, until those of several groups are written into the segments at once. When a file of the log is full, all
//! segments that it covers are synchronised in another thread, and the file is removed. After a crash the entries are
//! written into their segments.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use sealbus_files::sync_file_system;
#[cfg(not(test))]
use sealbus_files::sync_folder;

#[cfg(test)]
use crate::disk_full::{FailingDisk, sync_folder};
use crate::error::JournalError;
use crate::record::micros_of;
use crate::recovery::entries;
use crate::replay::{Place, replay};
use crate::report::OpenReport;
use crate::segment::Segment;
use crate::state::{StreamConfig, StreamShared};
use crate::tail::{REMOVED, Tail, remove_aside, remove_folder};

/// The folder of the log in that of the journal. Streams have folders with numbers.
const REDO: &str = "redo";
/// Most segments that are synchronised one by one. For more, it is cheaper to synchronise the whole file system.
const FEW: usize = 64;

/// The log while the journal is open.
pub(crate) struct Redo {
    journal: PathBuf,
    pub(crate) file_bytes: u32,
    /// The journal's folder. It stays open, because a file system reports an error only through files that were open
    /// before the error.
    opened: Option<Arc<File>>,
    /// Begun with the first entry.
    tail: Option<Tail>,
    /// The segments of the entries since the last full file, by stream and first record.
    covered: HashMap<(u64, u64), Arc<Segment>>,
    /// Full files, oldest first.
    full: Vec<PathBuf>,
    settling: Option<JoinHandle<Result<(), JournalError>>>,
    /// Whether the last group did not get into the log. A full disk has more room once the file is gone.
    has_refused: bool,
    /// Whether a segment did not get to the disk since the last attempt to settle the full files began. The segments
    /// may have lost any bytes that were not on disk, so the log's bytes are written into them again.
    pub(crate) suspect: Arc<AtomicBool>,
    #[cfg(test)]
    pub(crate) disk: Option<Arc<FailingDisk>>,
}

impl Redo {
    pub(crate) fn new(journal: &Path, file_bytes: u32) -> Self {
        Self {
            journal: journal.to_owned(),
            file_bytes,
            opened: File::open(journal).ok().map(Arc::new),
            tail: None,
            covered: HashMap::new(),
            full: Vec::new(),
            settling: None,
            has_refused: false,
            suspect: Arc::default(),
            #[cfg(test)]
            disk: None,
        }
    }

    /// Whether the next group needs another file: the present one is long enough, could not grow, or has a name that may
    /// not be on disk.
    pub(crate) fn is_full(&self) -> bool {
        self.tail.as_ref().is_some_and(|tail| {
            let segment = tail.segment();
            let has_entries = segment.readable.lock().next > segment.header.first;
            segment.unnamed.is_some() || has_entries && (self.has_refused || tail.is_full(0))
        })
    }

    /// Makes room for a group. If the file is full, its bytes must be in the segments already.
    pub(crate) fn begin(&mut self) -> Result<(), JournalError> {
        if self.settling.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait();
        }
        if self.tail.is_none() {
            let folder = self.journal.join(REDO);
            // An earlier attempt may have left the folder.
            let _ = fs::remove_dir_all(&folder);
            let config = StreamConfig {
                segment_bytes: self.file_bytes,
                ..StreamConfig::default()
            };
            let stream = StreamShared::make(folder, 0, REDO, config)?;
            self.tail = Some(Tail::new(Arc::new(stream), Arc::default()));
        }
        #[cfg(test)]
        if let Some(tail) = &mut self.tail {
            tail.disk.clone_from(&self.disk);
        }
        if self.is_full() {
            self.next_file()?;
        }
        Ok(())
    }

    /// Puts bytes into the next group of entries. They belong behind the readable bytes of the segment.
    pub(crate) fn add(&mut self, stream: u64, segment: Arc<Segment>, bytes: &[u8]) {
        let place = Place {
            stream,
            first: segment.header.first,
            salt: segment.header.salt,
            offset: segment.readable.lock().length,
        };
        if let Some(tail) = &mut self.tail {
            tail.add([&place.write(), &[], bytes]);
        }
        self.covered.insert((stream, place.first), segment);
    }

    /// Writes and synchronises the group. If that fails, its entries are cut off again.
    pub(crate) fn commit(&mut self) -> Result<(), JournalError> {
        let Some(tail) = &mut self.tail else {
            return Ok(());
        };
        if tail.batch.buffer.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut tail.batch);
        match tail.write(&batch.buffer) {
            Ok(()) => tail.publish(batch, false),
            Err(error) => {
                tail.refuse(batch, &error);
                self.has_refused = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Cuts off refused entries. Until that has succeeded, nothing may be written to any stream: the entries would
    /// overwrite it after a crash.
    pub(crate) fn cut(&mut self) -> Result<(), JournalError> {
        self.tail.as_mut().map_or(Ok(()), Tail::cut_unacknowledged)
    }

    fn next_file(&mut self) -> Result<(), JournalError> {
        self.wait();
        if let Some(tail) = &mut self.tail {
            tail.roll()?;
            let segments = &mut tail.stream.state.lock().segments;
            let former = segments.len() - 1;
            let full = segments.drain(..former).map(|it| it.path.clone());
            self.full.extend(full);
            self.has_refused = false;
        }
        let settle = self.settle();
        let thread = std::thread::Builder::new().name("journal redo".to_owned());
        match thread.spawn(settle) {
            Ok(thread) => self.settling = Some(thread),
            Err(error) => self.settled(Err(JournalError::file("settle", &self.journal, error))),
        }
        Ok(())
    }

    /// Waits until the full files are settled, or until that has failed.
    fn wait(&mut self) {
        if let Some(thread) = self.settling.take() {
            // The thread never panics.
            self.settled(thread.join().unwrap_or(Err(JournalError::Closed)));
        }
    }

    /// Removes the full files, unless a segment did not get to the disk meanwhile. The system may have reported this only
    /// once, to the writer, which calls this.
    fn settled(&mut self, result: Result<(), JournalError>) {
        let removed = result.and_then(|()| match self.suspect.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.remove_full(),
        });
        if let Err(error) = removed {
            self.suspect.store(true, Ordering::Relaxed);
            tracing::error!(journal = %self.journal.display(), %error, "the redo log could not be settled: its files stay, and the journal tries again");
        }
    }

    fn remove_full(&mut self) -> Result<(), JournalError> {
        while let Some(file) = self.full.first() {
            if let Err(error) = fs::remove_file(file)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(JournalError::file("remove", file, error));
            }
            self.full.remove(0);
        }
        Ok(())
    }

    /// The work of synchronising the segments that the full files cover.
    fn settle(&mut self) -> impl FnOnce() -> Result<(), JournalError> + Send + 'static {
        let segments = std::mem::take(&mut self.covered);
        let (journal, opened) = (self.journal.clone(), self.opened.clone());
        let files = self.full.clone();
        let is_retried = self.suspect.swap(false, Ordering::Relaxed);
        #[cfg(test)]
        let disk = self.disk.clone();
        move || {
            let mut paths: HashSet<PathBuf> =
                segments.into_values().map(|it| it.path.clone()).collect();
            if is_retried {
                // The system may have given up bytes that it could not write. It reports that once.
                let mut damaged = Vec::new();
                paths.extend(replay(&journal, &files, false, &mut damaged)?);
                if let Some(damage) = damaged.pop() {
                    return Err(JournalError::Damaged(damage));
                }
            }
            #[cfg(test)]
            FailingDisk::settle(&disk)
                .map_err(|error| JournalError::file("synchronise", &journal, error))?;
            synchronise(&journal, opened.as_deref(), &paths)
        }
    }

    /// Settles the log, so that the next process finds none. If `written` failed, or the settling fails, the log stays.
    pub(crate) fn close(mut self, written: Result<(), JournalError>) {
        self.wait();
        let Some(mut tail) = self.tail.take() else {
            return;
        };
        let cut = tail.cut_unacknowledged();
        let segments = tail.stream.state.lock().segments.clone();
        self.full.extend(segments.iter().map(|it| it.path.clone()));
        drop(tail);
        // Refused entries go with their file, unless settling would first write them into the segments: then the log
        // stays.
        let is_clean = cut.is_ok() || !self.suspect.load(Ordering::Relaxed);
        let settled = written.and_then(|()| if is_clean { self.settle()() } else { cut });
        let removed = settled.and_then(|()| remove_folder(&self.journal.join(REDO)));
        if let Err(error) = removed {
            tracing::error!(journal = %self.journal.display(), %error, "the redo log stays, and is settled when the journal is opened");
        }
    }
}

/// Waits until these segments and their names are on disk, as far as they are still there.
pub(crate) fn synchronise(
    journal: &Path,
    opened: Option<&File>,
    segments: &HashSet<PathBuf>,
) -> Result<(), JournalError> {
    if segments.len() > FEW
        && let Some(done) = opened.and_then(sync_file_system)
    {
        return done.map_err(|error| JournalError::file("synchronise", journal, error));
    }
    for path in segments {
        let synchronise = || {
            File::options().write(true).open(path)?.sync_data()?;
            path.parent().map_or(Ok(()), sync_folder)
        };
        if let Err(error) = synchronise()
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(JournalError::file("synchronise", path, error));
        }
    }
    Ok(())
}

/// Writes what an earlier process left in the log into the segments, and removes the log. A damaged log is put aside.
pub(crate) fn recover(journal: &Path, report: &mut OpenReport) -> Result<(), JournalError> {
    let folder = journal.join(REDO);
    let failed = |error| JournalError::file("remove", &folder, error);
    // A log that cannot be looked at may be there.
    let is_there = |path: &Path| {
        path.try_exists()
            .map_err(|error| JournalError::file("read", path, error))
    };
    let doomed = journal.join(format!("{REMOVED}{REDO}"));
    if is_there(&doomed)? {
        remove_aside(&doomed)?;
    }
    if !is_there(&folder)? {
        return Ok(());
    }
    let opened = File::open(journal).ok();
    let mut files = entries(&folder)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "segment"));
    let mut damaged = Vec::new();
    let segments = replay(journal, &files, true, &mut damaged)?;
    synchronise(journal, opened.as_ref(), &segments)?;
    // Nothing new may be written as long as the log could come back.
    if damaged.is_empty() {
        return remove_folder(&folder);
    }
    let aside = format!("{REDO}-damaged-{}", micros_of(SystemTime::now()));
    let aside = journal.join(aside);
    fs::rename(&folder, &aside).map_err(failed)?;
    for damage in &mut damaged {
        damage.file = aside.join(damage.file.file_name().unwrap_or_default());
    }
    report.damaged.append(&mut damaged);
    sync_folder(journal).map_err(failed)
}
