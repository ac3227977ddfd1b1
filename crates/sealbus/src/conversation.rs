//! Names for conversations, and the recognition of the reply to a request.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_bus::Provenance;
use sealbus_fipa::sl::Content;
use sealbus_fipa::{AclMessage, AclMessageRef, Expression, ExpressionRef, Limits, Performative};
use sealbus_management::client::undelivered;

use crate::message::Message;

/// A name that no other conversation has. Counting makes it unique in this process, and 64 random bits make it unique
/// between processes.
///
/// ```
/// assert_ne!(sealbus::new_conversation_id(), sealbus::new_conversation_id());
/// ```
pub fn new_conversation_id() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let process = PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
    format!("c{process:016x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The properties by which a message is recognised as the reply to a request.
#[derive(Debug)]
pub struct Expected {
    reply_with: Expression,
    conversation: Expression,
    receivers: Vec<Box<str>>,
}

impl Expected {
    /// Gives the request the names that identify its reply (`conversation-id`, `reply-with`), unless its author did.
    pub fn of(request: &mut AclMessage) -> Expected {
        let named = |parameter: &mut Option<Expression>| {
            parameter
                .get_or_insert_with(|| Expression::from(new_conversation_id()))
                .clone()
        };
        Expected {
            conversation: named(&mut request.conversation_id),
            reply_with: named(&mut request.reply_with),
            receivers: request
                .receivers
                .iter()
                .map(|receiver| receiver.name.as_str().into())
                .collect(),
        }
    }

    /// Whether `message` answers the request. It does if it repeats the request's `reply-with`. A message without
    /// `in-reply-to` does if it is in the same conversation and comes from an agent that was asked.
    pub fn is_answered_by(&self, message: &AclMessageRef<'_>) -> bool {
        match message.in_reply_to() {
            Some(tag) => same(&tag, &self.reply_with),
            None => {
                message
                    .conversation_id()
                    .is_some_and(|id| same(&id, &self.conversation))
                    && message.sender().is_some_and(|sender| {
                        self.receivers.iter().any(|asked| **asked == *sender.name())
                    })
            }
        }
    }

    /// The conversation that the reply belongs to.
    pub fn conversation(&self) -> &Expression {
        &self.conversation
    }

    /// Names of the agents that were asked, for an error.
    pub(crate) fn asked(&self) -> String {
        self.receivers.join(", ")
    }
}

/// Encodings may turn a word into a string or back, so textual parameters are compared as texts.
fn same(received: &ExpressionRef<'_>, sent: &Expression) -> bool {
    match (received.text(), sent.as_str()) {
        (Some(received), Some(sent)) => received == sent,
        _ => received.to_owned() == *sent,
    }
}

/// The platform's notice that a message was not delivered to one of its receivers (FIPA00067).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The receiver that did not get the message.
    pub receiver: String,
    /// The reason.
    pub reason: String,
}

impl Undelivered {
    /// Reads a message as such a notice. Returns `None` if it is another message. Only notices by the platform itself
    /// count, so no agent can make another believe that its messages are lost.
    pub fn read(message: &Message) -> Option<Undelivered> {
        if !matches!(message.provenance(), Provenance::Platform)
            || message.performative != Performative::Failure
        {
            return None;
        }
        let content = Content::parse(message.content_bytes()?, &Limits::default()).ok()?;
        let (receiver, reason) = undelivered(&content)?;
        Some(Undelivered {
            receiver: receiver.name,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealbus_fipa::Aid;

    fn aid(name: &str) -> Aid {
        Aid::new(name).unwrap()
    }

    #[test]
    fn a_reply_repeats_reply_with() {
        let mut request =
            AclMessage::new(Performative::Request).with_receiver(aid("seller@factory"));
        let expected = Expected::of(&mut request);
        let reply = request
            .clone()
            .with_sender(aid("buyer@factory"))
            .create_reply(Performative::Inform);
        assert!(expected.is_answered_by(&reply.view()));

        let mut other = AclMessage::new(Performative::Request).with_receiver(aid("seller@factory"));
        Expected::of(&mut other);
        let late = other
            .with_sender(aid("buyer@factory"))
            .create_reply(Performative::Inform);
        assert!(!expected.is_answered_by(&late.view()));
    }

    #[test]
    fn without_a_tag_conversation_and_sender_must_fit() {
        let mut request = AclMessage::new(Performative::Request)
            .with_receiver(aid("seller@factory"))
            .with_conversation_id("sale-7");
        let expected = Expected::of(&mut request);
        let answer = |sender: &str, conversation: &str| {
            AclMessage::new(Performative::Inform)
                .with_sender(aid(sender))
                .with_conversation_id(conversation)
        };
        assert!(expected.is_answered_by(&answer("seller@factory", "sale-7").view()));
        assert!(!expected.is_answered_by(&answer("thief@factory", "sale-7").view()));
        assert!(!expected.is_answered_by(&answer("seller@factory", "sale-8").view()));
    }
}
