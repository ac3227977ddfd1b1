//! The work of a process's senders in a round.

use crate::clock::monotonic_ns;
use crate::histogram::Buckets;
use crate::order::{Answer, Stamp};
use crate::payload::Payload;
use crate::schedule::Schedule;

/// A round as its senders must play it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The round's number.
    pub round: u32,
    /// Messages of each sender.
    pub messages: u32,
    /// Nanoseconds between two messages of a sender; 0 for none.
    pub interval_ns: u64,
    /// The time that a message carries.
    pub stamp: Stamp,
    /// When the round begins.
    pub start_ns: u64,
}

impl Part {
    /// The schedule of `sender`, one of `senders`.
    pub fn schedule(&self, sender: u32, senders: u32) -> Schedule {
        Schedule::new(self.start_ns, self.interval_ns, sender, senders)
    }

    /// Writes message `number` of `sender`, due at `due_ns`, to the beginning of `content`.
    pub fn write(&self, content: &mut [u8], sender: u32, number: u32, due_ns: u64) {
        let time_ns = match self.stamp {
            Stamp::Sent => monotonic_ns(),
            Stamp::Due => due_ns,
        };
        let payload = Payload {
            round: self.round,
            sender,
            number,
            time_ns,
        };
        payload.write(content);
    }

    /// Fills `content` of any length. If there is room, the content differs in every round trip.
    pub fn write_question(&self, content: &mut [u8], sender: u32, number: u32) {
        let text = format!("{number:06x}{sender:06x}{:02x}", self.round);
        let length = text.len().min(content.len());
        content[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
}

/// The work of one sender, or of all of them.
#[derive(Clone, Debug)]
pub struct Played {
    /// Messages that the system accepted.
    pub sent: u64,
    /// Right answers.
    pub answered: u64,
    /// When the first message was sent.
    pub first_ns: u64,
    /// When the last message was sent or answered.
    pub last_ns: u64,
    /// The times of the round trips.
    pub times: Buckets,
}

impl Played {
    /// No work yet, by a sender that begins now.
    pub fn begin() -> Self {
        Self {
            first_ns: monotonic_ns(),
            ..Self::nothing()
        }
    }

    /// No work, by no sender.
    pub fn nothing() -> Self {
        Self {
            sent: 0,
            answered: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            times: Buckets::default(),
        }
    }

    /// Adds the work of another sender.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.times.add(&other.times);
    }

    /// The answer that reports this work.
    pub fn to_answer(&self) -> Answer {
        Answer::Done {
            sent: self.sent,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            answered: self.answered,
            times: self.times.to_pairs(),
            mean_ns: self.times.mean(),
        }
    }
}
