//! The options of a subscription, and the reasons for its end.

use std::fmt;

use crate::flow::{FlowPolicy, QueueLimits};
use crate::log::Replay;
use crate::pattern::ChannelPattern;

/// The options that an agent gives for a subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionOptions {
    /// The channels.
    pub pattern: ChannelPattern,
    /// A filter expression: the subscription gets only events that fulfil it. Empty: all events.
    pub filter: String,
    /// The policy when the subscription is full.
    pub policy: FlowPolicy,
    /// How much the subscription holds.
    pub limits: QueueLimits,
    /// Whether the subscription takes events.
    pub takes_events: bool,
    /// Whether the agent answers requests. If so, the subscription gets requests.
    pub answers: bool,
    /// The name under which the subscription continues after an absence, on persistent channels.
    pub durable: Option<String>,
    /// The point from which the subscription reads persistent channels.
    pub replay: Replay,
    /// The queue group that the subscription belongs to. All subscriptions of the same group, pattern and filter share
    /// events: each event goes to one of them.
    pub group: Option<String>,
    /// How many events of one publisher's process a member of a group has at a time: the event that its agent handles,
    /// and the events that wait behind it.
    pub prefetch: u32,
}

impl SubscriptionOptions {
    /// A subscription to all events and directed messages of the channels that match, without requests.
    pub fn new(pattern: ChannelPattern) -> Self {
        Self {
            pattern,
            filter: String::new(),
            policy: FlowPolicy::default(),
            limits: QueueLimits::default(),
            takes_events: true,
            answers: false,
            durable: None,
            replay: Replay::Now,
            group: None,
            prefetch: 1,
        }
    }

    /// Whether the subscription gets the events of persistent channels from the logs, and not from their publishers.
    pub(crate) fn reads_logs(&self) -> bool {
        self.takes_events && (self.durable.is_some() || self.replay != Replay::Now)
    }

    /// The same subscription, as a member of the queue group `name`.
    #[must_use]
    pub fn grouped(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// The same subscription, with requests.
    #[must_use]
    pub fn answering(mut self) -> Self {
        self.answers = true;
        self
    }

    /// The same subscription, for the messages that pass `filter`.
    #[must_use]
    pub fn filtered(mut self, filter: impl Into<String>) -> Self {
        self.filter = filter.into();
        self
    }

    /// The same subscription, with another flow policy.
    #[must_use]
    pub fn with_policy(mut self, policy: FlowPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The same subscription, with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: QueueLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// The reason why a subscription has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The agent cancelled the subscription, or has left.
    Cancelled,
    /// The subscription was full, and its policy is to disconnect.
    Disconnected,
    /// The agent may no longer read any of the subscription's channels.
    NotPermitted,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "it was cancelled, or its agent has left",
            Self::Disconnected => "it was slower than its channel, and its policy is to disconnect",
            Self::NotPermitted => "its agent may not read its channels any more",
        })
    }
}
