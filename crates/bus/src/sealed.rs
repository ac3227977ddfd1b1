//! Level `sealed`: messages that only their receiver can read. A sealed message is an ACL message itself, the *outer*
//! one. Its parameters lead it to its receiver, and its content holds the rest of the *inner* message.
//!
//! The act is `sealed`. Sender, receivers, `:conversation-id` and `:reply-with` are those of the inner message, which does
//! not repeat them; nothing else of it is visible. The author signs the outer message, as at level `signed`. It contains a
//! commitment to the inner message, so that the receiver can later show what the author wrote, and no more
//! ([`Opened::salt`]).
//!
//! A sender and a receiver share a secret for a *row* of messages. A message contains the secret, or only names the row
//! ([`SealedMessage`]).

mod form;
mod opening;
mod sending;

use std::sync::Arc;

use bytes::Bytes;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_fipa::{AclMessage, AclMessageRef, EncodeError};
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::{EncryptionError, Salt};
use thiserror::Error;

pub use form::{RowForm, RowId, SHORT_OVERHEAD, SealedEnvelope, WHOLE_OVERHEAD};
pub use opening::{OpenedRow, OpenedRows};
pub use sending::{LONGEST_ROW, SealedMessage, SealedRow, SentRows};

use crate::level::{SEALED, level_of};
use crate::moment::Moment;
use crate::refusal::{ExplainedRefusal, RefusalReason};
use crate::resolver::BoxFuture;

/// Why a message was not sealed. The text tells the sender what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotSealed(pub String);

impl From<EncryptionError> for NotSealed {
    fn from(error: EncryptionError) -> Self {
        Self(error.to_string())
    }
}

impl From<EncodeError> for NotSealed {
    fn from(error: EncodeError) -> Self {
        Self(format!("the message cannot be encoded: {error}"))
    }
}

/// Why a message was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// It names a row that is not known here, or no longer. It may open with the row's secret.
    #[error(
        "the sealed message does not open: it names a secret that its receiver's process does not know, or has forgotten"
    )]
    UnknownRow,
    /// It does not open, or must not be delivered.
    #[error("{}", .0.explanation)]
    Refused(ExplainedRefusal),
}

impl From<ExplainedRefusal> for NotOpened {
    fn from(refused: ExplainedRefusal) -> Self {
        Self::Refused(refused)
    }
}

impl From<String> for NotOpened {
    fn from(why: String) -> Self {
        Self::Refused(ExplainedRefusal {
            reason: RefusalReason::NotOpened,
            explanation: format!("the sealed message does not open: {why}"),
        })
    }
}

/// For callers that cannot have the message sent again with the row's secret.
impl From<NotOpened> for ExplainedRefusal {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Refused(refused) => refused,
            NotOpened::UnknownRow => Self {
                reason: RefusalReason::NotOpened,
                explanation: error.to_string(),
            },
        }
    }
}

/// The service of a process that seals its agents' messages, and opens the messages to them.
pub trait Sealer: Send + Sync {
    /// Whether messages that ask for no level are sealed, too, because the platform's level is `sealed`.
    fn is_for_all(&self) -> bool;

    /// Whether this is an agent of the platform itself. Messages from and to such agents stay readable even where all
    /// others are sealed.
    fn is_of_platform(&self, agent: &str) -> bool;

    /// Seals a message to one of its receivers. Looks up the receiver's key if it is not known. `kept`: the message
    /// waits for its receiver, and is not delivered before that moment, if there is one.
    ///
    /// # Errors
    /// [`NotSealed`] with the receiver and the reason.
    fn seal<'a>(
        &'a self,
        message: &'a AclMessage,
        receiver: &'a str,
        kept: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<SealedMessage, NotSealed>>;

    /// As [`seal`](Self::seal), without waiting, for delivery at once. `None`: the receiver's key must be looked up.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed>;

    /// Prepares a message of an agent of this process that came back, so that it can go another way ([`SentRows::whole`]).
    ///
    /// # Errors
    /// [`NotSealed`] if the message cannot go another way.
    fn came_back(&self, payload: Bytes) -> Result<Bytes, NotSealed>;

    /// Opens a sealed message for an agent of this process ([`OpenedRows::open`]).
    ///
    /// # Errors
    /// [`NotOpened`] if the message does not open.
    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, NotOpened>;
}

/// A message that was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The inner message.
    pub message: EncodedMessage<Bytes>,
    /// The salt with which the author committed to the message in the outer one.
    pub salt: Salt,
    /// The row of a message that does not contain its secret.
    pub row: Option<Arc<OpenedRow>>,
}

/// Whether a message is sealed, or asks to be.
pub(crate) fn asks_for_sealing(message: &AclMessageRef<'_>) -> bool {
    matches!(level_of(message), Ok(Some(SecurityLevel::Sealed)))
}

/// Whether this is the outer message of a sealed one.
pub fn is_sealed(message: &AclMessageRef<'_>) -> bool {
    message.is_act(SEALED)
}
