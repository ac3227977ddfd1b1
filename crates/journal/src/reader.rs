//! Reading a stream.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sealbus_files::Positions;
use tokio::sync::watch;

use crate::error::{Damage, JournalError};
use crate::record::{HEADER, Header, Kind, Record, micros_of};
use crate::segment::Segment;
use crate::state::StreamShared;

/// Bytes read at once, if records are no longer.
const CHUNK: usize = 128 * 1024;

/// The place where a [`Reader`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the first record that is kept.
    Start,
    /// With the records written from now on.
    End,
    /// With this record, or the first kept record after it.
    Number(u64),
    /// With the first record written at this time or later.
    Time(SystemTime),
    /// With this many of the last records that are there now.
    Last(u64),
}

/// Reads the records of a stream in order, as far as they are on disk, and follows new records.
///
/// Reading touches files. A read outside the system's cache takes as long as the disk does.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<StreamShared>,
    next: u64,
    not_before: u64,
    end: watch::Receiver<u64>,
    open: Option<OpenSegment>,
}

/// The segment that is being read, from the next record on.
#[derive(Debug)]
struct OpenSegment {
    segment: Arc<Segment>,
    file: File,
    /// The number that the next bytes bear.
    number: u64,
    offset: u32,
    /// Bytes of the file from `offset` on.
    ahead: Bytes,
}

enum Step {
    Found(Record),
    /// The segment has no more records.
    Over,
}

impl Reader {
    pub(crate) fn new(shared: Arc<StreamShared>, from: ReadFrom) -> Self {
        let end = shared.end.subscribe();
        let mut not_before = 0;
        let next = match from {
            ReadFrom::Start => 1,
            ReadFrom::End => *end.borrow(),
            ReadFrom::Number(number) => number.max(1),
            ReadFrom::Time(time) => {
                not_before = micros_of(time);
                shared.segment_at(time)
            }
            ReadFrom::Last(count) => {
                let state = shared.state.lock();
                let mut number = state.next;
                let mut wanted = count;
                while wanted > 0 && number > state.first {
                    number -= 1;
                    if state.removed.next_outside(number) == number {
                        wanted -= 1;
                    }
                }
                number
            }
        };
        Self {
            shared,
            next,
            not_before,
            end,
            open: None,
        }
    }

    /// The number of the record to be read next, if it is still kept then.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Goes to another record.
    pub fn seek(&mut self, number: u64) {
        self.next = number.max(1);
        self.open = None;
    }

    /// Goes to the first record of the next file, past the rest of this file. Returns false if there is no next file.
    pub fn seek_next_file(&mut self) -> bool {
        let first = {
            let state = self.shared.state.lock();
            let after = state
                .segments
                .partition_point(|segment| segment.header.first <= self.next);
            state.segments.get(after).map(|file| file.header.first)
        };
        first.map(|first| self.seek(first)).is_some()
    }

    /// The next kept record; `None` at the end of the records that are on disk now.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if the bytes are not as they were written. Every later call returns this error too,
    /// until a call [seeks](Self::seek) past the damage. Also an error if the file cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, JournalError> {
        loop {
            let oldest = {
                let state = self.shared.state.lock();
                if state.is_removed {
                    return Err(JournalError::Removed(self.shared.name.clone()));
                }
                let kept = state.removed.next_outside(self.next.max(state.first));
                if kept != self.next {
                    // Reading on through removed records is cheaper than finding the place again, unless the gap is
                    // long.
                    if kept > self.next + 64 {
                        self.open = None;
                    }
                    self.next = kept;
                }
                if self.next >= state.next {
                    // There may have been records behind a damaged place.
                    return state
                        .damage
                        .clone()
                        .map_or(Ok(None), |damage| Err(JournalError::Damaged(damage)));
                }
                state.config.retention.oldest(micros_of(SystemTime::now()))
            };
            if !self.find_place()? {
                return Ok(None);
            }
            match self.step()? {
                Step::Over => self.open = None,
                Step::Found(record) if record.number < self.next => {}
                Step::Found(record) => {
                    self.next = record.number + 1;
                    let micros = micros_of(record.time);
                    if micros >= self.not_before.max(oldest) {
                        return Ok(Some(record));
                    }
                }
            }
        }
    }

    /// Waits until a record at or after the position is on disk, or the stream is removed.
    pub async fn ready(&mut self) {
        let next = self.next;
        // The stream's end is announced for as long as this reader keeps the stream.
        let _ = self.end.wait_for(|end| *end > next).await;
    }

    /// Finds the segment and the place of the next record. Returns false if there is none now.
    fn find_place(&mut self) -> Result<bool, JournalError> {
        if self.open.is_some() {
            return Ok(true);
        }
        // A file may be removed after it is found and before it is opened. The kept records then begin after it.
        for _ in 0..16 {
            let segment = {
                let state = self.shared.state.lock();
                self.next = self.next.max(state.first);
                let after = state
                    .segments
                    .partition_point(|segment| segment.header.first <= self.next);
                match after.checked_sub(1) {
                    Some(index) => state.segments[index].clone(),
                    None => return Ok(false),
                }
            };
            let (place, end) = {
                let readable = segment.readable.lock();
                (readable.place_of(self.next), readable.next)
            };
            if self.next >= end {
                return self.missing(&segment, end);
            }
            match File::open(&segment.path) {
                Ok(file) => {
                    let header = &segment.header;
                    let (number, offset) = place.unwrap_or((header.first, header.length() as u32));
                    self.open = Some(OpenSegment {
                        segment,
                        file,
                        number,
                        offset,
                        ahead: Bytes::new(),
                    });
                    return Ok(true);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let still = self.shared.state.lock();
                    let still = still.segments.iter().any(|one| Arc::ptr_eq(one, &segment));
                    if still {
                        return Err(JournalError::file("open", &segment.path, error));
                    }
                }
                Err(error) => return Err(JournalError::file("open", &segment.path, error)),
            }
        }
        Ok(false)
    }

    /// The next record is in no segment, although the stream has it.
    fn missing(&self, segment: &Segment, end: u64) -> Result<bool, JournalError> {
        let state = self.shared.state.lock();
        let follows = state
            .segments
            .iter()
            .any(|other| other.header.first > segment.header.first);
        if !follows {
            return Ok(false);
        }
        Err(JournalError::Damaged(Damage {
            file: segment.path.clone(),
            offset: u64::from(segment.readable.lock().length),
            problem: format!("records from {end} on are missing"),
        }))
    }

    fn step(&mut self) -> Result<Step, JournalError> {
        let Some(open) = &mut self.open else {
            return Ok(Step::Over);
        };
        loop {
            let length = open.segment.readable.lock().length;
            if open.offset >= length {
                return Ok(Step::Over);
            }
            open.fill(HEADER, length)?;
            let header = Header::read(&open.ahead, open.segment.header.salt)
                .map_err(|problem| open.damaged(problem))?;
            open.fill(header.length(), length)?;
            header
                .check_body(&open.ahead)
                .map_err(|problem| open.damaged(problem))?;
            if header.number != open.number {
                return Err(open.damaged("the record is not the one that is to follow"));
            }
            let whole = open.ahead.split_to(header.length().min(open.ahead.len()));
            open.offset = open.offset.saturating_add(header.length() as u32);
            if header.kind == Kind::Record {
                open.number += 1;
                return Ok(Step::Found(Record::slice(&header, &whole)));
            }
        }
    }
}

impl OpenSegment {
    /// Buffers at least `needed` bytes ahead, unless the segment ends before.
    fn fill(&mut self, needed: usize, length: u32) -> Result<(), JournalError> {
        if self.ahead.len() >= needed {
            return Ok(());
        }
        let written = {
            let readable = self.segment.readable.lock();
            let written = readable.written();
            if let Some(past) = self.offset.checked_sub(written) {
                // The rest is in memory until it is in the file.
                self.ahead = Bytes::copy_from_slice(&readable.deferred[past as usize..]);
                return Ok(());
            }
            written
        };
        // No record lies partly in the file and partly in memory.
        let left = (length.min(written) - self.offset) as usize;
        let mut buffer = vec![0; needed.max(CHUNK).min(left)];
        self.file
            .read_exact_from(&mut buffer, u64::from(self.offset))
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    self.damaged("the file is shorter than it was")
                }
                _ => JournalError::file("read", &self.segment.path, error),
            })?;
        self.ahead = buffer.into();
        Ok(())
    }

    fn damaged(&self, problem: &str) -> JournalError {
        JournalError::Damaged(Damage {
            file: self.segment.path.clone(),
            offset: u64::from(self.offset),
            problem: problem.to_owned(),
        })
    }
}
