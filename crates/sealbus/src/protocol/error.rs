//! The errors of a protocol's conversation.

use std::fmt;

use sealbus_bus::{ConversationOpen, SendError};

use crate::body::BodyError;
use crate::context::ReceiveError;
use crate::directory::DirectoryError;
use crate::message::Message;

/// The reason why a conversation of a protocol has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The protocol does not allow the message now.
    #[error(transparent)]
    NotAllowed(#[from] sealbus_protocols::ActError),
    /// A message could not be sent.
    #[error("a message of the conversation could not be sent: {0}")]
    Send(Box<SendError>),
    /// The conversation with this agent reached its deadline before the message was sent.
    #[error("the time of the conversation with {0} is over")]
    Expired(String),
    /// The agent is ending.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The directory did not name possible participants.
    #[error("the participants could not be found: {0}")]
    Search(Box<DirectoryError>),
    /// The search found nobody.
    #[error(
        "the search found no participant: register the service with the DF first, or name the agents"
    )]
    Nobody,
    /// The message opens no protocol.
    #[error("{message} opens no protocol: {reason}")]
    NotOpening {
        /// The message, such as `inform from buyer@factory`.
        message: String,
        /// The problem with the message.
        reason: String,
    },
    /// The agent has an open conversation of this name.
    #[error(transparent)]
    Open(#[from] ConversationOpen),
    /// The agent takes part in as many conversations as it may.
    #[error("the agent takes part in {0} conversations, which is the limit")]
    Busy(usize),
    /// The other side refused, failed or did not understand.
    #[error("{reply}: {}", reply.text().unwrap_or("no reason given"))]
    TurnedDown {
        /// The other side's message.
        reply: Box<Message>,
    },
    /// The other side's content is of another type than the declared one.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The other side did not answer in time.
    #[error("{0} did not answer in time")]
    Silent(String),
    /// The platform could not deliver a message to the other side.
    #[error("a message to {0} was not delivered")]
    Undeliverable(String),
    /// The conversation has ended with another outcome.
    #[error("the conversation with {agent} has ended ({outcome:?})")]
    Ended {
        /// The other side.
        agent: String,
        /// The outcome.
        outcome: sealbus_protocols::Outcome,
    },
}

impl From<SendError> for ProtocolError {
    fn from(error: SendError) -> ProtocolError {
        ProtocolError::Send(Box::new(error))
    }
}

impl From<DirectoryError> for ProtocolError {
    fn from(error: DirectoryError) -> ProtocolError {
        ProtocolError::Search(Box::new(error))
    }
}

impl ProtocolError {
    pub(super) fn not_opening(message: &Message, reason: impl fmt::Display) -> ProtocolError {
        ProtocolError::NotOpening {
            message: message.to_string(),
            reason: reason.to_string(),
        }
    }
}
