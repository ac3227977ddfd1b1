//! A layer between an agent and its outbox, for tests.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use sealbus_bus::Outbox;
use sealbus_fipa::AclMessage;

/// Decides about each message that an agent sends through an [`AgentSender`](super::AgentSender). For tests, which lose
/// and delay some messages.
pub trait Interceptor: Send + Sync {
    /// Takes a message on its way to an outbox, and returns the messages to send now.
    fn intercept(
        self: Arc<Self>,
        outbox: &Arc<Outbox>,
        message: Arc<AclMessage>,
    ) -> Option<Arc<AclMessage>>;
}

/// The interceptor of an agent, if it has one.
#[derive(Default)]
pub(super) struct Interception(OnceLock<Arc<dyn Interceptor>>);

impl Interception {
    pub(super) fn set(&self, interceptor: Arc<dyn Interceptor>) {
        let _ = self.0.set(interceptor);
    }

    /// The message to send now, if there is one.
    pub(super) fn pass(
        &self,
        outbox: &ArcSwap<Outbox>,
        message: impl Into<Arc<AclMessage>>,
    ) -> Option<Arc<AclMessage>> {
        let message = message.into();
        match self.0.get() {
            None => Some(message),
            Some(interceptor) => interceptor.clone().intercept(&outbox.load_full(), message),
        }
    }
}
