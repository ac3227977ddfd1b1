//! The agents that have agreed to do something and have not told the outcome.

use parking_lot::Mutex;
use sealbus_bus::{Conversation, ReceivedMessage};
use sealbus_fipa::{AclMessage, Expression, Performative};
use sealbus_process::AgentSender;

use super::name::new_conversation_id;
use crate::context::tell;

/// The `cancel` for each agent that agreed.
#[derive(Debug, Default)]
pub(super) struct Agreed(Mutex<Vec<(String, AclMessage)>>);

impl Agreed {
    /// Notes by a message of the conversation whether its sender has agreed.
    pub(super) fn note(&self, received: &ReceivedMessage) {
        let message = received.message();
        let Some(sender) = message.sender() else {
            return;
        };
        let mut agreed = self.0.lock();
        agreed.retain(|(name, _)| *name != *sender.name());
        if message.performative() == Performative::Agree {
            let mut cancel = message.create_reply(Performative::Cancel);
            cancel.in_reply_to = None;
            cancel.reply_with = Some(new_conversation_id().into());
            agreed.push((sender.name().to_owned(), cancel));
        }
    }

    /// Tells these agents to stop. Their answers belong to the conversation.
    pub(super) fn cancel(&self, messages: &Conversation, sender: &AgentSender) {
        for (_, cancel) in std::mem::take(&mut *self.0.lock()) {
            if let Some(tag) = cancel.reply_with.as_ref().and_then(Expression::as_str) {
                messages.expect_reply_to(tag);
            }
            tell(sender, cancel);
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
