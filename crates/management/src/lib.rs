//! Agent management (FIPA00023): the AMS, the DF, and the client's side.
//!
//! [`Ams`] and [`Df`] are state machines without I/O. They take a message, its proved sender, and the time. They return
//! an [`Outcome`]: the rows to write to the store, and the messages to send after that. `load` rebuilds both from their
//! rows in the store.
//!
//! [`DirectoryService`] is the shell that runs one of them as an agent: it receives, commits, and sends. [`client`] is
//! the other side: the requests that agents send, and the reading of the answers.

pub mod ams;
mod catalogue;
pub mod client;
mod deliveries;
pub mod df;
mod dialogue;
mod limits;
mod service;
mod subscribers;
mod subscriptions;

use std::time::{SystemTime, UNIX_EPOCH};

use sealbus_bus::Provenance;
use sealbus_fipa::AclMessage;
use sealbus_fipa::management::Exception;

use sealbus_store::{Batch, StoreError};

pub use ams::Ams;
pub use df::Df;
pub use limits::DirectoryLimits;
pub use service::{ChangeError, Directory, DirectoryService, Inbox};

/// The proved identity of a message's sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requester {
    /// The agent with this AID name.
    Agent(String),
    /// An agent of another platform. Its AID name is only claimed. If the gateway's policy allows it, the agent may
    /// change its own entry in the DF, and no other, and may subscribe there.
    Foreign {
        /// The agent's claimed AID name.
        name: String,
        /// Whether the agent may register.
        may_register: bool,
    },
    /// The platform itself: the Master, or a notice of the message transport.
    Platform,
    /// An unknown sender: it may search, but change nothing.
    Unproved,
}

impl Requester {
    /// The sender of `message`, given the `provenance` known to the bus.
    ///
    /// With `trust_claims`, on a platform with a security level that proves no senders, the name in the message counts.
    /// Such a platform promises no more.
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
            Provenance::Proved(_) | Provenance::Signed(_) => provenance
                .certified()
                .and_then(|verified| verified.identity().agent_name())
                .map(Self::Agent),
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

    /// The name under which this sender subscribes and cancels, if it has a name that counts.
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

    /// The AID name under which this sender's searches are counted. All senders without a name count together.
    fn asker(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Foreign { name, .. } => name,
            Self::Platform | Self::Unproved => "",
        }
    }

    /// Checks whether the entry of the agent with this AID name may be changed. Only this agent itself and the platform
    /// may change it.
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
    /// The changes. They must be committed first.
    pub batch: Batch,
    /// The messages. They must be sent after the commit, in this order.
    pub messages: Vec<AclMessage>,
    /// The steps that take the outcome back, the latest change last.
    undo: Vec<Undo>,
}

impl<Undo> Default for Outcome<Undo> {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            messages: Vec::new(),
            undo: Vec::new(),
        }
    }
}

impl<Undo> Outcome<Undo> {
    /// Appends a later outcome to this one.
    pub fn append(&mut self, later: Self) {
        self.batch.append(later.batch);
        self.messages.extend(later.messages);
        self.undo.extend(later.undo);
    }

    /// Takes the answer to the one message that led to this outcome, for callers that give the answer by another way.
    /// The other messages remain.
    pub fn take_answer(&mut self) -> Option<AclMessage> {
        (!self.messages.is_empty()).then(|| self.messages.remove(0))
    }

    /// The messages to send when the batch could not be committed: a failure in place of each answer, because an answer
    /// may tell of changes that are taken back.
    fn into_failures(self, error: &StoreError) -> Vec<AclMessage> {
        let messages = self.messages.into_iter();
        messages
            .filter_map(|message| dialogue::failed(message, error))
            .collect()
    }
}

/// The directory cannot be loaded from the store.
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
        /// The row's key.
        key: String,
        /// The mistake in the row.
        detail: String,
    },
}

/// Milliseconds since 1970 UTC, the unit of leases.
fn unix_ms(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
