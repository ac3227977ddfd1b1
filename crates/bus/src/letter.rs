//! Messages that are kept for their receivers: the options of a sender, and the outcomes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_seal::SecurityLevel;
use thiserror::Error;

use crate::acknowledgement::Acknowledgement;
use crate::moment::Moment;
use crate::resolver::BoxFuture;

/// How a message is to be delivered. By default the message is delivered at once, or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// A node of the platform keeps the message on disk until the receiver takes it: until its expiry, which is 30 days
    /// away at most, and 7 days if it has none.
    pub persistent: bool,
    /// The moment after which the message is no longer delivered and comes back as a `failure`. The node that keeps a
    /// persistent message gives it an expiry if it has none.
    pub expiry: Option<Moment>,
    /// The moment before which the message is not delivered.
    pub valid_from: Option<Moment>,
    /// The sender wants an `inform` from the AMS once the message is [in the receiver's
    /// process](Acknowledgement::ReceiverProcess) or [taken by the receiver](Acknowledgement::ReceiverAgent). If the
    /// message is signed, the receiver itself signs that it has taken it. No receipt is sent for [on
    /// disk](Acknowledgement::OnDisk), because the message is on disk when sending returns.
    pub receipt: Option<Acknowledgement>,
    /// The least security level at which the message goes to other processes; `None`: the platform's. At `signed` the
    /// receiver gets the sender's [proof](crate::Provenance::Signed) with it.
    pub level: Option<SecurityLevel>,
}

impl Delivery {
    /// A message that is kept until the receiver has it.
    pub fn persistent() -> Self {
        Self {
            persistent: true,
            ..Self::default()
        }
    }

    /// Sets the moment at which the message expires.
    #[must_use]
    pub fn until(mut self, expiry: impl Into<Moment>) -> Self {
        self.expiry = Some(expiry.into());
        self
    }

    /// Sets the moment before which the message is not delivered.
    #[must_use]
    pub fn from(mut self, valid_from: impl Into<Moment>) -> Self {
        self.valid_from = Some(valid_from.into());
        self
    }

    /// Asks for a receipt.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Acknowledgement) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// Asks for a security level.
    #[must_use]
    pub fn at_level(mut self, level: SecurityLevel) -> Self {
        self.level = Some(level);
        self
    }

    /// The first option that only a kept message can have, if one is set.
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
    /// The sending agent's name, as the bus has verified it.
    pub sender: Arc<str>,
    /// The receiver's name.
    pub receiver: String,
    /// The message in the bit-efficient encoding.
    pub message: Bytes,
    /// How the message is to be delivered.
    pub delivery: Delivery,
    /// At level `signed`, of the platform or the message: the evidence that the sender wrote the message to the
    /// receiver, in the form of [`Evidence::decode`](sealbus_proof::Evidence::decode).
    pub evidence: Option<Vec<u8>>,
}

/// Why a message is not kept. The text tells the sender what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotKept(pub String);

/// The service of the platform that keeps messages for their receivers.
pub trait Post: Send + Sync {
    /// Takes a letter. Returns once the letter is on disk. Letters of one sender are kept in the order of the calls.
    fn keep(&self, letter: Letter) -> BoxFuture<'_, Result<(), NotKept>>;
}

/// The outcome of a kept message in its receiver's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOutcome {
    /// The receiver has taken the message out of its mailbox.
    Taken,
    /// The message lay in the mailbox, unread, until its expiry.
    Expired,
}

/// A listener for the outcomes of kept messages.
pub trait KeptListener: Send + Sync {
    /// The message with this number has left the mailbox.
    fn settled(&self, number: u64, outcome: KeptOutcome);
}

/// The mark of a received message that was kept.
#[derive(Clone)]
pub struct Kept {
    /// The message's number in the receiver's mailbox on its node: greater than the number of every message kept there
    /// before. A receiver that notes the numbers of the messages it has handled can recognise a message that it gets
    /// twice.
    pub number: u64,
    /// Whether a process of the receiver may have taken the message earlier, and ended before its node knew.
    pub again: bool,
    /// The moment after which the message is no longer delivered.
    pub expiry: Option<Moment>,
    /// The listener, which is told once.
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
