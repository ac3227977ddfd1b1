//! The initiator of any protocol: its state machine, its conversation and the clock.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use sealbus_bus::{Conversation, ReceivedMessage, SendError};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_protocols::{Initiator, Outcome, Protocol, Received, Stage, To};
use tokio::time::Instant;

use super::backlog::Backlog;
use super::error::ProtocolError;
use super::late::{LateHandler, linger};
use super::participants::Participants;
use super::timeline::Timeline;
use crate::body::WrittenBody;
use crate::clock::Clock;
use crate::context::Voice;
use crate::conversation::{Undelivered, new_conversation_id};
use crate::message::Message;
use crate::supervision::AgentResult;
use crate::trace;

impl Voice {
    /// Opens a conversation of any protocol, with one or many participants. The message needs the act that opens the
    /// protocol, and a content. The other parameters are filled in. Its `reply-by` is the deadline of the first
    /// answers.
    ///
    /// Where they fit, [`contract_net`](Self::contract_net), [`ask_all`](Self::ask_all),
    /// [`english_auction`](Self::english_auction) and others are simpler. A subscription, for example, is an exchange:
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
        let time = Timeline::new(&self.clock);
        let agents = participants.into().find(self).await?;
        Exchange::open(self.clone(), protocol, agents, opening, time)
    }
}

/// The initiator's side of a conversation of a protocol; see [`Voice::initiate`].
///
/// The exchange gets all messages of the conversation, checks them against the protocol, gives the answers that the
/// protocol prescribes, and watches the deadlines. A message waits for a receiver that has no room, while the exchange
/// goes on with the others. Dropping the exchange ends the conversation properly: it rejects proposals without a
/// decision, and sends a `cancel` to agents that may still work. It also rejects a later proposal from an agent that
/// was silent.
pub struct Exchange {
    machine: Initiator,
    messages: Conversation,
    voice: Voice,
    time: Timeline,
    backlog: Backlog,
    late: Option<LateHandler>,
}

impl Exchange {
    pub(super) fn open(
        voice: Voice,
        protocol: &'static Protocol,
        participants: Vec<Aid>,
        opening: AclMessage,
        time: Timeline,
    ) -> Result<Exchange, ProtocolError> {
        let id = new_conversation_id();
        let messages = voice.conversations.open(&id)?;
        let (machine, outgoing) =
            Initiator::open(protocol, id, participants, &opening, time.now())?;
        let mut exchange = Exchange {
            machine,
            messages,
            voice,
            time,
            backlog: Backlog::default(),
            late: None,
        };
        exchange.put_out(outgoing)?;
        Ok(exchange)
    }

    /// The stage of the conversation with each participant.
    pub fn state(&self) -> &Initiator {
        &self.machine
    }

    pub(super) fn time(&self) -> &Timeline {
        &self.time
    }

    /// Sends a further message of the protocol, to all chosen participants or to none. It does not wait for participants that
    /// have no room. They get the message when they have room, while [`next`](Self::next) waits or after the end.
    ///
    /// # Errors
    /// [`ProtocolError::NotAllowed`] if the protocol does not allow the act for one of the participants.
    pub async fn send(&mut self, to: To<'_>, message: &AclMessage) -> Result<(), ProtocolError> {
        let messages = self.machine.send(to, message, self.time.now())?;
        Ok(self.put_out(messages)?)
    }

    /// Sends a further message to those of these agents whose conversation goes on, and returns these agents.
    ///
    /// # Errors
    /// [`ProtocolError::NotAllowed`] if the protocol does not allow the act for one of them, or the conversation has ended
    /// with all.
    pub(super) fn send_to_open(
        &mut self,
        agents: &[Aid],
        message: &AclMessage,
    ) -> Result<Vec<Aid>, ProtocolError> {
        let now = self.time.now();
        let notices = self.machine.advance(now);
        self.put_out(notices)?;
        let is_open = |agent: &&Aid| {
            let branch = self.machine.branch(agent);
            branch.is_none_or(|it| it.outcome().is_none())
        };
        let open: Vec<Aid> = agents.iter().filter(is_open).cloned().collect();
        let messages = self.machine.send(To::Agents(&open), message, now)?;
        self.put_out(messages)?;
        Ok(open)
    }

    /// Waits for the next message that the protocol accepts. Returns `None` when the conversation has ended with every
    /// participant.
    ///
    /// Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        while !self.machine.has_ended() {
            let is_over = |machine: &Initiator, _: &Conversation| machine.has_ended();
            if let Some((message, _)) = self.step(is_over).await? {
                return Ok(Some(message));
            }
        }
        self.backlog.post(&self.voice.sender);
        Ok(None)
    }

    /// Drives the conversation until it has ended or `is_done`, and gives each accepted message to `each`.
    pub(super) async fn until(
        &mut self,
        is_done: impl Fn(&Initiator) -> bool,
        mut each: impl FnMut(Message, Received),
    ) -> Result<(), ProtocolError> {
        let is_over = |machine: &Initiator, messages: &Conversation| {
            machine.has_ended() || (is_done(machine) && messages.is_empty())
        };
        while !is_over(&self.machine, &self.messages) {
            if let Some((message, received)) = self.step(&is_over).await? {
                each(message, received);
            }
        }
        if self.machine.has_ended() {
            self.backlog.post(&self.voice.sender);
        }
        Ok(())
    }

    /// Asks all participants to stop, and waits for at most `within` until they have confirmed. Results that cross the
    /// `cancel` are dropped.
    pub async fn cancel(&mut self, within: Duration) -> Result<(), ProtocolError> {
        if self.machine.has_ended() {
            return Ok(());
        }
        let cancel = AclMessage::new(Performative::Cancel);
        let cancel = self.time.with_deadline(cancel, within);
        self.send(To::All, &cancel).await?;
        let is_done = |it: &Initiator| !it.branches().iter().any(|it| it.is_cancelling());
        self.until(is_done, |_, _| ()).await
    }

    /// Gives the messages that come after the conversation with their sender has ended to this handler, each in a task
    /// of its own. Without a handler they are counted and dropped. When the whole conversation has ended, the agent
    /// still hands on late messages of the last 256 such conversations.
    pub fn set_late<F, W>(&mut self, handler: F)
    where
        F: Fn(Voice, Message) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        self.late = Some(LateHandler::new(handler));
    }

    /// Ends the conversation with participants that need not send anything more, such as a broker that has passed all
    /// answers on.
    pub fn conclude(&mut self) {
        self.machine.conclude();
    }

    /// Ends the conversation after this time, even if answers are missing.
    pub fn end_within(&mut self, time: Duration) {
        self.machine.end_by(self.time.after(time));
    }

    /// One step: a message, or else a deadline.
    async fn step(
        &mut self,
        is_over: impl Fn(&Initiator, &Conversation) -> bool,
    ) -> Result<Option<(Message, Received)>, ProtocolError> {
        let outbox = self.voice.sender.outbox();
        {
            let mut sending = pin!(self.backlog.flush(&outbox));
            let mut is_sending = true;
            // A refused message does not interrupt the sending, which would lose its place at the receiver.
            loop {
                let end = self.machine.deadline().map(|it| self.time.instant(it));
                let received = tokio::select! {
                    biased;
                    sent = &mut sending, if is_sending => {
                        sent?;
                        is_sending = false;
                        continue;
                    }
                    received = self.voice.receive_in(&self.messages, |_| true) => received?,
                    () = sleep_until(&self.voice.clock, end) => break,
                };
                let taken = take(
                    &mut self.machine,
                    &self.voice,
                    &self.time,
                    self.late.as_ref(),
                    received,
                );
                if taken.is_some() || is_over(&self.machine, &self.messages) {
                    return Ok(taken);
                }
            }
        }
        let notices = self.machine.advance(self.time.now());
        self.put_out(notices)?;
        Ok(None)
    }

    fn put_out(&mut self, messages: impl IntoIterator<Item = AclMessage>) -> Result<(), SendError> {
        let mut sent = Ok(());
        for message in messages {
            expect_reply(&self.messages, &message);
            self.voice.clock.note();
            let (message, _sending) = trace::sending(self.voice.aid(), message);
            sent = sent.and(self.backlog.put(&self.voice.sender, message));
        }
        if self.machine.has_ended() {
            self.backlog.post(&self.voice.sender);
        }
        sent
    }

    /// The result of a participant: its last message, or the reason why there is none.
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

/// Takes a message of the conversation, if it is a step of the protocol.
fn take(
    machine: &mut Initiator,
    voice: &Voice,
    time: &Timeline,
    late: Option<&LateHandler>,
    received: ReceivedMessage,
) -> Option<(Message, Received)> {
    let message = Message::new(received);
    if let Some(notice) = Undelivered::read(&message) {
        if let Ok(receiver) = Aid::new(notice.receiver) {
            machine.undeliverable(&receiver);
        }
        return None;
    }
    // A message that was there when the deadline passed is in time, even if it is read later.
    let now = match machine.deadline() {
        Some(deadline) if deadline > i64::MIN => time.now().min(deadline - 1),
        _ => time.now(),
    };
    match machine.receive(&message, now) {
        Ok(received) => Some((message, received)),
        Err(refused) => {
            tracing::debug!(agent = voice.agent(), "{message} is left out: {refused}");
            let is_late = refused.is_late();
            if let Some(answer) = refused.answer {
                voice.tell(*answer);
            }
            if let Some(late) = late.filter(|_| is_late) {
                late.give(voice, message);
            }
            None
        }
    }
}

async fn sleep_until(clock: &Clock, end: Option<Instant>) {
    match end {
        Some(end) => clock.sleep_until(end).await,
        None => std::future::pending().await,
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
            let late = self.late.as_ref();
            let _ = take(&mut self.machine, &self.voice, &self.time, late, received);
        }
        if !self.machine.has_ended() {
            let now = self.time.now();
            // Participants that still think about a call can stop.
            let cancel = AclMessage::new(Performative::Cancel);
            let called = self.machine.send(To::Stage(Stage::Called), &cancel, now);
            let _ = self.put_out(called.unwrap_or_default());
            self.machine.end_by(now);
            let notices = self.machine.advance(now);
            let _ = self.put_out(notices);
        }
        self.backlog.post(&self.voice.sender);
        let late = self.late.take();
        if (late.is_some() || self.machine.may_come_late())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Ok(nothing) = self.voice.conversations.open(&new_conversation_id())
        {
            let messages = std::mem::replace(&mut self.messages, nothing);
            let (machine, voice) = (self.machine.clone(), self.voice.clone());
            runtime.spawn(linger(machine, messages, voice, self.time.clone(), late));
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
