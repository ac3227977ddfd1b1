//! Channels: talking to whoever cares about a subject, without knowing who that is.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll};
use std::time::Duration;

use sealbus_bus::{NotKept, Outbox};
use sealbus_channels::frame::Replay;
use sealbus_channels::{
    AddressError, ChannelAddress, ChannelHeader, ChannelPath, ChannelPattern, Channels, DamagedLog,
    Ended, FlowPolicy, LogRetention, Mechanism, PathError, PublishError, Qos, QosError,
    QosOverride, QueueCounters, QueueLimits, Reach, ReceivedEvent, RequestOptions, SubscribeError,
    SubscriptionOptions, UnavailableQos,
};
use sealbus_fipa::{AclMessage, Content, Performative};

use crate::message::Message;

/// A channel cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The text is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The text is no QoS.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// The platform's transport cannot give the QoS.
    #[error(transparent)]
    Unavailable(#[from] UnavailableQos),
}

/// A channel as an agent uses it, made by [`Context::channel`](crate::Context::channel).
///
/// It talks in the agent's name until the agent leaves, and may be cloned and handed to other tasks.
///
/// ```no_run
/// # use std::time::Duration;
/// # use sealbus::{AclMessage, AgentResult, Context, Performative};
/// # async fn hook(context: &mut Context) -> AgentResult {
/// let offers = context.channel("/offers/tea")?;
/// offers.publish(AclMessage::new(Performative::Inform).with_content("fresh leaves")).await?;
///
/// let call = AclMessage::new(Performative::Cfp).with_content("10 kg");
/// let answers = offers.request(call, Duration::from_secs(2)).await?.all().await;
/// println!("{} offers; no word from {:?}", answers.replies.len(), answers.missing);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    outbox: Arc<Outbox>,
    channels: Channels,
    platform: String,
    path: ChannelPath,
    qos: Qos,
    agent: Option<String>,
}

impl Channel {
    /// The channel with this path or address, for the agent of `outbox` on this platform.
    ///
    /// # Errors
    /// As [`Context::channel`](crate::Context::channel).
    pub fn open(outbox: Arc<Outbox>, platform: &str, address: &str) -> Result<Self, ChannelError> {
        let channels = Channels::of(outbox.bus());
        let (path, qos, agent) = if address.starts_with('/') {
            (ChannelPath::new(address)?, QosOverride::default(), None)
        } else {
            let address: ChannelAddress = address.parse()?;
            (address.channel, address.qos, address.agent)
        };
        let channel = Self {
            qos: channels.qos_of(&path),
            outbox,
            channels,
            platform: platform.to_owned(),
            path,
            agent,
        };
        channel.with_qos(qos)
    }

    /// The channel's path.
    pub fn path(&self) -> &ChannelPath {
        &self.path
    }

    /// What holds for messages that do not say otherwise.
    pub fn qos(&self) -> &Qos {
        &self.qos
    }

    /// The agent that the address named, if it named one.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The channel with this QoS for messages that do not say otherwise.
    ///
    /// # Errors
    /// [`ChannelError::Unavailable`], which names all that the platform's transport cannot give.
    pub fn with_qos(mut self, change: QosOverride) -> Result<Self, ChannelError> {
        self.qos = self.qos.with(&change);
        let transport = self.outbox.bus().transport();
        let name = transport.map_or("in-process", |transport| transport.name());
        self.qos
            .check_against(&self.channels.capabilities(), name)?;
        Ok(self)
    }

    /// Publishes an event, which every agent sees that has subscribed to the channel. Waits while a subscription that pushes
    /// back has no room, and for the acknowledgement that the QoS asks for.
    ///
    /// # Errors
    /// [`PublishError`]. What goes wrong later comes to the agent as a `failure` message, unless the QoS is best-effort.
    pub async fn publish(
        &self,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        self.publish_with(message, QosOverride::default()).await
    }

    /// [`publish`](Self::publish), where this message wants something else than its channel.
    ///
    /// # Errors
    /// As `publish`.
    pub async fn publish_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Reach, PublishError> {
        let qos = self.qos.with(&change);
        self.channels
            .publish(&self.outbox, &self.path, &qos, message)
            .await
    }

    /// [`publish_with`](Self::publish_with) if it need not wait for anything; `None` if it must.
    ///
    /// # Errors
    /// As `publish_with`.
    pub fn try_publish_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Option<Reach>, PublishError> {
        let qos = self.qos.with(&change);
        if qos.acknowledgement.is_some() {
            return Ok(None);
        }
        self.channels
            .try_publish(&self.outbox, &self.path, &qos, message)
    }

    /// Sends to one agent on the channel: a local name, or `name@platform`.
    ///
    /// # Errors
    /// [`PublishError::NotOnChannel`] if it has no subscription there, else as [`publish`](Self::publish).
    pub async fn send(
        &self,
        receiver: &str,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        self.send_with(receiver, message, QosOverride::default())
            .await
    }

    /// [`send`](Self::send), where this message wants something else than its channel.
    ///
    /// # Errors
    /// As `send`.
    pub async fn send_with(
        &self,
        receiver: &str,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Reach, PublishError> {
        let qos = self.qos.with(&change);
        let name = if receiver.contains('@') {
            receiver.to_owned()
        } else {
            format!("{receiver}@{}", self.platform)
        };
        self.channels
            .send(&self.outbox, &self.path, &name, &qos, message)
            .await
    }

    /// Asks everyone on the channel who answers, and waits for answers for `within` at most.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). That nobody answers is none.
    pub async fn request(
        &self,
        message: impl Into<Arc<AclMessage>>,
        within: Duration,
    ) -> Result<ChannelReplies, PublishError> {
        self.request_with(
            message,
            RequestOptions::within(within),
            QosOverride::default(),
        )
        .await
    }

    /// [`request`](Self::request), over after so many answers, or with another QoS than the channel's.
    ///
    /// # Errors
    /// As `request`.
    pub async fn request_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        options: RequestOptions,
        change: QosOverride,
    ) -> Result<ChannelReplies, PublishError> {
        let qos = self.qos.with(&change);
        let replies = self
            .channels
            .request(&self.outbox, &self.path, &qos, message, options)
            .await?;
        Ok(ChannelReplies(replies))
    }

    /// Has so much kept of this channel, if it is persistent: on an embedded platform. Others have it in their manifest.
    ///
    /// # Errors
    /// [`NotKept`], such as that the manifest says how much is kept.
    pub async fn retain(&self, retention: LogRetention) -> Result<(), NotKept> {
        self.channels.retain(&self.path, retention).await
    }

    /// Subscribes to this channel; see [`Subscribing`].
    pub fn subscribe(&self) -> Subscribing {
        Subscribing::new(self.outbox.clone(), ChannelPattern::from(&self.path))
    }
}

/// A subscription in the making: all events and directed messages of the channels meant, but for what is said
/// otherwise.
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

    /// Only what fulfils this expression; see [`ChannelFilter`](crate::ChannelFilter). It is evaluated at the sender's
    /// side.
    #[must_use]
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = expression.into();
        self
    }

    /// What happens when events come faster than they are taken.
    #[must_use]
    pub fn policy(mut self, policy: FlowPolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// How much may wait before the policy acts.
    #[must_use]
    pub fn limits(mut self, limits: QueueLimits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Requests to everyone too: the agent is counted among those who answer.
    #[must_use]
    pub fn answering(mut self) -> Self {
        self.options.answers = true;
        self
    }

    /// Only requests, no events.
    #[must_use]
    pub fn only_requests(mut self) -> Self {
        self.options.answers = true;
        self.options.takes_events = false;
        self
    }

    /// Goes on where the subscription of this name stopped, on persistent channels; the first time it begins now, or
    /// [`since`](Self::since).
    ///
    /// An event counts as dealt with when the agent asks for the next one, or ends the subscription. If its process is
    /// killed before, the event comes again, and says so: [`ChannelEvent::may_be_again`].
    #[must_use]
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.options.durable = Some(name.into());
        self
    }

    /// Begins with what was published before, on persistent channels; [`Replay::Last`] and [`Replay::From`] count for each
    /// channel on each node, which keeps what its own agents publish: over several nodes there are more.
    #[must_use]
    pub fn since(mut self, replay: Replay) -> Self {
        self.options.replay = replay;
        self
    }

    /// Subscribes.
    ///
    /// # Errors
    /// [`SubscribeError`], such as a wrong filter with the place of its fault.
    pub fn open(self) -> Result<ChannelSubscription, SubscribeError> {
        let channels = Channels::of(self.outbox.bus());
        let subscription = channels.subscribe(&self.outbox, self.options)?;
        Ok(ChannelSubscription(subscription))
    }
}

/// What an agent gets from the channels it subscribed to; dropping it ends the subscription.
#[derive(Debug)]
pub struct ChannelSubscription(sealbus_channels::Subscription);

impl ChannelSubscription {
    /// Waits for the next event, message or request. `None`: the subscription has [ended](Self::ended). Safe to
    /// cancel.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        std::future::poll_fn(|waiting| self.poll_next(waiting)).await
    }

    /// The next one, if one is there.
    pub fn try_next(&self) -> Option<ChannelEvent> {
        self.0.try_recv().map(ChannelEvent::new)
    }

    /// As [`next`](Self::next), for those who write futures themselves. Only the last who polls is woken.
    pub fn poll_next(&self, waiting: &mut Waiting<'_>) -> Poll<Option<ChannelEvent>> {
        let polled = self.0.poll_recv(waiting);
        polled.map(|received| received.map(ChannelEvent::new))
    }

    /// Answers a request that came from this subscription; each once.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if it was answered before or too late, and what hinders publishing.
    pub async fn answer(
        &self,
        request: &ChannelEvent,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), PublishError> {
        let reply = request.create_reply(performative).with_content(content);
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
        self.0.reply(&request.received, reply).await
    }

    /// Lets the requester know that this agent does not answer, so that it need not wait.
    pub fn decline(&self, request: &ChannelEvent) {
        self.0.decline(&request.received);
    }

    /// Why the subscription has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.0.ended()
    }

    /// The channels subscribed to.
    pub fn pattern(&self) -> &ChannelPattern {
        &self.0.options().pattern
    }

    /// What happened so far.
    pub fn counters(&self) -> QueueCounters {
        self.0.counts().2
    }

    /// The logs of persistent channels that it cannot read further, since they are damaged.
    pub fn damaged(&self) -> Vec<DamagedLog> {
        self.0.damaged()
    }
}

/// What came on a channel: a [`Message`] to read, and the channel's header.
#[derive(Clone, Debug)]
pub struct ChannelEvent {
    received: ReceivedEvent,
    message: Message,
    /// Which of the subscriptions that the agent's hooks listen to it came from.
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

    /// The channel it came on.
    pub fn channel(&self) -> &ChannelPath {
        &self.received.header.channel
    }

    /// Whether it is an event, a message to this agent, a request, or a reply.
    pub fn mechanism(&self) -> &Mechanism {
        &self.received.header.mechanism
    }

    /// Whether it is a request, which can be answered.
    pub fn is_request(&self) -> bool {
        matches!(self.mechanism(), Mechanism::Request { .. })
    }

    /// The channel's header: QoS, number, times.
    pub fn header(&self) -> &ChannelHeader {
        &self.received.header
    }

    /// The node from whose log it was read, if it was. With it, and its channel, the number in the
    /// [header](Self::header) is its own for ever.
    pub fn log(&self) -> Option<&str> {
        let logged = self.header().logged.as_ref();
        logged.map(|logged| &*logged.node)
    }

    /// Whether the agent may have had this event before, by the same durable subscription in a process that was killed.
    pub fn may_be_again(&self) -> bool {
        let logged = self.header().logged.as_ref();
        logged.is_some_and(|logged| logged.again)
    }

    /// So many events before this one were not kept long enough to be read: the channel's retention cut them off.
    pub fn missed(&self) -> u64 {
        let logged = self.header().logged.as_ref();
        logged.map_or(0, |logged| logged.missed)
    }

    /// The message, with what is known about its sender.
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

/// The answers to a request, as they come; dropping it ends the request.
#[derive(Debug)]
pub struct ChannelReplies(sealbus_channels::Replies);

/// All answers to a request, and who gave none.
#[derive(Clone, Debug)]
pub struct ChannelAnswers {
    /// The answers, in the order they came.
    pub replies: Vec<ChannelEvent>,
    /// The agents that were asked and did not answer: they declined, are gone, or took too long.
    pub missing: Vec<Arc<str>>,
}

impl ChannelReplies {
    /// Waits for the next answer. `None`: all have answered, enough have, or the time is over. Safe to cancel.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        self.0.next().await.map(ChannelEvent::new)
    }

    /// Waits until the request is over, and gives the answers that were not taken yet.
    pub async fn all(mut self) -> ChannelAnswers {
        let mut replies = Vec::new();
        while let Some(reply) = self.next().await {
            replies.push(reply);
        }
        ChannelAnswers {
            replies,
            missing: self.missing(),
        }
    }

    /// Who was asked and has not answered; complete once [`next`](Self::next) has given `None`.
    pub fn missing(&self) -> Vec<Arc<str>> {
        self.0.unanswered()
    }
}
