//! Limits on the requests of one sender that are worked on at the same time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

/// Most requests of one member of the platform at the same time.
pub const OF_MEMBER: usize = 4096;
/// Most requests of any other sender.
const OF_OTHER: usize = 16;
/// Most requests of all who are no members, beyond the first one of each.
const OF_ALL: usize = 65_536;

/// Counts the requests being worked on. Clones count together.
#[derive(Clone, Default)]
pub struct Turns {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    members: HashSet<String>,
    taken: HashMap<String, usize>,
    /// The turns that count against [`OF_ALL`].
    shared: usize,
}

/// The right to have one request worked on. Dropping it ends the right.
pub struct Turn {
    inner: Arc<Mutex<Inner>>,
    sender: String,
    is_shared: bool,
}

impl Turns {
    /// A turn for another request of `sender`; none while it has as many as allowed.
    pub fn take(&self, sender: &str) -> Option<Turn> {
        let mut inner = self.inner.lock();
        let most = match inner.members.contains(sender) {
            true => OF_MEMBER,
            false => OF_OTHER,
        };
        let taken = inner.taken.get(sender).copied().unwrap_or_default();
        // A member shows by its first request that it is one, however many others there are.
        let is_shared = taken > 0 && !inner.members.contains(sender);
        if taken >= most || is_shared && inner.shared >= OF_ALL {
            return None;
        }
        inner.taken.insert(sender.to_owned(), taken + 1);
        inner.shared += usize::from(is_shared);
        Some(Turn {
            inner: self.inner.clone(),
            sender: sender.to_owned(),
            is_shared,
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
    }

    /// Marks the sender as no member.
    pub fn is_no_members(&self) {
        self.inner.lock().members.remove(&self.sender);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        inner.shared -= usize::from(self.is_shared);
        if let Some(taken) = inner.taken.get_mut(&self.sender) {
            *taken -= 1;
            if *taken == 0 {
                inner.taken.remove(&self.sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_sender_leaves_turns_to_the_others() {
        let turns = Turns::default();
        let flood: Vec<_> = std::iter::repeat_with(|| turns.take("mallory"))
            .map_while(|turn| turn)
            .collect();
        assert_eq!(flood.len(), OF_OTHER);
        let node = turns.take("node-1").unwrap();
        node.is_members();
        let many: Vec<_> = (0..1000).filter_map(|_| turns.take("node-1")).collect();
        assert_eq!(many.len(), 1000);
        drop(flood);
        assert!(turns.take("mallory").is_some());
        node.is_no_members();
        assert!(turns.take("node-1").is_none());
        drop((many, node));
        assert!(turns.inner.lock().taken.is_empty());
        assert_eq!(turns.inner.lock().shared, 0);
    }

    #[test]
    fn a_flood_of_many_senders_keeps_no_member_out() {
        let turns = Turns::default();
        let senders = (0..=OF_ALL).map(|number| format!("mallory-{number}"));
        let flood: Vec<_> = senders
            .flat_map(|name| [turns.take(&name), turns.take(&name)])
            .flatten()
            .collect();
        assert_eq!(flood.len(), 2 * OF_ALL + 1);
        let node = turns.take("node-1").unwrap();
        assert!(turns.take("node-1").is_none());
        node.is_members();
        let many: Vec<_> = (0..1000).filter_map(|_| turns.take("node-1")).collect();
        assert_eq!(many.len(), 1000);
        drop((flood, many, node));
        assert!(turns.inner.lock().taken.is_empty());
        assert_eq!(turns.inner.lock().shared, 0);
    }
}
