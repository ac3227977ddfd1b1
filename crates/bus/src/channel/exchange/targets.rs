//! Whom something on a channel is for: worked out once for each channel, until a subscription comes or goes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sealbus_seal::permission::ChannelRight;

use super::consumer::Consumer;
use super::peer::RemoteSubscription;
use crate::channel::event::ChannelHeader;
use crate::channel::filter::ChannelFilter;
use crate::channel::path::ChannelPath;
use crate::channel::permission::ChannelPermissions;

/// A filter, compiled.
pub(crate) type Filter = ChannelFilter;

/// What a subscription may get on a channel, and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uses {
    /// Events.
    pub(super) sees: bool,
    /// Messages to its agent.
    pub(super) reads: bool,
    /// Requests, which it answers.
    pub(super) answers: bool,
}

impl Uses {
    /// What the policy leaves an agent of what it wants; `None` if nothing.
    pub(super) fn new(
        rights: &ChannelPermissions,
        agent: &str,
        channel: &ChannelPath,
        takes_events: bool,
        answers: bool,
    ) -> Option<Self> {
        let reads = rights.may(agent, ChannelRight::Subscribe, channel);
        let answers = answers && rights.may(agent, ChannelRight::Answer, channel);
        (reads || answers).then_some(Self {
            sees: takes_events && reads,
            reads,
            answers,
        })
    }
}

/// A subscription of this process that matches a channel.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) consumer: Arc<Consumer>,
    pub(super) uses: Uses,
}

impl Here {
    /// Whether it sees an event that is published now: not if it reads that from a log.
    pub(super) fn sees(&self, header: &ChannelHeader) -> bool {
        self.uses.sees && !(is_kept(header) && self.consumer.options.reads_logs())
    }
}

/// A subscription of another process that matches a channel.
#[derive(Debug)]
pub(super) struct There {
    pub(super) id: u32,
    pub(super) subscription: Arc<RemoteSubscription>,
    pub(super) uses: Uses,
}

impl There {
    /// As [`Here::sees`].
    pub(super) fn sees(&self, header: &ChannelHeader) -> bool {
        self.uses.sees && !(is_kept(header) && self.subscription.reads_logs)
    }
}

/// Whether an event is in a log.
pub(super) fn is_kept(header: &ChannelHeader) -> bool {
    header.qos.persistence.is_persistent()
}

/// The subscriptions of one other process that match a channel.
#[derive(Debug)]
pub(super) struct PeerTargets {
    pub(super) peer: u32,
    pub(super) subscriptions: Vec<There>,
    /// Those that push back and see events, if all that take events see all.
    pub(super) all: Option<Arc<[u32]>>,
}

/// Whom something on a channel is for.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// What is counted of the channel, however often its targets change.
    pub(super) counts: Arc<Counts>,
    pub(super) here: Vec<Here>,
    /// Subscriptions of this process that match and may get nothing. Another process may not know that yet.
    pub(super) barred: Vec<u32>,
    pub(super) there: Vec<PeerTargets>,
}

/// What is counted of a channel. Only the exchange counts, under its lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// What was published on it here.
    pub(super) published: AtomicU64,
    /// What was published on it here and is in a log.
    pub(super) kept: AtomicU64,
    /// What came from other processes.
    pub(super) received: AtomicU64,
    /// What could not be sent for want of room, as only best-effort events may.
    pub(super) dropped: AtomicU64,
    /// Evaluations of filters that failed for what was published on it here.
    pub(super) filter_errors: AtomicU64,
}

/// What the exchange knows of a channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) counts: Arc<Counts>,
    /// Of which state of all subscriptions the targets are.
    pub(super) generation: u64,
    pub(super) targets: Arc<Targets>,
}
