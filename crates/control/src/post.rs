//! Messages that are kept for their receivers, as they travel between a process and its node and between nodes.

use serde::{Deserialize, Serialize};

use super::{Blob, UnixMillis, WaitingMessage, WaitingProvenance};

/// A message to one agent, to be kept until that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedLetter {
    /// The facts about it.
    #[serde(flatten)]
    pub cover: Cover,
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
}

/// The facts about a letter that are known without opening it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// The process, or the node, that wrote it: the second it began in (upper half) and chance.
    pub origin: u64,
    /// Its number among what that has written to this receiver, from 1 on. Whoever keeps letters
    /// knows by both what it has had before.
    pub sequence: u64,
    /// How often it was carried from one node to another. It tells a letter that comes back to a node from one that is
    /// brought there twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops: u32,
    /// Whether the receiver may have taken it before, in a process that ended or on a node that does not answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
    /// Local name of the receiver.
    pub receiver: String,
    /// The proof of its sender. A process's word does not count: its node fills it in.
    pub provenance: WaitingProvenance,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it is not delivered any more.
    pub expiry: UnixMillis,
    /// It is not delivered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<UnixMillis>,
    /// The receipt that its sender wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// For a notice of the platform: the letter it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
}

impl Cover {
    /// What this copy of the letter is known by.
    pub const fn mark(&self) -> LetterMark {
        LetterMark {
            origin: self.origin,
            sequence: self.sequence,
            hops: self.hops,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(hops: &u32) -> bool {
    *hops == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(again: &bool) -> bool {
    !again
}

/// What a copy of a letter to a receiver is known by: see [`Cover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterMark {
    /// The process, or the node, that wrote it.
    pub origin: u64,
    /// Its number among what that has written to the receiver.
    pub sequence: u64,
    /// How often it was carried.
    pub hops: u32,
}

/// How a letter stands to what another node has of the same receiver's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nothing there goes before it.
    Free,
    /// An earlier letter of the same origin is there.
    Behind,
    /// It was carried there.
    Had,
}

/// What a node has, or had, of a receiver's letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// For each letter that was asked about, in that order.
    pub standings: Vec<Standing>,
    /// The nodes that it carried letters to, which may have some still.
    pub nodes: Vec<String>,
    /// How many wait there.
    pub waiting: u64,
    /// A number that is another one after the node was started again.
    pub life: u64,
    /// How many have come there in this life. As long as neither changes, nothing has come.
    pub arrivals: u64,
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

/// The outcome for a letter in the receiver's process.
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
    /// The sender; `None` means the platform itself.
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
