//! Kept messages with the proofs of their authors, as nodes give them to operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::admin::SilentNode;
use super::{Blob, UnixMillis};

/// A message that an agent received, with the proof of its author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMessage {
    /// Local name of the agent that received it.
    pub receiver: String,
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
    /// The proof, in the form of [`Evidence::decode`](sealbus_proof::Evidence::decode).
    pub evidence: Blob,
}

/// The messages that an operator asks for. A message must meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceQuestion {
    /// The `:conversation-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// A pattern of channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The full name of the sender or of a receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The time since which the node has kept the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMillis>,
    /// The position at which to go on, by node; `None` at the beginning. A node that is missing has given everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<BTreeMap<String, EvidencePosition>>,
}

impl EvidenceQuestion {
    /// Whether a node may go on at `next` after its answer to this question. It may if it was asked, and `next` is later
    /// than its position in the question.
    pub fn leads_to(&self, node: &str, next: &EvidencePosition) -> bool {
        let positions = self.positions.as_ref();
        positions.is_none_or(|asked| asked.get(node).is_some_and(|begin| begin < next))
    }
}

/// A position among everything that a node keeps. Each page ends at a later position than the page before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EvidencePosition {
    /// The stream of the node's journal.
    pub stream: String,
    /// The number of the next record there.
    pub number: u64,
}

/// A kept message, with everything that its author's statement names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvedMessage {
    /// The channel; `None` for a direct message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The quality of service in effect, as the author states it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub qos: String,
    /// The receivers, as the author states them.
    pub receivers: Vec<String>,
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
    /// The proof, in the form of [`Evidence::decode`](sealbus_proof::Evidence::decode).
    pub evidence: Blob,
}

/// A node's answer to an [`EvidenceQuestion`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidencePage {
    /// The node.
    pub node: String,
    /// The messages.
    pub messages: Vec<ProvedMessage>,
    /// The number of messages that were left out because nobody signed them.
    pub unsigned: u64,
    /// Why parts of the journal cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// The position at which to go on; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<EvidencePosition>,
}

/// The Master's answer to an [`EvidenceQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidencePages {
    /// A page from each node that had not given everything before.
    pub pages: Vec<EvidencePage>,
    /// Nodes that did not answer. Their messages are unknown.
    pub silent: Vec<SilentNode>,
    /// The CA's signed deny list in force.
    pub deny_list: Blob,
}
