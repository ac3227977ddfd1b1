//! Subscriptions and the events they bring.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use sealbus_bus::Outbox;
use sealbus_channels::{Channels, ReceivedEvent, SubscriptionOptions};
use sealbus_fipa::{AclMessage, Content, Performative};

use super::{
    ChannelHeader, ChannelPath, ChannelPattern, DamagedLog, Ended, FlowPolicy, Mechanism,
    PublishError, QueueCounters, QueueLimits, Replay, SubscribeError,
};
use crate::body::WrittenBody;
use crate::message::Message;
use crate::trace;

/// A subscription in the making. By default it takes all events and directed messages of its channels.
#[derive(Clone, Debug)]
pub struct Subscribing {
    outbox: Arc<Outbox>,
    options: SubscriptionOptions,
}

impl Subscribing {
    /// Begins a subscription of the agent of `outbox` to all channels of a pattern.
    pub fn new(outbox: Arc<Outbox>, pattern: ChannelPattern) -> Self {
        Self {
            outbox,
            options: SubscriptionOptions::new(pattern),
        }
    }

    /// Takes only events that fulfil this expression; see [`ChannelFilter`](super::ChannelFilter). The expression is
    /// evaluated at the sender.
    #[must_use]
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = expression.into();
        self
    }

    /// Sets the policy for events that come faster than they are taken.
    #[must_use]
    pub fn policy(mut self, policy: FlowPolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// Sets how much may wait before the policy acts.
    #[must_use]
    pub fn limits(mut self, limits: QueueLimits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Takes requests to everyone too. The agent then counts among the agents that answer.
    #[must_use]
    pub fn answering(mut self) -> Self {
        self.options.answers = true;
        self
    }

    /// Takes only requests, no events.
    #[must_use]
    pub fn only_requests(mut self) -> Self {
        self.options.answers = true;
        self.options.takes_events = false;
        self
    }

    /// Makes the subscription durable on persistent channels. It goes on where the subscription of this name stopped.
    /// The first time it begins now, or at [`since`](Self::since).
    ///
    /// An event counts as handled when the agent asks for the next one, calls [`ChannelSubscription::settle`], or returns
    /// from [`on_event`](crate::Agent::on_event) without an error. If the subscription or its process ends before, or the
    /// agent moves, the event comes again. [`ChannelEvent::may_be_again`] is then true.
    #[must_use]
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.options.durable = Some(name.into());
        self
    }

    /// Begins with events that were published before, on persistent channels. [`Replay::Last`] and [`Replay::From`]
    /// count events for each channel on each node. A node keeps the events of its own agents, so several nodes together
    /// give more events.
    #[must_use]
    pub fn since(mut self, replay: Replay) -> Self {
        self.options.replay = replay;
        self
    }

    /// Shares the events with the other members of a queue group, such as `workers`: each event goes to one of them, the
    /// least busy. All subscriptions of the same name, pattern and filter are a group, even in different processes.
    /// Other subscriptions to the channel still get every event.
    ///
    /// An event counts as handled when the agent asks for the next one, or calls [`ChannelSubscription::settle`]. If
    /// the subscription or its process ends before, the event goes to another member. [`ChannelEvent::may_be_again`] is
    /// then true.
    ///
    /// A group cannot be [durable](Self::durable), nor begin [before now](Self::since), nor drop events.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.options.group = Some(name.into());
        self
    }

    /// How many events of each publisher's process a member of a [group](Self::group) has at a time: the event that it
    /// handles, and the events that wait behind it. The default, 1, spreads the events best. A higher number saves the
    /// wait between two short events.
    #[must_use]
    pub fn prefetch(mut self, events: u32) -> Self {
        self.options.prefetch = events;
        self
    }

    /// Subscribes.
    ///
    /// # Errors
    /// [`SubscribeError`]. For a faulty filter it names the place of the fault.
    pub fn open(self) -> Result<ChannelSubscription, SubscribeError> {
        let channels = Channels::of(self.outbox.bus());
        let subscription = channels.subscribe(&self.outbox, self.options)?;
        Ok(ChannelSubscription {
            subscription,
            agent: self.outbox.name().clone(),
        })
    }
}

/// The events of an agent from the channels it subscribed to. Dropping this value ends the subscription.
#[derive(Debug)]
pub struct ChannelSubscription {
    subscription: sealbus_channels::Subscription,
    /// Full name of the agent.
    agent: Arc<str>,
}

impl ChannelSubscription {
    /// Waits for the next event, message or request. Returns `None` when the subscription has [ended](Self::ended).
    /// Safe to cancel.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        std::future::poll_fn(|waiting| self.poll_next(waiting)).await
    }

    /// The next event, message or request, if one is there.
    pub fn try_next(&self) -> Option<ChannelEvent> {
        self.subscription.try_recv().map(ChannelEvent::new)
    }

    /// Like [`next`](Self::next), for callers that write futures themselves. Only the task that polled last is woken.
    pub fn poll_next(&self, waiting: &mut TaskContext<'_>) -> Poll<Option<ChannelEvent>> {
        let polled = self.subscription.poll_recv(waiting);
        polled.map(|received| received.map(ChannelEvent::new))
    }

    /// Waits until an event can be taken, without taking it. False: the subscription has [ended](Self::ended), and
    /// nothing is left. For callers that write futures themselves; only the task that polled last is woken.
    pub fn poll_ready(&self, waiting: &mut TaskContext<'_>) -> Poll<bool> {
        self.subscription.poll_ready(waiting)
    }

    /// Waits until the other processes whose agents use channels have heard of this one, which takes a moment for the first
    /// subscription of a process. From then on, each event of a publisher reaches this subscription. Returns false if the
    /// platform does not say so within 30 seconds; the subscription then goes on, and is listed later.
    pub async fn listed(&self) -> bool {
        self.subscription.listed().await
    }

    /// Whether [`listed`](Self::listed) would not wait.
    pub fn is_listed(&self) -> bool {
        self.subscription.is_listed()
    }

    /// Tells that the agent has handled all events that it took. Asking for the next event means the same. If a durable
    /// subscription ends before, the events that it took last come again, marked, in the next subscription of its name.
    ///
    /// An agent that [moves](crate::Agent::save) gets nothing more from its subscriptions once `save` is called. A
    /// durable subscription goes on behind the events handled by then, wherever the agent is. With this call, a task
    /// that handles events beside the hooks tells that `save` may include its latest event.
    pub fn settle(&self) {
        self.subscription.settle();
    }

    /// Answers a request that came from this subscription. Each request can be answered once.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if the request was answered before or the answer comes too late; otherwise the errors
    /// of publishing.
    pub async fn answer(
        &self,
        request: &ChannelEvent,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), PublishError> {
        let content: Content = content.into();
        let reply = WrittenBody::from(content).answer(&request.view(), performative);
        self.answer_with(request, reply).await
    }

    /// Answers a request with a message made by [`AclMessage::create_reply`].
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn answer_with(
        &self,
        request: &ChannelEvent,
        reply: impl Into<Arc<AclMessage>>,
    ) -> Result<(), PublishError> {
        let channel = request.channel().as_str();
        let (reply, _sending) = trace::publishing(&self.agent, "answer", channel, reply);
        self.subscription.reply(&request.received, reply).await
    }

    /// Tells the requester that this agent does not answer, so that the requester need not wait.
    pub fn decline(&self, request: &ChannelEvent) {
        self.subscription.decline(&request.received);
    }

    /// Why the subscription has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.subscription.ended()
    }

    /// The channels subscribed to.
    pub fn pattern(&self) -> &ChannelPattern {
        &self.subscription.options().pattern
    }

    /// The counters so far.
    pub fn counters(&self) -> QueueCounters {
        self.subscription.counts().2
    }

    /// The logs of persistent channels that the subscription cannot read further because they are damaged.
    pub fn damaged(&self) -> Vec<DamagedLog> {
        self.subscription.damaged()
    }
}

/// An event from a channel: a [`Message`] to read, together with the channel's header.
#[derive(Clone, Debug)]
pub struct ChannelEvent {
    received: ReceivedEvent,
    message: Message,
    /// The subscription of the agent's hooks that the event came from.
    pub(crate) listener: Option<u64>,
}

impl ChannelEvent {
    pub(crate) fn new(received: ReceivedEvent) -> Self {
        Self {
            message: Message::new(received.message.clone()),
            received,
            listener: None,
        }
    }

    /// The channel that the event came on.
    pub fn channel(&self) -> &ChannelPath {
        &self.received.header.channel
    }

    /// Whether it is an event, a message to this agent, a request, or a reply.
    pub fn mechanism(&self) -> &Mechanism {
        &self.received.header.mechanism
    }

    /// Whether this is a request, which can be answered.
    pub fn is_request(&self) -> bool {
        matches!(self.mechanism(), Mechanism::Request { .. })
    }

    /// The channel's header: QoS, number, times.
    pub fn header(&self) -> &ChannelHeader {
        &self.received.header
    }

    /// The node from whose log the event was read, if it was read from one. Together with the node and the channel, the
    /// number in the [header](Self::header) is unique for ever.
    pub fn log(&self) -> Option<&str> {
        let logged = self.header().logged.as_ref();
        logged.map(|logged| &*logged.node)
    }

    /// Whether an agent may have had this event before: this agent, through a durable subscription of the same name that
    /// ended before the event was noted as handled; or another member of the [group](Subscribing::group), which ended
    /// before it had handled the event.
    pub fn may_be_again(&self) -> bool {
        self.header().may_be_again
    }

    /// The number of events before this one that were not kept long enough to be read. The channel's retention cut them
    /// off.
    pub fn missed(&self) -> u64 {
        let logged = self.header().logged.as_ref();
        logged.map_or(0, |logged| logged.missed)
    }

    /// The message, with the facts known about its sender.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The message on its own.
    pub fn into_message(self) -> Message {
        self.message
    }
}

impl Deref for ChannelEvent {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

/// `event on /offers/tea: inform from seller-1@factory`.
impl fmt::Display for ChannelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        write!(
            f,
            "{} on {}: {}",
            header.mechanism, header.channel, self.message
        )
    }
}
