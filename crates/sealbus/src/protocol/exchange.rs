//! The initiator of any protocol: its state machine, its conversation and the clock.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use sealbus_bus::{Conversation, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_protocols::{Initiator, Outcome, Protocol, Received, Stage, To};
use tokio::time::timeout_at;

use super::clock::Clock;
use super::error::ProtocolError;
use super::participants::Participants;
use crate::body::WrittenBody;
use crate::context::{Context, Voice, tell};
use crate::conversation::{Undelivered, new_conversation_id};
use crate::message::Message;

impl Context {
    /// Opens a conversation of any protocol, with one or many participants. The message needs the act that opens the
    /// protocol, and a content; the rest is filled in. Its `reply-by` is the deadline of the first answers.
    ///
    /// [`contract_net`](Self::contract_net), [`ask_all`](Self::ask_all), [`english_auction`](Self::english_auction) and
    /// others are simpler where they fit. A subscription, for example, is an exchange:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sealbus::{AclMessage, AgentResult, Context, Performative, protocol::SUBSCRIBE};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let wish = AclMessage::new(Performative::Subscribe).with_content("the price of tea");
    /// let mut prices = context.initiate(&SUBSCRIBE, context.peer("market")?, wish).await?;
    /// while let Some(news) = prices.next().await? {
    ///     if news.text()? == "too much" {
    ///         prices.cancel(Duration::from_secs(5)).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn initiate(
        &self,
        protocol: &'static Protocol,
        participants: impl Into<Participants>,
        opening: AclMessage,
    ) -> Result<Exchange, ProtocolError> {
        let agents = participants.into().find(self).await?;
        Exchange::open(self.voice(), protocol, agents, opening).await
    }
}

/// The initiator's side of a conversation of a protocol; see [`Context::initiate`].
///
/// It gets all messages of the conversation, checks them against the protocol, answers those that the protocol has an
/// answer for, and watches the deadlines. Dropping it ends the conversation in order: proposals without a decision are
/// rejected, and agents that may still work are told to stop (`cancel`).
pub struct Exchange {
    machine: Initiator,
    messages: Conversation,
    voice: Voice,
    clock: Clock,
    /// To be sent, oldest first.
    outgoing: VecDeque<AclMessage>,
}

impl Exchange {
    pub(super) async fn open(
        voice: Voice,
        protocol: &'static Protocol,
        participants: Vec<Aid>,
        opening: AclMessage,
    ) -> Result<Exchange, ProtocolError> {
        let clock = Clock::new();
        let id = new_conversation_id();
        let messages = voice.conversations.open(&id)?;
        let (machine, outgoing) =
            Initiator::open(protocol, id, participants, &opening, clock.now())?;
        let mut exchange = Exchange {
            machine,
            messages,
            voice,
            clock,
            outgoing: outgoing.into(),
        };
        exchange.flush().await?;
        Ok(exchange)
    }

    /// Where the conversation stands with each participant.
    pub fn state(&self) -> &Initiator {
        &self.machine
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Sends a further message of the protocol, to all chosen participants or to none.
    ///
    /// # Errors
    /// [`ProtocolError::NotAllowed`] if the protocol does not allow the act for one of them.
    pub async fn send(&mut self, to: To<'_>, message: &AclMessage) -> Result<(), ProtocolError> {
        let messages = self.machine.send(to, message, self.clock.now())?;
        self.outgoing.extend(messages);
        self.flush().await
    }

    /// Waits for the next message that the protocol accepts. `None`: the conversation has ended with every participant.
    ///
    /// Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        while !self.machine.has_ended() {
            if let Some((message, _)) = self.step().await? {
                return Ok(Some(message));
            }
        }
        self.flush().await?;
        Ok(None)
    }

    /// Drives the conversation until it has ended or `is_done`, and gives each accepted message to `each`.
    pub(super) async fn until(
        &mut self,
        is_done: impl Fn(&Initiator) -> bool,
        mut each: impl FnMut(Message, Received),
    ) -> Result<(), ProtocolError> {
        loop {
            let has_read_all = self.messages.is_empty();
            if self.machine.has_ended() || (has_read_all && is_done(&self.machine)) {
                break;
            }
            if let Some((message, received)) = self.step().await? {
                each(message, received);
            }
        }
        self.flush().await
    }

    /// Asks all participants to stop, and waits for at most `within` until they have confirmed it. Results that cross the
    /// `cancel` are dropped.
    pub async fn cancel(&mut self, within: Duration) -> Result<(), ProtocolError> {
        if self.machine.has_ended() {
            return Ok(());
        }
        let cancel = AclMessage::new(Performative::Cancel);
        let cancel = self.clock.with_deadline(cancel, within);
        self.send(To::All, &cancel).await?;
        let is_done = |it: &Initiator| !it.branches().iter().any(|it| it.is_cancelling());
        self.until(is_done, |_, _| ()).await
    }

    /// Ends the conversation with those from whom nothing more has to come, such as a broker that has passed all answers
    /// on.
    pub fn conclude(&mut self) {
        self.machine.conclude();
    }

    /// Ends the conversation after this time, whatever is missing then.
    pub fn end_within(&mut self, time: Duration) {
        self.machine.end_by(self.clock.after(time));
    }

    /// One step: a message, a deadline, or both.
    async fn step(&mut self) -> Result<Option<(Message, Received)>, ProtocolError> {
        self.flush().await?;
        if let Some(received) = self.messages.try_recv() {
            return Ok(self.take(received));
        }
        let deadline = self.machine.deadline();
        let now = self.clock.now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.outgoing.extend(self.machine.advance(now));
            return Ok(None);
        }
        let received = self.voice.receive(&self.messages, |_| true);
        let received = match deadline.map(|deadline| self.clock.instant(deadline)) {
            None => received.await?,
            Some(instant) => match timeout_at(instant, received).await {
                Ok(received) => received?,
                Err(_) => return Ok(None),
            },
        };
        Ok(self.take(received))
    }

    fn take(&mut self, received: ReceivedMessage) -> Option<(Message, Received)> {
        let message = Message::new(received);
        if let Some(notice) = Undelivered::read(&message) {
            if let Ok(receiver) = Aid::new(notice.receiver) {
                self.machine.undeliverable(&receiver);
            }
            return None;
        }
        // A message that was there when the deadline passed came in time, even if it is read later.
        let now = match self.machine.deadline() {
            Some(deadline) if deadline > i64::MIN => self.clock.now().min(deadline - 1),
            _ => self.clock.now(),
        };
        match self.machine.receive(&message, now) {
            Ok(received) => Some((message, received)),
            Err(refused) => {
                tracing::debug!(
                    agent = self.voice.agent(),
                    "{message} is left out: {refused}"
                );
                self.outgoing.extend(refused.answer.map(|answer| *answer));
                None
            }
        }
    }

    async fn flush(&mut self) -> Result<(), ProtocolError> {
        while let Some(message) = self.outgoing.front().cloned() {
            expect_reply(&self.messages, &message);
            let sent = self.voice.sender.send(message).await;
            self.outgoing.pop_front();
            sent?;
        }
        Ok(())
    }

    /// The result of a participant: its last message, or why there is none.
    pub(super) fn result(
        &self,
        agent: &Aid,
        last: Option<Message>,
    ) -> Result<Message, ProtocolError> {
        let outcome = self.machine.branch(agent).and_then(|it| it.outcome());
        let agent = agent.name.clone();
        match (outcome, last) {
            (Some(Outcome::Done | Outcome::Accepted), Some(last)) => Ok(last),
            (
                Some(
                    Outcome::Failed | Outcome::Refused | Outcome::Rejected | Outcome::NotUnderstood,
                ),
                Some(last),
            ) => Err(ProtocolError::TurnedDown {
                reply: Box::new(last),
            }),
            (Some(Outcome::Undeliverable), _) => Err(ProtocolError::Undeliverable(agent)),
            (None | Some(Outcome::TimedOut | Outcome::Unconfirmed), _) => {
                Err(ProtocolError::Silent(agent))
            }
            (Some(outcome), _) => Err(ProtocolError::Ended { agent, outcome }),
        }
    }
}

/// A message of this act with this body.
pub(super) fn saying(performative: Performative, body: impl Into<WrittenBody>) -> AclMessage {
    let mut message = AclMessage::new(performative);
    body.into().put_into(&mut message);
    message
}

pub(super) fn expect_reply(messages: &Conversation, message: &AclMessage) {
    if let Some(tag) = message.reply_with.as_ref().and_then(Expression::as_str) {
        messages.expect_reply_to(tag);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        while let Some(received) = self.messages.try_recv() {
            let _ = self.take(received);
        }
        let now = self.clock.now();
        // Those that still think about a call need not go on.
        let cancel = AclMessage::new(Performative::Cancel);
        let called = self.machine.send(To::Stage(Stage::Called), &cancel, now);
        self.outgoing.extend(called.unwrap_or_default());
        self.machine.end_by(now);
        self.outgoing.extend(self.machine.advance(now));
        for message in self.outgoing.drain(..) {
            tell(&self.voice.sender, message);
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("state", &self.machine)
            .finish_non_exhaustive()
    }
}
