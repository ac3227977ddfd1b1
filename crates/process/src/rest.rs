//! An agent that will move: it comes to rest, hands over its unread messages, and waits for the outcome.

use std::sync::Arc;

use sealbus_bus::{Mailbox, Outbox, RestingMailbox};
use tokio::sync::{mpsc, oneshot};

/// The channel on which an agent reports that it is at rest.
pub(super) struct Rest {
    pub(super) number: u64,
    pub(super) to: mpsc::UnboundedSender<AtRest>,
}

/// An agent's report that it is at rest, or that it cannot be moved.
pub(super) struct AtRest {
    pub(super) number: u64,
    /// The state at rest, or the reason why the agent cannot be moved.
    pub(super) outcome: Result<Ready, String>,
}

/// The state of an agent at rest.
pub(super) struct Ready {
    pub(super) state: Vec<u8>,
    pub(super) drain: oneshot::Sender<Drain>,
}

/// Asks an agent at rest for its mailbox.
pub(super) struct Drain {
    pub(super) mailbox: oneshot::Sender<RestingMailbox>,
    pub(super) thawed: oneshot::Receiver<(Arc<Outbox>, Mailbox)>,
}

impl Rest {
    /// Reports that the agent is at rest with this state. Returns `None` if the wish was withdrawn.
    pub(super) async fn ready(self, state: Vec<u8>) -> Option<Drain> {
        let (drain, asked) = oneshot::channel();
        let ready = AtRest {
            number: self.number,
            outcome: Ok(Ready { state, drain }),
        };
        self.to.send(ready).ok()?;
        asked.await.ok()
    }

    /// Reports that the agent cannot be moved.
    pub(super) fn decline(self, reason: String) {
        // If another agent declined before, nobody listens any more.
        let _ = self.to.send(AtRest {
            number: self.number,
            outcome: Err(reason),
        });
    }
}

impl Drain {
    /// Hands over the mailbox and waits. Returns `None` if the agent is over here.
    pub(super) async fn hand_over(self, mailbox: RestingMailbox) -> Option<(Arc<Outbox>, Mailbox)> {
        self.mailbox.send(mailbox).ok()?;
        self.thawed.await.ok()
    }
}
