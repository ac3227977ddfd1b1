//! The state of a stream that its handles, its readers and the writer share.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
#[cfg(not(test))]
use sealbus_files::sync_folder;
use tokio::sync::watch;

use crate::change::Change;
#[cfg(test)]
use crate::disk_full::sync_folder;
use crate::error::{Damage, JournalError};
use crate::record::micros_of;
use crate::retention::Retention;
use crate::segment::{Segment, SegmentHeader, begin_segment};
use crate::span::Spans;

/// How a stream is kept. The configuration may differ each time the journal is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// How much is kept.
    pub retention: Retention,
    /// The approximate length of a segment file, in bytes; up to 1 GiB.
    pub segment_bytes: u32,
    /// Longest payload in bytes; up to 64 MiB.
    pub largest_payload: usize,
}

impl Default for StreamConfig {
    /// The default keeps everything, in files of 16 MiB, with payloads of up to 16 MiB.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            segment_bytes: 16 << 20,
            largest_payload: 16 << 20,
        }
    }
}

/// The shared state of the handles, the readers and the writer of a stream.
#[derive(Debug)]
pub(crate) struct StreamShared {
    /// The stream's number in its journal.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) state: Mutex<StreamState>,
    /// Number after the last record on disk.
    pub(crate) end: watch::Sender<u64>,
}

/// The part of a stream that is on disk.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) config: StreamConfig,
    /// Ascending; never empty.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// First record that is not trimmed.
    pub(crate) first: u64,
    /// Number of the next record.
    pub(crate) next: u64,
    pub(crate) last_micros: u64,
    pub(crate) cursors: BTreeMap<String, u64>,
    pub(crate) removed: Spans,
    /// Why the stream cannot be written.
    pub(crate) damage: Option<Damage>,
    /// The first damage found on opening, wherever it lies.
    pub(crate) found: Option<Damage>,
    pub(crate) is_removed: bool,
}

impl StreamShared {
    /// Makes a stream and its folder.
    pub(crate) fn make(
        folder: PathBuf,
        id: u64,
        name: &str,
        config: StreamConfig,
    ) -> Result<Self, JournalError> {
        let failed = |error| JournalError::file("make", &folder, error);
        fs::create_dir(&folder).map_err(failed)?;
        let micros = micros_of(SystemTime::now());
        let begin = || {
            if let Some(parent) = folder.parent() {
                sync_folder(parent).map_err(failed)?;
            }
            begin_segment(&folder, SegmentHeader::new(name, 1, micros), &[])
        };
        let segment = begin().inspect_err(|_| {
            // Attempts that fail leave nothing behind.
            let _ = fs::remove_dir(&folder);
        })?;
        Ok(Self {
            id,
            name: name.to_owned(),
            folder,
            state: Mutex::new(StreamState {
                config,
                segments: vec![Arc::new(segment)],
                first: 1,
                next: 1,
                last_micros: micros,
                cursors: BTreeMap::new(),
                removed: Spans::default(),
                damage: None,
                found: None,
                is_removed: false,
            }),
            end: watch::Sender::new(1),
        })
    }

    /// Whether the stream never had a record or a cursor.
    pub(crate) fn is_blank(&self) -> bool {
        let state = self.state.lock();
        state.next == 1 && state.cursors.is_empty() && state.found.is_none()
    }

    /// The number of the first kept record that was written at `time` or later, or the end.
    pub(crate) fn segment_at(&self, time: SystemTime) -> u64 {
        let micros = micros_of(time);
        let state = self.state.lock();
        let after = state
            .segments
            .partition_point(|segment| segment.header.micros < micros);
        let before = after.saturating_sub(1);
        state.segments[before].header.first.max(state.first)
    }
}

impl StreamState {
    /// Carries out a change that is on disk.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Cursor { name, position } => match position {
                Some(position) => {
                    self.cursors.insert(name.clone(), *position);
                }
                None => {
                    self.cursors.remove(name);
                }
            },
            Change::Remove { stretches } => {
                for (first, end) in stretches {
                    self.removed.add(*first, (*end).min(self.next));
                }
                self.settle();
            }
            Change::Trim { before } => {
                self.first = self.first.max(*before).min(self.next);
                self.settle();
            }
        }
    }

    /// Trims the stream to the most records, and makes the trimmed and the removed records agree.
    pub(crate) fn settle(&mut self) {
        if let Some(count) = self.config.retention.count {
            self.first = self.first.max(self.next.saturating_sub(count));
        }
        self.removed.forget_below(self.first);
        self.first = self.removed.next_outside(self.first).min(self.next);
        self.removed.forget_below(self.first);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.readable.lock().length))
            .sum()
    }
}
