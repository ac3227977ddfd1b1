//! Names that belong to the platform itself.

use sealbus_bus::GATEWAY;
use sealbus_seal::Name;

use crate::{Fault, FaultCode};

/// Local name of the Master's agent.
pub const MASTER: &str = "master";
/// Local name of the CA service's agent.
pub const CA: &str = "ca";
/// Local name of the white pages.
pub const AMS: &str = "ams";
/// Local name of the yellow pages.
pub const DF: &str = "df";
/// Local name of the agent that sends in the operators' name.
pub const OPERATOR: &str = "operator";
/// All system agents.
pub const SYSTEM_AGENTS: [&str; 5] = [MASTER, CA, AMS, DF, OPERATOR];

/// The system agents of the control plane, which nodes obey and report to.
pub const CONTROL_AGENTS: [&str; 2] = [MASTER, CA];

/// The name of the node that is the Master's own process. Only agents started in that process are placed on it.
pub const MASTER_NODE: &str = "master";

/// Checks the name requested for a node.
///
/// A node is certified under its name, and speaks as an agent of that name. So the names of agents that the platform
/// trusts are not available: a node named `gateway` could write in any foreign name.
///
/// # Errors
/// [`FaultCode::IllegalName`] if the node cannot have this name.
pub fn node_name(name: &str) -> Result<Name, Fault> {
    let mut reserved = SYSTEM_AGENTS.iter().chain(&[GATEWAY, MASTER_NODE]);
    if reserved.any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        let message = format!("no node may be named {name}: the platform itself uses that name");
        return Err(Fault::new(FaultCode::IllegalName, message).advise("choose another name"));
    }
    Name::new("node", name).map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_platform_are_not_for_nodes() {
        for name in [
            "gateway", "master", "ca", "ams", "df", "operator", "Gateway",
        ] {
            let fault = node_name(name).unwrap_err();
            assert_eq!(fault.code, FaultCode::IllegalName, "{name}");
            assert!(fault.message.contains("itself"), "{name}");
        }
        assert_eq!(node_name("node-1").unwrap().as_str(), "node-1");
        assert!(node_name("").is_err());
    }
}
