//! What the exchanges of two processes say to each other.
//!
//! A frame is carried whole by a transport ([`ProcessDestination`](crate::ProcessDestination)), written by an agent or by
//! the process itself. Numbers are little-endian where they have a fixed length, else LEB128: seven bits a
//! byte, the least first, at most ten bytes. A text is its length in bytes as such a number, then UTF-8.
//!
//! | byte | kind | written by | after it |
//! |---|---|---|---|
//! | `01` | hello | process | `from`: 8 bytes, `to`: 8 bytes |
//! | `02` | acknowledge | process | stamp, `upto`, `beyond`: 8 bytes, `after` |
//! | `10` | void | process | stamp |
//! | `11` | announce | agent | stamp, subscription, flags, pattern, filter, flow policy: 1 byte, credit, durable name, replay |
//! | `12` | withdraw | process | stamp, subscription |
//! | `13` | credit | process | stamp, subscription, limit |
//! | `14` | taken | process | stamp, frame number |
//! | `15` | known | process | stamp |
//! | `16` | filter errors | process | stamp, subscription, count, text |
//! | `20` | event, message, request | agent | stamp, head, targets, ACL message |
//! | `21` | reply | agent | stamp, head, subscription, ACL message |
//! | `22` | no answer | process | stamp, request, subscription |
//! | `23` | refusal | process | stamp, frame number, reason: 1 byte, text |
//! | `24` | absent | process | stamp, frame number |
//! | `30` | keep | agent | stamp, head, ACL message |
//!
//! A *stamp* is the session, 8 bytes, and the frame's number in it, 0 if the frame is neither acknowledged nor sent again.
//! The session is [made](session) of the two epochs that the processes told each other by *hello*.
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
//!          bit 3    lifetime, only if persistent       the others 0
//! channel (text) · number · published (ms since 1970) · valid-from, if bit 6 · expiry, if bit 7
//! · lifetime (ms), if byte 2 bit 3 · receiver (text) of a message · request number of a request or reply
//! ```
//!
//! *Targets* are the subscriptions meant in the receiving process: their count and their numbers; a count of 0 means all
//! whose pattern matches. The ACL message is in the bit-efficient encoding (FIPA00069), the last in the frame and the same
//! for all receivers.

use std::time::Duration;

use bytes::Bytes;
use sealbus_seal::SecurityLevel;
use thiserror::Error;

use super::event::{ChannelHeader, Mechanism, RequestId};
use super::filter::MAX_FILTER_LENGTH;
use super::flow::FlowPolicy;
use super::moment::Moment;
use super::path::{ChannelPath, MAX_PATH_LENGTH};
use super::qos::{Persistence, Priority, Qos, Reliability, Time};
use crate::refusal::RefusalReason;
use crate::transport::Acknowledgement;

/// The longest agent name or durable name, in bytes.
pub const LONGEST_NAME: usize = 512;
/// The longest text of a refusal, in bytes; longer ones are cut when they are written.
pub const LONGEST_TEXT: usize = 1000;
/// The most subscriptions a frame names; an event that more of them want goes to all whose pattern matches.
pub const MOST_TARGETS: usize = 1024;

/// The session of frames from the process of epoch `from` to that of epoch `to`: two epochs make two sessions, one in
/// each direction, and a frame of a former life of either process is of neither.
pub const fn session(from: u64, to: u64) -> u64 {
    // The finisher of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), twice.
    const fn mix(value: u64) -> u64 {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
    mix(mix(from.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ to)
}

/// Where a frame belongs in the conversation of two processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The session; see [`session`].
    pub session: u64,
    /// The frame's number in the session, from 1; 0: it is neither acknowledged nor sent again. Best-effort events are
    /// neither, too, and are counted by themselves, so that they are known when they come twice or late.
    pub number: u64,
}

/// The part of a frame that stands before an ACL message; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Which way to talk it is.
    pub mechanism: HeadMechanism<'a>,
    /// How hard it is tried to deliver it.
    pub reliability: Reliability,
    /// Whether order is kept for each sender.
    pub ordered: bool,
    /// Whether and how long it is kept for those who come later.
    pub persistence: Persistence,
    /// How urgent it is.
    pub priority: Priority,
    /// The security level demanded.
    pub level: Option<SecurityLevel>,
    /// The acknowledgement wanted.
    pub acknowledgement: Option<Acknowledgement>,
    /// The channel's path.
    pub channel: &'a str,
    /// The event's number.
    pub number: u64,
    /// When it was published.
    pub published: Moment,
    /// Not to be handed out before.
    pub valid_from: Option<Moment>,
    /// Not to be handed out from then on.
    pub expiry: Option<Moment>,
}

/// [`Mechanism`](super::Mechanism) as it stands in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadMechanism<'a> {
    /// To every consumer.
    Event,
    /// To one agent.
    Message {
        /// Its AID name.
        receiver: &'a str,
    },
    /// To everyone who answers.
    Request {
        /// Its number.
        id: u64,
    },
    /// The answer.
    Reply {
        /// The number of the request.
        id: u64,
    },
}

/// From where on a subscription reads a persistent channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// What comes from now on.
    #[default]
    Now,
    /// What was published since.
    Since(Moment),
    /// The last so many events of each channel on each node: a node counts what it keeps.
    Last(u64),
    /// From this event number on, of each channel on each node.
    From(u64),
    /// From where the durable subscription of that name stopped; if there is none, from now on.
    Resume,
}

/// The subscriptions of the receiving process that an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets<'a> {
    count: usize,
    encoded: &'a [u8],
}

impl Targets<'_> {
    /// Whether it is for all whose pattern and filter match.
    pub fn is_all(&self) -> bool {
        self.count == 0
    }

    /// The subscriptions named.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let mut reader = Reader { rest: self.encoded };
        (0..self.count).map_while(move |_| reader.short("a subscription").ok())
    }
}

/// A subscription as its process announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// Its number in that process.
    pub subscription: u32,
    /// The channels.
    pub pattern: &'a str,
    /// The filter expression; empty: everything.
    pub filter: &'a str,
    /// What it does when it is full.
    pub policy: FlowPolicy,
    /// Whether its agent answers requests.
    pub answers: bool,
    /// Whether it takes events; directed messages it takes always.
    pub takes_events: bool,
    /// With [`FlowPolicy::PushBack`]: the bytes that may be sent at the beginning, each event counted with
    /// [`MESSAGE_OVERHEAD`](crate::MESSAGE_OVERHEAD).
    pub credit: u64,
    /// The name under which it goes on after an absence; empty: none.
    pub durable: &'a str,
    /// From where on it reads persistent channels.
    pub replay: Replay,
}

/// A frame, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first words of a process: the epochs of both, as the writer knows them; 0: not known.
    Hello {
        /// The writer's.
        from: u64,
        /// The reader's.
        to: u64,
    },
    /// What has been taken.
    Acknowledge {
        /// Where it belongs; its number is 0.
        stamp: Stamp,
        /// All frames up to this one.
        upto: u64,
        /// And those of the 64 after the next whose bit is set: bit 0 is the frame `upto + 2`.
        beyond: u64,
        /// The last frame that the writer sent in the other session before. What is acknowledged here may be forgotten
        /// only once that has come, for it may say that something was refused.
        after: u64,
    },
    /// Takes the place of a frame that is not sent any more.
    Void {
        /// Where it belongs.
        stamp: Stamp,
    },
    /// A subscription there is.
    Announce {
        /// Where it belongs.
        stamp: Stamp,
        /// The subscription.
        announcement: Announcement<'a>,
    },
    /// A subscription has ended.
    Withdraw {
        /// Where it belongs.
        stamp: Stamp,
        /// Its number.
        subscription: u32,
    },
    /// A subscription that pushes back takes more.
    Credit {
        /// Where it belongs.
        stamp: Stamp,
        /// Its number.
        subscription: u32,
        /// Bytes that may be sent to it in all.
        limit: u64,
    },
    /// All subscriptions there are have been announced; what comes from now on is news.
    Known {
        /// Where it belongs.
        stamp: Stamp,
    },
    /// All agents that an event was for have taken it; only for those whose publisher waits for that.
    Taken {
        /// Where it belongs.
        stamp: Stamp,
        /// The number of the frame that brought it.
        taken: u64,
    },
    /// The filter of a subscription could not be evaluated for what was published, which therefore was not sent to it.
    FilterErrors {
        /// Where it belongs.
        stamp: Stamp,
        /// Its number.
        subscription: u32,
        /// For how many messages, since this was last said.
        count: u64,
        /// Why, of the first of them, for people.
        text: &'a str,
    },
    /// An event, a directed message or a request.
    Event {
        /// Where it belongs.
        stamp: Stamp,
        /// Its head.
        head: Head<'a>,
        /// Whom it is for.
        targets: Targets<'a>,
        /// The ACL message.
        body: &'a [u8],
    },
    /// An answer to a request.
    Reply {
        /// Where it belongs.
        stamp: Stamp,
        /// Its head, which names the request.
        head: Head<'a>,
        /// The subscription that answers.
        subscription: u32,
        /// The ACL message.
        body: &'a [u8],
    },
    /// A subscription that answers requests does not answer this one.
    NoAnswer {
        /// Where it belongs.
        stamp: Stamp,
        /// The request.
        request: u64,
        /// The subscription.
        subscription: u32,
    },
    /// A frame was not accepted.
    Refusal {
        /// Where it belongs.
        stamp: Stamp,
        /// The number of the frame that was refused.
        refused: u64,
        /// Why.
        reason: RefusalReason,
        /// The same for people.
        text: &'a str,
    },
    /// The agent that a message was for is not on the channel, or not any more.
    Absent {
        /// Where it belongs.
        stamp: Stamp,
        /// The number of the frame that brought the message.
        message: u64,
    },
    /// An event for the log of a persistent channel, which the receiving node keeps.
    Keep {
        /// Where it belongs.
        stamp: Stamp,
        /// Its head; the number is the publisher's.
        head: Head<'a>,
        /// The ACL message.
        body: &'a [u8],
    },
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// It ends too early.
    #[error("the frame ends where {0} is due")]
    Short(&'static str),
    /// A kind that is not known.
    #[error("0x{0:02x} is no kind of frame")]
    Kind(u8),
    /// A value outside its range.
    #[error("{0} is not within its limits")]
    Limit(&'static str),
    /// Not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// Bytes after its end.
    #[error("the frame has bytes after its end")]
    Long,
}

const HELLO: u8 = 0x01;
const ACKNOWLEDGE: u8 = 0x02;
const VOID: u8 = 0x10;
const ANNOUNCE: u8 = 0x11;
const WITHDRAW: u8 = 0x12;
const CREDIT: u8 = 0x13;
const TAKEN: u8 = 0x14;
const KNOWN: u8 = 0x15;
const FILTER_ERRORS: u8 = 0x16;
const EVENT: u8 = 0x20;
const REPLY: u8 = 0x21;
const NO_ANSWER: u8 = 0x22;
const REFUSAL: u8 = 0x23;
const ABSENT: u8 = 0x24;
const KEEP: u8 = 0x30;

impl<'a> Frame<'a> {
    /// Reads a frame; nothing is copied.
    ///
    /// # Errors
    /// [`FrameError`]. The ACL message is not looked at.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader { rest: bytes };
        let kind = reader.byte("its kind")?;
        if kind == HELLO {
            let from = reader.fixed("an epoch")?;
            let to = reader.fixed("an epoch")?;
            if from == 0 {
                return Err(FrameError::Limit("the epoch"));
            }
            reader.end()?;
            return Ok(Self::Hello { from, to });
        }
        let stamp = Stamp {
            session: reader.fixed("the session")?,
            number: reader.number("the frame's number")?,
        };
        let frame = match kind {
            ACKNOWLEDGE => Self::Acknowledge {
                stamp,
                upto: reader.number("what is acknowledged")?,
                beyond: reader.fixed("what is acknowledged beyond")?,
                after: reader.number("the frame before")?,
            },
            VOID => Self::Void { stamp },
            ANNOUNCE => Self::Announce {
                stamp,
                announcement: Announcement::read(&mut reader)?,
            },
            WITHDRAW => Self::Withdraw {
                stamp,
                subscription: reader.short("the subscription")?,
            },
            CREDIT => Self::Credit {
                stamp,
                subscription: reader.short("the subscription")?,
                limit: reader.number("the credit")?,
            },
            TAKEN => Self::Taken {
                stamp,
                taken: reader.number("the frame taken")?,
            },
            KNOWN => Self::Known { stamp },
            FILTER_ERRORS => Self::FilterErrors {
                stamp,
                subscription: reader.short("the subscription")?,
                count: reader.number("the count")?,
                text: reader.text("the text", LONGEST_TEXT)?,
            },
            ABSENT => Self::Absent {
                stamp,
                message: reader.number("the frame")?,
            },
            EVENT => Self::Event {
                stamp,
                head: Head::read(&mut reader)?,
                targets: Targets::read(&mut reader)?,
                body: reader.rest(),
            },
            REPLY => Self::Reply {
                stamp,
                head: Head::read(&mut reader)?,
                subscription: reader.short("the subscription")?,
                body: reader.rest(),
            },
            NO_ANSWER => Self::NoAnswer {
                stamp,
                request: reader.number("the request")?,
                subscription: reader.short("the subscription")?,
            },
            REFUSAL => Self::Refusal {
                stamp,
                refused: reader.number("the frame refused")?,
                reason: RefusalReason::from_code(reader.byte("the reason")?)
                    .ok_or(FrameError::Limit("the reason"))?,
                text: reader.text("the text", LONGEST_TEXT)?,
            },
            KEEP => Self::Keep {
                stamp,
                head: Head::read(&mut reader)?,
                body: reader.rest(),
            },
            other => return Err(FrameError::Kind(other)),
        };
        reader.end()?;
        Ok(frame)
    }

    /// Appends the frame to `out`. A text that is too long for its place is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { from, to } => {
                out.push(HELLO);
                out.extend_from_slice(&from.to_le_bytes());
                out.extend_from_slice(&to.to_le_bytes());
            }
            Self::Acknowledge {
                stamp,
                upto,
                beyond,
                after,
            } => {
                stamp.write(ACKNOWLEDGE, out);
                number(out, upto);
                out.extend_from_slice(&beyond.to_le_bytes());
                number(out, after);
            }
            Self::Void { stamp } => stamp.write(VOID, out),
            Self::Announce {
                stamp,
                announcement,
            } => {
                stamp.write(ANNOUNCE, out);
                announcement.write(out);
            }
            Self::Withdraw {
                stamp,
                subscription,
            } => {
                stamp.write(WITHDRAW, out);
                number(out, subscription.into());
            }
            Self::Credit {
                stamp,
                subscription,
                limit,
            } => {
                stamp.write(CREDIT, out);
                number(out, subscription.into());
                number(out, limit);
            }
            Self::Known { stamp } => stamp.write(KNOWN, out),
            Self::FilterErrors {
                stamp,
                subscription,
                count,
                text: words,
            } => {
                stamp.write(FILTER_ERRORS, out);
                number(out, subscription.into());
                number(out, count);
                text(out, words, LONGEST_TEXT);
            }
            Self::Absent { stamp, message } => {
                stamp.write(ABSENT, out);
                number(out, message);
            }
            Self::Taken { stamp, taken } => {
                stamp.write(TAKEN, out);
                number(out, taken);
            }
            Self::Event {
                stamp,
                head,
                targets,
                body,
            } => {
                stamp.write(EVENT, out);
                head.write(out);
                number(out, targets.count as u64);
                out.extend_from_slice(targets.encoded);
                out.extend_from_slice(body);
            }
            Self::Reply {
                stamp,
                head,
                subscription,
                body,
            } => {
                stamp.write(REPLY, out);
                head.write(out);
                number(out, subscription.into());
                out.extend_from_slice(body);
            }
            Self::NoAnswer {
                stamp,
                request,
                subscription,
            } => {
                stamp.write(NO_ANSWER, out);
                number(out, request);
                number(out, subscription.into());
            }
            Self::Refusal {
                stamp,
                refused,
                reason,
                text: words,
            } => {
                stamp.write(REFUSAL, out);
                number(out, refused);
                out.push(reason.code());
                text(out, words, LONGEST_TEXT);
            }
            Self::Keep { stamp, head, body } => {
                stamp.write(KEEP, out);
                head.write(out);
                out.extend_from_slice(body);
            }
        }
    }

    /// The frame as bytes of its own.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }

    /// Where it belongs; none for a hello.
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
            | Self::Absent { stamp, .. }
            | Self::Event { stamp, .. }
            | Self::Reply { stamp, .. }
            | Self::NoAnswer { stamp, .. }
            | Self::Refusal { stamp, .. }
            | Self::Keep { stamp, .. } => Some(stamp),
        }
    }
}

/// Appends the start of an event's frame, after which its ACL message is appended by the caller.
pub fn begin_event(out: &mut Vec<u8>, stamp: Stamp, head: &Head<'_>, targets: &[u32]) {
    stamp.write(EVENT, out);
    head.write(out);
    // More than may be named are not named: each then looks at its own filter.
    let named = if targets.len() > MOST_TARGETS {
        &[]
    } else {
        targets
    };
    number(out, named.len() as u64);
    for target in named {
        number(out, (*target).into());
    }
}

impl Stamp {
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&self.session.to_le_bytes());
        number(out, self.number);
    }
}

const LIFETIME: u8 = 1 << 3;

impl<'a> Head<'a> {
    /// The head for a header.
    pub fn of(header: &'a ChannelHeader) -> Self {
        Self {
            mechanism: match &header.mechanism {
                Mechanism::Event => HeadMechanism::Event,
                Mechanism::Message { receiver } => HeadMechanism::Message { receiver },
                Mechanism::Request { id } => HeadMechanism::Request { id: id.0 },
                Mechanism::Reply { id } => HeadMechanism::Reply { id: id.0 },
            },
            reliability: header.qos.reliability,
            ordered: header.qos.ordered,
            persistence: header.qos.persistence,
            priority: header.qos.priority,
            level: header.qos.level,
            acknowledgement: header.qos.acknowledgement,
            channel: header.channel.as_str(),
            number: header.number,
            published: header.published,
            valid_from: header.valid_from,
            expiry: header.expiry,
        }
    }

    /// The header for a head on `channel`, which is the one that the head names.
    pub fn to_header(&self, channel: ChannelPath) -> ChannelHeader {
        ChannelHeader {
            mechanism: match self.mechanism {
                HeadMechanism::Event => Mechanism::Event,
                HeadMechanism::Message { receiver } => Mechanism::Message {
                    receiver: receiver.into(),
                },
                HeadMechanism::Request { id } => Mechanism::Request { id: RequestId(id) },
                HeadMechanism::Reply { id } => Mechanism::Reply { id: RequestId(id) },
            },
            channel,
            qos: Qos {
                reliability: self.reliability,
                ordered: self.ordered,
                persistence: self.persistence,
                priority: self.priority,
                valid_from: self.valid_from.map(Time::At),
                expiry: self.expiry.map(Time::At),
                level: self.level,
                acknowledgement: self.acknowledgement,
            },
            number: self.number,
            published: self.published,
            valid_from: self.valid_from,
            expiry: self.expiry,
            logged: None,
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let flags = reader.byte("the head")?;
        let ranks = reader.byte("the head")?;
        let wishes = reader.byte("the head")?;
        let reliability =
            Reliability::from_code(flags >> 2 & 3).ok_or(FrameError::Limit("the reliability"))?;
        let priority = Priority::new(ranks & 15).ok_or(FrameError::Limit("the priority"))?;
        let level = match ranks >> 4 {
            0 => None,
            code => Some(SecurityLevel::from_code(code - 1).ok_or(FrameError::Limit("the level"))?),
        };
        let acknowledgement = match wishes & 7 {
            0 => None,
            code => Some(
                *Acknowledgement::ALL
                    .get(usize::from(code - 1))
                    .ok_or(FrameError::Limit("the acknowledgement"))?,
            ),
        };
        let is_persistent = flags & 1 << 5 != 0;
        if wishes & !(7 | LIFETIME) != 0 || wishes & LIFETIME != 0 && !is_persistent {
            return Err(FrameError::Limit("the head"));
        }
        let channel = reader.text("the channel", MAX_PATH_LENGTH)?;
        let number = reader.number("the event's number")?;
        let published = reader.moment("the time of publication")?;
        let valid_from = (flags & 1 << 6 != 0)
            .then(|| reader.moment("valid-from"))
            .transpose()?;
        let expiry = (flags & 1 << 7 != 0)
            .then(|| reader.moment("the expiry"))
            .transpose()?;
        let persistence = if wishes & LIFETIME != 0 {
            Persistence::PersistentFor(Duration::from_millis(reader.number("the lifetime")?))
        } else if is_persistent {
            Persistence::Persistent
        } else {
            Persistence::Transient
        };
        let mechanism = match flags & 3 {
            0 => HeadMechanism::Event,
            1 => HeadMechanism::Message {
                receiver: reader.text("the receiver", LONGEST_NAME)?,
            },
            2 => HeadMechanism::Request {
                id: reader.number("the request")?,
            },
            _ => HeadMechanism::Reply {
                id: reader.number("the request")?,
            },
        };
        Ok(Self {
            mechanism,
            reliability,
            ordered: flags & 1 << 4 != 0,
            persistence,
            priority,
            level,
            acknowledgement,
            channel,
            number,
            published,
            valid_from,
            expiry,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mechanism = match self.mechanism {
            HeadMechanism::Event => 0,
            HeadMechanism::Message { .. } => 1,
            HeadMechanism::Request { .. } => 2,
            HeadMechanism::Reply { .. } => 3,
        };
        let lifetime = match self.persistence {
            Persistence::PersistentFor(time) => {
                Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            _ => None,
        };
        out.push(
            mechanism
                | self.reliability.code() << 2
                | u8::from(self.ordered) << 4
                | u8::from(self.persistence.is_persistent()) << 5
                | u8::from(self.valid_from.is_some()) << 6
                | u8::from(self.expiry.is_some()) << 7,
        );
        let level = self.level.map_or(0, |level| level.code() + 1);
        out.push(self.priority.get() | level << 4);
        let acknowledgement = self.acknowledgement.map_or(0, |wanted| wanted as u8 + 1);
        out.push(acknowledgement | if lifetime.is_some() { LIFETIME } else { 0 });
        text(out, self.channel, MAX_PATH_LENGTH);
        number(out, self.number);
        number(out, self.published.unix_ms());
        let moments = [self.valid_from, self.expiry].into_iter().flatten();
        for value in moments.map(Moment::unix_ms).chain(lifetime) {
            number(out, value);
        }
        match self.mechanism {
            HeadMechanism::Event => {}
            HeadMechanism::Message { receiver } => text(out, receiver, LONGEST_NAME),
            HeadMechanism::Request { id } | HeadMechanism::Reply { id } => number(out, id),
        }
    }
}

impl<'a> Targets<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let count = reader.number("the targets")?;
        if count > MOST_TARGETS as u64 {
            return Err(FrameError::Limit("the number of targets"));
        }
        let start = reader.rest;
        for _ in 0..count {
            reader.short("a target")?;
        }
        let length = start.len() - reader.rest.len();
        Ok(Self {
            count: count as usize,
            encoded: start.get(..length).unwrap_or_default(),
        })
    }
}

const ANSWERS: u8 = 1;
const TAKES_EVENTS: u8 = 2;

impl<'a> Announcement<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let subscription = reader.short("the subscription")?;
        let flags = reader.byte("the flags")?;
        if flags & !(ANSWERS | TAKES_EVENTS) != 0 {
            return Err(FrameError::Limit("the flags"));
        }
        Ok(Self {
            subscription,
            answers: flags & ANSWERS != 0,
            takes_events: flags & TAKES_EVENTS != 0,
            pattern: reader.text("the pattern", MAX_PATH_LENGTH)?,
            filter: reader.text("the filter", MAX_FILTER_LENGTH)?,
            policy: FlowPolicy::from_code(reader.byte("the flow policy")?)
                .ok_or(FrameError::Limit("the flow policy"))?,
            credit: reader.number("the credit")?,
            durable: reader.text("the durable name", LONGEST_NAME)?,
            replay: match reader.byte("the replay")? {
                0 => Replay::Now,
                1 => Replay::Since(reader.moment("the replay")?),
                2 => Replay::Last(reader.number("the replay")?),
                3 => Replay::From(reader.number("the replay")?),
                4 => Replay::Resume,
                _ => return Err(FrameError::Limit("the replay")),
            },
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        number(out, self.subscription.into());
        let answers = if self.answers { ANSWERS } else { 0 };
        let takes_events = if self.takes_events { TAKES_EVENTS } else { 0 };
        out.push(answers | takes_events);
        text(out, self.pattern, MAX_PATH_LENGTH);
        text(out, self.filter, MAX_FILTER_LENGTH);
        out.push(self.policy.code());
        number(out, self.credit);
        text(out, self.durable, LONGEST_NAME);
        let (code, value) = match self.replay {
            Replay::Now => (0, None),
            Replay::Since(moment) => (1, Some(moment.unix_ms())),
            Replay::Last(count) => (2, Some(count)),
            Replay::From(number) => (3, Some(number)),
            Replay::Resume => (4, None),
        };
        out.push(code);
        if let Some(value) = value {
            number(out, value);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self, what: &'static str) -> Result<u8, FrameError> {
        let (first, rest) = self.rest.split_first().ok_or(FrameError::Short(what))?;
        self.rest = rest;
        Ok(*first)
    }

    fn fixed(&mut self, what: &'static str) -> Result<u64, FrameError> {
        let (first, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(FrameError::Short(what))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*first))
    }

    fn number(&mut self, what: &'static str) -> Result<u64, FrameError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(FrameError::Limit(what));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One number has one form.
                return if byte == 0 && shift > 0 {
                    Err(FrameError::Limit(what))
                } else {
                    Ok(value)
                };
            }
        }
        Err(FrameError::Limit(what))
    }

    fn short(&mut self, what: &'static str) -> Result<u32, FrameError> {
        u32::try_from(self.number(what)?).map_err(|_| FrameError::Limit(what))
    }

    fn moment(&mut self, what: &'static str) -> Result<Moment, FrameError> {
        let milliseconds = self.number(what)?;
        let moment = Moment::from_unix_ms(milliseconds);
        if moment.unix_ms() == milliseconds {
            Ok(moment)
        } else {
            Err(FrameError::Limit(what))
        }
    }

    fn text(&mut self, what: &'static str, longest: usize) -> Result<&'a str, FrameError> {
        let length = usize::try_from(self.number(what)?).unwrap_or(usize::MAX);
        if length > longest {
            return Err(FrameError::Limit(what));
        }
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(FrameError::Short(what))?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| FrameError::Text(what))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Long)
        }
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str, longest: usize) {
    let text = &text[..text.floor_char_boundary(text.len().min(longest))];
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Reliability, order, lifetime, priority, level and acknowledgement.
    type Ranks = (u8, bool, Option<Option<u32>>, u8, Option<u8>, Option<usize>);

    #[derive(Clone, Debug)]
    struct OwnedHead {
        mechanism: u8,
        receiver: String,
        id: u64,
        ranks: Ranks,
        channel: String,
        number: u64,
        moments: (u64, Option<u64>, Option<u64>),
    }

    impl OwnedHead {
        fn head(&self) -> Head<'_> {
            let (reliability, ordered, persistence, priority, level, acknowledgement) = self.ranks;
            let (published, valid_from, expiry) = self.moments;
            Head {
                mechanism: match self.mechanism {
                    0 => HeadMechanism::Event,
                    1 => HeadMechanism::Message {
                        receiver: &self.receiver,
                    },
                    2 => HeadMechanism::Request { id: self.id },
                    _ => HeadMechanism::Reply { id: self.id },
                },
                reliability: Reliability::from_code(reliability).unwrap(),
                ordered,
                persistence: match persistence {
                    None => Persistence::Transient,
                    Some(None) => Persistence::Persistent,
                    Some(Some(ms)) => Persistence::PersistentFor(Duration::from_millis(ms.into())),
                },
                priority: Priority::new(priority).unwrap(),
                level: level.map(|code| SecurityLevel::from_code(code).unwrap()),
                acknowledgement: acknowledgement.map(|code| Acknowledgement::ALL[code]),
                channel: &self.channel,
                number: self.number,
                published: Moment::from_unix_ms(published),
                valid_from: valid_from.map(Moment::from_unix_ms),
                expiry: expiry.map(Moment::from_unix_ms),
            }
        }
    }

    fn head() -> impl Strategy<Value = OwnedHead> {
        (
            0..4_u8,
            "\\PC{0,40}",
            any::<u64>(),
            (
                0..3_u8,
                any::<bool>(),
                any::<Option<Option<u32>>>(),
                0..10_u8,
                proptest::option::of(0..3_u8),
                proptest::option::of(0..4_usize),
            ),
            "(/[a-zü]{1,9}){1,4}",
            any::<u64>(),
            (any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>()),
        )
            .prop_map(
                |(mechanism, receiver, id, ranks, channel, number, moments)| OwnedHead {
                    mechanism,
                    receiver,
                    id,
                    ranks,
                    channel,
                    number,
                    moments,
                },
            )
    }

    fn replay() -> impl Strategy<Value = Replay> {
        prop_oneof![
            Just(Replay::Now),
            any::<u64>().prop_map(|ms| Replay::Since(Moment::from_unix_ms(ms))),
            any::<u64>().prop_map(Replay::Last),
            any::<u64>().prop_map(Replay::From),
            Just(Replay::Resume),
        ]
    }

    fn stamp() -> impl Strategy<Value = Stamp> {
        (any::<u64>(), any::<u64>()).prop_map(|(session, number)| Stamp { session, number })
    }

    fn check(frame: &Frame<'_>) {
        let bytes = frame.to_bytes();
        assert_eq!(&Frame::decode(&bytes).unwrap(), frame);
        // Cut anywhere it is an error, unless the ACL message is what is cut.
        let has_body = matches!(
            frame,
            Frame::Event { .. } | Frame::Reply { .. } | Frame::Keep { .. }
        );
        for length in 0..bytes.len() {
            assert!(has_body || Frame::decode(&bytes[..length]).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn events_read_back(
            stamp in stamp(), head in head(), targets in proptest::collection::vec(any::<u32>(), 0..5),
            body in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = Vec::new();
            begin_event(&mut bytes, stamp, &head.head(), &targets);
            bytes.extend_from_slice(&body);
            let frame = Frame::decode(&bytes).unwrap();
            let Frame::Event { stamp: read, head: read_head, targets: read_targets, body: read_body } = frame else {
                panic!("{frame:?}");
            };
            prop_assert_eq!(read, stamp);
            prop_assert_eq!(read_head, head.head());
            prop_assert_eq!(read_targets.is_all(), targets.is_empty());
            prop_assert_eq!(read_targets.iter().collect::<Vec<_>>(), targets);
            prop_assert_eq!(read_body, &body[..]);
            check(&frame);
            check(&Frame::Reply { stamp, head: head.head(), subscription: 7, body: &body });
            check(&Frame::Keep { stamp, head: head.head(), body: &body });
        }

        #[test]
        fn the_others_read_back(
            stamp in stamp(), a in any::<u64>(), b in any::<u64>(), subscription in any::<u32>(),
            text in "\\PC{0,60}", other in "\\PC{0,60}", replay in replay(), code in 0..4_u8, flags in any::<(bool, bool)>(),
            reason in 0..11_u8,
        ) {
            check(&Frame::Hello { from: a.max(1), to: b });
            check(&Frame::Acknowledge { stamp, upto: a, beyond: b, after: subscription.into() });
            check(&Frame::Void { stamp });
            check(&Frame::Withdraw { stamp, subscription });
            check(&Frame::Credit { stamp, subscription, limit: a });
            check(&Frame::Known { stamp });
            check(&Frame::FilterErrors { stamp, subscription: 7, count: a, text: &text });
            check(&Frame::Absent { stamp, message: a });
            check(&Frame::Taken { stamp, taken: a });
            check(&Frame::NoAnswer { stamp, request: a, subscription });
            check(&Frame::Refusal {
                stamp, refused: a, reason: RefusalReason::from_code(reason).unwrap(), text: &text,
            });
            check(&Frame::Announce { stamp, announcement: Announcement {
                subscription, pattern: &text, filter: &other, policy: FlowPolicy::from_code(code).unwrap(),
                answers: flags.0, takes_events: flags.1, credit: a, durable: &other, replay,
            }});
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(&frame.to_bytes()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn limits_hold() {
        let long = "x".repeat(LONGEST_TEXT + 5);
        let stamp = Stamp::default();
        let refusal = Frame::Refusal {
            stamp,
            refused: 1,
            reason: RefusalReason::TooLarge,
            text: &long,
        };
        let bytes = refusal.to_bytes();
        let Ok(Frame::Refusal { text, .. }) = Frame::decode(&bytes) else {
            panic!("not read back");
        };
        assert_eq!(text.len(), LONGEST_TEXT);
        let mut bytes = Vec::new();
        stamp.write(EVENT, &mut bytes);
        bytes.extend_from_slice(&[0, 0x0f, 0]);
        assert_eq!(
            Frame::decode(&bytes),
            Err(FrameError::Limit("the priority"))
        );
        assert_ne!(session(1, 2), session(2, 1));
    }
}
