//! The settings of a Master.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::PlatformSettings;

/// The settings of a Master.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// The directory for the Master's state and keys.
    pub directory: PathBuf,
    /// The settings of the platform.
    pub settings: PlatformSettings,
    /// The address on which the Master listens.
    pub address: IpAddr,
    /// The port of the Master's agents. With 0 the system chooses at the first start.
    pub port: u16,
    /// The port for joining. With 0 the system chooses at the first start.
    pub enrolment_port: u16,
    /// The address for Prometheus, if it is to have the Master's metrics.
    pub metrics: Option<SocketAddr>,
    /// Start although the clock is behind the last write to the store: it was ahead then.
    pub accept_clock: bool,
}
