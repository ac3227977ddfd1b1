//! Traffic through the processes of a platform: counters at any time, and the heads of messages while somebody watches.
//!
//! A reader asks the Master, the Master asks all nodes, and each node asks its processes. A process that nobody asks
//! does nothing. A [`Watch`] lasts from one question to the next, for [`LEASE`] at most. Each level limits its answer,
//! and counts what it leaves out.

use std::collections::BTreeMap;
use std::time::Duration;

pub use sealbus_manifest::TapEntry;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;
use crate::admin::SilentNode;
use crate::ask::conversation;
use crate::{Blob, SealedKeys};

/// How long a watch lasts after it was last requested.
pub const LEASE: Duration = Duration::from_secs(10);
/// The most agents in one answer. The others are counted together.
pub const MOST_AGENTS: usize = 2_000;
/// The most channels in one answer.
pub const MOST_CHANNELS: usize = 500;
/// The most heads of messages in one answer of a process.
pub const MOST_HEADS: usize = 1_000;
/// The most bodies in one answer of a process.
pub const MOST_BODIES: usize = 100;
/// The most bytes of a body that are shown.
pub const LONGEST_BODY: usize = 4 << 10;
/// The most patterns in a list of a watch.
pub const MOST_PATTERNS: usize = 16;
/// The most bytes of a name, a pattern or a parameter of a message.
pub const LONGEST_NAME: usize = 256;

conversation! {
    /// The requests of a node to one of its processes.
    pub enum ProcessRequest in ask_process ("ask") {
        /// The counters of the process and, for a watch, the heads of the messages since the last request.
        Observe {
            /// The watch.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            watch: Option<Watch>,
        } -> ProcessTraffic;
        /// The frozen process's keys for sealed messages, for the process that restores its agents.
        FormerKeys {
            /// The stated key of an agent of that process.
            key: Blob,
        } -> SealedKeys;
        /// Nothing. The answer confirms that the process has obeyed all earlier notices.
        Heard -> ();
    }
    /// The answers of a process.
    pub enum ProcessAnswer ("answer") {
        Traffic(ProcessTraffic);
        FormerKeys(SealedKeys);
        Done;
    }
}

/// The messages that a reader wants to see. A message must pass every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The reader, by a number that it chose at random. Several readers may watch at the same time.
    pub id: u64,
    /// Names of agents, one of which must be the sender or the receiver. `*` stands for any characters. A name without
    /// `@` is local.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The conversation-id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The interaction protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Performatives, one of which must be that of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub performatives: Vec<String>,
    /// A pattern of channels, such as `/offers/**`. Direct messages do not pass it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether the reader also wants the bodies. The Master allows this only to operators who said that they read bodies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bodies: bool,
}

/// The body of a watched message: its `:content`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum WatchedBody {
    /// It is shown.
    Shown {
        /// The beginning of the body, at most [`LONGEST_BODY`] bytes. Bytes that are not UTF-8 are replaced by U+FFFD.
        text: String,
        /// The number of bytes left out at its end.
        #[serde(default)]
        left_out: u64,
    },
    /// `[tap]` in the manifest hides it from watchers.
    Private,
    /// It is left out, because more than [`MOST_BODIES`] came between two answers.
    Skipped,
}

impl WatchedBody {
    /// The part of a content that is shown.
    pub fn of(content: &[u8]) -> Self {
        // A character that is cut in two is left out.
        let most = content.len().min(LONGEST_BODY);
        let cut = match std::str::from_utf8(&content[..most]) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => most,
        };
        Self::Shown {
            text: String::from_utf8_lossy(&content[..cut]).into_owned(),
            left_out: (content.len() - cut) as u64,
        }
    }
}

/// The head of a message, as the process of its receiver saw it arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHead {
    /// When it arrived.
    pub at: UnixMillis,
    /// Full name of the sender.
    pub from: String,
    /// Full name of the receiver.
    pub to: String,
    /// The channel through which it came, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The performative.
    pub performative: String,
    /// The conversation-id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The interaction protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The size of the message, in bytes.
    pub size: u64,
    /// The platform's knowledge about the sender, such as `proved` or `claimed`.
    pub provenance: String,
    /// The full names of the agents on whose behalf the sender asks, the first asker first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_behalf_of: Vec<String>,
    /// The body, if the reader asked for bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<WatchedBody>,
}

/// The counters of an agent, as its own process counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTraffic {
    /// Full name.
    pub agent: String,
    /// The number of messages accepted from it, counted once for each receiver.
    pub sent: u64,
    /// The number of messages that arrived for it.
    pub received: u64,
    /// The number of messages that it has not read yet.
    pub waiting: u64,
    /// Bytes of the waiting messages.
    pub waiting_bytes: u64,
}

/// The counters of a channel in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelTraffic {
    /// The channel.
    pub channel: String,
    /// Events, messages and requests that agents of the process put on the channel.
    pub published: u64,
    /// Events, messages and requests that came from other processes.
    pub received: u64,
    /// Best-effort events that another process had no room for and did not get.
    pub dropped: u64,
    /// How often a filter could not be evaluated.
    pub filter_errors: u64,
    /// Subscriptions of the process.
    pub subscriptions: u64,
}

/// The links of a process to other processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTraffic {
    /// Links with a connection.
    pub connected: u64,
    /// Bytes that were accepted for them and are not acknowledged.
    pub unacknowledged: u64,
}

/// The traffic through one process since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTraffic {
    /// When the counters were read.
    pub at: UnixMillis,
    /// The node. It fills in this name and the next two.
    #[serde(default)]
    pub node: String,
    /// The process, such as `seller-1.3` for the third start.
    #[serde(default)]
    pub process: String,
    /// The process without the number of its start.
    #[serde(default)]
    pub group: String,
    /// The number of messages accepted from its agents, counted once for each receiver. Agents that have left count, too.
    pub sent: u64,
    /// The number of messages that arrived for its agents. Agents that have left count, too.
    pub received: u64,
    /// Messages that could not be delivered.
    pub undeliverable: u64,
    /// Messages that came back because their receiver was moving, and were then sent after the receiver.
    pub returned: u64,
    /// Refused attempts, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The number of messages that its agents have not read yet.
    #[serde(default)]
    pub waiting: u64,
    /// Bytes of the waiting messages.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Its links to other processes, if its transport has links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkTraffic>,
    /// Its agents, or the busiest of them.
    pub agents: Vec<AgentTraffic>,
    /// The number of agents that are left out.
    #[serde(default)]
    pub agents_left_out: u64,
    /// Its channels, or the busiest of them.
    pub channels: Vec<ChannelTraffic>,
    /// The number of channels that are left out.
    #[serde(default)]
    pub channels_left_out: u64,
    /// The heads of the watched messages since the last request, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<MessageHead>,
    /// The number of messages since the last request that were skipped, because there were too many.
    #[serde(default)]
    pub skipped: u64,
}

/// The traffic through the whole platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// By node and process.
    pub processes: Vec<ProcessTraffic>,
    /// Nodes that did not answer. The traffic of their processes is unknown.
    pub silent: Vec<SilentNode>,
}

/// Whether one of these patterns names an agent: by a local name or, with an `@`, a whole one; `*` stands for any text.
pub fn is_named(patterns: &[String], agent: &str) -> bool {
    let local = agent.split('@').next().unwrap_or(agent);
    patterns.iter().any(|pattern| {
        let name = if pattern.contains('@') { agent } else { local };
        fits(pattern.as_bytes(), name.as_bytes())
    })
}

impl Watch {
    /// Whether an agent with this full name is watched.
    pub fn names(&self, agent: &str) -> bool {
        self.agents.is_empty() || is_named(&self.agents, agent)
    }

    /// Whether the watch is within the limits.
    pub fn is_bounded(&self) -> bool {
        let lists = [&self.agents, &self.performatives];
        let texts = [&self.conversation, &self.protocol, &self.channel];
        let texts = texts.into_iter().flatten();
        let is_short = |text: &String| text.len() <= LONGEST_NAME;
        lists.iter().all(|list| list.len() <= MOST_PATTERNS)
            && lists.into_iter().flatten().chain(texts).all(is_short)
    }
}

/// Whether `name` fits a pattern, in which `*` stands for any bytes.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The places behind the last star, and behind the bytes that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
        } else if pattern.get(at) == Some(&name[read]) {
            at += 1;
            read += 1;
        } else if let Some((behind, taken)) = star {
            star = Some((behind, taken + 1));
            at = behind;
            read = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_between_characters() {
        let long = format!("{}ä and more", "x".repeat(LONGEST_BODY - 1));
        let WatchedBody::Shown { text, left_out } = WatchedBody::of(long.as_bytes()) else {
            panic!("it is shown");
        };
        assert_eq!(text, "x".repeat(LONGEST_BODY - 1));
        assert_eq!(left_out, long.len() as u64 - text.len() as u64);
        let bytes = WatchedBody::of(&[b'a', 0xff, b'b']);
        let (text, left_out) = ("a\u{fffd}b".to_owned(), 0);
        assert_eq!(bytes, WatchedBody::Shown { text, left_out });
    }

    #[test]
    fn a_pattern_names_agents() {
        let watch = |pattern: &str| Watch {
            agents: vec![pattern.to_owned()],
            ..Watch::default()
        };
        assert!(Watch::default().names("anyone@factory"));
        for (pattern, names, other) in [
            ("seller-1", "seller-1@factory", "seller-11@factory"),
            ("buyer-*", "buyer-7@factory", "seller-7@factory"),
            ("*-1", "seller-1@factory", "seller-12@factory"),
            ("b*r-*7", "buyer-17@factory", "buyer-18@factory"),
            ("*@other", "x@other", "x@factory"),
        ] {
            assert!(watch(pattern).names(names), "{pattern} {names}");
            assert!(!watch(pattern).names(other), "{pattern} {other}");
        }
        assert!(!watch(&"x".repeat(LONGEST_NAME + 1)).is_bounded());
        assert!(watch("x").is_bounded());
    }
}
