//! Persistent channels: events that nodes keep in logs, and subscriptions that read them from there.
//!
//! An event of a persistent channel goes to the log of its publisher's node before anybody sees it. Then it goes, as any
//! event, to the subscriptions that follow what happens now. A subscription that is durable, or begins before now, gets
//! the events of persistent channels from the logs alone, in their order, and never a second time from the publisher; so
//! nothing has to be compared, and where it stopped is one number for each log.
//!
//! What is here asks a [`ChannelLogs`], which the platform sets, and knows nothing of disks: [`tracker`] is what one
//! subscription has read and settled, a state machine; [`feed`] the tasks around it.

mod feed;
#[cfg(test)]
mod simulation;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::event::Logged;
use super::frame::Replay;
use super::path::ChannelPath;
use super::pattern::ChannelPattern;
use sealbus_bus::BoxFuture;
use sealbus_bus::NotKept;

pub(crate) use feed::{Feed, FeedSink, Feeds, FilterErrorSink};
pub(crate) use tracker::{LogNote, Tracker};

/// Where a kept event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The node whose log it is.
    pub node: Arc<str>,
    /// The event's number there, its own on its channel for ever.
    pub number: u64,
}

/// The wishes of a subscription for the logs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReading {
    /// Its agent's name.
    pub agent: Arc<str>,
    /// The channels.
    pub pattern: ChannelPattern,
    /// Only what this expression holds for; empty: everything.
    pub filter: String,
    /// Under which name it goes on after an absence.
    pub durable: Option<String>,
    /// Where it begins in logs that it has not read.
    pub replay: Replay,
    /// When the subscription was made, in its first life if it is durable.
    pub began: SystemTime,
    /// It is durable and was there before, in a process that has ended.
    pub resumes: bool,
    /// Where it is: the number of the next event, by channel. `None`: it asks for the first time, and the node looks up where
    /// it begins. Channels that are missing came later, and are read from their first event.
    pub positions: Option<BTreeMap<ChannelPath, u64>>,
    /// The most events wanted.
    pub events: usize,
    /// The most bytes, unless one event alone has more.
    pub bytes: usize,
    /// How long to wait for events if there are none.
    pub wait: Duration,
}

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its number there.
    pub number: u64,
    /// The [`Frame::Keep`](super::frame::Frame::Keep) that brought it.
    pub frame: Bytes,
    /// See [`Logged::again`].
    pub again: bool,
    /// See [`Logged::missed`].
    pub missed: u64,
}

/// The part of one channel's log that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The channel.
    pub channel: ChannelPath,
    /// The events that the subscription wants.
    pub events: Vec<LoggedEvent>,
    /// Number of the next event to read.
    pub next: u64,
    /// So many events between the last one given and `next` were not kept long enough.
    pub missed: u64,
    /// For so many events the filter could not be evaluated, so that they are not given; and why, of one of them.
    pub filter_errors: (u64, String),
    /// Why the event `next` and what follows it cannot be read, if it cannot: see [`DamagedLog`].
    pub damage: Option<String>,
}

/// A log that a subscription cannot read further. What lies behind the damage is not given to it as if nothing were missing:
/// the subscription stays before it, until somebody has mended the log or given up what is damaged; then it goes on there, and
/// counts what is gone as [missed](Logged::missed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedLog {
    /// The node whose log it is.
    pub node: Arc<str>,
    /// The channel.
    pub channel: ChannelPath,
    /// The damage, its place, and the remedy.
    pub damage: String,
}

/// How much is kept of a persistent channel on each node: no more than any of these allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRetention {
    /// The longest time since an event was kept.
    pub age: Option<Duration>,
    /// The most events.
    pub count: Option<u64>,
    /// The most bytes on disk.
    pub bytes: Option<u64>,
}

/// How far a durable subscription has come in one channel's log: all events before this number are dealt with.
pub type LogCursor = (ChannelPath, u64);

/// The logs of persistent channels: the platform.
pub trait ChannelLogs: Send + Sync {
    /// The nodes that keep logs, as far as is known now.
    fn nodes(&self) -> Vec<Arc<str>>;

    /// Has an event kept by this process's node: a [`Frame::Keep`](super::frame::Frame::Keep) whose stamp is filled in on the
    /// way. Returns its place when it is on disk. Events are kept in the order of the calls; what is asked twice is
    /// kept once.
    fn keep(&self, event: EventToKeep) -> BoxFuture<'_, Result<LogPlace, NotKept>>;

    /// Has this process's node keep so much of a channel, if no manifest says how much.
    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        retention: LogRetention,
    ) -> BoxFuture<'a, Result<(), NotRead>>;

    /// Since when there is a durable subscription of that name, if there is; asks every node that answers.
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

    /// Notes how far a durable subscription has come in the logs of one node; on disk when this returns.
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
    /// The publishing agent's name, which the bus knows to be right.
    pub publisher: Arc<str>,
    /// The channel.
    pub channel: ChannelPath,
    /// Its header, with the number 0.
    pub header: Arc<super::event::ChannelHeader>,
    /// The ACL message in the bit-efficient encoding.
    pub body: Bytes,
}

/// Why a log was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// The node cannot be reached now: ask again.
    #[error("{0}")]
    Away(String),
    /// It will not, whenever it is asked.
    #[error("{0}")]
    Refused(String),
}
