//! Publications: their contents, the turns of their publishers, and the reasons why one was not published.

use std::sync::Arc;

use sealbus_bus::{Gate, Moment, NoSigner, NotKept, NotSealed, UndeliverableReason};
use sealbus_fipa::{AclMessage, EncodeError};
use sealbus_seal::Identity;
use thiserror::Error;

use super::collector::Collector;
use super::receipt::Receipt;
use crate::log::LogPlace;
use crate::path::ChannelPath;
use crate::qos::Qos;
use crate::sealed::Reader;

/// The reason why a message was not put on a channel. Later faults come back to the publisher as a `failure` message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishError {
    /// The agent may not publish there.
    #[error("agent {agent} may not publish on {channel}: the platform's policy does not allow it")]
    NotPermitted {
        /// The agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// The agent may not answer there.
    #[error("agent {agent} may not answer on {channel}: the platform's policy does not allow it")]
    MayNotAnswer {
        /// The agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// The agent is not on the channel.
    #[error(
        "agent {receiver} is not on {channel}: it has no subscription there that is known to this process"
    )]
    NotOnChannel {
        /// The agent.
        receiver: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// Another process has not announced its subscriptions, so the event might miss some subscribers.
    #[error(
        "not published: {process} has not said within {seconds} s what its agents subscribe to, and would miss it: see \
         whether that process runs, and publish again; best-effort events do not wait for it"
    )]
    NotAnnounced {
        /// The process.
        process: Arc<Identity>,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The platform has not told this process of the others whose agents use channels, so the event might miss some
    /// subscribers.
    #[error(
        "not published: the platform has not said within {seconds} s which other processes use channels, and they would \
         miss it: see whether the Master runs, and publish again; best-effort events do not wait for it"
    )]
    NotAcquainted {
        /// How long the platform was waited for.
        seconds: u64,
    },
    /// There is no such open request: this subscription did not take it, has answered it, or is too late.
    #[error(
        "there is no open request to answer: it was answered, has expired, or was not taken by this subscription"
    )]
    NotAsked,
    /// The message cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encoding(#[from] EncodeError),
    /// The message is larger than the transport carries.
    #[error("the message has {size} bytes and the limit is {limit}: send less, or raise the limit")]
    TooLarge {
        /// The size of the encoded message.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// More requests are under way than a process may have.
    #[error("{0} requests are under way, which is the limit: wait for answers")]
    TooManyRequests(usize),
    /// The message expires before it can be handed out.
    #[error("the message has already expired, or expires before it becomes valid")]
    Expired,
    /// The message names another agent as its sender.
    #[error(
        "agent {agent} sent a message whose sender is {claimed}: an agent sends under its own name only"
    )]
    ForgedSender {
        /// The agent.
        agent: Arc<str>,
        /// The name in the message.
        claimed: String,
    },
    /// The agent has left this process, or is barred from sending.
    #[error(
        "agent {0} cannot publish: it has left this process, or has thousands of failure notices unread"
    )]
    Barred(Arc<str>),
    /// The persistent event must be signed, because it or the platform is at level `signed`, and the agent cannot sign.
    #[error("agent {agent} cannot have an event kept, because it cannot sign it: {reason}")]
    NotSigned {
        /// The publishing agent.
        agent: Arc<str>,
        /// Why.
        reason: NoSigner,
    },
    /// The platform has given up the agent's process.
    #[error("agent {agent} cannot publish: the platform has given up this process ({why})")]
    GivenUp {
        /// The agent.
        agent: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The level asked for is too weak.
    #[error(transparent)]
    Downgrade(#[from] sealbus_bus::Downgrade),
    /// The event must be sealed, because of its level or that of the channel or the platform, and cannot be.
    #[error("agent {agent} cannot seal what it puts on {channel}: {reason}")]
    NotSealed {
        /// The publishing agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
        /// Why.
        reason: NotSealed,
    },
    /// The QoS asked for is not available.
    #[error(transparent)]
    Unavailable(#[from] crate::qos::UnavailableQos),
    /// The log did not take the event.
    #[error("the event is not kept: {0}")]
    NotKept(NotKept),
    /// The event was published, but not acknowledged by all.
    #[error("published, but not acknowledged by all: {reason}")]
    Unacknowledged {
        /// Why an acknowledgement will not come.
        reason: UndeliverableReason,
        /// The receivers that the event was given to.
        reach: Reach,
    },
}

/// The receivers of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The subscriptions of this process that have it.
    pub here: usize,
    /// The other processes that it was sent to.
    pub processes: usize,
    /// Groups of subscriptions. One member of each gets it. They count neither in `here` nor in `processes`.
    pub groups: usize,
    /// The place in the log, if the channel is persistent. Subscriptions that read logs count neither in `here` nor in
    /// `processes`.
    pub kept: Option<LogPlace>,
}

/// The message to publish.
pub(crate) struct Publication<'a> {
    pub(crate) publisher: &'a Arc<str>,
    pub(crate) channel: &'a ChannelPath,
    pub(crate) qos: &'a Qos,
    /// The message, with its sender filled in.
    pub(crate) message: &'a Arc<AclMessage>,
    /// The number in the log and the time of publication, if the event was kept already.
    pub(crate) kept: Option<(u64, Moment)>,
    /// The listener for acknowledgements.
    pub(crate) receipt: Option<&'a Arc<Receipt>>,
    pub(crate) turn: Turn<'a>,
}

/// A sender that has its turn, ahead of those that wait at a gate.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn<'a> {
    /// The number of the agent that publishes or answers.
    agent: u64,
    /// The gate at which the sender has waited.
    gate: Option<&'a Arc<Gate>>,
}

impl<'a> Turn<'a> {
    /// The turn of an agent that has not waited.
    pub(crate) fn of(agent: u64) -> Self {
        Self { agent, gate: None }
    }

    /// The turn of an agent that has waited at `gate`.
    pub(crate) fn at(agent: u64, gate: &'a Arc<Gate>) -> Self {
        Self {
            agent,
            gate: Some(gate),
        }
    }

    /// Whether the sender must wait behind others at this gate.
    pub(super) fn is_behind_others_at(self, gate: &Arc<Gate>) -> bool {
        !self.gate.is_some_and(|own| Arc::ptr_eq(own, gate)) && gate.is_crowded_for(self.agent)
    }
}

/// The outcome of an attempt: done, or the reason to wait.
pub(crate) enum Attempt<T> {
    Done(T),
    /// There is no room: wait at this gate.
    Full(Arc<Gate>),
    /// The message must be sealed, and the keys of these readers must be looked up first.
    Unknown(Vec<Reader>),
}

impl<T> Attempt<T> {
    /// The same attempt, with another result.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(done) => Attempt::Done(change(done)),
            Self::Full(gate) => Attempt::Full(gate),
            Self::Unknown(readers) => Attempt::Unknown(readers),
        }
    }
}

/// A request that was sent.
pub(crate) struct SentRequest {
    pub(crate) id: u64,
    pub(crate) collector: Arc<Collector>,
}
