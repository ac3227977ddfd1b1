//! The end of a stream, where new records are written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use sealbus_files::Positions;
#[cfg(not(test))]
use sealbus_files::sync_folder;

use crate::change::{Change, MOST_STRETCHES};
#[cfg(test)]
use crate::disk_full::{FailingDisk, sync_folder};
use crate::error::JournalError;
use crate::queue::Done;
use crate::record::{self, CommonHeader, Kind, NewRecord, micros_of};
use crate::segment::{Segment, SegmentHeader, begin_segment};
use crate::state::{StreamShared, StreamState};

/// The growth beyond which an empty stream gives up its file.
const EMPTY: u32 = 64 * 1024;

/// The end of a stream, where it is written.
pub(crate) struct Tail {
    pub(crate) stream: Arc<StreamShared>,
    pub(crate) file: Option<File>,
    /// Whether unacknowledged bytes may lie behind the readable ones. They must be cut off before anything else is
    /// written, here or in a further segment.
    is_dirty: bool,
    /// Whether bytes were cut off, and the disk may still have them.
    is_cut: bool,
    /// Set when a file did not get to the disk. The system reports that once, and bytes written before may be lost, too.
    suspect: Arc<AtomicBool>,
    /// Length of the segment when it was begun.
    base: u32,
    pub(crate) batch: Batch,
    #[cfg(test)]
    pub(crate) disk: Option<Arc<FailingDisk>>,
}

/// The records written to one stream at once.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) buffer: Vec<u8>,
    records: Vec<(u64, u32)>,
    /// The changes, each with the number of the next record.
    changes: Vec<(u64, Change)>,
    pub(crate) done: Vec<(Done, u64)>,
    micros: u64,
}

impl Tail {
    pub(crate) fn new(stream: Arc<StreamShared>, suspect: Arc<AtomicBool>) -> Self {
        let base = {
            let state = stream.state.lock();
            state
                .segments
                .last()
                .map_or(0, |segment| segment.header.length() as u32)
        };
        Self {
            stream,
            file: None,
            is_dirty: false,
            is_cut: false,
            suspect,
            base,
            batch: Batch::default(),
            #[cfg(test)]
            disk: None,
        }
    }

    pub(crate) fn segment(&self) -> Arc<Segment> {
        // A stream has at least one segment.
        let state = self.stream.state.lock();
        state.segments[state.segments.len() - 1].clone()
    }

    /// Whether the segment should end before a record of that size.
    pub(crate) fn is_full(&self, size: usize) -> bool {
        let segment = self.segment();
        if segment.unnamed.is_some() {
            return true;
        }
        let wanted = self.stream.state.lock().config.segment_bytes.min(1 << 30);
        let length = segment.readable.lock().length;
        let grown = (length - self.base.min(length)) as usize + self.batch.buffer.len();
        grown > 0 && grown + size > wanted as usize
    }

    /// The common part of the records to write now, the number of the next record, and its offset.
    fn next(&mut self) -> (CommonHeader, u64, u32) {
        let segment = self.segment();
        let synced = segment.readable.lock().length;
        let state = self.stream.state.lock();
        let now = micros_of(SystemTime::now());
        self.batch.micros = now.max(state.last_micros).max(self.batch.micros);
        let common = CommonHeader {
            salt: segment.header.salt,
            synced,
            micros: self.batch.micros,
        };
        let number = state.next + self.batch.records.len() as u64;
        (common, number, synced + self.batch.buffer.len() as u32)
    }

    pub(crate) fn add_record(&mut self, new: &NewRecord, done: Done) {
        let number = self.add([&new.key, &new.attributes, &new.payload]);
        self.batch.done.push((done, number));
    }

    /// Puts a record into the batch. Returns its number.
    pub(crate) fn add(&mut self, parts: [&[u8]; 3]) -> u64 {
        let (common, number, offset) = self.next();
        record::write(&mut self.batch.buffer, common, Kind::Record, number, parts);
        self.batch.records.push((number, offset));
        number
    }

    pub(crate) fn add_change(&mut self, change: Change, done: Done) {
        let (common, number, _) = self.next();
        change.write(&mut self.batch.buffer, common, number);
        self.batch.done.push((done, change.answer()));
        self.batch.changes.push((number, change));
    }

    /// Writes and synchronises.
    pub(crate) fn write(&mut self, buffer: &[u8]) -> Result<(), JournalError> {
        self.write_deferred()?;
        let segment = self.write_only(buffer)?;
        if let Some(file) = &self.file {
            self.synchronise(file)
                .map_err(|error| JournalError::file("synchronise", &segment.path, error))?;
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Writes the bytes that the redo log has and the file does not, without synchronising them.
    pub(crate) fn write_deferred(&mut self) -> Result<(), JournalError> {
        // Only this thread changes these bytes.
        let deferred = self.segment().readable.lock().deferred.clone();
        if !deferred.is_empty() {
            let segment = self.write_only(&deferred)?;
            segment.readable.lock().deferred = Vec::new();
            self.is_dirty = false;
        }
        Ok(())
    }

    /// Writes without synchronising. The tail stays dirty until the caller knows that the bytes are on disk.
    fn write_only(&mut self, buffer: &[u8]) -> Result<Arc<Segment>, JournalError> {
        let segment = self.segment();
        let failed = |error| JournalError::file("write", &segment.path, error);
        self.cut_unacknowledged()?;
        let offset = u64::from(segment.readable.lock().written());
        if self.file.is_none() {
            self.file = Some(open(&segment)?);
        }
        let Some(file) = &self.file else {
            return Ok(segment);
        };
        self.is_dirty = true;
        #[cfg(test)]
        if let Some(disk) = &self.disk {
            if self.stream.id == 0 {
                FailingDisk::check(&self.disk, |disk| &disk.refuses_log).map_err(failed)?;
            }
            disk.write(file, buffer, offset).map_err(failed)?;
        }
        file.write_all_from(buffer, offset).map_err(failed)?;
        Ok(segment)
    }

    fn synchronise(&self, file: &File) -> io::Result<()> {
        SYNCHRONISED.fetch_add(1, Ordering::Relaxed);
        let synchronise = || {
            #[cfg(test)]
            FailingDisk::synchronise(&self.disk)?;
            file.sync_data()
        };
        synchronise().inspect_err(|_| self.suspect.store(true, Ordering::Relaxed))
    }

    /// Whether refused bytes may lie behind the readable ones. A crash would leave them behind the next entry of the redo
    /// log, where they may look like records.
    pub(crate) fn holds_refused(&self) -> bool {
        // Bytes that the redo log has were not refused.
        self.is_dirty && self.segment().readable.lock().deferred.is_empty()
    }

    /// Tells the callers of a batch that it was not written, once it is cut off again.
    pub(crate) fn refuse(&mut self, batch: Batch, error: &JournalError) {
        tracing::error!(stream = %self.stream.name, %error, "records were not written");
        // If the cut fails now, it is made at the latest before the next bytes are written.
        if let Err(error) = self.cut_unacknowledged() {
            tracing::warn!(stream = %self.stream.name, %error, "refused records are still in the file");
        }
        for (done, _) in batch.done {
            let _ = done.send(Err(error.clone()));
        }
    }

    /// Cuts off any bytes behind the acknowledged ones. Otherwise refused records would be there when the journal is
    /// opened again.
    pub(crate) fn cut_unacknowledged(&mut self) -> Result<(), JournalError> {
        if !self.is_dirty {
            return Ok(());
        }
        // A descriptor that failed is not used again.
        self.file = None;
        let segment = self.segment();
        let length = u64::from(segment.readable.lock().written());
        let file = open(&segment)?;
        self.cut_to(&file, length)
            .map_err(|error| JournalError::file("shorten", &segment.path, error))?;
        self.file = Some(file);
        self.is_dirty = false;
        Ok(())
    }

    fn cut_to(&mut self, file: &File, length: u64) -> io::Result<()> {
        #[cfg(test)]
        FailingDisk::check(&self.disk, |disk| &disk.refuses_to_cut)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
            self.is_cut = true;
        }
        // Also if an earlier attempt has cut the file and could not synchronise it.
        if self.is_cut {
            self.synchronise(file)?;
            self.is_cut = false;
        }
        Ok(())
    }

    /// Makes known which records are on disk now: in the file, or, if that is deferred, in the redo log alone.
    pub(crate) fn publish(&mut self, batch: Batch, is_deferred: bool) {
        {
            let segment = self.segment();
            let mut readable = segment.readable.lock();
            readable.length += batch.buffer.len() as u32;
            if is_deferred {
                readable.deferred.extend_from_slice(&batch.buffer);
            }
            readable.next += batch.records.len() as u64;
            for (number, offset) in &batch.records {
                readable.note(*number, *offset);
            }
        }
        let end = {
            let mut state = self.stream.state.lock();
            let end = state.next + batch.records.len() as u64;
            for (next, change) in &batch.changes {
                // A change concerns the records before it. So it does when the journal is opened again.
                state.next = *next;
                state.apply(change);
            }
            state.next = end;
            if !batch.records.is_empty() {
                state.last_micros = batch.micros;
            }
            state.settle();
            state.next
        };
        self.stream.end.send_if_modified(|known| {
            let grown = *known < end;
            *known = end;
            grown
        });
        for (done, answer) in batch.done {
            // Nobody may be interested.
            let _ = done.send(Ok(answer));
        }
    }

    /// Begins another segment. If its name may not be on disk, the stream still goes on with it, because it may have
    /// replaced the segment before. The stream then begins yet another segment before it writes anything.
    pub(crate) fn roll(&mut self) -> Result<(), JournalError> {
        self.write_deferred()?;
        self.cut_unacknowledged()?;
        let (header, changes) = {
            let state = self.stream.state.lock();
            let now = micros_of(SystemTime::now()).max(state.last_micros);
            let header = SegmentHeader::new(&self.stream.name, state.next, now);
            (header, snapshot(&state))
        };
        let segment = begin_segment(&self.stream.folder, header, &changes)?;
        self.base = segment.readable.lock().length;
        self.file = None;
        self.is_dirty = false;
        let unnamed = segment.unnamed.clone();
        let mut state = self.stream.state.lock();
        // A segment without records is replaced by its successor of the same name.
        if state
            .segments
            .last()
            .is_some_and(|last| last.path == segment.path)
        {
            state.segments.pop();
        }
        state.segments.push(Arc::new(segment));
        unnamed.map_or(Ok(()), Err)
    }

    pub(crate) fn retain(&mut self) -> Result<(), JournalError> {
        let now = micros_of(SystemTime::now());
        let is_spent = {
            let mut state = self.stream.state.lock();
            if state.is_removed || state.damage.is_some() {
                return Ok(());
            }
            let last = state.segments[state.segments.len() - 1].clone();
            if last.unnamed.is_some() {
                // The segments before are needed until the name of this one is on disk.
                drop(state);
                return self.roll();
            }
            let retention = state.config.retention;
            let oldest = retention.oldest(now);
            if retention.age.is_some() && state.last_micros < oldest {
                state.first = state.next;
            }
            while state.segments.len() > 1
                && (state.segments[1].header.micros < oldest
                    || retention.bytes.is_some_and(|most| state.bytes() > most))
            {
                state.first = state.first.max(state.segments[1].header.first);
                if !self.stream.drop_file(&mut state)? {
                    break;
                }
            }
            state.settle();
            let grown = last.readable.lock().length.saturating_sub(self.base);
            let is_empty = state.first == state.next && grown > EMPTY;
            let is_old = retention.age.is_some()
                && grown > 0
                && last.header.micros < now.saturating_sub((now - oldest) / 4);
            is_empty || is_old
        };
        if is_spent {
            self.roll()?;
        }
        let mut state = self.stream.state.lock();
        while state.segments.len() > 1 && state.segments[1].header.first <= state.first {
            if !self.stream.drop_file(&mut state)? {
                break;
            }
        }
        Ok(())
    }

    /// Removes the stream. It counts as removed once its folder has another name, whatever becomes of the files in it.
    /// Records of a stream without its folder could be written to the redo log alone, and would be lost with the
    /// process.
    pub(crate) fn remove_stream(&mut self) -> Result<u64, JournalError> {
        self.file = None;
        let mut state = self.stream.state.lock();
        if state.is_removed {
            drop(state);
            return sync_name(&self.stream.folder).map(|()| 0);
        }
        let doomed = put_aside(&self.stream.folder)?;
        state.is_removed = true;
        drop(state);
        // Waiting readers learn of it.
        self.stream.end.send_modify(|end| *end = u64::MAX);
        // Until the name is on disk, a power cut brings the folder back, and its files must still be there.
        sync_name(&doomed)?;
        let remove = || {
            #[cfg(test)]
            FailingDisk::check(&self.disk, |disk| &disk.refuses_to_remove)?;
            fs::remove_dir_all(&doomed)
        };
        report_rest(&doomed, remove());
        Ok(0)
    }
}

fn open(segment: &Segment) -> Result<File, JournalError> {
    File::options()
        .read(true)
        .write(true)
        .open(&segment.path)
        .map_err(|error| JournalError::file("open", &segment.path, error))
}

static SYNCHRONISED: AtomicU64 = AtomicU64::new(0);

/// How often this process has synchronised the end of a stream or of a redo log.
pub fn synchronised() -> u64 {
    SYNCHRONISED.load(Ordering::Relaxed)
}

impl StreamShared {
    /// Removes the first file of several. Returns false if it is the only one.
    fn drop_file(&self, state: &mut StreamState) -> Result<bool, JournalError> {
        if state.segments.len() < 2 {
            return Ok(false);
        }
        let path = state.segments[0].path.clone();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(JournalError::file("remove", &path, error))
            }
            _ => {
                state.segments.remove(0);
                Ok(true)
            }
        }
    }
}

/// The changes at the beginning of a segment. They make all earlier segments unnecessary.
pub(crate) fn snapshot(state: &StreamState) -> Vec<Change> {
    let mut changes = vec![Change::Trim {
        before: state.first,
    }];
    // Removals that wait at once may exceed the limit together, and a record that is too long cannot be read again.
    let stretches: Vec<(u64, u64)> = state.removed.iter().collect();
    changes.extend(stretches.chunks(MOST_STRETCHES).map(|part| Change::Remove {
        stretches: part.to_vec(),
    }));
    changes.extend(state.cursors.iter().map(|(name, position)| Change::Cursor {
        name: name.clone(),
        position: Some(*position),
    }));
    changes
}

/// The name of a stream's folder while it is being removed.
pub(crate) const REMOVED: &str = "removed-";

/// Removes a folder. It is out of use once it has another name, even if files of it are left.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), JournalError> {
    let doomed = put_aside(folder)?;
    sync_name(&doomed)?;
    report_rest(&doomed, fs::remove_dir_all(&doomed));
    Ok(())
}

/// Gives a folder the name of one that is being removed. Returns its path.
fn put_aside(folder: &Path) -> Result<PathBuf, JournalError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let doomed = folder.with_file_name(format!("{REMOVED}{name}"));
    fs::rename(folder, &doomed).map_err(|error| JournalError::file("remove", folder, error))?;
    Ok(doomed)
}

/// Removes a folder that an earlier process put aside, once the disk has its name.
pub(crate) fn remove_aside(doomed: &Path) -> Result<(), JournalError> {
    sync_name(doomed)?;
    fs::remove_dir_all(doomed).map_err(|error| JournalError::file("remove", doomed, error))
}

/// Waits until the name of a folder is on disk.
fn sync_name(folder: &Path) -> Result<(), JournalError> {
    let parent = folder.parent().unwrap_or(folder);
    sync_folder(parent).map_err(|error| JournalError::file("synchronise", parent, error))
}

/// Reports a folder that was put aside and could not be removed.
fn report_rest(doomed: &Path, removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(folder = %doomed.display(), %error, "a folder that is out of use could not be removed: the journal removes it when it is opened again");
    }
}
