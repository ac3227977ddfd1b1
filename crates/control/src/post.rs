//! Messages that are kept for their receivers, as they travel between a process and its node and between nodes.

use serde::{Deserialize, Serialize};

use super::{Blob, UnixMillis, WaitingMessage, WaitingProvenance};

/// A message to one agent, to be kept until that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedLetter {
    /// What is to be known of it.
    #[serde(flatten)]
    pub cover: Cover,
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
}

/// What is known of a letter without opening it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// The process, or the node, that wrote it: the second it began in (upper half) and chance.
    pub origin: u64,
    /// Its number among what that has written to this receiver, from 1 on. Whoever keeps letters
    /// knows by both what it has had before.
    pub sequence: u64,
    /// Local name of the receiver.
    pub receiver: String,
    /// What is proved about its sender. A process's word for it is not taken: its node fills it in.
    pub provenance: WaitingProvenance,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it is not delivered any more.
    pub expiry: UnixMillis,
    /// It is not delivered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<UnixMillis>,
    /// What its sender wants to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// For a notice of the platform: the letter it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
}

/// When a sender is told that its message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receipt {
    /// When it is in the receiver's process.
    Process,
    /// When the receiver has taken it.
    Agent,
}

/// The letter that a notice is about, as the node knows it that wrote the notice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct About {
    /// The receiver of the letter.
    pub receiver: String,
    /// Its number there.
    pub number: u64,
}

/// A letter on its way from a node into the receiver's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredLetter {
    /// Its number in the receiver's mailbox on this node.
    pub number: u64,
    /// Whether another process of the receiver may have taken it before.
    pub again: bool,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it is not delivered any more.
    pub expiry: UnixMillis,
    /// The message.
    pub waiting: WaitingMessage,
}

/// What came of a letter in the receiver's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterOutcome {
    /// It lies in the mailbox there.
    Arrived,
    /// The receiver has taken it.
    Taken,
    /// It expired unread.
    Expired,
    /// The receiver is not there, or left it unread.
    Left,
    /// It may not be delivered.
    Refused(LetterRefusal),
}

impl LetterOutcome {
    /// Whether the letter has no way to go any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Taken | Self::Expired | Self::Refused(_))
    }
}

/// Why a letter may not be delivered, by what holds when it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterRefusal {
    /// The platform's policy does not let its sender write to its receiver.
    NotPermitted,
    /// An operator has revoked its sender since.
    Revoked,
}

/// A letter that waits, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLetter {
    /// The node that keeps it.
    pub node: String,
    /// Its number there.
    pub number: u64,
    /// Who sent it; the platform itself if nobody.
    pub sender: String,
    /// Its performative.
    pub performative: String,
    /// Bytes of the message.
    pub size: u64,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it comes back.
    pub expiry: UnixMillis,
    /// It is not delivered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<UnixMillis>,
    /// Whether the receiver's process has it, unread.
    pub delivered: bool,
}
