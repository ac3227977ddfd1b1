//! The streams of a journal: opening, finding and removing them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use sealbus_files::sync_folder;
use tokio::sync::{oneshot, watch};

use super::Journal;
use crate::error::JournalError;
use crate::queue::Order;
use crate::record::micros_of;
use crate::segment::{LONGEST_NAME, SegmentHeader, begin_segment};
use crate::span::Spans;
use crate::state::{StreamConfig, StreamShared, StreamState};
use crate::stream::Stream;
use crate::written::Written;

impl Journal {
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

/// For a person that looks into the folder.
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
        sync_folder(parent).map_err(failed)?;
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
