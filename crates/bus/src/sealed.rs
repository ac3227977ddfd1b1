//! Level `sealed`: messages that only their receiver reads. A sealed message is an ACL message as well, the *outer* one. Its
//! parameters lead it to its receiver, and its content holds the rest of the sealed message.
//!
//! The act is `sealed`. Sender, receivers, `:conversation-id` and `:reply-with` are those of the message inside, which does
//! not repeat them; nothing else of it shows. The author signs the outer message, as at level `signed`. It contains a
//! commitment to the inner one, so that the receiver can later show what the author wrote ([`Opened::salt`]), and no more.
//!
//! A sender and a receiver share a secret for a *row* of messages. A message brings the secret, or names the row
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
    /// It names a row that is not known here, or no longer. With the row's secret it may open.
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

/// For those to whom nothing is sent with the row's secret.
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

/// The service of a process that seals messages of its agents, and opens those for its agents.
pub trait Sealer: Send + Sync {
    /// Whether messages that do not ask for a level are sealed, too: level `sealed` holds on the platform.
    fn is_for_all(&self) -> bool;

    /// Whether this is an agent of the platform itself. It reads what is written to it, and others read what it writes,
    /// also where all others seal their messages.
    fn is_of_platform(&self, agent: &str) -> bool;

    /// Seals a message to one of its receivers. Looks the receiver's key up if it is not known. `kept`: the message waits
    /// for its receiver, and is not delivered before that moment, if there is one.
    ///
    /// # Errors
    /// [`NotSealed`] names the receiver, and says why nothing can be sealed to it.
    fn seal<'a>(
        &'a self,
        message: &'a AclMessage,
        receiver: &'a str,
        kept: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<SealedMessage, NotSealed>>;

    /// The same for a message that is delivered at once, without waiting. `None`: the receiver's key must be looked up.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed>;

    /// A message of an agent of this process that came back, as it can go another way ([`SentRows::whole`]).
    ///
    /// # Errors
    /// [`NotSealed`], if it cannot.
    fn came_back(&self, payload: Bytes) -> Result<Bytes, NotSealed>;

    /// Opens a sealed message for an agent of this process ([`OpenedRows::open`]).
    ///
    /// # Errors
    /// Why it does not open.
    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, NotOpened>;
}

/// A message that was sealed.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The message inside.
    pub message: EncodedMessage<Bytes>,
    /// With this salt, the author committed to the message in the outer one.
    pub salt: Salt,
    /// The row of a message that does not bring its secret.
    pub row: Option<Arc<OpenedRow>>,
}

/// Whether a message says that it is, or is to be, sealed.
pub(crate) fn asks_for_sealing(message: &AclMessageRef<'_>) -> bool {
    matches!(level_of(message), Ok(Some(SecurityLevel::Sealed)))
}

/// Whether this message is the outer one of a sealed message.
pub fn is_sealed(message: &AclMessageRef<'_>) -> bool {
    message.is_act(SEALED)
}
