//! The transport of a process's bus to other processes: the mesh, or a broker of a registered kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::{BrokerConfig, BrokerEndpoint, BrokerSecurity, ProcessLogin, broker_kind};
use sealbus_bus::{Bus, Transport};
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::{SecurityLevel, Trust};

use super::certification::Certified;
use super::error::OpenError;
use sealbus_control::host::Membership;
use sealbus_control::{BrokerDescription, TransportDescription};

/// How long an agent may take to become reachable at the broker. After this time its process counts as ready without
/// the agent.
const REACHABLE: Duration = Duration::from_secs(30);

/// Opens the platform's transport as the transport of `bus`.
pub(super) async fn open(
    bus: &Bus,
    membership: &Membership,
    level: SecurityLevel,
    trust: &Arc<Trust>,
    certified: Certified,
) -> Result<(), OpenError> {
    match &membership.platform.transport {
        TransportDescription::Mesh => mesh(bus, membership, level, trust, certified).await,
        TransportDescription::Broker(described) => {
            let kind = broker_kind(&described.kind).ok_or_else(|| {
                OpenError::Description(format!(
                    "this version of Sealbus knows no transport {}: install the platform's version",
                    described.kind
                ))
            })?;
            let config = broker(membership, level, trust, described, certified)?;
            let client = kind.client(&config, described);
            BrokerEndpoint::open(config, client, bus)
                .map_err(|error| OpenError::Description(error.to_string()))?;
            Ok(())
        }
    }
}

/// Waits until these agents can get messages. They are given by their whole names.
pub(super) async fn reachable(transport: &dyn Transport, agents: Vec<Arc<str>>) {
    for agent in agents {
        let Some(mut receives) = transport.receives(&agent) else {
            continue;
        };
        let waited = tokio::time::timeout(REACHABLE, receives.wait_for(|is| *is)).await;
        if !matches!(waited, Ok(Ok(_))) {
            // The agent's queue exists, so messages wait in it.
            tracing::warn!(%agent, "is not connected to the broker yet");
        }
    }
}

async fn mesh(
    bus: &Bus,
    membership: &Membership,
    level: SecurityLevel,
    trust: &Arc<Trust>,
    certified: Certified,
) -> Result<(), OpenError> {
    let identity = certified.certificate.identity().clone();
    let security = ProcessSecurity {
        credential: certified.credential,
        trust: trust.clone(),
    };
    let security = match level {
        SecurityLevel::None => MeshSecurity::None,
        SecurityLevel::Tls => MeshSecurity::Tls(security),
        SecurityLevel::Auth => MeshSecurity::Auth(security),
        // The agents seal their messages themselves.
        SecurityLevel::Signed | SecurityLevel::Sealed => MeshSecurity::Signed(security),
    };
    let mut config = MeshConfig::new(
        identity,
        SocketAddr::new(membership.address, membership.port),
        security,
    );
    config.largest_message = largest_message(membership);
    MeshEndpoint::bind(config, bus).await?;
    Ok(())
}

/// The process's settings for the broker that the platform describes.
fn broker(
    membership: &Membership,
    level: SecurityLevel,
    trust: &Arc<Trust>,
    described: &BrokerDescription,
    certified: Certified,
) -> Result<BrokerConfig, OpenError> {
    let login = || {
        described.login.clone().ok_or_else(|| {
            OpenError::Description(format!("level {level} needs a login for the broker"))
        })
    };
    let security = match level {
        SecurityLevel::None => BrokerSecurity::None(login()?),
        SecurityLevel::Tls => BrokerSecurity::Tls(login()?, trust.clone()),
        SecurityLevel::Auth => BrokerSecurity::Auth(trust.clone()),
        // The agents seal their messages themselves.
        SecurityLevel::Signed | SecurityLevel::Sealed => BrokerSecurity::Signed(trust.clone()),
    };
    let platform = trust.platform().clone();
    let mut config = BrokerConfig::new(platform, described.addresses.clone(), security);
    config.largest_message = largest_message(membership);
    config.process = Some(ProcessLogin {
        identity: certified.certificate.identity().clone(),
        credential: Some(certified.credential),
    });
    config.promise = described.promise;
    config.message_life = described.message_life.map(Duration::from_secs);
    Ok(config)
}

fn largest_message(membership: &Membership) -> usize {
    usize::try_from(membership.platform.max_message).unwrap_or(usize::MAX)
}
