//! An agent of this process, as the bus and its transports see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sealbus_fipa::Aid;
use sealbus_seal::Credential;

use crate::gate::Gate;
use crate::mailbox::MailboxSender;

/// An agent of this process.
pub struct LocalAgent {
    number: u64,
    name: Arc<str>,
    mailbox: MailboxSender,
    credential: RwLock<Option<Arc<Credential>>>,
    /// The agent that speaks for this one, if this one belongs to another platform.
    gateway: Option<Arc<LocalAgent>>,
    /// The count of messages accepted from the agent. Only its outbox writes the counter, under the outbox's lock.
    sent: AtomicU64,
    /// The gate at which its sends wait while its own connection has no room.
    gate: Gate,
}

impl LocalAgent {
    pub(crate) fn new(
        name: &str,
        mailbox: MailboxSender,
        credential: Option<Arc<Credential>>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            mailbox,
            credential: RwLock::new(credential),
            gateway: None,
            sent: AtomicU64::new(0),
            gate: Gate::default(),
        }
    }

    /// The stand-in for an agent of another platform.
    pub(crate) fn stand_in(name: &str, mailbox: MailboxSender, gateway: Arc<LocalAgent>) -> Self {
        Self {
            gateway: Some(gateway),
            ..Self::new(name, mailbox, None)
        }
    }

    /// A number that no other agent of this process ever has, for quick look-ups.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The agent's name, such as `seller-1@factory`.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The agent's identifier, with the name alone.
    pub fn aid(&self) -> Aid {
        crate::aid_of(&self.name)
    }

    /// The writing end of the agent's mailbox.
    pub fn mailbox(&self) -> &MailboxSender {
        &self.mailbox
    }

    /// The gate at which the agent's own sends wait after a transport answered with
    /// [`Rejected::Congested`](crate::Rejected::Congested).
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The credential that proves the agent's identity; none at the levels that ask for no proof. An agent of another
    /// platform has the credential of its gateway.
    pub fn credential(&self) -> Option<Arc<Credential>> {
        match &self.gateway {
            Some(gateway) => gateway.credential(),
            None => self.credential.read().clone(),
        }
    }

    /// The number of messages accepted from the agent so far, counted once for each receiver.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn count_sent(&self) {
        self.sent.store(self.sent() + 1, Ordering::Relaxed);
    }

    pub(crate) fn set_credential(&self, credential: Arc<Credential>) {
        *self.credential.write() = Some(credential);
    }
}

impl fmt::Debug for LocalAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAgent")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
