//! The work of a process's senders in a round.

use crate::clock::monotonic_ns;
use crate::histogram::Buckets;
use crate::order::{Answer, Stamp};
use crate::payload::Payload;
use crate::schedule::Schedule;

/// A round as its senders are to play it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its number.
    pub round: u32,
    /// Messages of each sender.
    pub messages: u32,
    /// Nanoseconds between two messages of a sender; 0 for none.
    pub interval_ns: u64,
    /// Which time a message carries.
    pub stamp: Stamp,
    /// When it begins.
    pub start_ns: u64,
}

impl Part {
    /// When `sender` of `senders` sends what.
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

    /// Fills `content` of any length with what is, if it fits, different in every round trip.
    pub fn write_question(&self, content: &mut [u8], sender: u32, number: u32) {
        let text = format!("{number:06x}{sender:06x}{:02x}", self.round);
        let length = text.len().min(content.len());
        content[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
}

/// The work of one sender, or of all of them.
#[derive(Clone, Debug)]
pub struct Played {
    /// Messages the system accepted.
    pub sent: u64,
    /// Right answers.
    pub answered: u64,
    /// When the first was sent.
    pub first_ns: u64,
    /// When the last was sent, or answered.
    pub last_ns: u64,
    /// How long round trips took.
    pub times: Buckets,
}

impl Played {
    /// Nothing yet, by a sender that begins now.
    pub fn begin() -> Self {
        Self {
            first_ns: monotonic_ns(),
            ..Self::nothing()
        }
    }

    /// Nothing, by nobody.
    pub fn nothing() -> Self {
        Self {
            sent: 0,
            answered: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            times: Buckets::default(),
        }
    }

    /// Adds what another sender did.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.times.add(&other.times);
    }

    /// As it is told.
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
