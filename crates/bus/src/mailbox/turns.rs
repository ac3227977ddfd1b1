//! The turns of the senders of a crowded mailbox. A sender that writes much does not make the others wait.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use sealbus_seal::VerifiedIdentity;

use super::entry::IN_A_ROUND;
use crate::message::{Provenance, ReceivedMessage};

/// The number of senders that are remembered besides one for each waiting message.
const REMEMBERED: usize = 256;

/// The next turn of each sender: the number of its next message. Each round has [`IN_A_ROUND`] messages of a sender.
#[derive(Default)]
pub(super) struct Turns {
    hasher: RandomState,
    /// By the hash of the sender's name. Senders with the same hash share their turns.
    next: HashMap<u64, u64>,
    /// The sender of the last message, and its next turn, which is not in `next`. Most messages have the same sender as
    /// the one before.
    latest: (String, u64),
    /// The proof of the latest sender. The name in its next message need not be read if that has the same proof.
    proof: Option<VerifiedIdentity>,
    /// How many messages in succession came from the latest sender.
    repeats: usize,
    /// The highest turn that was given.
    last: u64,
}

/// Calls `with` with the sender that has a turn. Names of other platforms are only claimed, so all of them share their turns.
fn with_sender<T>(message: &ReceivedMessage, with: impl FnOnce(&str) -> T) -> T {
    let is_foreign = matches!(message.provenance(), Provenance::Foreign(_));
    let view = message.message();
    match view.sender() {
        Some(sender) if !is_foreign => with(sender.name()),
        _ => with(""),
    }
}

impl Turns {
    /// The turn of a message of this sender, not before `round`. The `count - 1` turns behind it belong to the sender's
    /// next messages.
    pub(super) fn take(&mut self, message: &ReceivedMessage, round: u64, count: u64) -> u64 {
        let proof = match message.provenance() {
            Provenance::Proved(proof) => Some(proof),
            _ => None,
        };
        let is_latest =
            |proof: &VerifiedIdentity| self.proof.as_ref().is_some_and(|it| it.is_same(proof));
        if !proof.is_some_and(is_latest) {
            with_sender(message, |sender| self.call(sender));
            self.proof = proof.cloned();
        }
        let turn = self.latest.1.max(round * IN_A_ROUND);
        self.latest.1 = turn + count;
        // The messages are in memory, so their number is a `usize`.
        self.repeats += count as usize;
        self.last = self.last.max(self.latest.1.saturating_sub(1));
        turn
    }

    /// How many messages in succession came from the latest sender so far.
    pub(super) fn repeats(&self) -> usize {
        self.repeats
    }

    /// Makes this sender the latest one.
    fn call(&mut self, sender: &str) {
        let (name, next) = &mut self.latest;
        if name == sender {
            return;
        }
        self.repeats = 0;
        if *next > 0 {
            self.next.insert(self.hasher.hash_one(&*name), *next);
        }
        name.clear();
        name.push_str(sender);
        *next = self.next.remove(&self.hasher.hash_one(&*name)).unwrap_or(0);
    }

    /// Forgets senders that have no turn after this round, if there are many more of them than waiting messages.
    pub(super) fn forget_before(&mut self, round: u64, waiting: usize) {
        if self.next.len() > waiting + REMEMBERED {
            self.next.retain(|_, next| *next > round * IN_A_ROUND);
        }
    }

    /// Forgets all senders. Returns the highest round that was given.
    pub(super) fn end(&mut self) -> u64 {
        self.latest.0.clear();
        self.latest.1 = 0;
        self.proof = None;
        self.repeats = 0;
        match self.next.capacity() > 2 * REMEMBERED {
            true => self.next = HashMap::new(),
            false => self.next.clear(),
        }
        self.last / IN_A_ROUND
    }
}
