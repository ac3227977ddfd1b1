//! The client of RabbitMQ for one process.

use std::time::Duration;

use sealbus_bus::{Acknowledgement, BoxFuture};
use sealbus_seal::{Identity, PlatformName};

use super::connect::{ConnectError, Purpose, open};
use super::names;
use super::receiving::Deliveries;
use super::sending::Publications;
use crate::client::{BrokerFailure, Client, Owner, Receiving, Sending};
use crate::config::{BrokerConfig, BrokerSecurity};
use crate::envelope::Receiver;

/// How a process reaches its RabbitMQ.
#[derive(Clone, Debug)]
pub struct RabbitClient {
    /// The platform.
    pub platform: PlatformName,
    /// Level, and what belongs to it.
    pub security: BrokerSecurity,
    /// The virtual host. By default it is the platform's name.
    pub vhost: String,
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

impl From<ConnectError> for BrokerFailure {
    fn from(error: ConnectError) -> Self {
        Self::new(error)
    }
}

impl From<lapin::Error> for BrokerFailure {
    fn from(error: lapin::Error) -> Self {
        Self::new(error)
    }
}

impl Client for RabbitClient {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement::OnMajority
    }

    fn identity_of(&self, user: &str) -> Option<Identity> {
        names::identity_of_user(user, &self.platform).map(|(identity, _)| identity)
    }

    fn open_sending<'a>(
        &'a self,
        address: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Box<dyn Sending>, BrokerFailure>> {
        Box::pin(async move {
            let opened = open(self, address, owner, Purpose::Sending).await?;
            let publications = Publications::open(opened).await?;
            Ok(Box::new(publications) as Box<dyn Sending>)
        })
    }

    fn open_receiving<'a>(
        &'a self,
        address: &'a str,
        owner: &'a Owner,
        prefetch: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Receiving>, BrokerFailure>> {
        Box::pin(async move {
            let opened = open(self, address, owner, Purpose::Receiving).await?;
            let tag = match &owner.queue {
                Receiver::Agent(name) => name,
                Receiver::Process(_) => "frames",
            };
            let queue = names::queue(&owner.queue);
            let deliveries = Deliveries::open(opened, &queue, tag, prefetch).await?;
            Ok(Box::new(deliveries) as Box<dyn Receiving>)
        })
    }
}
