//! Events of persistent channels, as they travel between a process and the logs of its node and of others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Blob, Fault, UnixMillis};
use crate::answers::answers;

/// The questions to the logs of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "log", rename_all = "kebab-case")]
pub enum LogRequest {
    /// Events of a process's agents that are to be kept; by its own node alone.
    Keep {
        /// In the order they were published.
        events: Vec<PostedEvent>,
    },
    /// Since when there is a durable subscription.
    Since {
        /// Local name of its agent.
        agent: String,
        /// Its name.
        durable: String,
    },
    /// Events for a subscription.
    Read {
        /// Which.
        question: LogQuestion,
    },
    /// How far a durable subscription has come.
    Settle {
        /// Local name of its agent.
        agent: String,
        /// Its name.
        durable: String,
        /// By channel: all events before this number are dealt with.
        cursors: BTreeMap<String, u64>,
    },
    /// The kept messages, for operators.
    List,
}

/// The answers to a [`LogRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "log", rename_all = "kebab-case")]
pub enum LogAnswer {
    /// To `Keep`, once all that is kept is on disk.
    Kept {
        /// In the order of the events.
        outcomes: Vec<KeepOutcome>,
    },
    /// To `Since`.
    Since {
        /// Microseconds since 1970; none if there is no such subscription.
        since: Option<u64>,
    },
    /// To `Read`.
    Read {
        /// A piece for each channel.
        pieces: Vec<LogPiece>,
    },
    /// To `Settle`, once it is on disk.
    Settled,
    /// To `List`.
    List {
        /// By channel.
        logs: Vec<KeptLog>,
    },
}

answers! { LogAnswer:
    kept = Self::Kept { outcomes } => outcomes, Vec<KeepOutcome>;
    since = Self::Since { since } => since, Option<u64>;
    read = Self::Read { pieces } => pieces, Vec<LogPiece>;
    list = Self::List { logs } => logs, Vec<KeptLog>;
}

/// An event to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedEvent {
    /// Local name of its publisher.
    pub publisher: String,
    /// A [`Frame::Keep`](sealbus_channels::frame::Frame::Keep). Its stamp is the process that gives it, by a number of
    /// its own, and how many it gave before: whoever keeps it knows by both what it has had already.
    pub frame: Blob,
}

/// The outcome for an event that was to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeepOutcome {
    /// It is on disk.
    Kept {
        /// Under this number.
        number: u64,
    },
    /// It is not.
    Refused {
        /// Why.
        fault: Fault,
    },
}

/// Where a subscription begins in a log that it has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum LogStart {
    /// The events kept since the subscription was made.
    Now,
    /// The events kept since.
    Since {
        /// The time.
        time: UnixMillis,
    },
    /// The last so many events.
    Last {
        /// How many.
        count: u64,
    },
    /// From this number on.
    Number {
        /// The number.
        number: u64,
    },
}

/// The events that a subscription wants to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuestion {
    /// Local name of its agent.
    pub agent: String,
    /// The channels.
    pub pattern: String,
    /// The filter expression; empty: everything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Its durable name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<String>,
    /// Where it begins.
    pub start: LogStart,
    /// When it was made, in its first life if it is durable; microseconds since 1970.
    pub began: u64,
    /// It was there before, in another process.
    #[serde(default)]
    pub resumes: bool,
    /// The next number by channel. Absent: it begins. A channel that is missing came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<BTreeMap<String, u64>>,
    /// Most events.
    pub events: u32,
    /// Most bytes, unless the first event has more.
    pub bytes: u32,
    /// Milliseconds to wait for events.
    pub wait: u64,
}

/// The part of one channel's log that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// The channel.
    pub channel: String,
    /// The events.
    pub events: Vec<StoredEvent>,
    /// Number of the next to read.
    pub next: u64,
    /// So many after the last of these and before the next were not kept long enough.
    #[serde(default)]
    pub missed: u64,
    /// For so many the filter could not be evaluated, so that they are not among these.
    #[serde(default)]
    pub filter_errors: u64,
    /// Why, of the first of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter_problem: String,
    /// Why `next` and what follows cannot be read, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its number.
    pub number: u64,
    /// As it was given: see [`PostedEvent::frame`].
    pub frame: Blob,
    /// The durable subscription may have had it before.
    #[serde(default)]
    pub again: bool,
    /// So many before it were not kept long enough.
    #[serde(default)]
    pub missed: u64,
}

/// The events that a node keeps of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLog {
    /// The channel.
    pub channel: String,
    /// The node.
    pub node: String,
    /// Events.
    pub events: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Number of the oldest event.
    pub first: u64,
    /// Number of the next event.
    pub next: u64,
    /// Bytes that were cut off when the node opened the log: they had not been acknowledged.
    pub torn: u64,
    /// The damage, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Durable subscriptions, and the number of the next event of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub durable: BTreeMap<String, u64>,
}
