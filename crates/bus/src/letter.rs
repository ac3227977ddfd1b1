//! Messages that are kept for their receivers: what a sender may ask for, and what came of it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::moment::Moment;
use crate::resolver::BoxFuture;
use crate::transport::Acknowledgement;

/// How a message is to be delivered. By default at once, or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Kept on disk by a node of the platform until the receiver has it, however long that is away.
    pub persistent: bool,
    /// From then on it is not delivered any more, and comes back as a `failure`. What is persistent and has no expiry
    /// is given one by the node that keeps it.
    pub expiry: Option<Moment>,
    /// It is not delivered before.
    pub valid_from: Option<Moment>,
    /// The sender wants an `inform` from the AMS once the message is [in the receiver's
    /// process](Acknowledgement::ReceiverProcess) or [taken by the receiver](Acknowledgement::ReceiverAgent).
    /// [On disk](Acknowledgement::OnDisk) it is when sending returns, so that for this nothing more is sent.
    pub receipt: Option<Acknowledgement>,
}

impl Delivery {
    /// Kept until the receiver has it.
    pub fn persistent() -> Self {
        Self {
            persistent: true,
            ..Self::default()
        }
    }

    /// With an end.
    #[must_use]
    pub fn until(mut self, expiry: impl Into<Moment>) -> Self {
        self.expiry = Some(expiry.into());
        self
    }

    /// With a beginning.
    #[must_use]
    pub fn from(mut self, valid_from: impl Into<Moment>) -> Self {
        self.valid_from = Some(valid_from.into());
        self
    }

    /// With a receipt.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Acknowledgement) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// The options that a message that is not kept cannot have.
    pub(crate) fn needs_persistence(&self) -> Option<&'static str> {
        match self {
            Self {
                persistent: true, ..
            } => None,
            Self {
                expiry: Some(_), ..
            } => Some("an expiry"),
            Self {
                valid_from: Some(_),
                ..
            } => Some("a time from which it is valid"),
            Self {
                receipt: Some(_), ..
            } => Some("a receipt"),
            _ => None,
        }
    }
}

/// A message to one receiver, to be kept for it.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The sending agent's name, which the bus knows to be right.
    pub sender: Arc<str>,
    /// The receiver's name.
    pub receiver: String,
    /// In the bit-efficient encoding.
    pub message: Bytes,
    /// How it is to be delivered.
    pub delivery: Delivery,
}

/// Why a message is not kept; a text for the sender that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotKept(pub String);

/// Keeps messages for their receivers: the platform.
pub trait Post: Send + Sync {
    /// Takes a letter; returns when it is on disk. Letters of one sender are kept in the order of the calls.
    fn keep(&self, letter: Letter) -> BoxFuture<'_, Result<(), NotKept>>;
}

/// The outcome for a kept message, in its receiver's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOutcome {
    /// The receiver has taken it out of its mailbox.
    Taken,
    /// It lay there, unread, until its expiry.
    Expired,
}

/// Hears what comes of messages that were kept.
pub trait KeptListener: Send + Sync {
    /// The message with this number is in the mailbox no more.
    fn settled(&self, number: u64, outcome: KeptOutcome);
}

/// The mark of a received message that was kept.
#[derive(Clone)]
pub struct Kept {
    /// Its number in the receiver's mailbox on its node: greater than that of every message kept there before. A
    /// receiver that notes the numbers it has dealt with knows one that it gets for the second time.
    pub number: u64,
    /// Whether a process of the receiver may have taken it before: it ended before its node knew.
    pub again: bool,
    /// When it is not delivered any more.
    pub expiry: Option<Moment>,
    /// Is told once.
    pub listener: Arc<dyn KeptListener>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("number", &self.number)
            .field("again", &self.again)
            .finish_non_exhaustive()
    }
}
