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
    /// The agent that speaks for it, if it is one of another platform.
    gateway: Option<Arc<LocalAgent>>,
    /// Messages accepted from it. Written by its outbox alone, under that one's lock.
    sent: AtomicU64,
    /// Where its sends wait while its own connection has no room.
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

    /// A number no other agent of this process ever has, to find it by quickly.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its name, such as `seller-1@factory`.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its identifier, with the name alone.
    pub fn aid(&self) -> Aid {
        crate::aid_of(&self.name)
    }

    /// Where its messages go.
    pub fn mailbox(&self) -> &MailboxSender {
        &self.mailbox
    }

    /// Where its own sends wait that a transport answered with
    /// [`Rejected::Congested`](crate::Rejected::Congested).
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What it proves its identity with; none at the levels that do not ask. For an agent of another platform it is
    /// that of the gateway.
    pub fn credential(&self) -> Option<Arc<Credential>> {
        match &self.gateway {
            Some(gateway) => gateway.credential(),
            None => self.credential.read().clone(),
        }
    }

    /// Messages accepted from it so far, counted once for each receiver.
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
