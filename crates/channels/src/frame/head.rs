//! The head of a frame that carries an ACL message: the channel header in compact form.

use std::time::Duration;

use sealbus_proof::{Hash, Statement};
use sealbus_seal::SecurityLevel;

use super::field::{FieldReader, number, text};
use super::{FrameError, LONGEST_NAME};
use crate::event::{ChannelHeader, Mechanism, RequestId};
use crate::path::{ChannelPath, LONGEST_PATH};
use crate::qos::{Persistence, Priority, Qos, Reliability, Time};
use sealbus_bus::{Acknowledgement, Moment, milliseconds};

/// The part of a frame before the ACL message; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The way to talk.
    pub mechanism: HeadMechanism<'a>,
    /// How hard the bus tries to deliver the message.
    pub reliability: Reliability,
    /// Whether the order of each sender is kept.
    pub ordered: bool,
    /// Whether and how long the message is kept for agents that come later.
    pub persistence: Persistence,
    /// The urgency.
    pub priority: Priority,
    /// The least security level.
    pub level: Option<SecurityLevel>,
    /// The acknowledgement that the publisher wants.
    pub acknowledgement: Option<Acknowledgement>,
    /// The channel's path.
    pub channel: &'a str,
    /// The event's number.
    pub number: u64,
    /// The time of publication.
    pub published: Moment,
    /// The moment before which the message is not handed out.
    pub valid_from: Option<Moment>,
    /// The moment from which the message is no longer handed out.
    pub expiry: Option<Moment>,
    /// Whether an agent may have had the message before.
    pub may_be_again: bool,
}

/// A [`Mechanism`](crate::Mechanism), as a frame holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadMechanism<'a> {
    /// To every consumer.
    Event,
    /// To one agent.
    Message {
        /// Its AID name.
        receiver: &'a str,
    },
    /// To every agent that answers.
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

const LIFETIME: u8 = 1 << 3;
const AGAIN: u8 = 1 << 4;

impl<'a> Head<'a> {
    /// The head that stands for a header.
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
            may_be_again: header.may_be_again,
        }
    }

    /// The header that stands for this head on `channel`, which must be the channel that the head names.
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
            qos: self.qos(),
            number: self.number,
            published: self.published,
            valid_from: self.valid_from,
            expiry: self.expiry,
            may_be_again: self.may_be_again,
            logged: None,
        }
    }

    fn qos(&self) -> Qos {
        Qos {
            reliability: self.reliability,
            ordered: self.ordered,
            persistence: self.persistence,
            priority: self.priority,
            valid_from: self.valid_from.map(Time::At),
            expiry: self.expiry.map(Time::At),
            level: self.level,
            acknowledgement: self.acknowledgement,
        }
    }

    /// The hash of the publisher's [statement](Statement) about an ACL message with this head. It is the same for all
    /// copies of a message.
    pub fn statement(&self, message: &[u8]) -> Hash {
        let statement = Statement {
            channel: Some(self.channel),
            qos: &self.stated_qos(),
            receivers: self.stated_receivers(),
            message,
        };
        statement.hash()
    }

    /// The quality of service in the statement.
    pub fn stated_qos(&self) -> String {
        let mut qos = self.qos();
        if let Persistence::PersistentFor(time) = &mut qos.persistence {
            // As precise as in a frame.
            *time = Duration::from_millis(milliseconds(*time));
        }
        qos.to_string()
    }

    /// The receivers in the statement.
    pub fn stated_receivers(&self) -> &[&'a str] {
        match &self.mechanism {
            HeadMechanism::Message { receiver } => std::slice::from_ref(receiver),
            _ => &[],
        }
    }

    pub(super) fn read(reader: &mut FieldReader<'a>) -> Result<Self, FrameError> {
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
        if wishes & !(7 | LIFETIME | AGAIN) != 0 || wishes & LIFETIME != 0 && !is_persistent {
            return Err(FrameError::Limit("the head"));
        }
        let channel = reader.text("the channel", LONGEST_PATH)?;
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
            may_be_again: wishes & AGAIN != 0,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mechanism = match self.mechanism {
            HeadMechanism::Event => 0,
            HeadMechanism::Message { .. } => 1,
            HeadMechanism::Request { .. } => 2,
            HeadMechanism::Reply { .. } => 3,
        };
        let lifetime = match self.persistence {
            Persistence::PersistentFor(time) => Some(milliseconds(time)),
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
        let lives = if lifetime.is_some() { LIFETIME } else { 0 };
        let again = if self.may_be_again { AGAIN } else { 0 };
        out.push(acknowledgement | lives | again);
        text(out, self.channel, LONGEST_PATH);
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
