//! The room for messages of other processes to agents of other platforms. A message takes room when it arrives, until
//! it has gone outside. Each process has a share, so that none keeps the others from writing outside.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The bytes that a message counts as in addition to its payload: its parts are kept apart on the way outside, and its
/// names and addresses are written anew.
const OVERHEAD: usize = 1 << 10;

/// The room of all processes together.
#[derive(Debug)]
pub struct ForeignRoom {
    /// In bytes.
    most: usize,
    taken: Mutex<Taken>,
}

/// The bytes that are taken: in all, and by each writing process.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<Arc<str>, usize>,
}

/// The room of one message. Dropping this value gives the room back.
#[derive(Debug)]
pub struct MessageRoom {
    room: Arc<ForeignRoom>,
    writer: Arc<str>,
    bytes: usize,
}

impl ForeignRoom {
    /// Room for so many bytes.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
        })
    }

    /// Takes room for a message of the process `writer`. `None` if the process has as much room as is left for others.
    /// A message that gets room may exceed what is left, so that long messages pass.
    pub fn take(self: &Arc<Self>, writer: &Arc<str>, bytes: usize) -> Option<MessageRoom> {
        let mut taken = self.taken.lock();
        let own = taken.of.get(writer).copied().unwrap_or(0);
        if own >= self.most.saturating_sub(taken.all) {
            return None;
        }
        let bytes = bytes.saturating_add(OVERHEAD);
        taken.all += bytes;
        *taken.of.entry(writer.clone()).or_default() += bytes;
        Some(MessageRoom {
            room: self.clone(),
            writer: writer.clone(),
            bytes,
        })
    }
}

impl Drop for MessageRoom {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock();
        taken.all -= self.bytes;
        if let Some(own) = taken.of.get_mut(&self.writer) {
            *own -= self.bytes;
            if *own == 0 {
                taken.of.remove(&self.writer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_no_more_than_it_leaves_to_others() {
        let room = ForeignRoom::new(100 * OVERHEAD);
        let writers: Vec<Arc<str>> = (0..5).map(|it| format!("process-{it}").into()).collect();
        let mut held = Vec::new();
        let mut taken = writers.iter().map(|writer| {
            let before = held.len();
            while let Some(one) = room.take(writer, 0) {
                held.push(one);
            }
            held.len() - before
        });
        // All of them take as much as they get.
        assert_eq!(taken.next(), Some(50));
        assert_eq!(taken.next(), Some(25));
        assert!(taken.all(|taken| taken > 0));
        held.clear();
        assert!(room.taken.lock().of.is_empty() && room.taken.lock().all == 0);
    }

    #[test]
    fn a_message_longer_than_what_is_left_passes() {
        let room = ForeignRoom::new(10 * OVERHEAD);
        let writer: Arc<str> = "process".into();
        let long = room.take(&writer, 100 * OVERHEAD);
        assert!(long.is_some() && room.take(&writer, 0).is_none());
        drop(long);
        assert!(room.take(&writer, 0).is_some());
    }
}
