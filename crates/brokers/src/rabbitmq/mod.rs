//! RabbitMQ, by AMQP 0-9-1.
//!
//! Each agent has one queue, bound to a direct exchange by its AID. At level `auth` its certificate is its login (SASL
//! EXTERNAL). The property `user-id`, which the broker checks, names the sender of a message. If the platform's promise
//! is durable, it is a quorum queue, and a message is confirmed when a majority of the brokers has it on disk. If the
//! promise is transient, it is a classic queue, and a message is confirmed when one broker has it in memory.

mod access;
mod administration;
pub mod bare;
mod client;
mod condition;
mod connect;
mod dead_letters;
mod entry;
mod files;
mod instructions;
mod kind;
mod managed;
pub mod management;
pub mod names;
mod notices;
mod properties;
mod receiving;
mod sending;
mod site;
mod socket;

pub use access::RabbitClient;
pub use entry::{ChosenBroker, RabbitEntry};
pub use files::{BrokerCertificate, BrokerSetup};
pub use instructions::README;
pub use managed::{BrokerError, BrokerPorts, ManagedBroker};
pub use management::{Management, ManagementError};
pub use notices::read_dead_letter;
pub use site::{BrokerChoice, RabbitSettings};

/// The [kind](crate::BrokerKind) of this broker.
pub struct RabbitKind;
