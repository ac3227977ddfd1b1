//! Why a message may not be sent, and why a received one is no part of the conversation.

use alloc::boxed::Box;
use alloc::string::String;

use sealbus_fipa::{AclMessage, Performative};

use crate::{Outcome, Stage};

/// Why nothing was sent. The conversation is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActError {
    /// The conversation-id is empty.
    #[error("a conversation needs a conversation-id that is not empty")]
    NoConversationId,
    /// The conversation has no participant.
    #[error("a conversation needs at least one participant")]
    NoParticipants,
    /// A participant is listed twice.
    #[error("the participant {0:?} is listed twice; name each participant once")]
    NamedTwice(String),
    /// The act does not open this protocol.
    #[error("{:?} does not open {protocol}", act.as_str())]
    NotOpening {
        /// The name of the protocol.
        protocol: &'static str,
        /// The act.
        act: Performative,
    },
    /// The agent has no part in the conversation.
    #[error("{0:?} is no participant of this conversation")]
    NotAParticipant(String),
    /// No participant is at the chosen stage, or all have ended.
    #[error("no participant is left to send {:?} to", act.as_str())]
    Nobody {
        /// The act.
        act: Performative,
    },
    /// The conversation with this agent has ended.
    #[error("the conversation with {agent:?} has ended ({outcome:?})")]
    Ended {
        /// The other side.
        agent: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// The protocol does not allow the act at this stage, or the conversation is being cancelled.
    #[error("{protocol} does not allow {:?} to {agent:?} at the stage {stage:?}", act.as_str())]
    Forbidden {
        /// The name of the protocol.
        protocol: &'static str,
        /// The other side.
        agent: String,
        /// The act.
        act: Performative,
        /// The stage of the conversation with this agent.
        stage: Stage,
    },
}

/// Why a received message is no part of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The message has no sender.
    #[error("the message has no sender")]
    NoSender,
    /// The message has another conversation-id.
    #[error("the message belongs to another conversation")]
    OtherConversation,
    /// The message names another protocol.
    #[error("the message names the protocol {0:?}")]
    OtherProtocol(String),
    /// The sender has no part in the conversation.
    #[error("{0:?} has no part in this conversation")]
    Stranger(String),
    /// The first message is not one that opens the protocol.
    #[error("{:?} does not open {protocol}", act.as_str())]
    NotOpening {
        /// The name of the protocol.
        protocol: &'static str,
        /// The act.
        act: Performative,
    },
    /// The conversation with this agent has ended.
    #[error("{:?} from {agent:?} came after the end ({outcome:?})", act.as_str())]
    Late {
        /// The sender.
        agent: String,
        /// The act.
        act: Performative,
        /// How the conversation with this agent ended.
        outcome: Outcome,
    },
    /// The message answers an earlier message than the latest one.
    #[error("{:?} from {agent:?} answers an earlier message", act.as_str())]
    Stale {
        /// The sender.
        agent: String,
        /// The act.
        act: Performative,
    },
    /// The act belongs to another stage: the message came again, or out of order.
    #[error("{:?} from {agent:?} does not fit the stage {stage:?}", act.as_str())]
    OutOfOrder {
        /// The sender.
        agent: String,
        /// The act.
        act: Performative,
        /// The stage of the conversation with this agent.
        stage: Stage,
    },
    /// The protocol has no such act from this side. This ends the conversation with the sender.
    #[error("{protocol} has no {:?} from {agent:?}", act.as_str())]
    Forbidden {
        /// The name of the protocol.
        protocol: &'static str,
        /// The sender.
        agent: String,
        /// The act.
        act: Performative,
    },
}

/// A received message was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The answer that the standard asks for, to be sent: `not-understood`, or `reject-proposal` for a proposal that came
    /// too late.
    pub answer: Option<Box<AclMessage>>,
}

impl Refused {
    /// Whether the message came after the end of the conversation with its sender.
    pub fn is_late(&self) -> bool {
        matches!(self.reason, Reason::Late { .. })
    }
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            answer: None,
        }
    }
}
