//! Conversations: each gets all messages that belong to it, while its agent also receives others.

mod agreed;
mod name;
mod request;
mod undelivered;

use std::fmt;
use std::time::Duration;

use sealbus_bus::{ConversationOpen, Late, ReceivedMessage, SendError};
use sealbus_fipa::{AclMessage, Aid, Content, Expression, Performative};

use crate::body::WrittenBody;
use crate::clock::Clock;
use crate::context::{ReceiveError, Voice};
use crate::message::Message;
use agreed::Agreed;

pub use name::new_conversation_id;
pub use request::OpenRequest;
pub use undelivered::Undelivered;

/// The reason why a conversation could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConverseError {
    /// The agent has an open conversation of this name.
    #[error("{agent} cannot begin a conversation: {source}")]
    Open {
        /// The agent.
        agent: String,
        /// The name that is taken.
        source: ConversationOpen,
    },
    /// The first message could not be sent.
    #[error("{agent} could not send the first message of a conversation: {source}")]
    Send {
        /// The agent.
        agent: String,
        /// Why it could not be sent.
        source: Box<SendError>,
    },
}

impl Voice {
    /// Begins a conversation with a message to one or several agents. From now on the conversation gets every message
    /// with its conversation-id, and every reply to its messages. No such message goes to `on_message` or to
    /// [`receive`](crate::Context::receive).
    ///
    /// A missing conversation-id is filled in. An agent can have any number of conversations at once, and give them to
    /// tasks.
    ///
    /// ```no_run
    /// # use sealbus::{AclMessage, AgentResult, Context, Performative};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let call = AclMessage::new(Performative::Cfp).with_receiver(context.peer("seller")?).with_content("tea");
    /// let sale = context.converse(call).await?;
    /// let offer = sale.receive().await?;
    /// sale.reply(&offer, Performative::AcceptProposal, "tea").await?;
    /// let tea = sale.receive().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ConverseError`] if the message cannot be sent, or a conversation of its name is open.
    pub async fn converse(&self, message: AclMessage) -> Result<Conversation, ConverseError> {
        let id = match message
            .conversation_id
            .as_ref()
            .and_then(Expression::as_str)
        {
            Some(id) => id.to_owned(),
            None => new_conversation_id(),
        };
        let messages = self.conversations.open(&id);
        let messages = messages.map_err(|source| ConverseError::Open {
            agent: self.agent(),
            source,
        })?;
        let conversation = Conversation {
            messages,
            id,
            others: message.receivers.clone(),
            protocol: message.protocol.clone(),
            agreed: Agreed::default(),
            late: Late::default(),
            voice: self.clone(),
        };
        match conversation.send(message).await {
            Ok(()) => Ok(conversation),
            Err(source) => Err(ConverseError::Send {
                agent: self.aid().name.clone(),
                source: Box::new(source),
            }),
        }
    }
}

/// A conversation with one or several agents; see [`Voice::converse`].
///
/// Dropping the value ends the conversation. Agents that have agreed to something and have not told the outcome get a
/// `cancel`.
pub struct Conversation {
    messages: sealbus_bus::Conversation,
    voice: Voice,
    id: String,
    others: Vec<Aid>,
    protocol: Option<String>,
    agreed: Agreed,
    late: Late,
}

impl Conversation {
    /// The conversation-id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a message of this conversation. It fills in missing parameters: `conversation-id`, `protocol`,
    /// `reply-with`, and the receivers of the first message.
    pub async fn send(&self, mut message: AclMessage) -> Result<(), SendError> {
        message.conversation_id = Some(self.id.as_str().into());
        if message.protocol.is_none() {
            message.protocol.clone_from(&self.protocol);
        }
        if message.receivers.is_empty() {
            message.receivers.clone_from(&self.others);
        }
        let tag = message
            .reply_with
            .get_or_insert_with(|| new_conversation_id().into());
        if let Some(tag) = tag.as_str() {
            self.messages.expect_reply_to(tag);
        }
        self.voice.send(message).await
    }

    /// Answers a message of this conversation.
    pub async fn reply(
        &self,
        message: &Message,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), SendError> {
        let content: Content = content.into();
        let answer = WrittenBody::from(content).answer(&message.view(), performative);
        self.send(answer).await
    }

    /// Asks the others to stop. Each answers with `inform` when it has stopped, or with `failure`. Results may come
    /// before that.
    pub async fn cancel(&self) -> Result<(), SendError> {
        self.agreed.clear();
        self.send(AclMessage::new(Performative::Cancel)).await
    }

    /// Waits for the next message of this conversation. Safe to cancel.
    ///
    /// A `failure` from the platform about a message of the conversation is one of its messages: see
    /// [`Undelivered::read`].
    pub async fn receive(&self) -> Result<Message, ReceiveError> {
        let received = self.voice.receive_in(&self.messages, |_| true).await?;
        Ok(self.note(received))
    }

    /// Like [`receive`](Self::receive), but for at most `within`.
    pub async fn receive_within(&self, within: Duration) -> Result<Message, ReceiveError> {
        match self.voice.clock.timeout(within, self.receive()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ReceiveError::Timeout {
                agent: self.voice.agent(),
                filter: format!("a message of conversation {}", self.id),
                within,
            }),
        }
    }

    /// The next message of this conversation, if it has already come.
    pub fn try_receive(&self) -> Option<Message> {
        Some(self.note(self.messages.try_recv()?))
    }

    /// Sets the rule for messages that come after the end. At first they are ignored.
    pub fn set_late(&mut self, late: Late) {
        self.late = late;
        self.messages.set_late(late);
    }

    /// Sends a last message of the conversation, without waiting.
    pub(crate) fn tell(&self, message: AclMessage) {
        self.voice.tell(message);
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.voice.clock()
    }

    /// The agent's name, for errors.
    pub(crate) fn agent(&self) -> String {
        self.voice.agent()
    }

    fn note(&self, received: ReceivedMessage) -> Message {
        self.agreed.note(&received);
        Message::new(received)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Perhaps an `agree` has come that nobody has read.
        while self.late == Late::Ignored && self.try_receive().is_some() {}
        self.agreed.cancel(&self.messages, &self.voice.sender);
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("id", &self.id)
            .field("waiting", &self.messages.len())
            .finish_non_exhaustive()
    }
}
