//! Sending in an agent's name without being the agent.

use std::fmt;
use std::sync::Arc;

use sealbus_bus::{Delivery, Outbox, SendError, TrySendError, Unsent};
use sealbus_fipa::{AclMessage, Aid};

use super::Entry;
use crate::interceptor::Interceptor;

/// The most messages of an agent that wait for room at their receivers while nobody waits for them. Further ones are
/// dropped, so that an agent that does not take its mail cannot make others hold more.
pub(super) const POSTED: usize = 256;

/// Sends in an agent's name, from any task or thread, until the agent leaves.
#[derive(Clone)]
pub struct AgentSender(Arc<Entry>);

impl AgentSender {
    pub(super) fn new(agent: Arc<Entry>) -> Self {
        Self(agent)
    }

    /// The agent's identifier.
    pub fn aid(&self) -> &Aid {
        &self.0.aid
    }

    /// The agent's present sending end. A failed move replaces it.
    pub fn outbox(&self) -> Arc<Outbox> {
        self.0.outbox.load_full()
    }

    /// From now on, each message that a sender of this agent sends goes to the interceptor first. The first interceptor
    /// stays.
    pub fn intercept(&self, interceptor: Arc<dyn Interceptor>) {
        self.0.interceptor.set(interceptor);
    }

    /// Sends a message to all its receivers. Waits while one of them has no room.
    pub async fn send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), SendError> {
        match self.0.interceptor.pass(&self.0.outbox, message) {
            Some(message) => self.outbox().send(message).await,
            None => Ok(()),
        }
    }

    /// Sends an answer. Waits only for a while if the asker has no room for it; see [`Outbox::answer`].
    pub async fn answer(&self, answer: impl Into<Arc<AclMessage>>) -> Result<(), SendError> {
        match self.0.interceptor.pass(&self.0.outbox, answer) {
            Some(answer) => self.outbox().answer(answer).await,
            None => Ok(()),
        }
    }

    /// Sends a message to all its receivers as `delivery` says: kept for absent receivers, with an expiry, or with a
    /// receipt. A persistent message is on a disk of the platform when this returns.
    pub async fn send_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        delivery: Delivery,
    ) -> Result<(), SendError> {
        match self.0.interceptor.pass(&self.0.outbox, message) {
            Some(message) => self.outbox().send_with(message, delivery).await,
            None => Ok(()),
        }
    }

    /// Passes the message to the interceptor. Returns the message to send, unless the interceptor keeps it.
    pub fn pass(&self, message: impl Into<Arc<AclMessage>>) -> Option<Arc<AclMessage>> {
        self.0.interceptor.pass(&self.0.outbox, message)
    }

    /// Like [`send`](Self::send), without waiting.
    pub fn try_send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), TrySendError> {
        match self.0.interceptor.pass(&self.0.outbox, message) {
            Some(message) => self.0.outbox.load().try_send(message),
            None => Ok(()),
        }
    }

    /// Sends a message that nobody waits for; a failure is not reported. The message waits for room in the background.
    /// If 256 such messages of the agent wait already, it is dropped.
    pub fn post(&self, message: impl Into<Arc<AclMessage>>) {
        if let Err(TrySendError::Full(rest)) = self.try_send(message) {
            self.post_rest(vec![rest]);
        }
    }

    /// As [`post`](Self::post), for messages to one receiver that found no room. They go one after the other, and
    /// together count as one of the 256.
    pub fn post_rest(&self, rest: Vec<Unsent>) {
        let Ok(place) = self.0.posted.clone().try_acquire_owned() else {
            tracing::debug!(
                agent = &*self.0.aid.name,
                "a message is dropped: its receiver has no room, and {POSTED} others wait for room"
            );
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let outbox = self.outbox();
            runtime.spawn(async move {
                for mut unsent in rest {
                    let _ = outbox.finish(&mut unsent).await;
                }
                drop(place);
            });
        }
    }
}

impl fmt::Debug for AgentSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSender")
            .field("agent", &self.0.aid.name)
            .finish_non_exhaustive()
    }
}
