//! The broker of a platform as its Master starts it or finds it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use sealbus_bus::BoxFuture;
use sealbus_seal::{Credential, PlatformName, SecurityLevel, Trust};

use crate::administration::Administration;
use crate::client::BrokerFailure;
use crate::config::Login;

/// Local name of the broker's own identity: no agent can have it.
pub const BROKER: &str = "broker";

/// The things a Master gives a broker.
pub struct Site<'a> {
    /// The platform.
    pub platform: &'a PlatformName,
    /// Its security level.
    pub level: SecurityLevel,
    /// Where a broker that the Master starts listens.
    pub address: IpAddr,
    /// The broker's own folder.
    pub folder: &'a Path,
    /// The platform's root certificate, DER.
    pub root: &'a [u8],
    /// The certificate of the platform's agent [`BROKER`], which a broker shows that the Master starts.
    pub credential: &'a Credential,
    /// The authorities that the platform believes.
    pub trust: Arc<Trust>,
}

/// A broker that is there.
pub struct Found {
    /// How the Master administers it.
    pub administration: Arc<dyn Administration>,
    /// The program, if the Master started it.
    pub program: Option<Box<dyn Program>>,
    /// Where processes reach it, as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// The part of the broker that belongs to the platform, by the broker's own name for such parts.
    pub vhost: String,
    /// The login all agents share, at the levels at which they do not prove who they are.
    pub login: Option<Login>,
}

/// A broker's program that the Master started.
pub trait Program: Send {
    /// Starts it again if it has died; says whether it had.
    fn keep_running(&mut self) -> BoxFuture<'_, Result<bool, BrokerFailure>>;

    /// Ends it.
    fn stop(&mut self) -> BoxFuture<'_, ()>;
}
