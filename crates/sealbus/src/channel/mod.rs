//! Channels: agents talk about a subject without knowing who listens.

mod last;
mod replies;
mod subscription;

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{NotKept, Outbox};
use sealbus_channels::Channels;
use sealbus_fipa::AclMessage;

use crate::trace;

pub use last::LastEvents;
pub use replies::{ChannelAnswers, ChannelReplies};
pub use sealbus_channels::{
    AddressError, ChannelAddress, ChannelFilter, ChannelHeader, ChannelPath, ChannelPattern,
    DamagedLog, Downgrade, Ended, EventKey, FilterError, FlowPolicy, LastError, LogPlace,
    LogRetention, Mechanism, Moment, PathError, Persistence, Priority, PublishError, Qos, QosError,
    QosOverride, QueueCounters, QueueLimits, Reach, Reliability, Replay, RequestOptions,
    SubscribeError, Time, UnavailableQos,
};
pub use subscription::{ChannelEvent, ChannelSubscription, Subscribing};

/// The reason why a channel cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The text is not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The text is not a QoS.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// The platform's transport cannot provide the QoS.
    #[error(transparent)]
    Unavailable(#[from] UnavailableQos),
    /// The QoS asks for a level weaker than the platform's or the channel's.
    #[error(transparent)]
    Downgrade(#[from] Downgrade),
}

/// A channel as an agent uses it, made by [`Voice::channel`](crate::Voice::channel).
///
/// The channel sends in the agent's name until the agent leaves. It may be cloned and handed to other tasks.
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
    /// Opens the channel with this path or address, for the agent of `outbox` on this platform.
    ///
    /// # Errors
    /// As [`Voice::channel`](crate::Voice::channel).
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

    /// The defaults for messages.
    pub fn qos(&self) -> &Qos {
        &self.qos
    }

    /// The agent named in the address, if there is one.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The same channel with this QoS for messages without a QoS of their own.
    ///
    /// # Errors
    /// [`ChannelError::Unavailable`], which names everything that the platform's transport cannot provide.
    /// [`ChannelError::Downgrade`] for a level weaker than the channel's or the platform's.
    pub fn with_qos(mut self, change: QosOverride) -> Result<Self, ChannelError> {
        self.qos = self.changed(&change)?;
        let transport = self.outbox.bus().transport();
        let name = transport.map_or("in-process", |transport| transport.name());
        self.qos
            .check_against(&self.channels.capabilities(), name)?;
        Ok(self)
    }

    /// The QoS of a message with this change.
    fn changed(&self, change: &QosOverride) -> Result<Qos, Downgrade> {
        self.qos.raised(change, self.outbox.bus().level())
    }

    /// Publishes an event, which reaches every agent that has subscribed to the channel. Waits while a subscription
    /// that pushes back has no room, and then for the acknowledgement that the QoS asks for.
    ///
    /// # Errors
    /// [`PublishError`]. A later failure comes to the agent as a `failure` message, unless the QoS is best-effort.
    pub async fn publish(
        &self,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        self.publish_with(message, QosOverride::default()).await
    }

    /// Like [`publish`](Self::publish), for a message with a QoS of its own.
    ///
    /// # Errors
    /// As `publish`.
    pub async fn publish_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Reach, PublishError> {
        let qos = self.changed(&change)?;
        let (message, _sending) = self.traced("publish", message);
        self.channels
            .publish(&self.outbox, &self.path, &qos, message)
            .await
    }

    /// Like [`publish_with`](Self::publish_with), but never waits. Returns `None` if it would have to wait.
    ///
    /// # Errors
    /// As `publish_with`.
    pub fn try_publish_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Option<Reach>, PublishError> {
        let qos = self.changed(&change)?;
        if qos.acknowledgement.is_some() {
            return Ok(None);
        }
        let (message, _sending) = self.traced("publish", message);
        self.channels
            .try_publish(&self.outbox, &self.path, &qos, message)
    }

    /// Sends to one agent on the channel, named as a local name or `name@platform`.
    ///
    /// # Errors
    /// [`PublishError::NotOnChannel`] if the agent has no subscription there. Otherwise as [`publish`](Self::publish).
    pub async fn send(
        &self,
        receiver: &str,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        self.send_with(receiver, message, QosOverride::default())
            .await
    }

    /// Like [`send`](Self::send), for a message with a QoS of its own.
    ///
    /// # Errors
    /// As `send`.
    pub async fn send_with(
        &self,
        receiver: &str,
        message: impl Into<Arc<AclMessage>>,
        change: QosOverride,
    ) -> Result<Reach, PublishError> {
        let qos = self.changed(&change)?;
        let name = if receiver.contains('@') {
            receiver.to_owned()
        } else {
            format!("{receiver}@{}", self.platform)
        };
        let (message, _sending) = self.traced("send", message);
        self.channels
            .send(&self.outbox, &self.path, &name, &qos, message)
            .await
    }

    /// Asks all agents that answer on the channel, and waits for answers for at most `within`.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). A request without any answer is not an error.
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

    /// Like [`request`](Self::request), but ends after a given number of answers, or uses another QoS than the
    /// channel's.
    ///
    /// # Errors
    /// As `request`.
    pub async fn request_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        options: RequestOptions,
        change: QosOverride,
    ) -> Result<ChannelReplies, PublishError> {
        let qos = self.changed(&change)?;
        let (message, _sending) = self.traced("request", message);
        let replies = self
            .channels
            .request(&self.outbox, &self.path, &qos, message, options)
            .await?;
        Ok(ChannelReplies::new(replies))
    }

    /// Asks all nodes for the last event of each value of a key, such as `properties.sensor`, among the events that this
    /// channel keeps and that fulfil a [filter](super::channel::ChannelFilter) (empty: every event). Waits for `within` at
    /// most. A [subscription](Subscribing::since) with [`Replay::LastPerKey`] begins with the same events.
    ///
    /// # Errors
    /// [`LastError`]: among others, if the channel is transient and keeps nothing.
    pub async fn last(
        &self,
        key: &EventKey,
        filter: &str,
        within: Duration,
    ) -> Result<LastEvents, LastError> {
        let last = self
            .channels
            .last(&self.outbox, &self.path, &self.qos, key, filter, within);
        Ok(last.await?.into())
    }

    /// Sets the retention of this channel, if it is persistent, on an embedded platform. On other platforms the
    /// manifest sets it.
    ///
    /// # Errors
    /// [`NotKept`], for example if the manifest sets the retention.
    pub async fn retain(&self, retention: LogRetention) -> Result<(), NotKept> {
        self.channels.retain(&self.path, retention).await
    }

    fn traced(
        &self,
        operation: &'static str,
        message: impl Into<Arc<AclMessage>>,
    ) -> (Arc<AclMessage>, trace::Sending) {
        trace::publishing(self.outbox.name(), operation, self.path.as_str(), message)
    }

    /// Subscribes to this channel; see [`Subscribing`].
    pub fn subscribe(&self) -> Subscribing {
        Subscribing::new(self.outbox.clone(), ChannelPattern::from(&self.path))
    }
}
