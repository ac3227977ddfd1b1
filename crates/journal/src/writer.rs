//! The thread that writes: takes all that waits, writes it, has it synchronised, and only then says so.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use crate::error::JournalError;
use crate::record::{self, Kind, NewRecord, Stamp, micros_of};
use crate::segment::{Segment, SegmentHeader};
use crate::stream::{StreamShared, StreamState};

/// Files kept open for writing between groups.
const OPEN_FILES: usize = 128;
/// An empty stream gives up a file that has grown by more than this.
const EMPTY: u32 = 64 * 1024;

/// What is to be written.
#[derive(Debug)]
pub(crate) enum Order {
    Append { record: NewRecord, done: Done },
    Change { change: Change, done: Done },
    Retain { done: Done },
    RemoveStream { done: Done },
}

pub(crate) type Done = oneshot::Sender<Result<u64, JournalError>>;

/// A change of what is known about a stream's records.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Cursor {
        name: String,
        /// `None`: there is no such cursor any more.
        position: Option<u64>,
    },
    Remove {
        stretches: Vec<(u64, u64)>,
    },
    Trim {
        before: u64,
    },
}

impl Change {
    /// As it is written.
    fn write(&self, out: &mut Vec<u8>, stamp: Stamp, number: u64) {
        match self {
            Self::Cursor { name, position } => {
                let position = position.map(u64::to_le_bytes);
                let position = position.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                let parts = [name.as_bytes(), &[], position];
                record::write(out, stamp, Kind::Cursor, number, parts);
            }
            Self::Remove { stretches } => {
                let mut body = Vec::with_capacity(stretches.len() * 16);
                for (first, end) in stretches {
                    body.extend_from_slice(&first.to_le_bytes());
                    body.extend_from_slice(&end.to_le_bytes());
                }
                record::write(out, stamp, Kind::Removed, number, [&[], &[], &body]);
            }
            Self::Trim { before } => {
                let before = before.to_le_bytes();
                record::write(out, stamp, Kind::Trimmed, number, [&[], &[], &before]);
            }
        }
    }

    /// As it was written; `None` if it is no such thing.
    pub(crate) fn read(kind: Kind, key: &[u8], payload: &[u8]) -> Option<Self> {
        let long = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        match kind {
            Kind::Record => None,
            Kind::Cursor => Some(Self::Cursor {
                name: std::str::from_utf8(key).ok()?.to_owned(),
                position: match payload {
                    [] => None,
                    bytes => Some(long(bytes)?),
                },
            }),
            Kind::Removed if payload.len().is_multiple_of(16) => Some(Self::Remove {
                stretches: payload
                    .chunks_exact(16)
                    .map(|pair| Some((long(&pair[..8])?, long(&pair[8..])?)))
                    .collect::<Option<_>>()?,
            }),
            Kind::Removed => None,
            Kind::Trimmed => Some(Self::Trim {
                before: long(payload)?,
            }),
        }
    }

    /// What the one who asked for it is told.
    fn answer(&self) -> u64 {
        match self {
            Self::Cursor { position, .. } => position.unwrap_or(0),
            Self::Remove { stretches } => stretches.iter().map(|(first, end)| end - first).sum(),
            Self::Trim { before } => *before,
        }
    }
}

/// What waits for the thread.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Waiting>,
    wake: Condvar,
    room: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    orders: Vec<(Arc<StreamShared>, Order)>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::default(),
            wake: Condvar::new(),
            room: Notify::new(),
            limit,
        }
    }

    pub(crate) fn put(
        &self,
        stream: &Arc<StreamShared>,
        order: Order,
        size: usize,
    ) -> Result<(), JournalError> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(JournalError::Closed);
        }
        // One record is always taken, however large.
        if inner.bytes > 0 && inner.bytes + size > self.limit {
            return Err(JournalError::Busy { limit: self.limit });
        }
        inner.bytes += size;
        inner.orders.push((stream.clone(), order));
        drop(inner);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) async fn room(&self) {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            {
                let inner = self.inner.lock();
                if inner.bytes < self.limit / 2 || inner.closed {
                    return;
                }
            }
            freed.await;
        }
    }

    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.wake.notify_one();
        self.room.notify_waiters();
    }

    /// All that waits; `None` once it is closed and empty.
    fn take(&self) -> Option<Vec<(Arc<StreamShared>, Order)>> {
        let mut inner = self.inner.lock();
        while inner.orders.is_empty() {
            if inner.closed {
                return None;
            }
            self.wake.wait(&mut inner);
        }
        inner.bytes = 0;
        let orders = std::mem::take(&mut inner.orders);
        drop(inner);
        self.room.notify_waiters();
        Some(orders)
    }
}

/// Writes until the queue is closed.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    /// By the streams' numbers.
    tails: HashMap<u64, Tail>,
    /// For tests: how many more bytes the disk takes.
    #[cfg(test)]
    pub(crate) room: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// The end of a stream, where it is written.
struct Tail {
    stream: Arc<StreamShared>,
    file: Option<File>,
    /// What lies behind the readable bytes must be cut off before anything is written.
    is_dirty: bool,
    /// Length of what the segment began with.
    base: u32,
    batch: Batch,
}

/// What is written to one stream at once.
#[derive(Default)]
struct Batch {
    buffer: Vec<u8>,
    records: Vec<(u64, u32)>,
    changes: Vec<Change>,
    done: Vec<(Done, u64)>,
    micros: u64,
}

impl Writer {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            tails: HashMap::new(),
            #[cfg(test)]
            room: None,
        }
    }

    pub(crate) fn run(mut self) {
        while let Some(orders) = self.queue.take() {
            let mut touched = Vec::new();
            for (stream, order) in orders {
                let id = stream.id;
                if !touched.contains(&id) {
                    touched.push(id);
                }
                self.prepare(stream, order);
            }
            for id in touched {
                self.commit(id);
                self.retain(id);
                let gone = self
                    .tails
                    .get(&id)
                    .is_some_and(|tail| tail.stream.state.lock().is_removed);
                if gone {
                    self.tails.remove(&id);
                }
            }
            if self
                .tails
                .values()
                .filter(|tail| tail.file.is_some())
                .count()
                > OPEN_FILES
            {
                for tail in self.tails.values_mut() {
                    tail.file = None;
                }
            }
        }
    }

    /// Puts an order into the batch of its stream, committing what is there if the segment becomes too long.
    fn prepare(&mut self, stream: Arc<StreamShared>, order: Order) {
        let id = stream.id;
        let tail = self.tails.entry(id).or_insert_with(|| Tail::new(stream));
        let refusal = {
            let state = tail.stream.state.lock();
            if state.is_removed {
                Some(JournalError::Removed(tail.stream.name.clone()))
            } else {
                state.damage.clone().map(JournalError::Damaged)
            }
        };
        match order {
            Order::RemoveStream { done } => {
                self.commit(id);
                if let Some(tail) = self.tails.get_mut(&id) {
                    let _ = done.send(tail.remove_stream());
                }
            }
            Order::Append { done, .. } | Order::Change { done, .. } | Order::Retain { done }
                if refusal.is_some() =>
            {
                let _ = done.send(Err(refusal.unwrap_or(JournalError::Closed)));
            }
            Order::Retain { done } => {
                self.commit(id);
                self.retain(id);
                let _ = done.send(Ok(0));
            }
            Order::Append { record, done } => {
                if tail.is_full(record.size()) {
                    self.commit(id);
                    if let Some(Err(error)) = self.tails.get_mut(&id).map(Tail::roll) {
                        let _ = done.send(Err(error));
                        return;
                    }
                }
                if let Some(tail) = self.tails.get_mut(&id) {
                    tail.add_record(&record, done);
                }
            }
            Order::Change { change, done } => tail.add_change(change, done),
        }
    }

    /// Has the batch of a stream written and synchronised, and tells those who wait.
    fn commit(&mut self, id: u64) {
        #[cfg(test)]
        let room = self.room.clone();
        let Some(tail) = self.tails.get_mut(&id) else {
            return;
        };
        if tail.batch.buffer.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut tail.batch);
        let disk = tail.write(
            &batch.buffer,
            #[cfg(test)]
            room,
        );
        match disk {
            Ok(()) => tail.publish(batch),
            Err(error) => {
                tracing::error!(stream = %tail.stream.name, %error, "records were not written");
                tail.is_dirty = true;
                tail.file = None;
                for (done, _) in batch.done {
                    let _ = done.send(Err(error.clone()));
                }
            }
        }
    }

    /// Keeps a stream to what is to be kept of it.
    fn retain(&mut self, id: u64) {
        if let Some(tail) = self.tails.get_mut(&id)
            && let Err(error) = tail.retain()
        {
            tracing::warn!(stream = %tail.stream.name, %error, "what is no longer kept was not removed");
        }
    }
}

impl Tail {
    fn new(stream: Arc<StreamShared>) -> Self {
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
            is_dirty: true,
            base,
            batch: Batch::default(),
        }
    }

    fn segment(&self) -> Arc<Segment> {
        // A stream has at least one segment.
        let state = self.stream.state.lock();
        state.segments[state.segments.len() - 1].clone()
    }

    /// Whether the segment should end before something of that size.
    fn is_full(&self, size: usize) -> bool {
        let wanted = self.stream.state.lock().config.segment_bytes.min(1 << 30);
        let length = self.segment().readable.lock().length;
        let grown = (length - self.base.min(length)) as usize + self.batch.buffer.len();
        grown > 0 && grown + size > wanted as usize
    }

    /// The stamp of what is written now, the number of the next record, and the offset it gets.
    fn next(&mut self) -> (Stamp, u64, u32) {
        let segment = self.segment();
        let synced = segment.readable.lock().length;
        let state = self.stream.state.lock();
        let now = micros_of(SystemTime::now());
        self.batch.micros = now.max(state.last_micros).max(self.batch.micros);
        let stamp = Stamp {
            salt: segment.header.salt,
            synced,
            micros: self.batch.micros,
        };
        let number = state.next + self.batch.records.len() as u64;
        (stamp, number, synced + self.batch.buffer.len() as u32)
    }

    fn add_record(&mut self, new: &NewRecord, done: Done) {
        let (stamp, number, offset) = self.next();
        let parts = [&new.key[..], &new.attributes[..], &new.payload[..]];
        record::write(&mut self.batch.buffer, stamp, Kind::Record, number, parts);
        self.batch.records.push((number, offset));
        self.batch.done.push((done, number));
    }

    fn add_change(&mut self, change: Change, done: Done) {
        let (stamp, number, _) = self.next();
        change.write(&mut self.batch.buffer, stamp, number);
        self.batch.done.push((done, change.answer()));
        self.batch.changes.push(change);
    }

    fn write(
        &mut self,
        buffer: &[u8],
        #[cfg(test)] room: Option<Arc<std::sync::atomic::AtomicU64>>,
    ) -> Result<(), JournalError> {
        let segment = self.segment();
        let at = |action: &'static str| {
            let path = segment.path.clone();
            move |error| JournalError::file(action, &path, error)
        };
        let length = u64::from(segment.readable.lock().length);
        if self.file.is_none() {
            let file = File::options().read(true).write(true).open(&segment.path);
            self.file = Some(file.map_err(at("open"))?);
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        if self.is_dirty {
            file.set_len(length).map_err(at("shorten"))?;
            self.is_dirty = false;
        }
        #[cfg(test)]
        if let Some(room) = room {
            use std::sync::atomic::Ordering;
            let left = room.load(Ordering::SeqCst) as usize;
            if left < buffer.len() {
                let partly = file.write_all_at(&buffer[..left], length);
                let full = io::Error::from(io::ErrorKind::StorageFull);
                return partly.and(Err(full)).map_err(at("write"));
            }
            room.fetch_sub(buffer.len() as u64, Ordering::SeqCst);
        }
        file.write_all_at(buffer, length).map_err(at("write"))?;
        rustix::fs::fdatasync(file)
            .map_err(io::Error::from)
            .map_err(at("synchronise"))
    }

    /// Makes known what is on disk now.
    fn publish(&mut self, batch: Batch) {
        {
            let segment = self.segment();
            let mut readable = segment.readable.lock();
            readable.length += batch.buffer.len() as u32;
            readable.next += batch.records.len() as u64;
            for (number, offset) in &batch.records {
                readable.note(*number, *offset);
            }
        }
        let end = {
            let mut state = self.stream.state.lock();
            state.next += batch.records.len() as u64;
            if !batch.records.is_empty() {
                state.last_micros = batch.micros;
            }
            for change in &batch.changes {
                state.apply(change);
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

    /// Begins another segment.
    fn roll(&mut self) -> Result<(), JournalError> {
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
        Ok(())
    }

    fn retain(&mut self) -> Result<(), JournalError> {
        let now = micros_of(SystemTime::now());
        let is_spent = {
            let mut state = self.stream.state.lock();
            if state.is_removed || state.damage.is_some() {
                return Ok(());
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
            let last = state.segments[state.segments.len() - 1].clone();
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

    fn remove_stream(&mut self) -> Result<u64, JournalError> {
        self.file = None;
        let mut state = self.stream.state.lock();
        if state.is_removed {
            return Ok(0);
        }
        remove_folder(&self.stream.folder)?;
        state.is_removed = true;
        drop(state);
        // Readers that wait hear of it.
        self.stream.end.send_modify(|end| *end = u64::MAX);
        Ok(0)
    }
}

impl StreamShared {
    /// Removes the first file of several; false if it is the only one.
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

/// What a segment has to begin with so that nothing before it need be read.
fn snapshot(state: &StreamState) -> Vec<Change> {
    let mut changes = vec![Change::Trim {
        before: state.first,
    }];
    if state.removed.stretches() > 0 {
        changes.push(Change::Remove {
            stretches: state.removed.iter().collect(),
        });
    }
    changes.extend(state.cursors.iter().map(|(name, position)| Change::Cursor {
        name: name.clone(),
        position: Some(*position),
    }));
    changes
}

/// Name of a segment's file.
pub(crate) fn file_name(first: u64) -> String {
    format!("{first:020}.segment")
}

/// Ending of a segment's file that is not complete.
pub(crate) const UNFINISHED: &str = "unfinished";

/// Makes the file of a segment, whole or not at all.
pub(crate) fn begin_segment(
    folder: &Path,
    header: SegmentHeader,
    changes: &[Change],
) -> Result<Segment, JournalError> {
    let mut bytes = header.write();
    let stamp = Stamp {
        salt: header.salt,
        synced: 0,
        micros: header.micros,
    };
    for change in changes {
        change.write(&mut bytes, stamp, header.first);
    }
    let path = folder.join(file_name(header.first));
    let unfinished = path.with_extension(UNFINISHED);
    let made = (|| {
        let file = File::create(&unfinished)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    })();
    made.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        JournalError::file("make", &path, error)
    })?;
    let segment = Segment::new(path, header);
    segment.readable.lock().length = bytes.len() as u32;
    Ok(segment)
}

/// What the folder of a stream is called while it is being removed.
pub(crate) const REMOVED: &str = "removed-";

fn remove_folder(folder: &Path) -> Result<(), JournalError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let doomed = folder.with_file_name(format!("{REMOVED}{name}"));
    let failed = |error| JournalError::file("remove", folder, error);
    fs::rename(folder, &doomed).map_err(failed)?;
    fs::remove_dir_all(&doomed).map_err(failed)
}
