//! How a process reaches its RabbitMQ.

use std::time::Duration;

use sealbus_seal::PlatformName;

use crate::config::{BrokerConfig, BrokerPromise, BrokerSecurity};

/// How a process reaches its RabbitMQ.
#[derive(Clone, Debug)]
pub struct RabbitClient {
    /// The platform.
    pub platform: PlatformName,
    /// The level, and the credentials that it needs.
    pub security: BrokerSecurity,
    /// The virtual host. By default it is the platform's name.
    pub vhost: String,
    /// The broker's promise about messages and frames.
    pub promise: BrokerPromise,
    /// How often both sides say that they are there.
    pub heartbeat: Duration,
}

impl RabbitClient {
    /// The client of a process with this configuration.
    pub fn new(config: &BrokerConfig) -> Self {
        Self {
            vhost: config.platform.to_string(),
            platform: config.platform.clone(),
            security: config.security.clone(),
            promise: config.promise,
            heartbeat: Duration::from_secs(10),
        }
    }

    /// The same in this virtual host.
    #[must_use]
    pub fn in_vhost(self, vhost: &str) -> Self {
        Self {
            vhost: vhost.to_owned(),
            ..self
        }
    }
}
