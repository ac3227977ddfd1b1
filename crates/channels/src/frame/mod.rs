//! The protocol between the exchanges of two processes.
//!
//! An agent or the process itself writes a frame, and a transport
//! ([`ProcessDestination`](sealbus_bus::ProcessDestination)) carries it whole. Numbers of a fixed length are
//! little-endian. All others are LEB128: seven bits a byte, the least significant first, at most ten bytes. A text is
//! its length in bytes as LEB128, then UTF-8.
//!
//! | byte | kind | written by | after it |
//! |---|---|---|---|
//! | `01` | hello | process | `from`: 8 bytes, `to`: 8 bytes |
//! | `02` | acknowledge | process | stamp, `upto`, `after` |
//! | `10` | void | process | stamp |
//! | `11` | announce | agent | stamp, subscription, flags, pattern, filter, flow policy: 1 byte, credit, durable name, replay, group, prefetch if there is a group |
//! | `12` | withdraw | process | stamp, subscription |
//! | `13` | credit | process | stamp, subscription, limit |
//! | `14` | taken | process | stamp, frame number |
//! | `15` | known | process | stamp |
//! | `16` | filter errors | process | stamp, subscription, count, text |
//! | `17` | missed | process | stamp, subscription, count |
//! | `20` | event, message, request | agent | stamp, head, targets, ACL message |
//! | `21` | reply | agent | stamp, head, subscription, ACL message |
//! | `22` | no answer | process | stamp, request, subscription |
//! | `23` | refusal | process | stamp, frame number, reason: 1 byte, text |
//! | `24` | absent | process | stamp, frame number |
//! | `30` | keep | agent | stamp, head, ACL message |
//! | `31` | keep, signed | agent | stamp, head, length of the evidence, evidence, ACL message |
//!
//! A *stamp* is the session, 8 bytes, and the frame's number in the session. The number is 0 for frames that are not
//! acknowledged: acknowledgements and best-effort events. The session is [computed](session) from the two epochs that
//! the processes told each other by *hello*.
//!
//! A *head* is:
//!
//! ```text
//! byte 0   bits 0-1 mechanism: 0 event, 1 message, 2 request, 3 reply
//!          bits 2-3 reliability: 0 best-effort, 1 at-least-once, 2 exactly-once
//!          bit 4    ordered       bit 5    persistent
//!          bit 6    valid-from    bit 7    expiry
//! byte 1   bits 0-3 priority      bits 4-7 security level and 1; 0: the platform's
//! byte 2   bits 0-2 acknowledgement wanted and 1; 0: none
//!          bit 3    lifetime, only if persistent       bit 4    may be again       the others 0
//! channel (text) · number · published (ms since 1970) · valid-from, if bit 6 · expiry, if bit 7
//! · lifetime (ms), if byte 2 bit 3 · receiver (text) of a message · request number of a request or reply
//! ```
//!
//! *Targets* are the addressed subscriptions in the receiving process: their count and their numbers. A count of 0
//! means all subscriptions whose pattern matches. The ACL message is in the bit-efficient encoding (FIPA00069). It is
//! the last part of the frame, with the same bytes for all receivers.

mod announcement;
mod codec;
mod field;
mod head;
#[cfg(test)]
mod round_trips;
mod targets;

use thiserror::Error;

use sealbus_bus::RefusalReason;
use sealbus_proof::Hash;

pub use announcement::{Announcement, MOST_PREFETCHED};
pub use codec::begin_event;
pub use head::{Head, HeadMechanism};
pub use targets::{MOST_TARGETS, Targets};

/// The longest agent name or durable name, in bytes.
pub const LONGEST_NAME: usize = 512;

/// The session of frames from the process of epoch `from` to the process of epoch `to`. Two epochs make two sessions,
/// one in each direction. A frame of a former life of either process belongs to neither session.
pub const fn session(from: u64, to: u64) -> u64 {
    // The finisher of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), twice.
    const fn mix(value: u64) -> u64 {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
    mix(mix(from.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ to)
}

/// The hash of the [statement](sealbus_proof::Statement) that the writer of a frame makes at level `signed`; `None` if
/// the frame contains no message. `start`: the frame up to the message. `after`: the other parts of the frame.
pub fn statement(start: &[u8], after: &[&[u8]]) -> Option<Hash> {
    let (Frame::Event { head, body, .. } | Frame::Reply { head, body, .. }) =
        Frame::decode(start).ok()?
    else {
        return None;
    };
    if after.iter().all(|part| part.is_empty()) {
        return Some(head.statement(body));
    }
    let message = [&[body], after].concat().concat();
    Some(head.statement(&message))
}

/// The place of a frame in the conversation of two processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The session; see [`session`].
    pub session: u64,
    /// The frame's number in the session, from 1; 0: the frame is not acknowledged.
    pub number: u64,
}

/// A frame, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first frame of a process: the epochs of both processes as the writer knows them; 0 if not known.
    Hello {
        /// The epoch of the writer.
        from: u64,
        /// The epoch of the reader.
        to: u64,
    },
    /// The frames that the writer has taken.
    Acknowledge {
        /// The frame's place; its number is 0.
        stamp: Stamp,
        /// All frames up to this one.
        upto: u64,
        /// Up to this frame, no event still waits for an agent to take it.
        read: u64,
        /// The last frame that the writer had sent in the other session before this one. The reader may forget
        /// acknowledged frames only once that frame has come, because it may report a refusal.
        after: u64,
    },
    /// Takes the place of a frame that will not be sent.
    Void {
        /// The frame's place.
        stamp: Stamp,
    },
    /// An existing subscription.
    Announce {
        /// The frame's place.
        stamp: Stamp,
        /// The subscription.
        announcement: Announcement<'a>,
    },
    /// A subscription has ended.
    Withdraw {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the subscription.
        subscription: u32,
        /// If its agent has moved away: the first of the reader's frames that it does not take. 0: it wants nothing more.
        moved_before: u64,
    },
    /// A subscription that pushes back takes more.
    Credit {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the subscription.
        subscription: u32,
        /// The number of bytes that may be sent to it in all.
        limit: u64,
    },
    /// All existing subscriptions have been announced. Later announcements are news.
    Known {
        /// The frame's place.
        stamp: Stamp,
    },
    /// All receiving agents have taken an event. Sent only if the publisher waits for that. For an event of a group:
    /// the member has handled it; this is always sent.
    Taken {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the frame that brought the event.
        taken: u64,
    },
    /// A subscription's filter could not be evaluated for a published message, which was therefore not sent to it.
    FilterErrors {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the subscription.
        subscription: u32,
        /// The number of such messages since the last report.
        count: u64,
        /// The reason for the first of them, for people.
        text: &'a str,
    },
    /// Events passed a subscription by: its process was given up, or it pushed back for too long.
    Missed {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the subscription.
        subscription: u32,
        /// The number of such events since the last report.
        count: u64,
    },
    /// An event, a directed message or a request.
    Event {
        /// The frame's place.
        stamp: Stamp,
        /// Its head.
        head: Head<'a>,
        /// The subscriptions that get it.
        targets: Targets<'a>,
        /// The ACL message.
        body: &'a [u8],
    },
    /// An answer to a request.
    Reply {
        /// The frame's place.
        stamp: Stamp,
        /// The head of the reply, which names the request.
        head: Head<'a>,
        /// The subscription that answers.
        subscription: u32,
        /// The ACL message.
        body: &'a [u8],
    },
    /// A subscription that answers requests does not answer this one.
    NoAnswer {
        /// The frame's place.
        stamp: Stamp,
        /// The request.
        request: u64,
        /// The subscription.
        subscription: u32,
    },
    /// A frame was refused.
    Refusal {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the frame that was refused.
        refused: u64,
        /// Why.
        reason: RefusalReason,
        /// The reason in words, for people.
        text: &'a str,
    },
    /// The receiver of a message is not on the channel, or no longer; or a member of a group does not take an event.
    Absent {
        /// The frame's place.
        stamp: Stamp,
        /// The number of the frame that brought the message.
        message: u64,
    },
    /// An event for the log of a persistent channel, which the receiving node keeps.
    Keep {
        /// The frame's place.
        stamp: Stamp,
        /// Its head; the number is the publisher's.
        head: Head<'a>,
        /// At level `signed`, the evidence that the publisher wrote the event, in the form of
        /// [`Evidence::decode`](sealbus_proof::Evidence::decode); otherwise empty.
        evidence: &'a [u8],
        /// The ACL message.
        body: &'a [u8],
    },
}

/// The reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The frame ends too early.
    #[error("the frame ends where {0} is due")]
    Short(&'static str),
    /// A kind that is not known.
    #[error("0x{0:02x} is not a kind of frame")]
    Kind(u8),
    /// A value outside its range.
    #[error("{0} is not within its limits")]
    Limit(&'static str),
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// Bytes after its end.
    #[error("the frame has bytes after its end")]
    Long,
}

impl Frame<'_> {
    /// The frame's place; `None` for a hello.
    pub fn stamp(&self) -> Option<Stamp> {
        match *self {
            Self::Hello { .. } => None,
            Self::Acknowledge { stamp, .. }
            | Self::Void { stamp }
            | Self::Announce { stamp, .. }
            | Self::Withdraw { stamp, .. }
            | Self::Credit { stamp, .. }
            | Self::Taken { stamp, .. }
            | Self::Known { stamp }
            | Self::FilterErrors { stamp, .. }
            | Self::Missed { stamp, .. }
            | Self::Absent { stamp, .. }
            | Self::Event { stamp, .. }
            | Self::Reply { stamp, .. }
            | Self::NoAnswer { stamp, .. }
            | Self::Refusal { stamp, .. }
            | Self::Keep { stamp, .. } => Some(stamp),
        }
    }
}
