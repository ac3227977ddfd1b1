//! The gateway to other FIPA platforms, opened with [`Platform::open_gateway`](crate::Platform::open_gateway).

pub use sealbus_gateways::http::{
    GatewayCounters, GatewayPolicy, GatewayRule, HttpGatewayConfig, KnownPlatform,
};
pub use sealbus_platform::gateway::GatewayError;
