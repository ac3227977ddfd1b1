//! The streams of a journal: opening, finding and removing them.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Journal;
use crate::error::JournalError;
use crate::queue::Order;
use crate::segment::LONGEST_NAME;
use crate::state::{StreamConfig, StreamShared};
use crate::stream::Stream;
use crate::written::Written;

impl Journal {
    /// The stream of that name, created if needed. From now on it is kept as `config` says. Creation touches the disk.
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
        let shared = Arc::new(StreamShared::make(folder, streams.last, name, config)?);
        // Streams that were removed do not make the map grow.
        if streams.by_name.len() == streams.by_name.capacity() {
            streams
                .by_name
                .retain(|_, shared| !shared.state.lock().is_removed);
        }
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

    /// Removes a stream with all its contents. Records that wait to be written to it are written first. Files that cannot
    /// be removed now are removed when the journal is opened again.
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

/// The name of a stream's folder. The stream's name in it is for people only.
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
