//! Names that belong to the platform itself.

/// Local name of the Master's agent.
pub const MASTER: &str = "master";
/// Local name of the CA service's agent.
pub const CA: &str = "ca";
/// Local name of the white pages.
pub const AMS: &str = "ams";
/// Local name of the yellow pages.
pub const DF: &str = "df";
/// Local name of the agent in whose name operators send.
pub const OPERATOR: &str = "operator";
/// All system agents.
pub const SYSTEM_AGENTS: [&str; 5] = [MASTER, CA, AMS, DF, OPERATOR];

/// The system agents of the control plane, which nodes obey and report to.
pub const CONTROL_AGENTS: [&str; 2] = [MASTER, CA];

/// Name of the node that is the Master's own process; nothing is placed on it but what is started
/// in that process.
pub const MASTER_NODE: &str = "master";
