//! The part of a context that a conversation takes with it, so that it needs no hook to go on.

use sealbus_bus::{Conversation, Conversations, ReceivedMessage, TrySendError};
use sealbus_fipa::AclMessage;
use sealbus_process::{AgentSender, Wishes};

use super::error::ReceiveError;

/// An agent's means to talk, from any task.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pub(crate) sender: AgentSender,
    pub(crate) conversations: Conversations,
    pub(super) wishes: Wishes,
    /// Outside of teardown, a wait ends when the agent must stop.
    pub(super) heeds_stop: bool,
}

impl Voice {
    /// The agent's name, for errors.
    pub(crate) fn agent(&self) -> String {
        self.sender.aid().name.clone()
    }

    /// Waits for a message of a conversation. Safe to cancel.
    pub(crate) async fn receive(
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
        received.ok_or_else(|| ReceiveError::Closed {
            agent: self.agent(),
        })
    }
}

/// Sends a last word, without waiting and without a chance to report a failure.
pub(crate) fn tell(sender: &AgentSender, message: AclMessage) {
    if let Err(TrySendError::Full(_)) = sender.try_send(message.clone())
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        let sender = sender.clone();
        runtime.spawn(async move { sender.send(message).await });
    }
}
