//! What carries the bus of a process to the others: the mesh, or a broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::rabbitmq::{ProcessLogin, RabbitConfig, RabbitEndpoint, RabbitSecurity};
use sealbus_bus::Bus;
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::{Credential, Identity, SecurityLevel, Trust};
use tokio::sync::watch;

use super::certification::Certified;
use super::error::OpenError;
use sealbus_control::host::Membership;
use sealbus_control::{BrokerDescription, TransportDescription};

/// How long an agent may take to be reachable at the broker before its process is called ready without it.
const REACHABLE: Duration = Duration::from_secs(30);

/// What carries the bus of a process to the others.
pub(super) enum Carrier {
    Mesh(MeshEndpoint),
    RabbitMq {
        endpoint: RabbitEndpoint,
        /// The process listens nowhere; this is its address, without a port.
        address: SocketAddr,
    },
}

impl Carrier {
    /// Opens what the platform runs on.
    pub(super) async fn open(
        bus: &Bus,
        membership: &Membership,
        level: SecurityLevel,
        trust: &Arc<Trust>,
        certified: Certified,
    ) -> Result<Self, OpenError> {
        match &membership.platform.transport {
            TransportDescription::Mesh => mesh(bus, membership, level, trust, certified).await,
            TransportDescription::RabbitMq(broker) => {
                rabbitmq(bus, membership, level, trust, broker, certified)
            }
        }
    }

    pub(super) fn mesh(&self) -> Option<&MeshEndpoint> {
        match self {
            Self::Mesh(mesh) => Some(mesh),
            Self::RabbitMq { .. } => None,
        }
    }

    /// Where the process is reached.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Mesh(mesh) => mesh.local_address(),
            Self::RabbitMq { address, .. } => *address,
        }
    }

    /// Waits until messages come to these agents, by whole name.
    pub(super) async fn reachable(&self, agents: Vec<Arc<str>>) {
        let Self::RabbitMq { endpoint, .. } = self else {
            return;
        };
        for agent in agents {
            if !endpoint.receiving(&agent, REACHABLE).await {
                // Its queue is there: messages wait in it.
                tracing::warn!(%agent, "is not connected to the broker yet");
            }
        }
    }

    /// Whether messages come to an agent, by whole name, from the broker; none without one.
    pub(super) fn receives(&self, agent: &str) -> Option<watch::Receiver<bool>> {
        match self {
            Self::Mesh(_) => None,
            Self::RabbitMq { endpoint, .. } => endpoint.receives(agent),
        }
    }

    pub(super) fn set_process_credential(
        &self,
        credential: &Arc<Credential>,
    ) -> Result<(), String> {
        match self {
            Self::Mesh(mesh) => mesh
                .set_process_credential(credential)
                .map_err(|error| error.to_string()),
            Self::RabbitMq { endpoint, .. } => {
                endpoint.set_process_credential(credential.clone());
                Ok(())
            }
        }
    }

    pub(super) fn trust_changed(&self) {
        match self {
            Self::Mesh(mesh) => mesh.trust_changed(),
            Self::RabbitMq { endpoint, .. } => endpoint.trust_changed(),
        }
    }

    pub(super) fn forget_process(&self, process: &Identity) {
        match self {
            Self::Mesh(mesh) => mesh.forget_process(process),
            // What waits for its agents waits at the broker.
            Self::RabbitMq { endpoint, .. } => endpoint.forget_process(process),
        }
    }

    pub(super) async fn shut_down(&self, grace: Duration) {
        match self {
            Self::Mesh(mesh) => mesh.shut_down(grace).await,
            Self::RabbitMq { endpoint, .. } => endpoint.shut_down(grace).await,
        }
    }
}

async fn mesh(
    bus: &Bus,
    membership: &Membership,
    level: SecurityLevel,
    trust: &Arc<Trust>,
    certified: Certified,
) -> Result<Carrier, OpenError> {
    let identity = certified.certificate.identity().clone();
    let security = ProcessSecurity {
        credential: certified.credential,
        trust: trust.clone(),
    };
    let security = match level {
        SecurityLevel::None => MeshSecurity::None,
        SecurityLevel::Tls => MeshSecurity::Tls(security),
        SecurityLevel::Auth => MeshSecurity::Auth(security),
        SecurityLevel::Signed | SecurityLevel::Sealed => return Err(OpenError::Level(level)),
    };
    let mut config = MeshConfig::new(
        identity,
        SocketAddr::new(membership.address, membership.port),
        security,
    );
    config.largest_message = largest_message(membership);
    Ok(Carrier::Mesh(MeshEndpoint::bind(config, bus).await?))
}

fn rabbitmq(
    bus: &Bus,
    membership: &Membership,
    level: SecurityLevel,
    trust: &Arc<Trust>,
    broker: &BrokerDescription,
    certified: Certified,
) -> Result<Carrier, OpenError> {
    let login = || {
        broker.login.clone().ok_or_else(|| {
            OpenError::Description(format!("level {level} needs a login for the broker"))
        })
    };
    let security = match level {
        SecurityLevel::None => RabbitSecurity::None(login()?),
        SecurityLevel::Tls => RabbitSecurity::Tls(login()?, trust.clone()),
        SecurityLevel::Auth => RabbitSecurity::Auth(trust.clone()),
        SecurityLevel::Signed | SecurityLevel::Sealed => return Err(OpenError::Level(level)),
    };
    let platform = trust.platform().clone();
    let mut config = RabbitConfig::new(platform, broker.addresses.clone(), security);
    config.vhost.clone_from(&broker.vhost);
    config.largest_message = largest_message(membership);
    config.process = Some(ProcessLogin {
        identity: certified.certificate.identity().clone(),
        credential: Some(certified.credential),
    });
    config.message_life = broker.message_life.map(Duration::from_secs);
    let endpoint = RabbitEndpoint::open(config, bus)
        .map_err(|error| OpenError::Description(error.to_string()))?;
    Ok(Carrier::RabbitMq {
        endpoint,
        address: SocketAddr::new(membership.address, 0),
    })
}

fn largest_message(membership: &Membership) -> usize {
    usize::try_from(membership.platform.max_message).unwrap_or(usize::MAX)
}
