//! The broker of a platform, which its Master starts or finds.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use sealbus_bus::BoxFuture;
use sealbus_seal::{Credential, PlatformName, SecurityLevel, Trust};

use crate::administration::Administration;
use crate::client::BrokerFailure;
use crate::config::BrokerDescription;

/// The local name of the broker's own identity. No agent can have it.
pub const BROKER: &str = "broker";

/// The Master's input for a broker.
pub struct Site<'a> {
    /// The platform.
    pub platform: &'a PlatformName,
    /// The platform's security level.
    pub level: SecurityLevel,
    /// The address on which a broker started by the Master listens.
    pub address: IpAddr,
    /// The broker's own folder.
    pub folder: &'a Path,
    /// The platform's root certificate, DER.
    pub root: &'a [u8],
    /// The certificate of the platform's agent [`BROKER`]. A broker started by the Master shows it.
    pub credential: &'a Credential,
    /// The authorities that the platform believes.
    pub trust: Arc<Trust>,
}

/// A running broker.
pub struct RunningBroker {
    /// The Master's administration of the broker.
    pub administration: Arc<dyn Administration>,
    /// The program, if the Master started it.
    pub program: Option<Box<dyn Program>>,
    /// The description by which processes reach the broker.
    pub description: BrokerDescription,
}

/// A broker's program that the Master started.
pub trait Program: Send {
    /// Starts the broker again if it has died. Returns whether it had died.
    fn keep_running(&mut self) -> BoxFuture<'_, Result<bool, BrokerFailure>>;

    /// Ends the broker.
    fn stop(&mut self) -> BoxFuture<'_, ()>;
}
