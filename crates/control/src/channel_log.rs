//! Events of persistent channels, in the form in which they travel between a process and the logs of nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::{EvidencePage, EvidenceQuestion, RecordedMessage};
use super::{Blob, Fault, UnixMillis};
use crate::ask::conversation;

conversation! {
    /// The questions to the logs of one node.
    pub enum LogRequest in ask ("log") {
        /// Events of a process's agents to keep. Only the process's own node accepts them. The answer comes once all
        /// kept events are on disk, in the order of the events.
        Keep {
            /// The events, in the order in which they were published.
            events: Vec<PostedEvent>,
        } -> Vec<KeepOutcome>;
        /// The beginning of a durable subscription, in microseconds since 1970; `None` if there is no such subscription.
        Since {
            /// Local name of the subscription's agent.
            agent: String,
            /// Name of the subscription.
            durable: String,
        } -> Option<u64>;
        /// Events for a subscription: a piece for each channel.
        Read {
            /// The question.
            question: LogQuestion,
        } -> Vec<LogPiece>;
        /// How far a durable subscription has read. The answer comes once the positions are on disk.
        Settle {
            /// Local name of the subscription's agent.
            agent: String,
            /// Name of the subscription.
            durable: String,
            /// By channel: all events before this number are handled.
            cursors: BTreeMap<String, u64>,
        } -> ();
        /// Whether an event passes filters, for a process that does not evaluate filters itself. Only the process's own
        /// node accepts the question. The answer has the verdicts of the first filters, at least one. If the filters
        /// together cost too much, the rest needs another question.
        Judge {
            /// Local name of the agent that publishes or subscribes.
            agent: String,
            /// The filter expressions.
            filters: Vec<String>,
            /// A [`Frame::Keep`](sealbus_channels::frame::Frame::Keep), kept or not. Without it, the verdicts only say
            /// whether the expressions are valid filters.
            #[serde(default)]
            event: Option<Blob>,
        } -> Vec<FilterVerdict>;
        /// The kept events, for operators.
        List -> Vec<KeptLog>;
        /// Messages that agents of the process received, to be recorded with their proofs. Only the process's own node
        /// accepts them. The answer comes once all of them are on disk.
        Record {
            /// The messages, in the order in which they came.
            messages: Vec<RecordedMessage>,
        } -> ();
        /// A page of the kept messages with their authors' proofs, for operators.
        Evidence {
            /// The question.
            question: EvidenceQuestion,
        } -> EvidencePage;
    }
    /// The answers to a [`LogRequest`].
    pub enum LogAnswer ("log") {
        Kept { outcomes: Vec<KeepOutcome> };
        Since { since: Option<u64> };
        Read { pieces: Vec<LogPiece> };
        Judged { verdicts: Vec<FilterVerdict> };
        Done;
        List { logs: Vec<KeptLog> };
        Evidence { page: EvidencePage };
    }
}

/// An event to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedEvent {
    /// Local name of its publisher.
    pub publisher: String,
    /// A [`Frame::Keep`](sealbus_channels::frame::Frame::Keep). Its stamp has a number that the submitting process
    /// chose, and how many events that process submitted before. By both, the log recognises an event that it has
    /// already had.
    pub frame: Blob,
}

/// The outcome of an event to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeepOutcome {
    /// The event is on disk.
    Kept {
        /// The event's number.
        number: u64,
    },
    /// The event is not kept.
    Refused {
        /// The reason.
        fault: Fault,
    },
}

/// The verdict of a filter on an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterVerdict {
    /// Whether the event passes.
    pub passes: bool,
    /// Why the expression is not a filter, or cannot be evaluated for the event; the event then does not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The position at which a subscription begins in a log that it has not read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum LogStart {
    /// With the events kept since the subscription was made.
    Now,
    /// With the events kept since a time.
    Since {
        /// The time.
        time: UnixMillis,
    },
    /// With the latest events.
    Last {
        /// The number of events.
        count: u64,
    },
    /// With the events from a number on.
    Number {
        /// The number.
        number: u64,
    },
}

/// The question of a subscription to the logs of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuestion {
    /// Local name of its agent.
    pub agent: String,
    /// The channels.
    pub pattern: String,
    /// The filter expression; empty: all events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// The subscription's durable name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<String>,
    /// The position at which it begins.
    pub start: LogStart,
    /// If set, only the last event of each value of this key is wanted, among those read for this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_per: Option<String>,
    /// When the subscription was made, in microseconds since 1970; for a durable one, in its first life.
    pub began: u64,
    /// Whether the subscription existed before, in another process.
    #[serde(default)]
    pub resumes: bool,
    /// The number of the next event, by channel. `None`: the subscription begins. A channel that is missing came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<BTreeMap<String, u64>>,
    /// The most events to return.
    pub events: u32,
    /// The most bytes to return, unless the first event has more.
    pub bytes: u32,
    /// How long to wait for events, in milliseconds.
    pub wait: u64,
}

/// The part of one channel's log that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// The channel.
    pub channel: String,
    /// The events.
    pub events: Vec<StoredEvent>,
    /// The number of the next event to read.
    pub next: u64,
    /// Whether the log has more than fits into this answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_more: bool,
    /// The number of events after these and before `next` that were removed before they could be read.
    #[serde(default)]
    pub missed: u64,
    /// The number of events for which the filter could not be evaluated. They are not included.
    #[serde(default)]
    pub filter_errors: u64,
    /// The reason for the first of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter_problem: String,
    /// Why the events from `next` on cannot be read, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The event's number.
    pub number: u64,
    /// When the node wrote the event to its log. Older nodes do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<UnixMillis>,
    /// The frame as submitted: see [`PostedEvent::frame`].
    pub frame: Blob,
    /// Whether the durable subscription may already have had it.
    #[serde(default)]
    pub again: bool,
    /// The number of events before it that were removed before they could be read.
    #[serde(default)]
    pub missed: u64,
}

/// The events of a channel that a node keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLog {
    /// The channel.
    pub channel: String,
    /// The node.
    pub node: String,
    /// The number of events.
    pub events: u64,
    /// The number of bytes on disk.
    pub bytes: u64,
    /// The number of the oldest event.
    pub first: u64,
    /// The number of the next event.
    pub next: u64,
    /// The bytes that were cut off when the node opened the log. They had not been acknowledged.
    pub torn: u64,
    /// The damage, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Durable subscriptions, each with the number of its next event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub durable: BTreeMap<String, u64>,
}
