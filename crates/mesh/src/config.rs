//! The configuration of a mesh endpoint.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::{Credential, Identity, SecurityLevel, Trust};

/// The credential of an endpoint, and its trust.
#[derive(Clone, Debug)]
pub enum MeshSecurity {
    /// Level `none`: plain TCP, for measuring.
    None,
    /// Level `tls`: the dialling side checks the process that it dials. Senders are not proved.
    Tls(ProcessSecurity),
    /// Level `auth`: both sides, and every agent, prove their identity.
    Auth(ProcessSecurity),
    /// Level `signed`: as `auth`, and every agent signs its messages.
    Signed(ProcessSecurity),
}

/// A process's own certificate and key, and the roots that it trusts.
#[derive(Clone, Debug)]
pub struct ProcessSecurity {
    /// The certificate of this process, with its key.
    pub credential: Arc<Credential>,
    /// Roots, deny lists and clock tolerance. All verifiers of the process share them.
    pub trust: Arc<Trust>,
}

impl MeshSecurity {
    /// The security level of this configuration.
    pub fn level(&self) -> SecurityLevel {
        match self {
            Self::None => SecurityLevel::None,
            Self::Tls(_) => SecurityLevel::Tls,
            Self::Auth(_) => SecurityLevel::Auth,
            Self::Signed(_) => SecurityLevel::Signed,
        }
    }

    pub(crate) fn process(&self) -> Option<&ProcessSecurity> {
        match self {
            Self::None => None,
            Self::Tls(security) | Self::Auth(security) | Self::Signed(security) => Some(security),
        }
    }
}

/// The configuration of a mesh endpoint. [`MeshConfig::new`] gives the usual values.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// The identity of this process: an [`Identity::Process`].
    pub process: Identity,
    /// The address to listen on. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Level, certificate and trust.
    pub security: MeshSecurity,
    /// The largest message sent or received, in bytes of its encoding.
    pub largest_message: usize,
    /// The number of bytes sent on a link and not yet acknowledged by the other process at which senders wait.
    pub window: usize,
    /// The most connections at a time whose peers are not known yet. If there are more, the oldest one from the address
    /// with the most of them is ended.
    pub unproved_connections: usize,
    /// The most links to other processes.
    pub links: usize,
    /// The most agents bound to one link, and the most agents addressed over it, in each direction.
    pub agents_per_link: usize,
    /// How long a new connection may take until both sides have identified themselves.
    pub handshake_time: Duration,
    /// The time without traffic after which a peer is asked whether it is there.
    pub keep_alive: Duration,
    /// How long a peer may be silent before the connection is given up and opened again.
    pub silence: Duration,
    /// How long a broken link is retried before its messages are reported undeliverable.
    pub give_up: Duration,
    /// The first and the longest pause before a connection is tried again. The pause doubles each time.
    pub redial: (Duration, Duration),
}

impl MeshConfig {
    /// The usual configuration: messages up to 16 MiB, a window of 8 MiB, a peer given up after a minute.
    pub fn new(process: Identity, listen: SocketAddr, security: MeshSecurity) -> Self {
        Self {
            process,
            listen,
            security,
            largest_message: 16 << 20,
            window: 8 << 20,
            unproved_connections: 256,
            links: 4096,
            agents_per_link: 262_144,
            handshake_time: Duration::from_secs(5),
            keep_alive: Duration::from_secs(2),
            silence: Duration::from_secs(6),
            give_up: Duration::from_secs(60),
            redial: (Duration::from_millis(20), Duration::from_secs(1)),
        }
    }
}
