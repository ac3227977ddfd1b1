//! A journal: a folder of streams.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use tokio::sync::{oneshot, watch};

use crate::error::{Damage, JournalError};
use crate::queue::{Order, Queue};
use crate::record::micros_of;
use crate::recovery::open_streams;
use crate::segment::{LONGEST_NAME, SegmentHeader, begin_segment};
use crate::span::Spans;
use crate::stream::{Stream, StreamConfig, StreamShared, StreamState, Written};
use crate::writer::Writer;

/// The lock file, held by the process that has the journal open.
const LOCK: &str = "lock";

/// How a journal works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Most bytes that wait to be written, of all streams.
    pub waiting_bytes: usize,
}

impl Default for JournalConfig {
    /// 64 MiB may wait.
    fn default() -> Self {
        Self {
            waiting_bytes: 64 << 20,
        }
    }
}

/// A tail that was cut off. It had not been acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The stream.
    pub stream: String,
    /// The file.
    pub file: PathBuf,
    /// The offset at which the tail began, in bytes.
    pub offset: u64,
    /// The tail's length in bytes.
    pub bytes: u64,
    /// The bytes that were there instead of a record.
    pub problem: String,
}

/// The findings on opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Records of all streams.
    pub records: u64,
    /// Tails that were cut off.
    pub torn: Vec<TornTail>,
    /// Records that are not as they were written. Records before and after the damage can be read. A stream whose
    /// newest file is damaged cannot be written.
    pub damaged: Vec<Damage>,
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
    by_name: HashMap<String, Arc<StreamShared>>,
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
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| JournalError::file("make", folder, error))?;
        let lock = lock(folder)?;
        let mut report = OpenReport::default();
        let streams = open_streams(folder, &mut report)?;
        let last = streams.iter().map(|stream| stream.id).max().unwrap_or(0);
        let mut by_name = HashMap::new();
        for stream in streams {
            by_name.insert(stream.name.clone(), stream);
        }
        let queue = Arc::new(Queue::new(config.waiting_bytes));
        let mut writer = Writer::new(queue.clone());
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

    /// The stream of that name, created if needed, kept as `config` says from now on. Creation touches the disk.
    ///
    /// # Errors
    /// If the name is too long or empty, or the stream cannot be created.
    pub fn open_stream(&self, name: &str, config: StreamConfig) -> Result<Stream, JournalError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(JournalError::IllegalName {
                size: name.len(),
                limit: LONGEST_NAME,
            });
        }
        let mut streams = self.inner.streams.lock();
        if self.inner.lock.lock().is_none() {
            return Err(JournalError::Closed);
        }
        if let Some(shared) = streams.by_name.get(name) {
            let mut state = shared.state.lock();
            if !state.is_removed {
                state.config = config;
                state.settle();
                drop(state);
                return Ok(self.handle(shared));
            }
        }
        streams.last += 1;
        let folder = self.inner.folder.join(folder_name(streams.last, name));
        let shared = Arc::new(make_stream(folder, streams.last, name, config)?);
        streams.by_name.insert(name.to_owned(), shared.clone());
        Ok(self.handle(&shared))
    }

    /// The stream of that name, if it is there.
    pub fn stream(&self, name: &str) -> Option<Stream> {
        let streams = self.inner.streams.lock();
        let shared = streams.by_name.get(name)?;
        (!shared.state.lock().is_removed).then(|| self.handle(shared))
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Stream> {
        let streams = self.inner.streams.lock();
        let mut there: Vec<Stream> = streams
            .by_name
            .values()
            .filter(|shared| !shared.state.lock().is_removed)
            .map(|shared| self.handle(shared))
            .collect();
        there.sort_by(|one, two| one.name().cmp(two.name()));
        there
    }

    /// Removes a stream with all its contents. Records that wait to be written to it are written first.
    ///
    /// # Errors
    /// [`JournalError::Closed`]. The future reports later failures.
    pub fn remove_stream(&self, stream: &Stream) -> Result<Written, JournalError> {
        let (done, written) = oneshot::channel();
        let order = Order::RemoveStream { done };
        self.inner.queue.put(&stream.shared, order, 0)?;
        Ok(Written::new(written))
    }

    fn handle(&self, shared: &Arc<StreamShared>) -> Stream {
        Stream {
            shared: shared.clone(),
            queue: self.inner.queue.clone(),
            journal: self.clone(),
        }
    }
}

impl Inner {
    fn close(&self) {
        self.queue.close();
        if let Some(writer) = self.writer.lock().take() {
            // The writer never panics.
            let _ = writer.join();
        }
        // The lock is released only once the last record is written.
        self.lock.lock().take();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// For people who look into the folder.
fn folder_name(id: u64, name: &str) -> String {
    let legible: String = name
        .chars()
        .take(80)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '@' => c,
            _ => '_',
        })
        .collect();
    format!("{id}-{legible}")
}

fn make_stream(
    folder: PathBuf,
    id: u64,
    name: &str,
    config: StreamConfig,
) -> Result<StreamShared, JournalError> {
    let failed = |error| JournalError::file("make", &folder, error);
    fs::create_dir(&folder).map_err(failed)?;
    if let Some(parent) = folder.parent() {
        File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(failed)?;
    }
    let micros = micros_of(SystemTime::now());
    let segment = begin_segment(&folder, SegmentHeader::new(name, 1, micros), &[])?;
    Ok(StreamShared {
        id,
        name: name.to_owned(),
        folder,
        state: Mutex::new(StreamState {
            config,
            segments: vec![Arc::new(segment)],
            first: 1,
            next: 1,
            last_micros: micros,
            cursors: std::collections::BTreeMap::new(),
            removed: Spans::default(),
            damage: None,
            found: None,
            is_removed: false,
        }),
        end: watch::Sender::new(1),
    })
}

/// Makes this process the one that has the journal.
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
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
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
        Err(error) => return Err(failed(error.into())),
    }
    let note = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    // A full disk is no reason not to read the existing records. The number is for people only.
    let _ = note;
    Ok(file)
}
