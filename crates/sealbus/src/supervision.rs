//! Errors of handlers: each is answered, and the agent says what else follows.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use sealbus_fipa::{AclMessage, Performative};

use crate::body::BodyError;
use crate::message::ContentError;
use crate::protocol::ProtocolError;

/// An error that answers `refuse`: the agent understands the message and does not do what it asks.
///
/// ```
/// # use sealbus::{AgentResult, Context, Message, Refuse};
/// # async fn on_message(free: bool, message: Message) -> AgentResult {
/// if !free {
///     return Err(Refuse::new("busy").into());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused: {reason}")]
pub struct Refuse {
    reason: String,
}

impl Refuse {
    /// Refuses for this reason, which the other side reads.
    pub fn new(reason: impl Into<String>) -> Refuse {
        let reason = reason.into();
        Refuse { reason }
    }
}

/// An error that answers `not-understood`: the agent cannot read the message, or does not know what to do with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not understood: {reason}")]
pub struct NotUnderstood {
    reason: String,
}

impl NotUnderstood {
    /// Does not understand for this reason, which the other side reads.
    pub fn new(reason: impl Into<String>) -> NotUnderstood {
        let reason = reason.into();
        NotUnderstood { reason }
    }
}

/// What follows an error of a handler, besides the answer; see [`Agent::supervise`](crate::Agent::supervise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervision {
    /// The agent goes on with the next message.
    #[default]
    Ignore,
    /// The agent is torn down and set up again, and goes on with the next message.
    Restart,
    /// The agent fails with this error.
    End,
}

/// An error of a handler, for [`Agent::supervise`](crate::Agent::supervise).
#[derive(Debug)]
pub struct HandlerError {
    /// What was handled, such as `cfp from buyer@factory`.
    pub handled: String,
    /// The error that the handler returned.
    pub error: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}: {}", self.handled, self.error)
    }
}

impl Error for HandlerError {}

/// The answer to a message whose handler failed. None if it has no sender, or ends an exchange itself.
pub(crate) fn answer(
    message: &Arc<AclMessage>,
    error: &(dyn Error + 'static),
) -> Option<AclMessage> {
    let ends = matches!(
        message.performative,
        Performative::NotUnderstood | Performative::Failure
    );
    if ends || (message.sender.is_none() && message.reply_to.is_empty()) {
        return None;
    }
    let (act, reason) = if let Some(refuse) = error.downcast_ref::<Refuse>() {
        (Performative::Refuse, refuse.reason.clone())
    } else if let Some(not_understood) = error.downcast_ref::<NotUnderstood>() {
        (Performative::NotUnderstood, not_understood.reason.clone())
    } else if error.is::<ContentError>()
        || error.is::<BodyError>()
        || matches!(error.downcast_ref(), Some(ProtocolError::NotOpening { .. }))
    {
        (Performative::NotUnderstood, error.to_string())
    } else if let Some(ProtocolError::Busy(_)) = error.downcast_ref() {
        (Performative::Refuse, error.to_string())
    } else {
        (Performative::Failure, error.to_string())
    };
    Some(message.create_reply(act).with_content(reason))
}
