//! An agent of this process, as the bus and its transports see it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use sealbus_fipa::Aid;
use sealbus_proof::{BatchKey, Hash, SignError, Signer};
use sealbus_seal::Credential;
use thiserror::Error;

use crate::foreign_room::ForeignRoom;
use crate::gate::Gate;
use crate::mailbox::MailboxSender;
use crate::moment::Moment;

/// Why an agent's messages cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoSigner {
    /// There is no certificate.
    #[error("agent {0} has no certificate to sign its messages with")]
    NoCertificate(Arc<str>),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Unusable(#[from] SignError),
}

/// A credential, and its signer, which is made when it is first needed. The signer numbers everything that is signed
/// with the certificate.
pub(crate) struct Certified {
    credential: Arc<Credential>,
    signer: OnceLock<Arc<Signer>>,
}

impl Certified {
    pub(crate) fn new(credential: Arc<Credential>) -> Arc<Self> {
        Arc::new(Self {
            credential,
            signer: OnceLock::new(),
        })
    }
}

/// The facts about the stand-in for an agent of another platform.
struct StandIn {
    /// The agent that speaks for it.
    gateway: Arc<LocalAgent>,
    room: Arc<ForeignRoom>,
}

/// An agent of this process.
pub struct LocalAgent {
    number: u64,
    name: Arc<str>,
    mailbox: MailboxSender,
    certified: RwLock<Option<Arc<Certified>>>,
    /// The key with which this process signs for all its agents.
    batch_key: Arc<BatchKey>,
    /// Set if the agent belongs to another platform. Boxed: most agents do not.
    stand_in: Option<Box<StandIn>>,
    /// The count of messages accepted from the agent. Only its outbox writes the counter, under the outbox's lock.
    sent: AtomicU64,
    /// The gate at which its sends wait while its own connection has no room.
    gate: Gate,
}

impl LocalAgent {
    pub(crate) fn new(
        name: &str,
        mailbox: MailboxSender,
        certified: Option<Arc<Certified>>,
        batch_key: Arc<BatchKey>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            mailbox,
            certified: RwLock::new(certified),
            batch_key,
            stand_in: None,
            sent: AtomicU64::new(0),
            gate: Gate::default(),
        }
    }

    /// The stand-in for an agent of another platform.
    pub(crate) fn stand_in(
        name: &str,
        mailbox: MailboxSender,
        gateway: Arc<LocalAgent>,
        room: Arc<ForeignRoom>,
    ) -> Self {
        let batch_key = gateway.batch_key.clone();
        Self {
            stand_in: Some(Box::new(StandIn { gateway, room })),
            ..Self::new(name, mailbox, None, batch_key)
        }
    }

    /// The agent's number, for quick look-ups. No other agent of this process ever has the same number.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The agent's name, such as `seller-1@factory`.
    #[inline]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The agent's identifier, with the name alone.
    pub fn aid(&self) -> Aid {
        crate::aid_of(&self.name)
    }

    /// The writing end of the agent's mailbox.
    #[inline]
    pub fn mailbox(&self) -> &MailboxSender {
        &self.mailbox
    }

    /// For transports: the room that messages of other processes take on their way to the agent, if it belongs to
    /// another platform.
    #[inline]
    pub fn foreign_room(&self) -> Option<&Arc<ForeignRoom>> {
        self.stand_in.as_ref().map(|stand_in| &stand_in.room)
    }

    /// The gate at which the agent's own sends wait after a transport answered with
    /// [`Rejected::Congested`](crate::Rejected::Congested).
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The credential that proves the agent's identity; `None` at levels that ask for no proof. An agent of another
    /// platform has the credential of its gateway.
    pub fn credential(&self) -> Option<Arc<Credential>> {
        match &self.stand_in {
            Some(stand_in) => stand_in.gateway.credential(),
            None => Some(self.certified.read().as_ref()?.credential.clone()),
        }
    }

    /// The signer of the agent's messages, one for each of its certificates. An agent of another platform has the
    /// signer of its gateway.
    ///
    /// # Errors
    /// [`NoSigner`] if the agent has no certificate, or cannot sign with the one it has.
    pub fn signer(&self) -> Result<Arc<Signer>, NoSigner> {
        if let Some(stand_in) = &self.stand_in {
            return stand_in.gateway.signer();
        }
        let certified = self.certified.read();
        let Some(Certified { credential, signer }) = certified.as_deref() else {
            return Err(NoSigner::NoCertificate(self.name.clone()));
        };
        if let Some(signer) = signer.get() {
            return Ok(signer.clone());
        }
        let made = Signer::new(credential.clone(), self.batch_key.clone())?;
        Ok(signer.get_or_init(|| Arc::new(made)).clone())
    }

    /// Signs one statement, given by its [hash](sealbus_proof::Statement::hash), at once. Returns its evidence, as
    /// [`Signer::sign_one`] does.
    ///
    /// # Errors
    /// [`NoSigner`] if the agent cannot sign.
    pub fn sign_one(&self, statement: Hash) -> Result<Vec<u8>, NoSigner> {
        let now = Moment::now().unix_ms();
        Ok(self.signer()?.sign_one(statement, now)?)
    }

    /// The number of messages accepted from the agent so far, counted once for each receiver.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn count_sent(&self, messages: u64) {
        self.sent.store(self.sent() + messages, Ordering::Relaxed);
    }

    pub(crate) fn certified(&self) -> Option<Arc<Certified>> {
        self.certified.read().clone()
    }

    pub(crate) fn set_credential(&self, credential: Arc<Credential>) {
        *self.certified.write() = Some(Certified::new(credential));
    }
}

impl fmt::Debug for LocalAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAgent")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
