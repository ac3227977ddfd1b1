//! Persistent channels: events that nodes keep in logs, and subscriptions that read them from there.
//!
//! An event of a persistent channel goes to the log of its publisher's node before any agent sees it. Then it goes,
//! like any event, to the subscriptions that follow present events. A subscription that is durable, or begins in the
//! past, gets the events of persistent channels only from the logs, in log order, and never a second time from the
//! publisher. So no events need to be compared, and the subscription's place is one number for each log.
//!
//! This module asks a [`ChannelLogs`], which the platform provides, and knows nothing of disks. [`tracker`] is a state
//! machine of the events that one subscription has read and settled. [`latest`] is a state machine that finds the last
//! event of each key. [`feed`] and [`gathering`] contain the tasks around them.

mod feed;
mod gathering;
mod latest;
mod replay;
#[cfg(test)]
mod simulation;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::event::{ChannelHeader, Logged, ReceivedEvent};
use super::filter::EventKey;
use super::frame::Frame;
use super::path::ChannelPath;
use super::pattern::ChannelPattern;
use sealbus_bus::{BoxFuture, Moment, NotKept, Provenance, ReceivedMessage};
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_proof::{Evidence, Hash};
use sealbus_seal::Identity;

pub(crate) use feed::{Feed, FeedSink, Feeds};
pub(crate) use gathering::{FilterErrorSink, GATHERING, NotGathered, gather};
pub use replay::Replay;
pub(crate) use tracker::{LogNote, Tracker};

/// The place of a kept event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The node that keeps the log.
    pub node: Arc<str>,
    /// The event's number in the log. No other event on the channel in this log ever has it.
    pub number: u64,
}

/// A subscription's question to a node for its logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReading {
    /// The name of the subscription's agent.
    pub agent: Arc<str>,
    /// The channels.
    pub pattern: ChannelPattern,
    /// A filter expression: only events that fulfil it are read. Empty: all events.
    pub filter: String,
    /// The name under which the subscription continues after an absence.
    pub durable: Option<String>,
    /// The point from which the subscription reads logs that it has not read before.
    pub replay: Replay,
    /// If set, an answer contains only the last event of each value of this key.
    pub last_per: Option<EventKey>,
    /// When the subscription was made; if it is durable, in its first life.
    pub began: SystemTime,
    /// Whether the subscription is durable and existed before, in a process that has ended.
    pub resumes: bool,
    /// The subscription's position: the number of the next event, by channel. `None` in the first question: the node
    /// looks up the position. Channels that are missing came later, and are read from their first event.
    pub positions: Option<BTreeMap<ChannelPath, u64>>,
    /// The most events wanted.
    pub events: usize,
    /// The most bytes, unless a single event has more.
    pub bytes: usize,
    /// How long to wait for events if there are none.
    pub wait: Duration,
}

impl LogReading {
    /// The first question of a subscription that begins now. It asks for no events yet: the sender sets the amount.
    pub(crate) fn new(
        agent: Arc<str>,
        pattern: ChannelPattern,
        filter: String,
        replay: Replay,
    ) -> Self {
        Self {
            agent,
            pattern,
            filter,
            durable: None,
            replay,
            last_per: None,
            began: SystemTime::now(),
            resumes: false,
            positions: None,
            events: 0,
            bytes: 0,
            wait: Duration::ZERO,
        }
    }
}

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its number there.
    pub number: u64,
    /// When its node kept it; `None`: the node does not say.
    pub kept: Option<Moment>,
    /// The [`Frame::Keep`](super::frame::Frame::Keep) that brought the event.
    pub frame: Bytes,
    /// Whether the durable subscription may have had the event before, in a process that ended before it reported the
    /// event.
    pub again: bool,
    /// See [`Logged::missed`].
    pub missed: u64,
}

impl LoggedEvent {
    /// The event as the agent `reader` receives it, read from the log of `node`, after `missed` events that were removed
    /// too early. `None`: it [may not be handed out](ChannelLogs::may_hand_out).
    pub(crate) fn open(
        &self,
        logs: &dyn ChannelLogs,
        node: &Arc<str>,
        missed: u64,
        reader: &str,
    ) -> Result<Option<ReceivedEvent>, String> {
        let Frame::Keep {
            head,
            evidence,
            body,
            ..
        } = Frame::decode(&self.frame).map_err(|error| error.to_string())?
        else {
            return Err("it is not an event".to_owned());
        };
        let (mut header, message) = self.read()?;
        header.logged = Some(Logged {
            node: node.clone(),
            missed,
        });
        let view = message.message();
        let sender = view.sender().ok_or("its message has no sender")?;
        let identity =
            Identity::from_agent_name(sender.name()).map_err(|error| error.to_string())?;
        let provenance = match logs.proved(evidence, head.statement(body), &header)? {
            Some(evidence) if *evidence.author().identity() == identity => {
                Provenance::Signed(evidence)
            }
            Some(evidence) => {
                let author = evidence.author().identity();
                return Err(format!("{author} signed it in the name of {identity}"));
            }
            // The node has checked the proof of the sender.
            None => Provenance::Carried(Arc::new(identity)),
        };
        let kept = self.kept.unwrap_or(header.published);
        let message = ReceivedMessage::encoded(message, provenance);
        let event = ReceivedEvent::new(header, message);
        let may_have_it = logs.may_hand_out(&event, kept, reader);
        Ok(may_have_it.then_some(event))
    }

    /// The header and the message, whose author is not checked.
    fn read(&self) -> Result<(ChannelHeader, EncodedMessage<Bytes>), String> {
        let frame = Frame::decode(&self.frame).map_err(|error| error.to_string())?;
        let Frame::Keep { head, body, .. } = frame else {
            return Err("it is not an event".to_owned());
        };
        let channel = ChannelPath::new(head.channel).map_err(|error| error.to_string())?;
        let bytes: Bytes = self.frame.slice_ref(body);
        let limits = Limits {
            message_length: bytes.len(),
            ..Limits::default()
        };
        let message = EncodedMessage::new(bytes, &limits).map_err(|error| error.to_string())?;
        let mut header = head.to_header(channel);
        header.number = self.number;
        header.may_be_again = self.again;
        Ok((header, message))
    }
}

/// The part of one channel's log that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The channel.
    pub channel: ChannelPath,
    /// The events that the subscription wants.
    pub events: Vec<LoggedEvent>,
    /// The number of the next event to read.
    pub next: u64,
    /// Whether the log has more than fits into one answer.
    pub has_more: bool,
    /// The number of events between the last one given and `next` that were removed before they could be read.
    pub missed: u64,
    /// The number of events withheld because the filter could not be evaluated for them, and the reason for one of
    /// them.
    pub filter_errors: (u64, String),
    /// Why the event `next` and all later ones cannot be read, if so: see [`DamagedLog`].
    pub damage: Option<String>,
}

impl LogPart {
    /// A part without events, which was read up to `next`.
    pub fn empty(channel: ChannelPath, next: u64) -> Self {
        Self {
            channel,
            events: Vec::new(),
            next,
            has_more: false,
            missed: 0,
            filter_errors: (0, String::new()),
            damage: None,
        }
    }
}

/// A log that a subscription cannot read further. The subscription does not skip the damage: it waits until an operator
/// has mended the log or given up the damaged part. Then it continues there, and counts the lost events as
/// [missed](Logged::missed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedLog {
    /// The node whose log it is.
    pub node: Arc<str>,
    /// The channel.
    pub channel: ChannelPath,
    /// The damage, its place, and the remedy.
    pub damage: String,
}

/// How much each node keeps of a persistent channel. All limits hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRetention {
    /// The longest time that an event is kept.
    pub age: Option<Duration>,
    /// The most events.
    pub count: Option<u64>,
    /// The most bytes on disk.
    pub bytes: Option<u64>,
}

/// The progress of a durable subscription in one channel's log: all events before this number are handled.
pub type LogCursor = (ChannelPath, u64);

/// The logs of persistent channels, as the platform provides them.
pub trait ChannelLogs: Send + Sync {
    /// The nodes that keep logs, as far as is known now.
    fn nodes(&self) -> BoxFuture<'_, Vec<Arc<str>>>;

    /// Asks this process's node to keep an event: a [`Frame::Keep`](super::frame::Frame::Keep) whose stamp is filled in
    /// on the way. Returns the event's place when it is on disk. Events are kept in the order of the calls. If a call
    /// is repeated, its event is kept once.
    fn keep(&self, event: EventToKeep) -> BoxFuture<'_, Result<LogPlace, NotKept>>;

    /// Tells this process's node how much of a channel to keep, unless a manifest says so.
    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        retention: LogRetention,
    ) -> BoxFuture<'a, Result<(), NotRead>>;

    /// The time since which a durable subscription of that name has existed, if there is one. Asks every node that
    /// answers.
    fn known_since<'a>(
        &'a self,
        agent: &'a str,
        durable: &'a str,
    ) -> BoxFuture<'a, Result<Option<SystemTime>, NotRead>>;

    /// Reads the logs of one node.
    fn read<'a>(
        &'a self,
        node: &'a str,
        reading: LogReading,
    ) -> BoxFuture<'a, Result<Vec<LogPart>, NotRead>>;

    /// Checks and returns the evidence of an event's publisher, if there is any, or if the platform, the channel or the
    /// event demands level `signed`. `evidence` came with the event, and is empty if none did. `statement`: the hash of
    /// the publisher's statement.
    ///
    /// # Errors
    /// The reason why the event is not proved. It is then not handed out.
    fn proved(
        &self,
        _evidence: &[u8],
        _statement: Hash,
        _header: &ChannelHeader,
    ) -> Result<Option<Evidence>, String> {
        Ok(None)
    }

    /// Whether an event that its node kept at `kept` may be handed to the agent `reader`, by the revocations in force. These
    /// may be newer than the event. A refusal is noted.
    fn may_hand_out(&self, event: &ReceivedEvent, kept: Moment, reader: &str) -> bool;

    /// Notes the progress of a durable subscription in the logs of one node. The note is on disk when this returns.
    fn settle<'a>(
        &'a self,
        node: &'a str,
        agent: &'a str,
        durable: &'a str,
        cursors: Vec<LogCursor>,
    ) -> BoxFuture<'a, Result<(), NotRead>>;
}

/// An event to be kept.
#[derive(Clone, Debug)]
pub struct EventToKeep {
    /// The publishing agent's name, as the bus has verified it.
    pub publisher: Arc<str>,
    /// The channel.
    pub channel: ChannelPath,
    /// Its header, with the number 0.
    pub header: Arc<ChannelHeader>,
    /// The ACL message in the bit-efficient encoding.
    pub body: Bytes,
    /// At level `signed`, of the platform or of the event, the evidence that the publisher wrote it; otherwise empty.
    pub evidence: Bytes,
}

/// The reason why a log was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// The node cannot be reached now: ask again.
    #[error("{0}")]
    Away(String),
    /// The node refuses, now and later.
    #[error("{0}")]
    Refused(String),
}
