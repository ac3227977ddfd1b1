//! The conversations that have ended, so that their late messages are recognised.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

/// The ended names that are remembered.
const REMEMBERED: usize = 1_024;

/// The kind of a name.
#[derive(Clone, Copy, Hash)]
pub(super) enum Name {
    Conversation,
    Tag,
}

/// The keyed hashes of a name and of the one agent that the name is for. Because the hashes are keyed, nobody can
/// choose two names that look alike; and no name needs an allocation.
type Mark = (u64, u64);

/// No agent in particular.
const NO_PEER: u64 = 0;

/// The names and tags of the conversations that ended last.
#[derive(Default)]
pub(super) struct EndedConversations {
    keys: RandomState,
    known: BTreeSet<Mark>,
    /// Oldest first.
    order: VecDeque<Mark>,
}

impl EndedConversations {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn mark(&self, kind: Name, name: &str, peer: Option<&str>) -> Mark {
        let peer = peer.map_or(NO_PEER, |peer| self.keys.hash_one(peer));
        (self.keys.hash_one((kind, name)), peer)
    }

    /// Remembers a name, and forgets the oldest one if there are too many.
    pub(super) fn add(&mut self, kind: Name, name: &str, peer: Option<&str>) {
        let mark = self.mark(kind, name, peer);
        if !self.known.insert(mark) {
            return;
        }
        self.order.push_back(mark);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Forgets a name, because it is in use again.
    pub(super) fn remove(&mut self, kind: Name, name: &str, peer: Option<&str>) {
        let mark = self.mark(kind, name, peer);
        self.known.remove(&mark);
    }

    /// Whether a name that is open to all agents has ended.
    pub(super) fn is_for_all(&self, kind: Name, name: &str) -> bool {
        self.known.contains(&self.mark(kind, name, None))
    }

    /// Whether a name that this sender may use has ended. The platform itself may use every peer's names.
    pub(super) fn has(&self, kind: Name, name: &str, sender: Option<&str>) -> bool {
        let of_sender @ (name, _) = self.mark(kind, name, sender);
        match sender {
            None => {
                let any: RangeInclusive<Mark> = (name, u64::MIN)..=(name, u64::MAX);
                self.known.range(any).next().is_some()
            }
            Some(_) => self.known.contains(&(name, NO_PEER)) || self.known.contains(&of_sender),
        }
    }
}
