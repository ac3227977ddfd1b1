//! The places of agents, from the platform's directory.

use std::sync::Arc;

use sealbus_bus::{
    BoxFuture, GATEWAY, Location, ProcessEndpoint, ResolveError, Resolver, is_foreign,
};
use sealbus_seal::{Identity, PlatformName};

use sealbus_control::attachment::ask;
use sealbus_control::host::Host;
use sealbus_control::{AgentLocation, FaultCode, ProcessContact};

/// Asks the host about the agents of its platform.
pub(super) struct DirectoryResolver {
    host: Arc<dyn Host>,
    platform: PlatformName,
}

impl DirectoryResolver {
    pub(super) fn new(host: Arc<dyn Host>, platform: PlatformName) -> DirectoryResolver {
        DirectoryResolver { host, platform }
    }

    async fn look_up(&self, agent: &str) -> Result<Location, ResolveError> {
        let fault = |reason: String| ResolveError {
            agent: agent.to_owned(),
            reason,
        };
        let (local, unknown) = match agent.rsplit_once('@') {
            Some((local, platform)) if platform == self.platform.as_str() => {
                (local, Location::Unknown)
            }
            // The gateway, which is an agent of this platform, leads to other platforms.
            _ if is_foreign(agent, &self.platform) => (GATEWAY, Location::NoGateway),
            _ => return Ok(Location::Unknown),
        };
        let local = local.to_owned();
        match self.host.ask(ask::Resolve { agent: local }).await {
            Ok(AgentLocation::Process(contact)) => endpoint(&self.platform, &contact)
                .map(Location::Process)
                .map_err(fault),
            Ok(AgentLocation::InTransit) => Ok(Location::InTransit),
            Ok(AgentLocation::Unknown) => Ok(unknown),
            Err(error) if error.code == FaultCode::Unknown => Ok(unknown),
            Err(error) => Err(fault(error.to_string())),
        }
    }
}

impl Resolver for DirectoryResolver {
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(self.look_up(agent))
    }
}

/// The endpoint of a process, to which the mesh connects.
fn endpoint(platform: &PlatformName, contact: &ProcessContact) -> Result<ProcessEndpoint, String> {
    let process = contact
        .process
        .parse()
        .map_err(|error| format!("{error}"))?;
    let identity =
        Identity::process(platform, &contact.node, process).map_err(|error| error.to_string())?;
    Ok(ProcessEndpoint {
        identity,
        address: contact.address,
    })
}
