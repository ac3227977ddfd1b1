//! Asking a tool for an answer in parts.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use sealbus_bus::Conversation;
use sealbus_fipa::{AclMessage, Aid, Expression, Number, Performative};

use super::{MOST_AHEAD, PARTIAL, PROGRESS, PROTOCOL, Progress, TAKEN, WINDOW, batch, count};
use crate::body::{Body, BodyError};
use crate::context::Voice;
use crate::conversation::{Undelivered, new_conversation_id};
use crate::message::Message;
use crate::protocol::{Participants, ProtocolError};

/// The default number of partial results that are taken ahead.
const AHEAD: u64 = 16;

impl Voice {
    /// Asks a tool for an answer in parts, which come as the tool makes them. `to` is an agent, or a service for which
    /// the DF knows an agent. For an answer as a whole, use a plain [`request`](Voice::request).
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let writer = context.peer("writer")?;
    /// let mut answer = context.ask(writer, &"once upon a time".to_owned())?.stream::<String>().await?;
    /// while let Some(word) = answer.next().await? {
    ///     println!("{word}");
    /// }
    /// # Ok(()) } // Leaving earlier tells the tool to stop.
    /// ```
    ///
    /// # Errors
    /// If the body cannot be written.
    pub fn ask<B: Body>(
        &self,
        to: impl Into<Participants>,
        body: &B,
    ) -> Result<Asking<'_>, BodyError> {
        let mut request = AclMessage::new(Performative::Request);
        body.write()?.put_into(&mut request);
        Ok(Asking {
            voice: self,
            to: to.into(),
            request,
            window: AHEAD,
            silence: None,
            conversation: None,
        })
    }
}

/// A request for an answer in parts; see [`Voice::ask`].
#[derive(Debug)]
pub struct Asking<'a> {
    voice: &'a Voice,
    to: Participants,
    request: AclMessage,
    window: u64,
    silence: Option<Duration>,
    conversation: Option<String>,
}

impl Asking<'_> {
    /// Names the tool of an agent that has several.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.request.ontology = Some(name.into().into());
        self
    }

    /// Adds a user-defined parameter to the request.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<Expression>) -> Self {
        self.request = self.request.with_user_defined(name, value);
        self
    }

    /// Names the conversation. The agent has no other open conversation of this name.
    #[must_use]
    pub fn conversation(mut self, name: impl Into<String>) -> Self {
        self.conversation = Some(name.into());
        self
    }

    /// Takes this many parts ahead, from 1 to [`MOST_AHEAD`]. The default is 16.
    #[must_use]
    pub fn window(mut self, parts: u64) -> Self {
        self.window = parts.clamp(1, MOST_AHEAD);
        self
    }

    /// Gives up when the tool says nothing for this time. Without a timeout, an answer may take any time.
    #[must_use]
    pub fn timeout(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// Sends the request. The parts are of type `C`.
    ///
    /// # Errors
    /// [`ProtocolError::Nobody`] if the DF knows no such service, or the request cannot be sent.
    pub async fn stream<C: Body>(self) -> Result<Answer<C>, ProtocolError> {
        let agents = self.to.find(self.voice).await?;
        let agent = agents.into_iter().next().ok_or(ProtocolError::Nobody)?;
        let voice = self.voice.clone();
        let id = self.conversation.unwrap_or_else(new_conversation_id);
        let messages = voice.conversations.open(&id)?;
        messages.expect_reply_to(&id);
        let request = self
            .request
            .with_receiver(agent.clone())
            .with_protocol(PROTOCOL)
            .with_conversation_id(id.as_str())
            .with_reply_with(id.as_str());
        voice
            .send(with_number(request, WINDOW, self.window))
            .await?;
        Ok(Answer {
            voice,
            messages,
            id,
            agent,
            window: self.window,
            silence: self.silence,
            taken: 0,
            told: 0,
            progress: None,
            reply: None,
            is_over: false,
            parts: PhantomData,
        })
    }
}

/// A message of a tool before its final reply; see [`Answer::step`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step<C> {
    /// The tool has agreed, and begins.
    Agreed,
    /// A partial result.
    Part(C),
    /// The progress of the tool.
    Progress(Progress),
    /// The agent asks a question, and waits for a [`reply`](Voice::reply) to its message.
    Asked(Box<Message>),
}

/// An answer in parts; see [`Voice::ask`]. Dropping it before its end tells the tool to stop (`cancel`).
pub struct Answer<C> {
    voice: Voice,
    messages: Conversation,
    id: String,
    agent: Aid,
    window: u64,
    silence: Option<Duration>,
    taken: u64,
    /// The number of taken parts that the tool knows of.
    told: u64,
    progress: Option<Progress>,
    reply: Option<Message>,
    is_over: bool,
    parts: PhantomData<fn() -> C>,
}

impl<C: Body> Answer<C> {
    /// The next part; `None` after the last one. Safe to cancel.
    ///
    /// # Errors
    /// [`ProtocolError::TurnedDown`] if the tool refuses or fails, [`ProtocolError::Silent`] after the silence that
    /// [`Asking::timeout`] sets, [`ProtocolError::Body`] for a part of another type.
    pub async fn next(&mut self) -> Result<Option<C>, ProtocolError> {
        loop {
            match self.step().await? {
                Some(Step::Part(part)) => return Ok(Some(part)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Like [`next`](Self::next), and also returns the tool's other messages at once. Safe to cancel.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn step(&mut self) -> Result<Option<Step<C>>, ProtocolError> {
        while !self.is_over {
            self.tell_taken().await?;
            let received = self.voice.receive_in(&self.messages, |_| true);
            let received = match self.silence {
                None => received.await?,
                Some(silence) => match self.voice.clock.timeout(silence, received).await {
                    Ok(received) => received?,
                    Err(_) => return Err(ProtocolError::Silent(self.agent.name.clone())),
                },
            };
            let message = Message::new(received);
            if let Some(lost) = Undelivered::read(&message) {
                self.is_over = true;
                return Err(ProtocolError::Undeliverable(lost.receiver));
            }
            if message.sender_name() != self.agent.name {
                continue;
            }
            if message.performative == Performative::Inform && count(&message, PARTIAL).is_some() {
                self.taken += 1;
                return Ok(Some(Step::Part(message.body::<C>()?)));
            }
            if let Some(done) = message.user_defined_value(PROGRESS) {
                if let Expression::Number(done) = done {
                    let text = message.text().unwrap_or_default().to_owned();
                    let done = done.as_f64();
                    let progress = Progress { done, text };
                    self.progress = Some(progress.clone());
                    return Ok(Some(Step::Progress(progress)));
                }
                continue;
            }
            match message.performative {
                Performative::Inform => {
                    self.is_over = true;
                    self.reply = Some(message);
                }
                Performative::Refuse | Performative::Failure | Performative::NotUnderstood => {
                    self.is_over = true;
                    let reply = Box::new(message);
                    return Err(ProtocolError::TurnedDown { reply });
                }
                Performative::Agree => return Ok(Some(Step::Agreed)),
                Performative::QueryIf | Performative::QueryRef | Performative::Request => {
                    return Ok(Some(Step::Asked(Box::new(message))));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Tells the tool how many parts are taken, if it is time to.
    async fn tell_taken(&mut self) -> Result<(), ProtocolError> {
        let batch = batch(self.window);
        if self.taken - self.told >= batch {
            let taken = self.word(Performative::Inform);
            self.voice
                .send(with_number(taken, TAKEN, self.taken))
                .await?;
            self.told = self.taken;
        }
        Ok(())
    }

    /// The latest progress of the tool, if the tool has reported any.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// The final reply, after the last part.
    pub fn reply(&self) -> Option<&Message> {
        self.reply.as_ref()
    }
}

impl<C> Answer<C> {
    fn word(&self, performative: Performative) -> AclMessage {
        AclMessage::new(performative)
            .with_receiver(self.agent.clone())
            .with_protocol(PROTOCOL)
            .with_conversation_id(self.id.as_str())
    }
}

impl<C> Drop for Answer<C> {
    fn drop(&mut self) {
        if !self.is_over {
            let cancel = self.word(Performative::Cancel);
            let tag = new_conversation_id();
            self.messages.expect_reply_to(&tag);
            self.voice.tell(cancel.with_reply_with(tag));
        }
    }
}

impl<C> fmt::Debug for Answer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("of", &self.agent.name)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

fn with_number(message: AclMessage, name: &str, number: u64) -> AclMessage {
    match Number::parse(&number.to_string()) {
        Some(number) => message.with_user_defined(name, Expression::Number(number)),
        None => message,
    }
}
