//! The part of a context that any task of the agent may use.

use std::fmt;
use std::sync::Arc;

use sealbus_bus::{
    Conversation, Conversations, Delivery, Permit, ReceivedMessage, SendError, TrySendError,
};
use sealbus_fipa::{AclMessage, Aid, AidError, Content, Performative};
use sealbus_process::{AgentSender, Process, Wishes};

use super::error::ReceiveError;
use crate::body::WrittenBody;
use crate::channel::{Channel, ChannelError, Subscribing};
use crate::clock::Clock;
use crate::lingering::Lingering;
use crate::message::Message;
use crate::trace;
use sealbus_channels::{ChannelPattern, PathError};

/// The handle with which an agent talks: it sends, asks, begins conversations and finds others. Tasks beside the hooks
/// may use this part of a [`Context`](crate::Context). [`voice`](Voice::voice) returns it.
///
/// ```no_run
/// # use std::time::Duration;
/// # use sealbus::{AclMessage, AgentResult, Context, Voice};
/// async fn order(voice: Voice) -> AgentResult {
///     let tea = AclMessage::new(sealbus::Performative::Request).with_receiver(voice.peer("waiter")?);
///     println!("{}", voice.request(tea, Duration::from_secs(5)).await?.text()?);
///     Ok(())
/// }
/// # async fn hook(context: &mut Context) -> AgentResult {
/// tokio::spawn(order(context.voice()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Voice {
    pub(crate) sender: AgentSender,
    pub(crate) conversations: Conversations,
    pub(crate) wishes: Wishes,
    pub(crate) clock: Clock,
    pub(crate) process: Process,
    /// The conversations that have ended but still take late messages.
    pub(crate) lingering: Lingering,
    /// Whether a wait ends when the agent must stop. It does, except during teardown.
    pub(super) heeds_stop: bool,
}

impl Voice {
    /// The agent's local name: `seller-1` of `seller-1@factory`.
    pub fn name(&self) -> &str {
        self.aid().local_name()
    }

    /// The agent's identifier, which is the address for others.
    pub fn aid(&self) -> &Aid {
        self.sender.aid()
    }

    /// The platform's name: `factory` of `seller-1@factory`.
    pub fn platform(&self) -> &str {
        self.process.platform()
    }

    /// The identifier of another agent. A local name stands for an agent of this platform, and `name@platform` for an
    /// agent of another.
    pub fn peer(&self, name: &str) -> Result<Aid, AidError> {
        self.process.peer(name)
    }

    /// Whether the platform's rules let this agent write to `other`. The agent may still be absent, or refuse.
    pub fn may_write_to(&self, other: &Aid) -> bool {
        let outbox = self.sender.outbox();
        let permitted = outbox
            .bus()
            .permits(&mut Permit::default(), &self.aid().name, &other.name);
        permitted.is_ok()
    }

    /// The agent's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A copy of this handle, for a task.
    pub fn voice(&self) -> Voice {
        self.clone()
    }

    /// An agent that exists on every platform.
    pub(crate) fn system_agent(&self, name: &str) -> Aid {
        let mut aid = self.aid().clone();
        aid.name = format!("{name}@{}", self.platform());
        aid
    }

    /// The agent's name, for errors.
    pub(crate) fn agent(&self) -> String {
        self.aid().name.clone()
    }

    // ----- sending

    /// Sends a message to each of its receivers, and waits while one of their mailboxes is full. The wait has no limit.
    /// `tokio::time::timeout` sets one, and [`try_send`](Self::try_send) does not wait.
    ///
    /// `send` fills in `sender`, which cannot be another agent. When `send` returns, the message is accepted. From then
    /// on each receiver gets it once and in order, or a `failure` from `ams` names the receiver that did not get it,
    /// and the reason.
    pub async fn send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), SendError> {
        self.clock.note();
        let (message, _sending) = trace::sending(self.aid(), message);
        self.sender.send(message).await
    }

    /// Sends as `delivery` says: kept on disk for absent receivers, until an expiry, or with a receipt.
    ///
    /// ```no_run
    /// # use std::time::{Duration, SystemTime};
    /// # use sealbus::{Acknowledgement, AclMessage, AgentResult, Context, Delivery};
    /// # async fn hook(context: &mut Context, order: AclMessage) -> AgentResult {
    /// let delivery = Delivery::persistent()
    ///     .until(SystemTime::now() + Duration::from_secs(3600))
    ///     .with_receipt(Acknowledgement::ReceiverAgent);
    /// context.send_with(order, delivery).await?;
    /// # Ok(()) }
    /// ```
    pub async fn send_with(
        &self,
        message: AclMessage,
        delivery: Delivery,
    ) -> Result<(), SendError> {
        let (message, _sending) = trace::sending(self.aid(), message);
        self.sender.send_with(message, delivery).await
    }

    /// Sends without waiting. A full mailbox is an error, [`TrySendError::Full`].
    pub fn try_send(&self, message: AclMessage) -> Result<(), TrySendError> {
        self.clock.note();
        let (message, _sending) = trace::sending(self.aid(), message);
        self.sender.try_send(message)
    }

    /// Sends many messages in their order, which is faster than one after the other. Stops at the first error; the
    /// messages before it are sent.
    pub async fn send_many(
        &self,
        messages: impl IntoIterator<Item = AclMessage>,
    ) -> Result<(), SendError> {
        let messages = messages.into_iter().filter_map(|message| {
            self.clock.note();
            let (message, _sending) = trace::sending(self.aid(), message);
            self.sender.pass(message)
        });
        self.sender.outbox().send_many(messages).await
    }

    /// Answers a message in its conversation. The answer goes to the agent that the message names for replies.
    ///
    /// An agent that asks must make room for the answers. If its mailbox is full, answers wait for 10 seconds in all,
    /// plus a tenth of the time that passes. After that the error is [`SendError::AnswerNotTaken`].
    ///
    /// To set more than the content, make the answer with [`AclMessage::create_reply`] and [`send`](Self::send) it.
    pub async fn reply(
        &self,
        message: &Message,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), SendError> {
        self.clock.note();
        let content: Content = content.into();
        let answer = WrittenBody::from(content).answer(&message.view(), performative);
        let (answer, _sending) = trace::sending(self.aid(), answer);
        self.sender.answer(answer).await
    }

    /// A sender for other tasks. It sends in this agent's name until the agent leaves.
    pub fn sender(&self) -> AgentSender {
        self.sender.clone()
    }

    /// Sends a last message, without waiting.
    pub(crate) fn tell(&self, message: impl Into<Arc<AclMessage>>) {
        self.clock.note();
        tell(&self.sender, message);
    }

    /// Waits for a message of a conversation. Safe to cancel.
    pub(crate) async fn receive_in(
        &self,
        conversation: &Conversation,
        matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Result<ReceivedMessage, ReceiveError> {
        let received = if self.heeds_stop {
            tokio::select! {
                biased;
                received = conversation.receive_matching(matches) => received,
                () = self.wishes.stop_wished() => {
                    return Err(ReceiveError::Stopping { agent: self.agent() });
                }
            }
        } else {
            conversation.receive_matching(matches).await
        };
        self.clock.note();
        received.ok_or_else(|| ReceiveError::Closed {
            agent: self.agent(),
        })
    }

    // ----- channels

    /// Opens the channel with this path, such as `/offers/tea`, or with this address, such as
    /// `sealbus:at-least-once,priority=7:///offers/tea/`.
    ///
    /// # Errors
    /// [`ChannelError`], with the place of the fault in the text, or with everything that the platform's transport
    /// cannot provide.
    pub fn channel(&self, address: &str) -> Result<Channel, ChannelError> {
        Channel::open(self.sender.outbox(), self.platform(), address)
    }

    /// Begins a subscription to all channels of a pattern. In a pattern `*` stands for one level and `**` for the rest.
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let mut cheap = context.subscribe("/offers/**")?.filter("properties.price < 10").open()?;
    /// while let Some(offer) = cheap.next().await {
    ///     println!("{} on {}: {}", offer.sender_name(), offer.channel(), offer.text()?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the text is not a pattern.
    pub fn subscribe(&self, pattern: &str) -> Result<Subscribing, PathError> {
        let pattern = ChannelPattern::new(pattern)?;
        Ok(Subscribing::new(self.sender.outbox(), pattern))
    }
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voice")
            .field("agent", &self.aid().name)
            .finish_non_exhaustive()
    }
}

/// Sends a last message, without waiting and without a chance to report a failure.
pub(crate) fn tell(sender: &AgentSender, message: impl Into<Arc<AclMessage>>) {
    let (message, _sending) = trace::sending(sender.aid(), message);
    sender.post(message);
}
