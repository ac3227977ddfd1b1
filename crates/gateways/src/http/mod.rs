//! The FIPA agent message transport over HTTP (FIPA00084). Agents of this platform and of JADE, or of any other FIPA
//! platform, write to each other over it.
//!
//! An [`HttpGateway`] is opened for the agent `gateway` of a platform. From then on, an agent of another platform is a
//! receiver like any other if its identifier names an `http://` or `https://` address. Permitted messages from other
//! platforms are delivered with [`Provenance::Foreign`](sealbus_bus::Provenance::Foreign). The logic is free of I/O:
//! [`multipart`], [`transmission`], [`response`], [`queue`], [`policy`](GatewayPolicy).

mod address;
mod arrival;
mod arrivals;
mod book;
mod config;
mod counters;
mod gateway;
mod inward;
pub mod multipart;
mod outside;
mod outward;
mod peer;
mod peer_handle;
mod places;
mod policy;
mod prompt;
pub mod queue;
mod reach;
pub mod response;
mod server;
mod shared;
mod tls;
pub mod transmission;
mod waiting;

pub use address::{AddressError, HttpAddress};
pub use config::{ConfigError, GatewayLimits, HttpGatewayConfig, KnownPlatform, TlsConfig};
pub use counters::{GatewayCounters, Turned};
pub use gateway::{HttpGateway, OpenError};
pub use policy::{Admission, GatewayPolicy, GatewayRule, Origin, PolicyError};
pub use tls::TlsSetupError;
