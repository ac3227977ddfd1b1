//! The transport on a real RabbitMQ: messages, the suite of all transports, and a cluster whose brokers die. `make
//! test-rabbitmq` installs RabbitMQ and runs these tests.

#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used)]

mod cluster;
mod conformance;
mod messages;
mod ports;
#[path = "../support/mod.rs"]
mod support;
