//! The client of RabbitMQ for one process.

use sealbus_bus::{Acknowledgement, BoxFuture};
use sealbus_seal::Identity;

use super::access::RabbitClient;
use super::connect::{ConnectError, Purpose, open};
use super::names;
use super::receiving::ReceivingConnection;
use super::sending::Publications;
use crate::client::{BrokerFailure, Client, Owner, Receiving, Sending};
use crate::config::BrokerPromise;
use crate::envelope::{Queue, Receiver};

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

    fn acknowledgement(&self) -> Option<Acknowledgement> {
        match self.promise {
            BrokerPromise::Durable => Some(Acknowledgement::OnMajority),
            BrokerPromise::Transient => None,
        }
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
            let publications = Publications::open(opened, &owner.queue, self.promise).await?;
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
            let queue = names::queue(&Queue {
                owner: owner.queue.clone(),
                promise: self.promise,
            });
            let deliveries = ReceivingConnection::open(opened, &queue, tag, prefetch).await?;
            Ok(Box::new(deliveries) as Box<dyn Receiving>)
        })
    }
}
