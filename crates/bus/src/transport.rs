//! The contract of a messaging system that carries messages between processes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use sealbus_fipa::bitefficient::Rest;
use sealbus_fipa::{AclMessage, EncodeError, bitefficient};
use sealbus_seal::{Credential, Identity, SecurityLevel};
use thiserror::Error;
use tokio::sync::watch;

use crate::acknowledgement::Acknowledgement;
use crate::agent::LocalAgent;
use crate::error::Rejected;
use crate::gate::Gate;
use crate::inlet::ProcessDestination;
use crate::level::asks_for_proof;
use crate::limits::OWN_ENCODING;
use crate::resolver::{BoxFuture, ProcessEndpoint};
use crate::session::SessionNumber;

/// The capabilities of a transport.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The security level of every message that it carries.
    pub level: SecurityLevel,
    /// The security levels that one message can ask for: that level, all weaker ones, and perhaps stronger ones.
    pub levels: Vec<SecurityLevel>,
    /// The largest message in bytes, encoded.
    pub largest_message: usize,
    /// The strongest acknowledgement. `None` if an accepted message may be only in a broker's memory.
    pub acknowledgement: Option<Acknowledgement>,
    /// Whether messages survive a broken connection.
    pub resumes: bool,
    /// Whether a full mailbox holds back exactly the senders that write to it.
    pub pushes_back: bool,
}

/// The links of a process to other processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Links with a connection.
    pub connected: usize,
    /// The bytes that were accepted for all links and are not acknowledged.
    pub unacknowledged: usize,
}

/// A messaging system between processes. A new transport implements this trait and [`Destination`]. It hands arriving
/// messages to a [`MailboxWindow`](crate::MailboxWindow) of the receiver's mailbox, and arriving frames to
/// [`Bus::take_frames`](crate::Bus::take_frames). It hands undeliverable messages to
/// [`Bus::undeliverable`](crate::Bus::undeliverable) or [`Bus::returned`](crate::Bus::returned).
pub trait Transport: Send + Sync {
    /// The transport's name in logs and manifests, such as `mesh`.
    fn name(&self) -> &'static str;

    /// The transport's capabilities.
    fn capabilities(&self) -> Capabilities;

    /// The address at which other processes reach this process; `None` if it listens nowhere.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// The transport's links to other processes; `None` if it has no links.
    fn links(&self) -> Option<LinkCounts> {
        None
    }

    /// Shows a new certificate of this process from now on.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    fn set_process_credential(&self, credential: &Arc<Credential>) -> Result<(), TransportError>;

    /// The deny list has changed. Connections of denied identities are dropped at once.
    fn trust_changed(&self);

    /// A process is gone for good. Messages that it had not taken go back to their senders, and nothing about the
    /// process is remembered.
    fn forget_process(&self, process: &Identity);

    /// The platform has given up this process, or the process ends and waits no longer. Before this returns, it
    /// reports, with this reason, all messages that were accepted and not acknowledged. A transport whose broker keeps
    /// accepted messages has nothing to report.
    fn give_up<'a>(&'a self, why: &'a str) -> BoxFuture<'a, ()> {
        let _ = why;
        Box::pin(std::future::ready(()))
    }

    /// Waits until all accepted messages have arrived, for `grace` at most, then closes all connections. The bus has
    /// already [handed over](crate::Bus::settle) the messages that waited for their receivers.
    fn shut_down(&self, grace: Duration) -> BoxFuture<'_, ()>;

    /// Makes an agent of this process reachable, and lets it send.
    ///
    /// # Errors
    /// If the agent cannot be served, for example without a certificate at a level that needs one.
    fn attach(&self, agent: &Arc<LocalAgent>) -> Result<(), TransportError>;

    /// The agent has a new credential, to be used from now on, also on open connections.
    fn credential_changed(&self, agent: &Arc<LocalAgent>);

    /// The agent has left this process. The bus may still hand over messages that the agent sent before.
    fn detach(&self, agent: &Arc<LocalAgent>);

    /// Whether messages can reach an agent, from now on. `None` if messages reach every attached agent, or if the agent
    /// is not attached.
    fn receives(&self, agent: &str) -> Option<watch::Receiver<bool>> {
        let _ = agent;
        None
    }

    /// The way to `receiver` in `process`. Connecting continues in the background.
    ///
    /// # Errors
    /// If there can be no such way.
    fn destination(
        &self,
        process: &ProcessEndpoint,
        receiver: &str,
    ) -> Result<Arc<dyn Destination>, TransportError>;

    /// The way to the bus of `process` itself. Connecting continues in the background. Frames that arrive from there go
    /// to [`Bus::take_frames`](crate::Bus::take_frames).
    ///
    /// # Errors
    /// If there can be no such way. A transport that carries no frames returns [`TransportError::NotOffered`].
    fn process_destination(
        &self,
        process: &ProcessEndpoint,
    ) -> Result<Arc<dyn ProcessDestination>, TransportError> {
        let _ = process;
        Err(TransportError::NotOffered {
            transport: self.name(),
            what: "frames between the buses of two processes",
        })
    }
}

/// The way to one agent in another process. Calls do not wait and do not allocate in the usual case.
pub trait Destination: Send + Sync {
    /// Accepts the message for delivery in order, or says why not.
    ///
    /// # Errors
    /// [`Rejected`]; then nothing was accepted.
    fn try_send(&self, sender: &Arc<LocalAgent>, outgoing: &Outgoing<'_>) -> Result<(), Rejected>;

    /// Accepts messages one after the other, as [`try_send`](Self::try_send) does, up to the first that it does not
    /// accept. Returns their number.
    fn try_send_row<'m>(
        &self,
        sender: &Arc<LocalAgent>,
        row: &mut dyn Iterator<Item = Outgoing<'m>>,
    ) -> usize {
        row.take_while(|outgoing| self.try_send(sender, outgoing).is_ok())
            .count()
    }

    /// The session to which all messages belong that this destination takes; `None` if they may arrive in another
    /// order, or in several processes. A destination of a session that has answered [`Rejected::Moving`] or
    /// [`Rejected::Closed`] takes nothing any more.
    fn session(&self) -> Option<SessionNumber> {
        None
    }

    /// The gate at which senders wait after [`Rejected::Full`]. The gate opens wide when the destination closes.
    fn gate(&self) -> &Gate;

    /// Takes back accepted messages that are not delivered. From now on [`try_send`](Self::try_send) answers
    /// [`Rejected::Moving`]. Once all such messages are back, [`Bus::returned`](crate::Bus::returned) is called.
    fn recall(&self);
}

/// Why a transport cannot do something.
#[derive(Clone, Debug, Error)]
pub enum TransportError {
    /// An agent without a certificate at a level that demands one.
    #[error(
        "agent {agent} has no certificate, but level {level} requires one: attach it with its credential"
    )]
    NoCredential {
        /// The agent.
        agent: String,
        /// The level of the transport.
        level: SecurityLevel,
    },
    /// The certificate of the process cannot be used.
    #[error("the certificate of this process cannot be used: {0}")]
    Credential(String),
    /// The transport was shut down.
    #[error("the transport {0} was shut down")]
    ShutDown(&'static str),
    /// There are more agents or peers than the configuration allows.
    #[error("{0}")]
    OverLimit(String),
    /// The transport cannot do that at all.
    #[error("the transport {transport} does not carry {what}: use another one for this platform")]
    NotOffered {
        /// The transport.
        transport: &'static str,
        /// The requested item.
        what: &'static str,
    },
}

enum Source<'a> {
    Message(&'a AclMessage),
    Encoded(&'a Bytes),
    /// An encoded message that is known to be sealed.
    Sealed(&'a Bytes),
}

/// A message on its way out. It is encoded when first needed, once for all its receivers.
pub struct Outgoing<'a> {
    source: Source<'a>,
    /// The encoding. It is kept only if more than one receiver may need it.
    encoded: Option<OnceLock<Bytes>>,
}

impl<'a> Outgoing<'a> {
    /// A message to its receivers.
    #[inline]
    pub(crate) fn new(message: &'a AclMessage) -> Self {
        Self {
            source: Source::Message(message),
            encoded: (message.receivers.len() > 1).then(OnceLock::new),
        }
    }

    /// A message that is already encoded.
    pub(crate) fn encoded(payload: &'a Bytes) -> Self {
        Self {
            source: Source::Encoded(payload),
            encoded: None,
        }
    }

    /// A message that is already sealed, and thus encoded.
    pub(crate) fn sealed(payload: &'a Bytes) -> Self {
        Self {
            source: Source::Sealed(payload),
            encoded: None,
        }
    }

    /// Whether the message asks for its author's proof.
    pub fn is_signed(&self) -> bool {
        match &self.source {
            Source::Message(message) => {
                !message.user_defined.is_empty() && asks_for_proof(&message.view())
            }
            Source::Sealed(_) => true,
            Source::Encoded(payload) => {
                let message = bitefficient::decode_ref(payload, &OWN_ENCODING);
                message.is_ok_and(|message| asks_for_proof(&message))
            }
        }
    }

    /// The length of the content in bytes. The encoding is at least that long.
    pub fn content_length(&self) -> usize {
        match &self.source {
            Source::Message(message) => message.content_bytes().map_or(0, <[u8]>::len),
            Source::Encoded(payload) | Source::Sealed(payload) => payload.len(),
        }
    }

    /// The bit-efficient encoding without `beginning`, if the message is known to begin with it: see [`Rest::behind`].
    #[inline]
    pub fn rest_behind(&self, beginning: &[u8]) -> Option<Rest<'a>> {
        match &self.source {
            Source::Message(message) => Rest::behind(message, beginning),
            Source::Encoded(_) | Source::Sealed(_) => None,
        }
    }

    /// Appends the bit-efficient encoding to `out`.
    ///
    /// # Errors
    /// If the message cannot be encoded; `out` may then hold a part of it.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match (&self.source, &self.encoded) {
            (Source::Encoded(payload) | Source::Sealed(payload), _) => {
                out.extend_from_slice(payload);
            }
            (Source::Message(message), None) => bitefficient::encode(message, out)?,
            (Source::Message(message), Some(cell)) => {
                if cell.get().is_none() {
                    let mut encoded = Vec::new();
                    bitefficient::encode(message, &mut encoded)?;
                    let _ = cell.set(encoded.into());
                }
                if let Some(encoded) = cell.get() {
                    out.extend_from_slice(encoded);
                }
            }
        }
        Ok(())
    }
}
