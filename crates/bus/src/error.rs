//! The reasons why a message was not accepted, or not delivered.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sealbus_fipa::{AclMessage, EncodeError};
use thiserror::Error;

use crate::agent::NoSigner;
use crate::delegation::DelegationError;
use crate::letter::NotKept;
use crate::refusal::{ExplainedRefusal, RefusalReason};
use crate::sealed::NotSealed;

/// Why an accepted message could not be delivered. The sender finds the reason in a `failure` message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UndeliverableReason {
    /// No such agent.
    #[error(
        "no agent of that name is known: check the name, or whether the agent has been started"
    )]
    UnknownReceiver,
    /// The agent has ended.
    #[error("the agent has ended")]
    ReceiverGone,
    /// The agent could not be found, or was in transit, for too long.
    #[error("the agent could not be found for {seconds} s ({last}): send again later")]
    NotFoundInTime {
        /// How long the message was kept.
        seconds: u64,
        /// The latest facts.
        last: String,
    },
    /// The receiver's process does not answer.
    #[error("its process cannot be reached ({0}); whether it received the message is not known")]
    ProcessUnreachable(String),
    /// The receiving side refused the message.
    #[error("refused by the receiving side ({reason}): {explanation}")]
    Refused {
        /// The reason.
        reason: RefusalReason,
        /// The remedy.
        explanation: String,
    },
    /// The message is larger than the transport carries.
    #[error("the message has {size} bytes and the limit is {limit}: send less, or raise the limit")]
    TooLarge {
        /// The size of the encoded message.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The message waited for its receiver until its expiry.
    #[error("the message expired before {receiver} took it")]
    Expired {
        /// The receiver.
        receiver: String,
    },
    /// No node kept the message for its receiver.
    #[error("the message could not be kept for its receiver: {0}")]
    NotKept(String),
    /// The message cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encoding(#[from] EncodeError),
    /// The receiver belongs to another platform, and this platform has no gateway.
    #[error(
        "the receiver belongs to another platform, and this platform has no gateway: add [gateway.http] to the manifest"
    )]
    NoGateway,
    /// The receiver's platform did not accept the message.
    #[error("the receiver's platform did not accept the message: {0}")]
    Foreign(String),
    /// No transport leads to other processes.
    #[error("this process has no transport to other processes")]
    NoTransport,
}

impl From<ExplainedRefusal> for UndeliverableReason {
    fn from(refused: ExplainedRefusal) -> Self {
        Self::Refused {
            reason: refused.reason,
            explanation: refused.explanation,
        }
    }
}

impl From<NotSealed> for UndeliverableReason {
    fn from(NotSealed(explanation): NotSealed) -> Self {
        Self::Refused {
            reason: RefusalReason::NotOpened,
            explanation,
        }
    }
}

impl From<NotSealed> for Rejected {
    fn from(error: NotSealed) -> Self {
        Self::Impossible(error.into())
    }
}

/// Why a [`Destination`](crate::Destination) did not accept a message.
#[derive(Debug)]
pub enum Rejected {
    /// The receiver has no room now. All its senders wait at the destination's gate.
    Full,
    /// The sender's own connection has no room now. The sender alone waits, at [its gate](crate::LocalAgent::gate).
    Congested,
    /// The message can never be sent.
    Impossible(UndeliverableReason),
    /// The receiver is moving. Accepted messages come back through [`Bus::returned`](crate::Bus::returned); until then
    /// nothing may be sent elsewhere.
    Moving,
    /// This way has ended; the receiver must be looked up again.
    Closed,
}

/// Why `send` did not accept a message. These errors are faults of the agent itself. Faults on the way come back as a
/// `failure` message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The message names no receiver.
    #[error("agent {sender} sent a message without receivers: name at least one")]
    NoReceiver {
        /// The sending agent.
        sender: Arc<str>,
    },
    /// The message names more receivers, or more agents to answer, than it may.
    #[error(
        "agent {sender} sent a message with {count} {what}, and the limit is {most}: send it in parts, or publish it on a channel"
    )]
    TooManyAgents {
        /// The sending agent.
        sender: Arc<str>,
        /// The list that is too long.
        what: &'static str,
        /// How many agents it names.
        count: usize,
        /// How many it may name.
        most: usize,
    },
    /// The message has more of something than its receivers take.
    #[error(
        "agent {sender} sent a message with more than {most} {what}, which its receivers would refuse: put the data into the content"
    )]
    OverLimits {
        /// The sending agent.
        sender: Arc<str>,
        /// The parts that are too many, such as nested lists or values.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// The message names another agent as its sender.
    #[error(
        "agent {sender} sent a message whose sender is {claimed}: an agent sends under its own name only"
    )]
    ForgedSender {
        /// The sending agent.
        sender: Arc<str>,
        /// The name in the message.
        claimed: String,
    },
    /// The message can never be sent to this receiver.
    #[error("agent {sender} cannot send to {receiver}: {reason}")]
    Impossible {
        /// The sending agent.
        sender: Arc<str>,
        /// The receiver.
        receiver: String,
        /// The reason.
        reason: UndeliverableReason,
    },
    /// The platform's policy forbids it.
    #[error(
        "agent {sender} may not write to {receiver}: the platform's policy forbids it, [permission] in its manifest"
    )]
    NotPermitted {
        /// The sending agent.
        sender: Arc<str>,
        /// The receiver.
        receiver: String,
    },
    /// The platform's policy forbids it on behalf of these agents.
    #[error(
        "agent {sender} may not write to {receiver} on behalf of {askers}: the platform's policy forbids it, [permission] in its manifest"
    )]
    NotPermittedFor {
        /// The sending agent.
        sender: Arc<str>,
        /// The receiver.
        receiver: String,
        /// The agents that asked, the first one in front.
        askers: String,
    },
    /// The message cannot be sent on behalf of the agents that it names.
    #[error("agent {sender} may not ask others for this: {reason}")]
    Delegation {
        /// The sending agent.
        sender: Arc<str>,
        /// Why.
        reason: DelegationError,
    },
    /// The message has an option that only a kept message can have.
    #[error(
        "agent {sender} sent a message with {what}: only a persistent message can have it; send it with persistence"
    )]
    NeedsPersistence {
        /// The sending agent.
        sender: Arc<str>,
        /// The option.
        what: &'static str,
    },
    /// The message asks for a security level at which it cannot go.
    #[error(
        "agent {sender} sent a message that cannot have the security level it asks for: {reason}"
    )]
    Level {
        /// The sending agent.
        sender: Arc<str>,
        /// The level, and why not.
        reason: String,
    },
    /// The message must be sealed, and nothing can be sealed to this receiver.
    #[error("agent {sender} cannot seal a message to {receiver}: {reason}")]
    NotSealed {
        /// The sending agent.
        sender: Arc<str>,
        /// The receiver.
        receiver: String,
        /// The reason and the remedy.
        reason: NotSealed,
    },
    /// The message must be signed, because it or the platform is at level `signed`, and the agent cannot sign.
    #[error("agent {sender} cannot have a message kept, because it cannot sign it: {reason}")]
    NotSigned {
        /// The sending agent.
        sender: Arc<str>,
        /// Why.
        reason: NoSigner,
    },
    /// The platform does not keep the message.
    #[error("agent {sender} cannot have a message kept for {receiver}: {reason}")]
    NotKept {
        /// The sending agent.
        sender: Arc<str>,
        /// The receiver.
        receiver: String,
        /// The reason and the remedy.
        reason: NotKept,
    },
    /// An answer found no room: the agent that asked does not read its answers.
    #[error("agent {sender} cannot answer {receiver}, which does not read its answers")]
    AnswerNotTaken {
        /// The sending agent.
        sender: Arc<str>,
        /// The agent that asked.
        receiver: String,
    },
    /// The agent has ended, or is moving.
    #[error("agent {0} has left this process and cannot send")]
    Detached(Arc<str>),
    /// The platform has given up the agent's process.
    #[error("agent {sender} cannot send: the platform has given up this process ({why})")]
    GivenUp {
        /// The sending agent.
        sender: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The agent does not read its failure notices.
    #[error(
        "agent {0} has thousands of failure notices unread in its mailbox: receive before sending more"
    )]
    UnreadFailures(Arc<str>),
}

/// Why `try_send` did not accept a message.
#[derive(Debug, Error)]
pub enum TrySendError {
    /// There is no room now. Finish the message with [`Outbox::finish`](crate::Outbox::finish), or drop it.
    #[error("there is no room for a message to {} now", .0.waiting_for())]
    Full(Unsent),
    /// The message cannot be sent.
    #[error(transparent)]
    Failed(#[from] SendError),
}

/// A message that waits for room on its way to some of its receivers. The receivers before them already have it.
pub struct Unsent {
    pub(crate) message: Arc<AclMessage>,
    /// The numbers of the receivers that do not have it yet.
    pub(crate) left: Range<usize>,
}

impl Unsent {
    /// The receiver that has no room.
    pub fn waiting_for(&self) -> &str {
        let receivers = self.message.receivers.get(self.left.clone());
        receivers
            .and_then(<[_]>::first)
            .map_or("", |receiver| &receiver.name)
    }

    /// Whether no receiver is left.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Leaves out the receivers that are left.
    pub fn give_up(&mut self) {
        self.left.start = self.left.end;
    }

    /// Splits the message into one for each receiver that is left.
    pub fn split(self) -> impl Iterator<Item = Unsent> {
        let Unsent { message, left } = self;
        left.map(move |number| Unsent {
            message: message.clone(),
            left: number..number + 1,
        })
    }

    /// The message.
    pub fn message(&self) -> &Arc<AclMessage> {
        &self.message
    }
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent")
            .field("waiting_for", &self.waiting_for())
            .finish_non_exhaustive()
    }
}
