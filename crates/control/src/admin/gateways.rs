//! The gateways, as an operator sees them.

use sealbus_gateways::GatewayPolicy;
use serde::{Deserialize, Serialize};

use crate::mcp::McpStatus;
use crate::neighbours::NeighboursStatus;
use crate::node::GatewayStatus;
use crate::{Blob, UnixMillis};

/// The gateways, and the rules of the gateway to other platforms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayState {
    /// The gateway's state; `None` if it does not run, or does not answer.
    pub status: Option<GatewayStatus>,
    /// The rules that operators made.
    pub rules: GatewayPolicy,
    /// The state of the gateway for hosts of language models; `None` if it does not run, or does not answer.
    #[serde(default)]
    pub mcp: Option<McpStatus>,
    /// The state of the gateway for A2A clients; `None` if it does not run, or does not answer.
    #[serde(default)]
    pub a2a: Option<McpStatus>,
    /// The state of the gateway to agents of others; `None` if it does not run, or does not answer.
    #[serde(default)]
    pub neighbours: Option<NeighboursStatus>,
}

/// A caller's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedCaller {
    /// The caller's certificate and its issuers', DER.
    pub chain: Vec<Blob>,
    /// When the certificate ends.
    pub expires: UnixMillis,
}
