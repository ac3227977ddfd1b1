//! The reasons why a neighbour did not do what it was asked.

use sealbus_web::WebError;
use sealbus_web::events::EventError;

use super::answer::AnswerError;
use super::card::CardError;
use super::fault::RemoteFault;
use super::signature::CardSignatureError;

/// The other side did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    #[error(transparent)]
    Web(#[from] WebError),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Card(#[from] CardError),
    /// Its card shall be signed.
    #[error("{0}; the entry in the manifest demands a signature")]
    Signature(#[from] CardSignatureError),
    #[error(transparent)]
    Fault(#[from] RemoteFault),
    /// Redirections are not followed.
    #[error("it answered status {0}, and leads elsewhere: write the address it leads to")]
    Redirected(u16),
    #[error("it answered status {0} instead of {1}")]
    NoFile(u16, &'static str),
    /// It gets no request without a token.
    #[error("there is no token to show it: {0}")]
    Token(String),
    #[error("it sent more events at once than anybody can read")]
    Flood,
}

impl RemoteError {
    /// Whether the connection broke, and the task may go on without it.
    pub(super) fn is_break(&self) -> bool {
        matches!(
            self,
            Self::Web(WebError::Broken(_) | WebError::Io(_) | WebError::Slow(_))
        )
    }
}
