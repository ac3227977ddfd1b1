//! The form of a message on a channel: an ACL message behind a small header.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::path::ChannelPath;
use super::qos::Qos;
use sealbus_bus::Moment;
use sealbus_bus::{Provenance, ReceivedMessage};

/// Where an event was read from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The node that keeps the log. Node and number together identify the event on the channel for ever.
    pub node: Arc<str>,
    /// The number of earlier events in this log that were removed before the subscription could read them.
    pub missed: u64,
}

/// The number by which a requester recognises the answers to its request. It is unique among the requests of its
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// The three ways to talk on a channel, and the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// An event, which every consumer of the channel sees.
    Event,
    /// A message to one named agent on the channel.
    Message {
        /// The agent's AID name.
        receiver: Arc<str>,
    },
    /// A question to every agent on the channel. Any of them may answer.
    Request {
        /// The request's number, which its answers repeat.
        id: RequestId,
    },
    /// An answer to a request. Only the requester gets the answer.
    Reply {
        /// The answered request.
        id: RequestId,
    },
}

impl Mechanism {
    /// Its name in logs and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Message { .. } => "message",
            Self::Request { .. } => "request",
            Self::Reply { .. } => "reply",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The facts about a message on a channel that the bus needs. The publisher's bus makes the header once, and all
/// receivers share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelHeader {
    /// The way to talk.
    pub mechanism: Mechanism,
    /// The channel.
    pub channel: ChannelPath,
    /// The QoS in effect: the QoS of the channel, overridden by that of the message.
    pub qos: Qos,
    /// The position among the publisher's messages on this channel, from 1. In a persistent channel, the number in the
    /// log of the publisher's node. Order and deduplication use this number.
    pub number: u64,
    /// The time of publication.
    pub published: Moment,
    /// The moment before which the message is not handed out: [`Qos::valid_from`] as a moment.
    pub valid_from: Option<Moment>,
    /// The moment from which the message is no longer handed out: [`Qos::expiry`] as a moment.
    pub expiry: Option<Moment>,
    /// Whether an agent may have had the event before. In a durable subscription, it is the same agent, through an
    /// earlier subscription of the same name that ended before the event was noted as handled. In a group, it is a
    /// member that left or was lost before it had handled the event.
    pub may_be_again: bool,
    /// Where the event was read, if it was read from a log.
    pub logged: Option<Logged>,
}

impl ChannelHeader {
    /// The header of a message that is published at `published` with this QoS.
    pub fn new(
        mechanism: Mechanism,
        channel: ChannelPath,
        qos: Qos,
        number: u64,
        published: Moment,
    ) -> Self {
        Self {
            mechanism,
            channel,
            number,
            published,
            valid_from: qos.valid_from.map(|time| time.from(published)),
            expiry: qos.expiry.map(|time| time.from(published)),
            qos,
            may_be_again: false,
            logged: None,
        }
    }

    /// Whether the message may no longer be handed out.
    pub(crate) fn is_expired(&self, now: Moment) -> bool {
        self.expiry.is_some_and(|expiry| now >= expiry)
    }

    /// Whether the message expires before it may be handed out.
    pub(crate) fn is_never_valid(&self, now: Moment) -> bool {
        let is_too_late = |expiry| self.valid_from.is_some_and(|from| from >= expiry);
        self.is_expired(now) || self.expiry.is_some_and(is_too_late)
    }
}

/// An event, for a subscriber. The receivers in this process share one event.
#[derive(Clone, Debug)]
pub struct ReceivedEvent(Arc<EventParts>);

/// The parts of a [`ReceivedEvent`].
#[derive(Clone, Debug)]
pub struct EventParts {
    /// The header.
    pub header: ChannelHeader,
    /// The ACL message, with the known facts about its sender.
    pub message: ReceivedMessage,
}

impl Deref for ReceivedEvent {
    type Target = EventParts;

    fn deref(&self) -> &EventParts {
        &self.0
    }
}

impl ReceivedEvent {
    /// The message that came with this header.
    pub(crate) fn new(header: ChannelHeader, message: ReceivedMessage) -> Self {
        Self(Arc::new(EventParts { header, message }))
    }

    /// Whether both are the same event, shared.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The known facts about the event's publisher.
    pub fn provenance(&self) -> &Provenance {
        self.message.provenance()
    }

    /// The bytes that the event counts as in a subscription's queue, without
    /// [`MESSAGE_OVERHEAD`](sealbus_bus::MESSAGE_OVERHEAD).
    pub fn size(&self) -> usize {
        self.message.size()
    }
}
