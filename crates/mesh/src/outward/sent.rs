//! The messages that were sent to a target and may come back. A process can give back only messages that it was given:
//! any other would make agents of this process say what they never said.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::{FoldHasher, RandomState};

/// The most messages that are remembered for a target: as many as a mailbox holds.
const MOST: usize = 1 << 16;
/// If a link remembers more messages than this, each target forgets more than it notes, down to [`FEW`].
const MOST_ON_LINK: usize = 1 << 20;
const FEW: usize = 64;
/// The most closed targets that are remembered on a link.
const MOST_FORMER: usize = 4096;
/// If a peer gives back messages that it was not given more often than this, it is not honest.
const MOST_NEVER_SENT: u32 = 64;

/// The memory of a link, for all its targets.
#[derive(Default)]
pub(super) struct Memory {
    /// Nobody else knows the key, and no hash leaves the process, so nobody can search for messages with equal hashes.
    /// The faster hash of the library has no more collisions than the other one, which is computed from it and only
    /// mixes single bits better.
    key: RandomState,
    count: usize,
    /// How often a message came back that was never sent.
    never_sent: u32,
}

impl Memory {
    /// The hash of a message.
    pub(super) fn hash(&self, sender: &str, payload: &[u8]) -> u64 {
        self.beginning(sender, &[]).hash(payload)
    }

    /// The hash state after the common part of messages that begin alike: their sender, and their first bytes.
    pub(super) fn beginning(&self, sender: &str, bytes: &[u8]) -> Beginning {
        let mut hasher = self.key.build_hasher();
        hasher.write(sender.as_bytes());
        hasher.write(bytes);
        Beginning(hasher)
    }

    /// Whether the peer has given back too much that it was not given.
    pub(super) fn is_deceived(&self) -> bool {
        self.never_sent > MOST_NEVER_SENT
    }
}

/// The beginning of messages. It is hashed once for a whole row.
pub(super) struct Beginning(FoldHasher<'static>);

impl Beginning {
    /// The hash of the message with this rest.
    pub(super) fn hash(&self, rest: &[u8]) -> u64 {
        let mut hasher = self.0.clone();
        hasher.write(rest);
        hasher.finish().max(CAME_BACK + 1)
    }
}

/// Marks the place of a message that has come back.
const CAME_BACK: u64 = 0;

/// The messages that were sent to one target.
#[derive(Default)]
pub(super) struct Sent {
    /// The hashes of the latest messages, oldest first.
    hashes: VecDeque<u64>,
    /// The place behind the message that came back last. Messages come back in order.
    next: usize,
    /// The number of older, forgotten messages. At most so many unknown ones may come back.
    forgotten: u64,
}

/// Whether a message that comes back was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhetherSent {
    /// It was sent, and comes back for the first time.
    Sent,
    /// It may have been sent, long ago.
    Forgotten,
    /// It was never sent, or came back before.
    Never,
}

impl Sent {
    /// Notes that a message was sent.
    pub(super) fn note(&mut self, hash: u64, memory: &mut Memory) {
        let excess = match memory.count < MOST_ON_LINK {
            true => usize::from(self.hashes.len() >= MOST),
            // One makes room for this message, and one gets below the limit.
            false => self.hashes.len().saturating_sub(FEW).min(2),
        };
        for _ in 0..excess {
            if self.pop(memory) != Some(CAME_BACK) {
                self.forgotten += 1;
            }
        }
        self.hashes.push_back(hash);
        memory.count += 1;
    }

    /// Notes that a message has come back. It was noted under one of these hashes.
    pub(super) fn take_back(&mut self, hashes: [u64; 2], memory: &mut Memory) -> WhetherSent {
        let behind = (self.next..self.hashes.len()).chain(0..self.next);
        let is_it = |hash: &u64| hashes.contains(hash);
        let place = behind
            .into_iter()
            .find(|place| self.hashes.get(*place).is_some_and(is_it));
        if let Some(place) = place {
            self.hashes[place] = CAME_BACK;
            self.next = place + 1;
            while self.hashes.front() == Some(&CAME_BACK) {
                self.pop(memory);
            }
            return WhetherSent::Sent;
        }
        match self.forgotten.checked_sub(1) {
            Some(left) => {
                self.forgotten = left;
                WhetherSent::Forgotten
            }
            None => {
                memory.never_sent += 1;
                WhetherSent::Never
            }
        }
    }

    /// The messages that may still come back, to look up many of them.
    pub(super) fn outstanding(&self) -> Outstanding {
        let mut hashes: HashMap<u64, u32> = HashMap::new();
        for hash in self.hashes.iter().filter(|hash| **hash != CAME_BACK) {
            *hashes.entry(*hash).or_default() += 1;
        }
        Outstanding {
            hashes,
            forgotten: self.forgotten,
        }
    }

    fn pop(&mut self, memory: &mut Memory) -> Option<u64> {
        let first = self.hashes.pop_front()?;
        self.next = self.next.saturating_sub(1);
        memory.count -= 1;
        Some(first)
    }

    fn forget(&mut self, memory: &mut Memory) {
        memory.count -= self.hashes.len();
        *self = Self::default();
    }
}

/// The messages to one target that have not come back.
pub(super) struct Outstanding {
    /// How often each message was sent.
    hashes: HashMap<u64, u32>,
    forgotten: u64,
}

impl Outstanding {
    /// Takes out a message, which was noted under one of these hashes. Returns false if it is not among them.
    pub(super) fn take(&mut self, hashes: [u64; 2]) -> bool {
        for hash in hashes {
            if let Some(count) = self.hashes.get_mut(&hash).filter(|count| **count > 0) {
                *count -= 1;
                return true;
            }
        }
        let is_forgotten = self.forgotten > 0;
        self.forgotten -= u64::from(is_forgotten);
        is_forgotten
    }
}

/// The closed targets. Their agents may have messages that they have not read yet, and never will if they end.
#[derive(Default)]
pub(super) struct ClosedTargets(BTreeMap<u32, (Arc<str>, Sent)>);

impl ClosedTargets {
    /// Keeps a target that has ended. If there are too many, forgets the oldest.
    pub(super) fn keep(&mut self, number: u32, name: Arc<str>, sent: Sent, memory: &mut Memory) {
        self.0.insert(number, (name, sent));
        while (self.0.len() > MOST_FORMER || memory.count > MOST_ON_LINK)
            && let Some((_, (_, mut sent))) = self.0.pop_first()
        {
            sent.forget(memory);
        }
    }

    /// Notes that a message comes back from the target with that number. Returns the agent's name, or `None` if the
    /// target is not known, or no longer.
    pub(super) fn take_back(
        &mut self,
        number: u32,
        hashes: [u64; 2],
        memory: &mut Memory,
    ) -> Option<(Arc<str>, WhetherSent)> {
        let (name, sent) = self.0.get_mut(&number)?;
        Some((name.clone(), sent.take_back(hashes, memory)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_comes_back_once_and_only_to_its_sender() {
        let (mut memory, mut sent) = (Memory::default(), Sent::default());
        let hash = memory.hash("a@p", b"hello");
        sent.note(hash, &mut memory);
        let of_another = memory.hash("b@p", b"hello");
        assert_eq!(
            sent.take_back([of_another; 2], &mut memory),
            WhetherSent::Never
        );
        assert_eq!(sent.take_back([hash; 2], &mut memory), WhetherSent::Sent);
        assert_eq!(sent.take_back([hash; 2], &mut memory), WhetherSent::Never);
        assert_eq!(memory.count, 0);
    }

    #[test]
    fn a_message_comes_back_once_by_whichever_hash_it_was_noted() {
        let (mut memory, mut sent) = (Memory::default(), Sent::default());
        let whole = memory.hash("a@p", b"hello");
        let in_two = memory.beginning("a@p", b"he").hash(b"llo");
        assert_ne!(whole, in_two);
        let of_others = [
            memory.beginning("a@ph", b"e").hash(b"llo"),
            memory.beginning("a@p", b"hel").hash(b"lo"),
        ];
        sent.note(in_two, &mut memory);
        assert_eq!(sent.take_back(of_others, &mut memory), WhetherSent::Never);
        for outcome in [WhetherSent::Sent, WhetherSent::Never] {
            assert_eq!(sent.take_back([whole, in_two], &mut memory), outcome);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_forgotten_is_counted() {
        let (mut memory, mut sent) = (Memory::default(), Sent::default());
        for number in 0..MOST as u64 + 10 {
            sent.note(number + 1, &mut memory);
        }
        assert_eq!((sent.hashes.len(), memory.count), (MOST, MOST));
        for number in 0..10 {
            let hashes = [number + 1; 2];
            assert_eq!(sent.take_back(hashes, &mut memory), WhetherSent::Forgotten);
        }
        assert_eq!(sent.take_back([1; 2], &mut memory), WhetherSent::Never);
        assert_eq!(sent.take_back([11; 2], &mut memory), WhetherSent::Sent);
        sent.forget(&mut memory);
        assert_eq!(memory.count, 0);
    }

    #[test]
    fn at_the_limit_of_the_link_each_target_keeps_its_latest_messages() {
        let mut memory = Memory::default();
        let mut targets: Vec<Sent> = (0..20).map(|_| Sent::default()).collect();
        for target in &mut targets {
            for number in 0..MOST as u64 {
                target.note(number + 1, &mut memory);
            }
        }
        assert!(memory.count <= MOST_ON_LINK + 20 * FEW, "{}", memory.count);
        // A target that sends a burst forgets its oldest messages.
        let first = &mut targets[0];
        for number in 0..400 {
            first.note(1_000_000 + number, &mut memory);
        }
        for number in 0..400 {
            let origin = first.take_back([1_000_000 + number; 2], &mut memory);
            assert_eq!(origin, WhetherSent::Sent);
        }
    }

    proptest! {
        /// In whatever order messages come back, each is believed as often as it was sent.
        #[test]
        fn each_message_is_believed_as_often_as_it_was_sent(
            steps in prop::collection::vec((any::<bool>(), 1_u64..8), 0..200),
        ) {
            let (mut memory, mut sent) = (Memory::default(), Sent::default());
            let mut out: HashMap<u64, u32> = HashMap::new();
            for (is_sent, hash) in steps {
                let count = out.entry(hash).or_default();
                if is_sent {
                    sent.note(hash, &mut memory);
                    *count += 1;
                } else {
                    let is_believed = sent.take_back([hash; 2], &mut memory) == WhetherSent::Sent;
                    prop_assert_eq!(is_believed, *count > 0);
                    *count = count.saturating_sub(1);
                }
                prop_assert_eq!(memory.count, sent.hashes.len());
            }
        }
    }
}
