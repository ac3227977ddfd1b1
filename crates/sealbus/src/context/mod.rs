//! The agent's context: sending, receiving, asking, finding others, leaving.

mod arrival;
mod error;
mod voice;

use std::time::Duration;

use sealbus_bus::{Delivery, ReceivedMessage, SendError, TrySendError};
use sealbus_channels::{ChannelPattern, PathError, PublishError, SubscribeError};
use sealbus_fipa::{AclMessage, Aid, AidError, Content, Performative};
use sealbus_process::{AgentHandle, AgentSender, Wish};

use crate::channel::{Channel, ChannelError, ChannelEvent, ChannelSubscription, Subscribing};
use crate::crew::Crew;
use crate::filter::Filter;
use crate::message::Message;
use arrival::{Arrival, arrival, takes};

pub use error::{ReceiveError, RequestError};
pub(crate) use voice::{Voice, tell};

/// The agent's handle to the bus, given to each of its hooks.
#[derive(Debug)]
pub struct Context {
    pub(crate) handle: AgentHandle,
    pub(crate) crew: Crew,
    /// The agent has asked to leave, and leaves after this hook.
    leaving: bool,
    /// The subscriptions for `on_event` and `on_question`, each under a number of its own.
    listening: Vec<(u64, ChannelSubscription)>,
    next_listener: u64,
    /// How many messages and events had a handler that failed.
    failed: u64,
    /// In teardown `receive` works again, so that an agent can still ask and get answers.
    tearing_down: bool,
}

/// The event for an agent at rest, as its driver finds it.
pub(crate) enum Next {
    Message(Message),
    Event(ChannelEvent),
    Stop,
    Freeze,
}

impl Context {
    pub(crate) fn new(handle: AgentHandle, crew: Crew) -> Context {
        Context {
            handle,
            crew,
            leaving: false,
            listening: Vec::new(),
            next_listener: 0,
            failed: 0,
            tearing_down: false,
        }
    }

    /// The agent's local name: `seller-1` of `seller-1@factory`.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// The agent's identifier, to which others write.
    pub fn aid(&self) -> &Aid {
        self.handle.aid()
    }

    /// The platform's name: `factory` of `seller-1@factory`.
    pub fn platform(&self) -> &str {
        self.handle.process().platform()
    }

    /// The identifier of another agent. A local name stands for an agent of this platform, `name@platform` for one of
    /// another.
    pub fn peer(&self, name: &str) -> Result<Aid, AidError> {
        self.handle.process().peer(name)
    }

    /// An agent that exists on every platform.
    pub(crate) fn system_agent(&self, name: &str) -> Aid {
        let mut aid = self.aid().clone();
        aid.name = format!("{name}@{}", self.platform());
        aid
    }

    /// The agent below this context, for programs that count nanoseconds. Its messages come undecoded.
    pub fn handle(&mut self) -> &mut AgentHandle {
        &mut self.handle
    }

    // ----- sending

    /// Sends a message to each of its receivers, and waits while one of their mailboxes is full.
    ///
    /// `sender` is filled in; it cannot be another agent. When this returns, the message is accepted. Then it is
    /// delivered once and in order, or a `failure` from `ams` says which receiver did not get it and why.
    pub async fn send(&self, message: AclMessage) -> Result<(), SendError> {
        self.handle.send(message).await
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
        self.handle.send_with(message, delivery).await
    }

    /// Sends without waiting. A full mailbox is an error, [`TrySendError::Full`].
    pub fn try_send(&self, message: AclMessage) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// Sends many messages in their order. Stops at the first error; the messages before it are sent.
    pub async fn send_many(
        &self,
        messages: impl IntoIterator<Item = AclMessage>,
    ) -> Result<(), SendError> {
        for message in messages {
            self.handle.send(message).await?;
        }
        Ok(())
    }

    /// Answers a message in its conversation. The answer goes to the agent that the message names for replies.
    ///
    /// For an answer with more than a content, make one with [`AclMessage::create_reply`] and [`send`](Self::send) it.
    pub async fn reply(
        &self,
        message: &Message,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), SendError> {
        self.send(message.create_reply(performative).with_content(content))
            .await
    }

    /// A sender for other tasks. It writes in this agent's name until the agent leaves.
    pub fn sender(&self) -> AgentSender {
        self.handle.sender()
    }

    // ----- receiving

    /// Waits for the next message that `filter` takes. Other messages stay in the mailbox, in order.
    ///
    /// ```no_run
    /// # use sealbus::{Context, Filter, Performative, AgentResult};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let anything = context.receive(Filter::any()).await?;
    /// let proposal = context.receive(Performative::Propose).await?;
    /// # Ok(()) }
    /// ```
    pub async fn receive(&mut self, filter: impl Into<Filter>) -> Result<Message, ReceiveError> {
        let filter = filter.into();
        self.receive_matching(|received| takes(&filter, received))
            .await
    }

    /// Like [`receive`](Self::receive), but for at most `within`.
    pub async fn receive_within(
        &mut self,
        filter: impl Into<Filter>,
        within: Duration,
    ) -> Result<Message, ReceiveError> {
        let filter = filter.into();
        let received = self.receive_matching(|received| takes(&filter, received));
        match tokio::time::timeout(within, received).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ReceiveError::Timeout {
                agent: self.aid().name.clone(),
                filter: filter.to_string(),
                within,
            }),
        }
    }

    /// The next message that `filter` takes, if it has already come.
    pub fn try_receive(&mut self, filter: impl Into<Filter>) -> Option<Message> {
        let filter = filter.into();
        let matches = |received: &ReceivedMessage| takes(&filter, received);
        let received = self.handle.mailbox().try_receive_matching(matches)?;
        Some(Message::new(received))
    }

    /// Waits until there is a message, then takes up to `most` of the messages that have come, in order.
    pub async fn receive_many(&mut self, most: usize) -> Result<Vec<Message>, ReceiveError> {
        let first = self.receive(Filter::any()).await?;
        let mut messages = vec![first];
        while messages.len() < most {
            match self.try_receive(Filter::any()) {
                Some(message) => messages.push(message),
                None => break,
            }
        }
        Ok(messages)
    }

    async fn receive_matching(
        &mut self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Result<Message, ReceiveError> {
        let received = if self.tearing_down {
            self.handle.mailbox().receive_matching(&mut matches).await
        } else {
            let wishes = self.handle.wishes();
            tokio::select! {
                biased;
                () = wishes.stop_wished() => {
                    return Err(ReceiveError::Stopping { agent: self.aid().name.clone() });
                }
                received = self.handle.mailbox().receive_matching(&mut matches) => received,
            }
        };
        match received {
            Some(received) => Ok(Message::new(received)),
            None => Err(ReceiveError::Closed {
                agent: self.aid().name.clone(),
            }),
        }
    }

    /// The means to talk that a conversation takes with it.
    pub(crate) fn voice(&self) -> Voice {
        Voice {
            sender: self.handle.sender(),
            conversations: self.handle.conversations(),
            wishes: self.handle.wishes(),
            heeds_stop: !self.tearing_down,
        }
    }

    // ----- channels

    /// Opens the channel with this path, such as `/offers/tea`, or with this address, such as
    /// `sealbus:at-least-once,priority=7:///offers/tea/`.
    ///
    /// # Errors
    /// [`ChannelError`], with the place of the fault in the text, or with everything that the platform's transport
    /// cannot provide.
    pub fn channel(&self, address: &str) -> Result<Channel, ChannelError> {
        Channel::open(self.handle.outbox().clone(), self.platform(), address)
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
        Ok(Subscribing::new(self.handle.outbox().clone(), pattern))
    }

    /// Subscribes, and from now on gives the events to [`Agent::on_event`](crate::Agent::on_event) and the requests to [`Agent::on_question`](crate::Agent::on_question).
    ///
    /// The subscription ends when the agent leaves or moves. An agent that moves listens again in [`Agent::restore`](crate::Agent::restore).
    ///
    /// # Errors
    /// As [`Subscribing::open`].
    pub fn listen(&mut self, subscribing: Subscribing) -> Result<(), SubscribeError> {
        let subscription = subscribing.open()?;
        self.next_listener += 1;
        self.listening.push((self.next_listener, subscription));
        Ok(())
    }

    /// Ends the subscriptions that [`listen`](Self::listen) began for exactly this pattern.
    pub fn ignore(&mut self, pattern: &str) {
        self.listening
            .retain(|(_, subscription)| subscription.pattern().as_str() != pattern);
    }

    /// Answers a request that [`Agent::on_question`](crate::Agent::on_question) received.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if the request was answered before or the answer comes too late; otherwise the errors
    /// of publishing.
    pub async fn answer(
        &self,
        question: &ChannelEvent,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), PublishError> {
        match self.listener(question) {
            Some(subscription) => subscription.answer(question, performative, content).await,
            None => Err(PublishError::NotAsked),
        }
    }

    /// Tells the requester that this agent does not answer, so that it need not wait.
    pub fn decline(&self, question: &ChannelEvent) {
        if let Some(subscription) = self.listener(question) {
            subscription.decline(question);
        }
    }

    fn listener(&self, event: &ChannelEvent) -> Option<&ChannelSubscription> {
        let number = event.listener?;
        let found = self.listening.iter().find(|(other, _)| *other == number);
        found.map(|(_, subscription)| subscription)
    }

    // ----- living and leaving

    /// Leaves after this hook. `teardown` comes next, then the agent is gone.
    pub fn stop(&mut self) {
        self.leaving = true;
    }

    /// Asks all agents of this process to leave, this one included.
    pub fn stop_all(&mut self) {
        self.leaving = true;
        self.handle
            .process()
            .stop("an agent of the program stopped it");
    }

    /// The number of messages and events whose handler returned an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    pub(crate) fn count_failed(&mut self) {
        self.failed += 1;
    }

    /// Sends a last word, without waiting.
    pub(crate) fn tell(&self, message: AclMessage) {
        tell(&self.handle.sender(), message);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(crate) fn begin_teardown(&mut self) {
        self.tearing_down = true;
    }

    /// The hooks have dealt with their events.
    pub(crate) fn settle_events(&self) {
        for (_, subscription) in &self.listening {
            subscription.settle();
        }
    }

    /// Lets all subscriptions rest before the agent saves its state.
    pub(crate) fn come_to_rest(&mut self) {
        self.settle_events();
        self.handle.come_to_rest();
    }

    /// Waits for the next event for the agent at rest.
    pub(crate) async fn next(&mut self) -> Next {
        let wishes = self.handle.wishes();
        let arrived = tokio::select! {
            biased;
            wish = wishes.wished() => match wish {
                Wish::Stop => return Next::Stop,
                Wish::Freeze => return Next::Freeze,
            },
            arrived = arrival(&mut self.handle, &mut self.listening) => arrived,
        };
        match arrived {
            Arrival::Mail(Some(received)) => Next::Message(Message::new(received)),
            Arrival::Mail(None) => Next::Stop,
            Arrival::Event(event) => Next::Event(*event),
        }
    }

    pub(crate) fn into_parts(self) -> (AgentHandle, Crew) {
        (self.handle, self.crew)
    }
}
