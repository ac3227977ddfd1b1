//! Errors of handlers: each is answered, and the agent decides what else follows.

use std::error::Error;
use std::fmt;

use sealbus_bus::SendError;
use sealbus_fipa::{AclMessage, Performative};

use crate::body::{BodyError, WrittenBody};
use crate::fault::AtFault;
use crate::message::ContentError;
use crate::protocol::ProtocolError;

/// The result of an agent's hook. An error of a handler is answered, logged and counted, and the agent goes on unless
/// [`Agent::supervise`](crate::Agent::supervise) decides otherwise. An error of `setup`, `restore` or `teardown` ends
/// the agent, and is reported with the agent's name.
pub type AgentResult<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

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

/// An error that answers `failure`: the agent tried and could not do it. The answer to other errors is a `failure`
/// without their text, which stays in the agent's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed: {reason}")]
pub struct Failure {
    reason: String,
}

impl Failure {
    /// Fails for this reason, which the other side reads.
    pub fn new(reason: impl Into<String>) -> Failure {
        let reason = reason.into();
        Failure { reason }
    }
}

/// The consequence of an error of a handler, besides the answer; see [`Agent::supervise`](crate::Agent::supervise).
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
    /// The handled message or event, such as `cfp from buyer@factory`.
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

/// The answer to an error of the agent. The error's text may be private.
const FAILED: &str = "the agent failed at this; its log says why";

/// The parameter of an answer that only says that the agent leaves, because it is told to stop. The platform may start
/// the agent again.
pub const LEAVING_PARAMETER: &str = "X-Sealbus-Leaving";

/// The longest reason in an answer, in characters.
const REASON_LIMIT: usize = 1_000;

/// The party that must deal with an error, and the act and the reason of the answer.
pub(crate) fn judge(error: &(dyn Error + 'static)) -> (AtFault, Performative, String) {
    if let Some(Refuse { reason }) = error.downcast_ref() {
        (AtFault::Nobody, Performative::Refuse, reason.clone())
    } else if let Some(NotUnderstood { reason }) = error.downcast_ref() {
        (AtFault::Nobody, Performative::NotUnderstood, reason.clone())
    } else if let Some(Failure { reason }) = error.downcast_ref() {
        (AtFault::Nobody, Performative::Failure, reason.clone())
    } else if error.is::<ContentError>()
        || error.is::<BodyError>()
        || matches!(error.downcast_ref(), Some(ProtocolError::NotOpening { .. }))
    {
        let act = Performative::NotUnderstood;
        (AtFault::Sender, act, error.to_string())
    } else if let Some(ProtocolError::Busy(_)) = error.downcast_ref() {
        (AtFault::Nobody, Performative::Refuse, error.to_string())
    } else if let Some(ProtocolError::Expired(_)) = error.downcast_ref() {
        (AtFault::Nobody, Performative::Failure, error.to_string())
    } else if let Some(SendError::AnswerNotTaken { .. }) = error.downcast_ref() {
        (AtFault::Nobody, Performative::Failure, error.to_string())
    } else {
        (AtFault::Agent, Performative::Failure, FAILED.to_owned())
    }
}

/// An answer in plain text, for a message in any language.
pub(crate) fn saying(
    message: &AclMessage,
    act: Performative,
    text: impl Into<WrittenBody>,
) -> AclMessage {
    let mut answer = message.create_reply(act);
    text.into().put_into(&mut answer);
    answer
}

/// The answer to a message whose handler returned an error. `None` if the message has no sender, or itself ends an
/// exchange: otherwise two agents could go on for ever.
pub(crate) fn answer(
    message: &AclMessage,
    act: Performative,
    reason: String,
) -> Option<AclMessage> {
    let ends = matches!(
        message.performative,
        Performative::NotUnderstood | Performative::Failure | Performative::Refuse
    );
    if ends || (message.sender.is_none() && message.reply_to.is_empty()) {
        return None;
    }
    let reason: String = reason.chars().take(REASON_LIMIT).collect();
    Some(saying(message, act, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Aid;

    #[test]
    fn a_reason_is_plain_text_whatever_the_message_was_in() {
        for language in ["application/json", "fipa-sl"] {
            let message = AclMessage::new(Performative::Request)
                .with_sender(Aid::new("buyer@home").unwrap())
                .with_language(language)
                .with_ontology("trade")
                .with_content("(?)");
            let answer = answer(&message, Performative::Refuse, "busy".to_owned()).unwrap();
            assert_eq!((answer.language, answer.ontology), (None, None));
            assert_eq!(answer.content, Some("busy".into()));
        }
    }
}
