//! A participant of any protocol: its state machine, its conversation and the clock.

use std::fmt;
use std::time::Duration;

use sealbus_bus::{Conversation, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_protocols::{Outcome, Participant, Protocol, Received, Stage};

use super::error::ProtocolError;
use super::exchange::{expect_reply, saying};
use super::timeline::Timeline;
use crate::body::WrittenBody;
use crate::context::Voice;
use crate::conversation::{Undelivered, new_conversation_id};
use crate::message::Message;

/// The most conversations that an agent takes part in at a time, so that others cannot make it hold more.
const MOST: usize = 65_536;

/// The longest wait of a participant, unless its program sets another time. The initiator may be gone for good.
const LONGEST: Duration = Duration::from_secs(3_600);

impl Voice {
    /// Takes part in the conversation that a message opens. The message names the protocol, or its act implies the
    /// usual one. From now on the returned value gets the further messages of the conversation. An agent that turns the
    /// message down need not take part: its handler returns [`Refuse`](crate::Refuse).
    ///
    /// To let the agent do something else meanwhile, give the value to a task:
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context, Message, Performative};
    /// # async fn on_message(context: &mut Context, call: Message) -> AgentResult {
    /// let mut sale = context.participate(&call)?;
    /// tokio::spawn(async move {
    ///     sale.answer(Performative::Propose, "12 euros").await?;
    ///     if let Some(decision) = sale.next().await?
    ///         && decision.performative == Performative::AcceptProposal
    ///     {
    ///         sale.answer(Performative::Inform, "ten boxes").await?;
    ///     }
    ///     AgentResult::Ok(())
    /// });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ProtocolError::NotOpening`] and [`ProtocolError::Busy`]. A handler may just return them: the answers are then
    /// `not-understood` and `refuse`.
    pub fn participate(&self, opening: &Message) -> Result<Participation, ProtocolError> {
        let open = self.conversations.len();
        if open >= MOST {
            return Err(ProtocolError::Busy(open));
        }
        let protocol = Protocol::opened_by(opening).ok_or_else(|| ProtocolError::NotOpening {
            message: opening.to_string(),
            reason: "no protocol begins like this".to_owned(),
        })?;
        let time = Timeline::new(&self.clock);
        let machine = Participant::open(protocol, opening, time.now());
        let mut machine =
            machine.map_err(|refused| ProtocolError::not_opening(opening, refused.reason))?;
        machine.end_by(time.after(LONGEST));
        let messages = match opening
            .conversation_id
            .as_ref()
            .and_then(Expression::as_str)
        {
            // This fails if the sender has opened the conversation before.
            Some(id) => (self.conversations.open_with(id, opening.sender_name()))
                .map_err(|taken| ProtocolError::not_opening(opening, taken))?,
            None => self.conversations.open_reply(None, &new_conversation_id()),
        };
        Ok(Participation {
            machine,
            messages,
            voice: self.clone(),
            time,
        })
    }
}

/// A participant's side of a conversation of a protocol; see [`Voice::participate`].
///
/// Dropping it before the end tells the initiator that nothing more comes, by the act that the protocol has for this:
/// `failure` or `refuse`. A conversation ends after an hour at the latest, unless [`end_within`](Self::end_within) sets
/// another time.
pub struct Participation {
    machine: Participant,
    messages: Conversation,
    voice: Voice,
    time: Timeline,
}

impl Participation {
    /// The agent that opened the conversation.
    pub fn initiator(&self) -> &Aid {
        self.machine.initiator()
    }

    /// The present stage, or the last one if the conversation has ended.
    pub fn stage(&self) -> Stage {
        self.machine.stage()
    }

    /// How the conversation ended; `None` while it goes on.
    pub fn outcome(&self) -> Option<Outcome> {
        self.machine.outcome()
    }

    /// Sends a message of the protocol to the initiator.
    ///
    /// # Errors
    /// [`ProtocolError::NotAllowed`] if the protocol does not allow the act now, [`ProtocolError::Expired`] if the time
    /// of the conversation is over. A handler may just return `Expired`: the agent goes on.
    pub async fn answer(
        &mut self,
        performative: Performative,
        body: impl Into<WrittenBody>,
    ) -> Result<(), ProtocolError> {
        self.send(saying(performative, body)).await
    }

    /// Like [`answer`](Self::answer), for a message with more than a content.
    pub async fn send(&mut self, message: AclMessage) -> Result<(), ProtocolError> {
        let now = self.check_time()?;
        let message = self.machine.send(&message, now)?;
        self.pass(message).await
    }

    /// Answers a `cancel`. The answer is `inform` if the agent has stopped, which ends the conversation, and `failure`
    /// if it cannot stop.
    pub async fn answer_cancel(
        &mut self,
        performative: Performative,
        body: impl Into<WrittenBody>,
    ) -> Result<(), ProtocolError> {
        let answer = saying(performative, body);
        let now = self.check_time()?;
        let message = self.machine.answer_cancel(&answer, now)?;
        self.pass(message).await
    }

    /// Lets time pass. Returns the present moment. Fails if the conversation is over by now.
    fn check_time(&mut self) -> Result<i64, ProtocolError> {
        let now = self.time.now();
        self.machine.advance(now);
        match self.machine.outcome() {
            Some(Outcome::TimedOut) => {
                let initiator = self.machine.initiator().name.clone();
                Err(ProtocolError::Expired(initiator))
            }
            _ => Ok(now),
        }
    }

    async fn pass(&mut self, message: AclMessage) -> Result<(), ProtocolError> {
        expect_reply(&self.messages, &message);
        Ok(self.voice.send(message).await?)
    }

    /// Waits for the next message of the initiator: a decision, a further call, or `cancel`. Returns `None` when the
    /// conversation has ended or its time is over.
    ///
    /// Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        loop {
            while let Some(received) = self.messages.try_recv() {
                if let Some(message) = self.take(received) {
                    return Ok(Some(message));
                }
            }
            self.machine.advance(self.time.now());
            if self.machine.outcome().is_some() {
                return Ok(None);
            }
            let received = self.voice.receive_in(&self.messages, |_| true);
            let received = match self.machine.deadline() {
                None => received.await?,
                Some(deadline) => match self
                    .voice
                    .clock
                    .timeout_at(self.time.instant(deadline), received)
                    .await
                {
                    Ok(received) => received?,
                    Err(_) => continue,
                },
            };
            if let Some(message) = self.take(received) {
                return Ok(Some(message));
            }
        }
    }

    /// Ends the conversation after this time, even if messages are missing.
    pub fn end_within(&mut self, time: Duration) {
        self.machine.end_by(self.time.after(time));
    }

    /// Ends the conversation if nothing more need come, such as after a broker's last answer.
    pub fn conclude(&mut self) {
        self.machine.conclude();
    }

    fn take(&mut self, received: ReceivedMessage) -> Option<Message> {
        let message = Message::new(received);
        if Undelivered::read(&message).is_some() {
            self.machine.undeliverable();
            return None;
        }
        match self.machine.receive(&message, self.time.now()) {
            Ok(Received::Step | Received::Cancel | Received::NotCancelled | Received::Recruit) => {
                Some(message)
            }
            Err(refused) => {
                tracing::debug!(
                    agent = self.voice.agent(),
                    "{message} is left out: {refused}"
                );
                if let Some(answer) = refused.answer {
                    self.voice.tell(*answer);
                }
                None
            }
        }
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        if self.machine.outcome().is_some() {
            return;
        }
        let now = self.time.now();
        let stopped = AclMessage::new(Performative::Inform);
        let mut last = self.machine.answer_cancel(&stopped, now).ok();
        for act in [
            Performative::Failure,
            Performative::Refuse,
            Performative::RejectProposal,
        ] {
            if last.is_none() {
                let word = AclMessage::new(act).with_content("the agent has left the conversation");
                let word = self.voice.farewell(word);
                last = self.machine.send(&word, now).ok();
            }
        }
        if let Some(last) = last {
            self.voice.tell(last);
        }
    }
}

impl fmt::Debug for Participation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participation")
            .field("state", &self.machine)
            .finish_non_exhaustive()
    }
}
