//! Agent management (FIPA00023): the AMS and the DF, and the client's side.
//!
//! [`Ams`] and [`Df`] are state machines without I/O. They take a message, who has proved to have sent
//! it, and the time; they give back an [`Outcome`]: what to write to the store, and what to send then.
//! Both are rebuilt from their rows in the store by `load`. [`DirectoryService`] is the shell that
//! runs one of them as an agent: it receives, commits, and sends. [`client`] has the other side: the
//! requests that agents send, and how they read the answers.

pub mod ams;
mod catalogue;
pub mod client;
mod deliveries;
pub mod df;
mod dialogue;
mod limits;
mod service;

use std::time::{SystemTime, UNIX_EPOCH};

use sealbus_bus::Provenance;
use sealbus_fipa::AclMessage;
use sealbus_fipa::management::Exception;

use sealbus_store::{Batch, StoreError};

pub use ams::Ams;
pub use df::Df;
pub use limits::DirectoryLimits;
pub use service::{ChangeError, Directory, DirectoryService, Inbox};

/// The sender of a message, as far as it is proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requester {
    /// The agent of this AID name.
    Agent(String),
    /// The agent of another platform with this AID name, which is only claimed. It may change no entry but its own in
    /// the DF, and subscribe there, and that only if the gateway's policy says so.
    Foreign {
        /// Its name.
        name: String,
        /// Whether it may register.
        may_register: bool,
    },
    /// The platform itself: the Master, or a notice of the message transport.
    Platform,
    /// Nobody that is known: may search, but change nothing.
    Unproved,
}

impl Requester {
    /// The sender of `message`, of which the bus knows `provenance`.
    ///
    /// With `trust_claims`, on a platform whose security level proves no senders, the name in the
    /// message counts: such a platform promises no more.
    pub fn of(message: &AclMessage, provenance: &Provenance, trust_claims: bool) -> Self {
        let claimed = || {
            message
                .sender
                .as_ref()
                .map(|sender| Self::Agent(sender.name.clone()))
        };
        let requester = match provenance {
            Provenance::Platform => Some(Self::Platform),
            Provenance::SameProcess => claimed(),
            Provenance::Proved(verified) => verified.identity().agent_name().map(Self::Agent),
            Provenance::Vouched(identity) | Provenance::Carried(identity) => {
                identity.agent_name().map(Self::Agent)
            }
            Provenance::Foreign(origin) => message.sender.as_ref().map(|sender| Self::Foreign {
                name: sender.name.clone(),
                may_register: origin.may_register,
            }),
            Provenance::Claimed if trust_claims => claimed(),
            Provenance::Claimed => None,
        };
        requester.unwrap_or(Self::Unproved)
    }

    /// The agent that subscribes, and cancels: one with a name that counts.
    fn subscriber(&self) -> Option<&str> {
        match self {
            Self::Agent(name)
            | Self::Foreign {
                name,
                may_register: true,
            } => Some(name),
            _ => None,
        }
    }

    /// Whether the entry of the agent with this AID name may be changed: only by this agent itself
    /// and by the platform.
    fn authorise(&self, name: &str) -> Result<(), Exception> {
        match self {
            Self::Platform => Ok(()),
            Self::Agent(agent) if agent == name => Ok(()),
            Self::Foreign {
                name: agent,
                may_register: true,
            } if agent == name => Ok(()),
            _ => Err(Exception::Unauthorised),
        }
    }
}

/// The consequences of a message or of the passing of time.
#[must_use = "the batch is to be committed, then the messages sent"]
#[derive(Debug)]
pub struct Outcome<Undo> {
    /// To be committed first.
    pub batch: Batch,
    /// To be sent then, in this order.
    pub messages: Vec<AclMessage>,
    /// How to take it back: the latest change last.
    undo: Vec<Undo>,
    /// Messages to send instead if the batch cannot be committed.
    apologies: Vec<AclMessage>,
}

impl<Undo> Default for Outcome<Undo> {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            messages: Vec::new(),
            undo: Vec::new(),
            apologies: Vec::new(),
        }
    }
}

impl<Undo> Outcome<Undo> {
    /// Adds what followed after this.
    pub fn append(&mut self, later: Self) {
        self.batch.append(later.batch);
        self.messages.extend(later.messages);
        self.undo.extend(later.undo);
        self.apologies.extend(later.apologies);
    }

    /// Takes the answer to the one message this is the outcome of, so that it can be given otherwise
    /// than by sending it. What else there is to send remains.
    pub fn take_answer(&mut self) -> Option<AclMessage> {
        self.apologies.clear();
        (!self.messages.is_empty()).then(|| self.messages.remove(0))
    }

    /// The answers to send when the batch could not be committed.
    fn into_apologies(self, error: &StoreError) -> Vec<AclMessage> {
        let mut apologies = self.apologies;
        for apology in &mut apologies {
            dialogue::explain_failure(apology, error);
        }
        apologies
    }
}

/// A row of the store that is no entry of a directory.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row was written by another version, or is damaged.
    #[error(
        "the row '{key}' of the store cannot be read ({detail}): it was written by another version of Sealbus, or is damaged; start the version that wrote it, or restore a backup"
    )]
    Row {
        /// Its key.
        key: String,
        /// The mistake in it.
        detail: String,
    },
}

/// Milliseconds since 1970 UTC, in which leases count.
fn unix_ms(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
