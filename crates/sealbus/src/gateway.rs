//! The gateway to other FIPA platforms, opened with [`Platform::open_gateway`](crate::Platform::open_gateway).

pub use sealbus_gateways::{
    GatewayConfig, GatewayCounters, GatewayPolicy, GatewayRule, IiopConfig, KnownPlatform,
};
pub use sealbus_platform::gateway::GatewayError;
