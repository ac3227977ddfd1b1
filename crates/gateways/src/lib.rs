//! Gateways to other agent platforms: the FIPA message transports over HTTP (FIPA00084) and over IIOP (FIPA00075), in
//! the forms of JADE and other platforms.
//!
//! The agent `gateway` of a platform opens a [`Gateway`]. From then on, an agent of another platform is a receiver like
//! any other if its identifier names an `http://`, `https://`, `IOR:` or `corbaloc:` address. Permitted messages from
//! other platforms arrive with [`Provenance::Foreign`](sealbus_bus::Provenance::Foreign). [`http`] and [`iiop`] are the
//! two transports. Everything else is the same for both: the rules ([`GatewayPolicy`]), the limits, the counters, the
//! queues to other platforms.

mod address;
mod arrival;
mod arrivals;
mod book;
mod config;
mod conversation;
mod counters;
mod farewell;
mod gateway;
pub mod http;
pub mod iiop;
mod inward;
mod outside;
mod outward;
mod peer;
mod peer_handle;
mod places;
mod policy;
mod prompt;
pub mod queue;
mod reach;
mod shared;
mod subscriber;
mod transmission;
mod waiting;

pub use address::{Address, AddressError};
pub use config::{ConfigError, GatewayConfig, GatewayLimits, IiopConfig, KnownPlatform};
pub use counters::{GatewayCounters, Turned};
pub use gateway::{Gateway, OpenGatewayError};
pub use policy::{Admission, GatewayPolicy, GatewayPolicyError, GatewayRule, MessageOrigin};
