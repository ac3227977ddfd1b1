//! Why a process or an agent could not start, and why a process ended.

use std::io;

use sealbus_brokers::transports;
use sealbus_bus::AttachError;
use sealbus_mesh::BindError;
use sealbus_seal::SecurityLevel;

use super::CertificationError;
use sealbus_control::Fault;

/// The reason why a process ended, as its last log line states it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessEnd {
    /// The process itself left the platform.
    #[error("it has left the platform")]
    Closed,
    /// The process's node, and with it the platform, is gone for good.
    #[error(
        "the connection to the node {node} is gone for good: start the program again when the platform is back"
    )]
    PlatformGone {
        /// The node.
        node: String,
    },
    /// The platform no longer vouches for the process.
    #[error("{who} was revoked: {reason}")]
    Revoked {
        /// The process or its agent.
        who: String,
        /// The reason, as far as the platform states it.
        reason: String,
    },
    /// The process's agents went on in another process.
    #[error("its agents have moved to another node")]
    Moved,
}

/// The reason why a process could not take its place on the platform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The platform's description of itself is not valid.
    #[error("the platform's description is unusable: {0}")]
    Description(String),
    /// The process itself was not certified.
    #[error("this process was not certified: {0}")]
    Certification(#[from] CertificationError),
    /// The process cannot be reached by others.
    #[error("this process cannot listen for others: {0}")]
    Bind(#[from] BindError),
    /// The platform asks for a level that it cannot reach. It is refused rather than weakened.
    #[error(
        "a platform in one process does not reach level {0}: use {transports}",
        transports = transports()
    )]
    Level(SecurityLevel),
    /// The state of the moved agents could not be fetched.
    #[error("the agents that moved here could not be fetched: {0}")]
    Inheritance(Fault),
    /// The platform did not accept the address on which this process listens.
    #[error("the platform did not take the address of this process: {0}")]
    Announcement(Fault),
    /// The host's commands were taken before.
    #[error("this host already has a process")]
    HostInUse,
}

impl OpenError {
    /// Whether another program listens at the address of this process.
    pub fn is_address_in_use(&self) -> bool {
        let Self::Bind(BindError::Listen { source, .. }) = self else {
            return false;
        };
        source.kind() == io::ErrorKind::AddrInUse
    }
}

/// The reason why an agent could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenAgentError {
    /// The agent was not certified.
    #[error("agent {agent} was not certified: {source}")]
    Certification {
        /// The agent.
        agent: String,
        /// The reason.
        source: CertificationError,
    },
    /// The name belongs to one of the platform's own agents.
    #[error("a program's agent cannot be named {0}: that is the name of the platform's own agent")]
    Reserved(String),
    /// The bus did not accept the agent.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process is ending.
    #[error("agent {agent} cannot start: the process is ending ({reason})")]
    Ending {
        /// The agent.
        agent: String,
        /// The reason why the process ends.
        reason: String,
    },
    /// The state that the agent brought along cannot be read.
    #[error("the state that agent {agent} brought from its former node is unreadable: {what}")]
    Inheritance {
        /// The agent.
        agent: String,
        /// The fault.
        what: String,
    },
}
