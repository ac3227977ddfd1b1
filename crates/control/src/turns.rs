//! Limits on the requests of one sender that are worked on at the same time, and on their answers that the sender has
//! not read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::{Fault, FaultCode};

/// The most requests of one member of the platform at the same time.
pub const OF_MEMBER: usize = 4096;
/// The most bytes of these requests and of their answers. A single one may always be longer.
pub const BYTES_OF_MEMBER: usize = 64 << 20;
/// The most requests of any other sender, and their bytes.
const OF_OTHER: Load = Load {
    turns: 16,
    bytes: 1 << 20,
};
/// The most requests, and their bytes, of all senders that are not members, in addition to the first one of each.
const OF_ALL: Load = Load {
    turns: 65_536,
    bytes: BYTES_OF_MEMBER,
};
/// The most bytes of such a first request. A node may register with a thousand processes.
const FIRST: usize = 256 << 10;

/// The load of requests at the same time.
#[derive(Clone, Copy, Default)]
struct Load {
    turns: usize,
    /// The bytes of each request or, if that is longer, of its answer.
    bytes: usize,
}

impl Load {
    /// Whether another request of this many bytes is within the limit.
    fn has_room(self, bytes: usize, most: Load) -> bool {
        self.turns < most.turns && (self.turns == 0 || self.bytes + bytes <= most.bytes)
    }

    fn take(&mut self, bytes: usize) {
        self.turns += 1;
        self.bytes += bytes;
    }

    fn free(&mut self, bytes: usize) {
        self.turns -= 1;
        self.bytes -= bytes;
    }
}

/// Counts the requests being worked on. Clones count together.
#[derive(Clone, Default)]
pub struct Turns {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    members: HashSet<String>,
    taken: HashMap<String, Load>,
    /// The turns that count against [`OF_ALL`].
    shared: Load,
}

/// The right to have one request worked on, until it is dropped.
pub struct Turn {
    inner: Arc<Mutex<Inner>>,
    sender: String,
    /// Whether it counts against [`OF_ALL`]. This and the bytes change only while `inner` is locked.
    is_shared: AtomicBool,
    bytes: AtomicUsize,
}

impl Turns {
    /// Turns for which one member is known from the beginning.
    pub fn knowing(member: &str) -> Self {
        let turns = Self::default();
        turns.inner.lock().members.insert(member.to_owned());
        turns
    }

    /// A turn for another request of `sender`, of this many bytes; `None` if the sender already has as many as allowed.
    pub fn take(&self, sender: &str, bytes: usize) -> Option<Turn> {
        let mut inner = self.inner.lock();
        let is_member = inner.members.contains(sender);
        let most = match is_member {
            true => Load {
                turns: OF_MEMBER,
                bytes: BYTES_OF_MEMBER,
            },
            false => OF_OTHER,
        };
        let taken = inner.taken.get(sender).copied().unwrap_or_default();
        // A member shows with its first request that it is one, however many others there are.
        let is_shared = !is_member && (taken.turns > 0 || bytes > FIRST);
        if !taken.has_room(bytes, most) || is_shared && !inner.shared.has_room(bytes, OF_ALL) {
            return None;
        }
        inner
            .taken
            .entry(sender.to_owned())
            .or_default()
            .take(bytes);
        if is_shared {
            inner.shared.take(bytes);
        }
        Some(Turn {
            inner: self.inner.clone(),
            sender: sender.to_owned(),
            is_shared: AtomicBool::new(is_shared),
            bytes: AtomicUsize::new(bytes),
        })
    }
}

impl Turn {
    /// Marks the sender as a member of the platform, which may have more turns from now on.
    pub fn is_members(&self) {
        let mut inner = self.inner.lock();
        if !inner.members.contains(&self.sender) {
            inner.members.insert(self.sender.clone());
        }
        if self.is_shared.swap(false, Ordering::Relaxed) {
            inner.shared.free(self.bytes.load(Ordering::Relaxed));
        }
    }

    /// Marks the sender as not a member.
    pub fn is_no_members(&self) {
        self.inner.lock().members.remove(&self.sender);
    }

    /// Counts at least this many bytes for the turn from now on: those of the answer, which the sender may leave unread.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the sender has too many.
    pub fn holds(&self, bytes: usize) -> Result<(), Fault> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let more = bytes.saturating_sub(self.bytes.load(Ordering::Relaxed));
        if more == 0 {
            return Ok(());
        }
        let is_member = inner.members.contains(&self.sender);
        let taken = inner.taken.entry(self.sender.clone()).or_default();
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        let has_room = match (is_member, is_shared) {
            (true, _) => taken.turns == 1 || taken.bytes + more <= BYTES_OF_MEMBER,
            (false, true) => {
                taken.bytes + more <= OF_OTHER.bytes && inner.shared.bytes + more <= OF_ALL.bytes
            }
            (false, false) => bytes <= FIRST,
        };
        if !has_room {
            let message = "too many bytes of answers wait for you";
            return Err(Fault::new(FaultCode::Unavailable, message)
                .advise("read the answers to your earlier requests first"));
        }
        taken.bytes += more;
        if is_shared {
            inner.shared.bytes += more;
        }
        self.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        let bytes = *self.bytes.get_mut();
        if *self.is_shared.get_mut() {
            inner.shared.free(bytes);
        }
        if let Some(taken) = inner.taken.get_mut(&self.sender) {
            taken.free(bytes);
            if taken.turns == 0 {
                inner.taken.remove(&self.sender);
            }
        }
    }
}

/// The length of a value as JSON.
pub fn length_of(value: &impl Serialize) -> usize {
    let mut length = Length(0);
    // A value that cannot be written is not sent either.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

/// Counts bytes.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_unused(turns: &Turns) -> bool {
        let inner = turns.inner.lock();
        inner.taken.is_empty() && inner.shared.turns == 0 && inner.shared.bytes == 0
    }

    #[test]
    fn a_flood_of_one_sender_leaves_turns_to_the_others() {
        let turns = Turns::default();
        let flood: Vec<_> = std::iter::repeat_with(|| turns.take("mallory", 100))
            .map_while(|turn| turn)
            .collect();
        assert_eq!(flood.len(), OF_OTHER.turns);
        let node = turns.take("node-1", 100).unwrap();
        node.is_members();
        let many: Vec<_> = (0..1000)
            .filter_map(|_| turns.take("node-1", 100))
            .collect();
        assert_eq!(many.len(), 1000);
        drop(flood);
        assert!(turns.take("mallory", 100).is_some());
        node.is_no_members();
        assert!(turns.take("node-1", 100).is_none());
        drop((many, node));
        assert!(is_unused(&turns));
    }

    #[test]
    fn a_flood_of_many_senders_keeps_no_member_out() {
        let turns = Turns::default();
        let senders = (0..=OF_ALL.turns).map(|number| format!("mallory-{number}"));
        let flood: Vec<_> = senders
            .flat_map(|name| [turns.take(&name, 100), turns.take(&name, 100)])
            .flatten()
            .collect();
        assert_eq!(flood.len(), 2 * OF_ALL.turns + 1);
        let node = turns.take("node-1", FIRST).unwrap();
        assert!(turns.take("node-1", 100).is_none());
        node.is_members();
        let many: Vec<_> = (0..1000)
            .filter_map(|_| turns.take("node-1", 100))
            .collect();
        assert_eq!(many.len(), 1000);
        drop((flood, many, node));
        assert!(is_unused(&turns));
    }

    #[test]
    fn long_requests_of_one_sender_fill_no_memory() {
        const LONG: usize = 16 << 20;
        let turns = Turns::default();
        // Strangers have one long request each, and few together.
        let names: Vec<_> = (0..100).map(|number| format!("mallory-{number}")).collect();
        let strangers: Vec<_> = names
            .iter()
            .flat_map(|name| [turns.take(name, LONG), turns.take(name, LONG)])
            .flatten()
            .collect();
        assert_eq!(strangers.len(), OF_ALL.bytes / LONG);
        let node = turns.take("node-1", FIRST).unwrap();
        node.is_members();
        let many: Vec<_> = (0..100)
            .filter_map(|_| turns.take("node-1", LONG))
            .collect();
        assert_eq!(many.len(), BYTES_OF_MEMBER / LONG - 1);
        drop((strangers, node, many));
        assert!(is_unused(&turns));
        // A single one is always allowed, however long it is.
        let turns = Turns::knowing("master");
        let long = turns.take("master", 2 * BYTES_OF_MEMBER);
        assert!(long.is_some() && turns.take("master", 100).is_none());
    }

    #[test]
    fn answers_that_a_sender_does_not_read_count_as_long_as_they_wait() {
        const LONG: usize = 16 << 20;
        let turns = Turns::default();
        let take = || turns.take("node-1", 100).unwrap();
        let first = take();
        first.is_members();
        let asked: Vec<_> = (0..100).map(|_| take()).collect();
        let waiting = asked.iter().filter(|turn| turn.holds(LONG).is_ok());
        assert_eq!(waiting.count(), BYTES_OF_MEMBER / LONG - 1);
        // There is room for a short one, and again for a long one once the earlier ones were read.
        assert!(first.holds(1000).is_ok());
        assert_eq!(first.holds(LONG).unwrap_err().code, FaultCode::Unavailable);
        drop(asked);
        assert!(first.holds(2 * BYTES_OF_MEMBER).is_ok());
        // The answer to somebody else is short.
        let stranger = turns.take("mallory", 100).unwrap();
        assert!(stranger.holds(1000).is_ok());
        assert!(stranger.holds(LONG).is_err());
        drop((first, stranger));
        assert!(is_unused(&turns));
    }

    #[test]
    fn answers_to_a_new_member_take_no_room_from_others() {
        const LONG: usize = 16 << 20;
        let turns = Turns::default();
        // It is not its first request, so it counts with those of others.
        let asked: Vec<_> = (0..2).map(|_| turns.take("node-1", 100).unwrap()).collect();
        asked[1].is_members();
        assert!(asked[1].holds(LONG).is_ok());
        assert_eq!(turns.inner.lock().shared.bytes, 0);
        drop(asked);
        assert!(is_unused(&turns));
    }

    #[test]
    fn the_length_of_a_value_is_that_of_its_json() {
        let value = ("a \u{1b} \"text\"", vec![1_u8; 100]);
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(length_of(&value), json.len());
    }
}
