//! A journal: a folder of streams.

mod streams;

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use sealbus_files::make_folder;

use crate::error::JournalError;
use crate::queue::Queue;
use crate::recovery::{ByName, open_streams};
use crate::redo::{self, Redo};
use crate::report::OpenReport;
use crate::writer::Writer;

/// The lock file, held by the process that has the journal open.
const LOCK: &str = "lock";

/// How a journal works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Most bytes that wait to be written, of all streams.
    pub waiting_bytes: usize,
    /// The most streams among the waiting records whose files are synchronised one by one. The records of more streams
    /// are synchronised once, in the redo log.
    pub separate_streams: usize,
    /// The approximate length of a file of the redo log, in bytes; up to 1 GiB. The log takes up to twice as much.
    pub redo_bytes: u32,
}

impl Default for JournalConfig {
    /// 64 MiB may wait, and records of more than two streams go through the redo log, in files of 128 MiB.
    fn default() -> Self {
        Self {
            waiting_bytes: 64 << 20,
            separate_streams: 2,
            redo_bytes: 128 << 20,
        }
    }
}

/// An open journal. Clones are handles to the same journal. It closes when the last handle of the journal and of its
/// streams is dropped, and all appended records are written.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    streams: Mutex<Streams>,
    queue: Arc<Queue>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Held until it is closed.
    lock: Mutex<Option<File>>,
}

#[derive(Debug)]
struct Streams {
    by_name: ByName,
    last: u64,
}

impl Journal {
    /// Opens the journal in `folder`, creating it if needed, and checks its whole contents. This reads every file, so
    /// call it where blocking is allowed.
    ///
    /// # Errors
    /// If another process has the journal open, or files cannot be read or written. Damage is not an error here: see
    /// the report.
    pub fn open(folder: &Path, config: JournalConfig) -> Result<(Self, OpenReport), JournalError> {
        Self::open_with(folder, config, |_| {})
    }

    pub(crate) fn open_with(
        folder: &Path,
        config: JournalConfig,
        prepare: impl FnOnce(&mut Writer),
    ) -> Result<(Self, OpenReport), JournalError> {
        make_folder(folder).map_err(|error| JournalError::file("make", folder, error))?;
        let lock = lock(folder)?;
        let mut report = OpenReport::default();
        let opened = File::open(folder).ok();
        redo::recover(folder, &mut report)?;
        let (by_name, last) = open_streams(folder, &mut report)?;
        // An earlier process may have ended before its last bytes were on disk. Later records will say that these bytes
        // are, so they are synchronised now.
        let newest = by_name.values().filter_map(|stream| {
            let state = stream.state.lock();
            state.segments.last().map(|segment| segment.path.clone())
        });
        let newest: HashSet<PathBuf> = newest.collect();
        redo::synchronise(folder, opened.as_ref(), &newest)?;
        let queue = Arc::new(Queue::new(config.waiting_bytes));
        let log = Redo::new(folder, config.redo_bytes.min(1 << 30));
        let mut writer = Writer::new(queue.clone(), log, config.separate_streams);
        prepare(&mut writer);
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| JournalError::file("write", folder, error))?;
        let inner = Inner {
            folder: folder.to_owned(),
            streams: Mutex::new(Streams { by_name, last }),
            queue,
            writer: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            report,
        ))
    }

    /// Closes the journal for all its handles. Appended records are written first. Then every call is refused with
    /// [`JournalError::Closed`], and another process may open the journal. Waits for the disk.
    pub fn close(&self) {
        self.inner.close();
    }

    /// The folder of the journal.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }
}

impl Inner {
    fn close(&self) {
        self.queue.close();
        if let Some(writer) = self.writer.lock().take() {
            // The writer never panics.
            let _ = writer.join();
        }
        // The lock is released only once the last record is written. A process that is being started may have a copy of
        // the file for a moment, which must not hold the lock.
        if let Some(lock) = self.lock.lock().take() {
            let _ = lock.unlock();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes this process the owner of the journal.
fn lock(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join(LOCK);
    let failed = |error| JournalError::file("lock", &path, error);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = Read::by_ref(&mut file).take(32).read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                number => format!("the process {number}"),
            };
            return Err(JournalError::InUse {
                folder: folder.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let note = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    // A full disk must not keep anybody from reading the existing records. The number is for people only.
    let _ = note;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StreamConfig;

    #[test]
    fn a_copy_of_its_lock_file_does_not_keep_a_closed_journal_locked() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), JournalConfig::default());
        let (journal, _) = open().unwrap();
        // The copy that a process has between its fork and its first instruction.
        let copy = journal.inner.lock.lock().as_ref().unwrap().try_clone();
        let copy = copy.unwrap();
        journal.close();
        open().unwrap();
        drop(copy);
    }

    #[test]
    fn streams_that_were_removed_take_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path(), JournalConfig::default()).unwrap();
        journal
            .open_stream("kept", StreamConfig::default())
            .unwrap();
        for number in 0..30 {
            let name = format!("s{number}");
            let stream = journal.open_stream(&name, StreamConfig::default());
            let removed = journal.remove_stream(&stream.unwrap()).unwrap();
            removed.wait().unwrap();
        }
        let known = journal.inner.streams.lock().by_name.capacity();
        assert!(known < 10, "{known}");
        assert_eq!(journal.streams().len(), 1);
    }
}
