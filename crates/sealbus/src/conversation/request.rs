//! Requests: each is a conversation of its own, which ends with the reply.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Conversation, Conversations, Late, ReceivedMessage};
use sealbus_fipa::{AclMessage, Expression, Performative};
use sealbus_process::AgentSender;

use super::agreed::Agreed;
use super::name::new_conversation_id;
use super::undelivered::Undelivered;
use crate::clock::later;
use crate::context::{RequestError, Voice};
use crate::message::Message;

/// A request that waits for its reply. The reply comes here, even if the agent receives other messages meanwhile.
///
/// If this value is dropped without a reply, an agent that has agreed gets a `cancel`, and a late reply is ignored.
#[derive(Debug)]
pub struct OpenRequest {
    sender: AgentSender,
    messages: Conversation,
    tag: String,
    receivers: Vec<Box<str>>,
    agreed: Agreed,
    is_answered: bool,
}

impl OpenRequest {
    /// Opens the conversation of a request, before it is sent. Gives the request a `conversation-id` and a `reply-with`,
    /// unless its author did.
    pub fn open(
        sender: AgentSender,
        conversations: &Conversations,
        request: &mut AclMessage,
    ) -> OpenRequest {
        let tag = match request.reply_with.as_ref().and_then(Expression::as_str) {
            Some(tag) => tag.to_owned(),
            None => {
                let tag = new_conversation_id();
                request.reply_with = Some(tag.as_str().into());
                tag
            }
        };
        let messages = match &request.conversation_id {
            Some(id) => conversations.open_reply(id.as_str(), &tag),
            None => {
                // The tag is also a good name, because no other conversation has it.
                request.conversation_id = Some(tag.as_str().into());
                match conversations.open(&tag) {
                    Ok(messages) => {
                        messages.expect_reply_to(&tag);
                        messages
                    }
                    Err(_) => conversations.open_reply(Some(&tag), &tag),
                }
            }
        };
        OpenRequest {
            sender,
            messages,
            tag,
            receivers: (request.receivers.iter())
                .map(|receiver| receiver.name.as_str().into())
                .collect(),
            agreed: Agreed::default(),
            is_answered: false,
        }
    }

    /// Whether a message of the conversation answers the request. It does if it repeats the request's `reply-with`, or
    /// has no `in-reply-to` and comes from an agent that was asked.
    fn is_reply(&self, received: &ReceivedMessage) -> bool {
        let message = received.message();
        match message.in_reply_to() {
            Some(tag) => tag.text().is_some_and(|tag| tag == self.tag),
            None => message.sender().is_some_and(|sender| {
                (self.receivers.iter()).any(|asked| **asked == *sender.name())
            }),
        }
    }

    /// The next reply, if it has come: the answer, an `agree` that announces it, or the platform's notice that the
    /// request was not delivered.
    pub fn try_next(&self) -> Option<ReceivedMessage> {
        let matches = |received: &ReceivedMessage| self.is_reply(received);
        let received = self.messages.try_receive_matching(matches)?;
        self.agreed.note(&received);
        Some(received)
    }

    /// Calls `hook` when a reply comes after a [`try_next`](Self::try_next) that found none, and when no further reply
    /// can come.
    pub fn set_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.messages.set_hook(hook);
    }

    /// Whether no further reply can come, because the agent has left.
    pub fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Ends the request, because it has its answer. Further messages of its conversation go to the mailbox.
    pub fn answered(mut self) {
        self.is_answered = true;
        self.messages.set_late(Late::Received);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // Perhaps an `agree` has come that nobody has read.
        while self.try_next().is_some() {}
        self.agreed.cancel(&self.messages, &self.sender);
    }
}

impl Voice {
    /// Sends a request and waits for the reply to it.
    ///
    /// The reply is the first message that repeats the request's `reply-with`. (A missing `reply-with` or
    /// `conversation-id` is filled in.) Any performative counts: `refuse`, `failure` and `not-understood` are replies.
    /// An `agree` only announces the outcome and is passed over.
    ///
    /// Several requests can wait at once. Each gets its own reply:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sealbus::{AclMessage, AgentResult, Context};
    /// # async fn hook(context: &mut Context, one: AclMessage, other: AclMessage) -> AgentResult {
    /// let within = Duration::from_secs(5);
    /// let (first, second) = tokio::join!(context.request(one, within), context.request(other, within));
    /// # Ok(()) }
    /// ```
    ///
    /// If no reply comes in time, or the wait is cancelled, an agent that has agreed gets a `cancel`, and a late reply
    /// is ignored.
    pub async fn request(
        &self,
        mut request: AclMessage,
        within: Duration,
    ) -> Result<Message, RequestError> {
        let deadline = later(self.clock.now(), within);
        let sender = self.sender.clone();
        let open = OpenRequest::open(sender, &self.conversations, &mut request);
        let (agent, receiver) = (self.agent(), open.receivers.join(", "));
        // The wait for the reply holds no room for the message.
        let sending = self.send(Arc::new(request));
        match self.clock.timeout_at(deadline, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(source)) => {
                return Err(RequestError::Send {
                    agent,
                    receiver,
                    source: Box::new(source),
                });
            }
            Err(_) => {
                return Err(RequestError::Timeout {
                    agent,
                    receiver,
                    within,
                });
            }
        }
        let replies = |received: &ReceivedMessage| open.is_reply(received);
        while let Ok(received) = self
            .clock
            .timeout_at(deadline, self.receive_in(&open.messages, replies))
            .await
        {
            let received = received.map_err(RequestError::Receive)?;
            open.agreed.note(&received);
            let reply = Message::new(received);
            if let Some(notice) = Undelivered::read(&reply) {
                return Err(RequestError::Undeliverable {
                    agent,
                    receiver: notice.receiver,
                    reason: notice.reason,
                });
            }
            if reply.performative != Performative::Agree {
                open.answered();
                return Ok(reply);
            }
        }
        Err(RequestError::Timeout {
            agent,
            receiver,
            within,
        })
    }
}
