//! Messages that are kept for their receivers, in the form in which they travel between a process and its node, and
//! between nodes.

use serde::{Deserialize, Serialize};

use super::{Blob, UnixMillis, WaitingMessage, WaitingProvenance};

/// A message to one agent, which is kept until the agent has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedLetter {
    /// The facts about the message.
    #[serde(flatten)]
    pub cover: Cover,
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
}

/// The facts known about a letter without opening it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// The process or node that wrote it: the second in which that began (upper half), and random bits.
    pub origin: u64,
    /// Its number among its origin's letters to this receiver, counted from 1. By origin and number, a node recognises
    /// a letter that it has had before.
    pub sequence: u64,
    /// How often it was carried from one node to another. The count distinguishes a letter that comes back to a node
    /// from one that is brought there twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops: u32,
    /// Whether the receiver may already have taken it, in a process that ended or on a node that does not answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
    /// Local name of the receiver.
    pub receiver: String,
    /// The proof of its sender. The node fills it in; what the process itself states does not count.
    pub provenance: WaitingProvenance,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it expires.
    pub expiry: UnixMillis,
    /// The time before which it must not be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<UnixMillis>,
    /// The receipt that its sender wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// For a notice of the platform, the letter that the notice is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<AboutLetter>,
}

impl Cover {
    /// The identity of this copy of the letter.
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
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The identity of a copy of a letter to a receiver: see [`Cover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterMark {
    /// The process or node that wrote the letter.
    pub origin: u64,
    /// Its number among its origin's letters to the receiver.
    pub sequence: u64,
    /// How often it was carried.
    pub hops: u32,
}

/// How a letter compares with another node's letters for the same receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterStanding {
    /// That node has no letter that precedes it.
    Free,
    /// That node has an earlier letter of the same origin.
    Behind,
    /// The letter was carried to that node.
    Had,
}

/// A node's answer about a receiver's letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// The standing of each letter in the question, in the same order.
    pub standings: Vec<LetterStanding>,
    /// The nodes to which it carried letters. They may still have some.
    pub nodes: Vec<String>,
    /// The number of letters that wait there.
    pub waiting: u64,
    /// A number that changes with each start of the node.
    pub life: u64,
    /// The number of letters that came in this life. While `life` and `arrivals` stay the same, no letter has come.
    pub arrivals: u64,
}

/// When a receipt is sent to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receipt {
    /// When the message is in the receiver's process.
    Process,
    /// When the receiver has taken the message.
    Agent,
}

/// The letter that a notice is about, as the node knows it that wrote the notice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AboutLetter {
    /// The receiver of the letter.
    pub receiver: String,
    /// The letter's number in that node's mailbox; 0 for a message that was not kept as a letter.
    pub number: u64,
    /// Whether the notice says that the letter failed. A receipt for the same letter may wait beside it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failure: bool,
}

/// A letter on its way from a node into the receiver's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredLetter {
    /// The letter's number in the receiver's mailbox on this node.
    pub number: u64,
    /// The number of this hand-over. If the letter is [left](LetterOutcome::Left), the process names its last one.
    pub hand_over: u64,
    /// Whether another process of the receiver may already have taken it.
    pub again: bool,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it expires.
    pub expiry: UnixMillis,
    /// The receipt that its sender wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// The message.
    pub waiting: WaitingMessage,
}

/// The outcome of a letter in the receiver's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterOutcome {
    /// The letter lies in the agent's mailbox.
    Arrived,
    /// The receiver has taken it.
    Taken,
    /// The receiver has taken it, and has signed the receipt that the sender asked for.
    Acknowledged,
    /// The letter expired unread.
    Expired,
    /// The receiver is not there, or left the letter unread. The number is that of its last hand-over, so that a report
    /// that comes twice does not count for a later one.
    Left(u64),
    /// The letter may not be delivered.
    Refused(LetterRefusal),
}

impl LetterOutcome {
    /// Whether the letter goes nowhere from here.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Taken | Self::Acknowledged | Self::Expired | Self::Refused(_)
        )
    }
}

/// Why a letter may not be delivered, by the rules and revocations in force at delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterRefusal {
    /// The platform's policy does not let its sender write to its receiver.
    NotPermitted,
    /// An operator has revoked its sender since the letter was sent.
    Revoked,
    /// The platform is at level `signed`, and no evidence proves that the sender wrote the letter.
    NotProved,
    /// The letter states level `sealed`, but everybody could read it.
    NotSealed,
    /// The letter is sealed to a key that its receiver no longer has, or was changed.
    NotOpened,
}

/// The messages that wait for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLetters {
    /// The first waiting messages.
    pub letters: Vec<WaitingLetter>,
    /// The number of all waiting messages.
    pub total: u64,
}

/// A waiting letter, as shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLetter {
    /// The node that keeps it.
    pub node: String,
    /// The letter's number there.
    pub number: u64,
    /// The name of its sender; empty if the message names none or cannot be read.
    pub sender: String,
    /// The message's performative.
    pub performative: String,
    /// The size of the message, in bytes.
    pub size: u64,
    /// When it was sent.
    pub posted: UnixMillis,
    /// When it expires and returns to its sender.
    pub expiry: UnixMillis,
    /// The time before which it must not be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<UnixMillis>,
    /// Whether the receiver's process has it, and it is unread.
    pub delivered: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node can read the notices that an earlier version kept.
    #[test]
    fn a_notice_without_the_flag_of_a_failure_is_read() {
        let text = r#"{"receiver":"bob","number":7}"#;
        let earlier: AboutLetter = serde_json::from_str(text).unwrap();
        let receipt = AboutLetter {
            receiver: "bob".to_owned(),
            number: 7,
            failure: false,
        };
        assert_eq!(earlier, receipt);
        assert_eq!(serde_json::to_string(&receipt).unwrap(), text);
        let failure = AboutLetter {
            failure: true,
            ..receipt
        };
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<AboutLetter>(&text).unwrap(), failure);
    }
}
