//! RabbitMQ as a kind of broker.

use std::sync::Arc;

use sealbus_seal::SignatureAlgorithm;
use serde_json::Value;

use super::RabbitKind;
use super::access::RabbitClient;
use super::entry::RabbitEntry;
use super::site::VHOST;
use crate::client::Client;
use crate::config::{BrokerConfig, BrokerDescription};
use crate::kind::{BrokerKind, BrokerSection, NamedBroker};

impl BrokerKind for RabbitKind {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn title(&self) -> &'static str {
        "RabbitMQ"
    }

    fn quiet(&self) -> &'static [&'static str] {
        &["lapin"]
    }

    fn example(&self) -> &'static str {
        "managed = true"
    }

    fn accepts(&self, signatures: SignatureAlgorithm) -> bool {
        signatures == SignatureAlgorithm::Ed25519
    }

    fn read(&self, section: &mut dyn BrokerSection) -> Option<Arc<dyn NamedBroker>> {
        Some(Arc::new(RabbitEntry::read(section)?))
    }

    fn named(&self, json: Value) -> serde_json::Result<Arc<dyn NamedBroker>> {
        Ok(Arc::new(serde_json::from_value::<RabbitEntry>(json)?))
    }

    fn client(&self, config: &BrokerConfig, description: &BrokerDescription) -> Arc<dyn Client> {
        let client = RabbitClient::new(config);
        match description.own.get(VHOST).and_then(Value::as_str) {
            Some(vhost) => Arc::new(client.in_vhost(vhost)),
            None => Arc::new(client),
        }
    }
}
