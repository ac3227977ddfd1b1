//! Why a Master could not be started.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sealbus_control::Fault;
use sealbus_process::OpenError;
use sealbus_seal::tls::TlsError;
use sealbus_seal::{CertificateError, IdentityError, KeyError};
use sealbus_store::StoreError;

use super::issuance_log::SharedLogError;
use super::state_store::StateError;
use super::written::ClockBehind;
use super::{AuthoritiesError, BrokerStartError, FoundationError, SystemError};

/// The reason why a Master could not be started. After such an error nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// The state directory cannot be made.
    #[error("the state directory {} cannot be made: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The state cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The issuance log cannot be brought from the store, or into it.
    #[error(transparent)]
    SharedLog(#[from] SharedLogError),
    /// The clock is behind the last write to the store.
    #[error(transparent)]
    ClockBehind(#[from] ClockBehind),
    /// The authorities could not be made or loaded.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The state could not be read or begun.
    #[error(transparent)]
    Foundation(#[from] FoundationError),
    /// A port is in use or not available.
    #[error(
        "the Master cannot listen for {what} on {address}: {error}; free it, or choose another port in the manifest"
    )]
    Listen {
        /// The purpose of the port.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The socket for operators cannot be made.
    #[error("the operators' socket {} cannot be made: {error}", path.display())]
    AdminSocket {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The operators' key cannot be kept.
    #[error("the operators' key in {} cannot be kept: {error}", path.display())]
    OperatorKey {
        /// The state directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The address stands for all interfaces.
    #[error("{0} does not name this machine alone: set an address by which others reach it")]
    Unspecified(IpAddr),
    /// Another Master runs on a copy of the state directory.
    #[error(
        "the Master on {host}, at {enrolment}, runs with {common} of this one, so {} was copied from its state directory, or that one from this one. Each Master needs a CA of its own: end the other one first, or join this one with an empty state directory and a new token (`sealbus token --master`, `sealbus up --join`)",
        directory.display()
    )]
    Copied {
        /// The other one's machine.
        host: String,
        /// The address at which nodes join it.
        enrolment: SocketAddr,
        /// The name or the CA that both have.
        common: &'static str,
        /// The state directory of this one.
        directory: PathBuf,
    },
    /// Another Master leads the platform, and the command is for that Master.
    #[error(
        "the Master on {host}, at {enrolment}, leads this platform, and this command would end its leadership: run it there"
    )]
    OtherLeads {
        /// The other one's machine.
        host: String,
        /// The address at which nodes join it.
        enrolment: SocketAddr,
    },
    /// An operator revoked the CA of this Master.
    #[error(
        "the CA {0} of this Master was revoked, and its key is removed: join the Master anew, with a new token (`sealbus token --master`, `sealbus up --join`)"
    )]
    Revoked(String),
    /// An operator ended the platform while this instance stood by.
    #[error("the platform was ended, so this Master no longer stands by")]
    Over,
    /// Several Masters on a broker.
    #[error(
        "{leader} leads, and a Master cannot stand by on {broker} yet: the broker would go on obeying a leader that was cut off. Use the mesh, or end the other Master first"
    )]
    OnBroker {
        /// The instance that leads.
        leader: String,
        /// The broker's name for people.
        broker: &'static str,
    },
    /// The Master's own process could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system agents could not be started.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The platform has no broker.
    #[error(transparent)]
    Broker(#[from] BrokerStartError),
    /// The desk reported a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate is not readable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A name is not valid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl MasterError {
    /// Whether the store cannot be reached at present.
    pub fn is_away(&self) -> bool {
        let store = match self {
            Self::State(StateError::Store(error)) | Self::Store(error) => error,
            _ => return false,
        };
        matches!(store, StoreError::Away { .. })
    }
}
