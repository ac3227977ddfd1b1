//! RabbitMQ, by AMQP 0-9-1.
//!
//! Each agent has one durable quorum queue, bound to a direct exchange by its AID, and logs in by connections of its own:
//! one to receive, and one to send from its first message on (a broker short of memory stops reading from a connection
//! that publishes, and acknowledgements must still get through). At level `auth` its certificate is its login (SASL
//! EXTERNAL), and the property `user-id`, which the broker checks, says who sent a message.
//!
//! A message is accepted when it waits here; it is confirmed when a majority of the brokers has it on disk, and published
//! again if a connection breaks before. The receiver drops what it has seen and restores the order ([`Stamp`]), and
//! acknowledges what the agent has taken out of its mailbox.
//!
//! Each process has a queue and a login as well, for what the buses of processes say to each other: the frames that channels
//! stand on. The broker proves the process, and an agent that it speaks through it, by a signature.

mod acks;
pub mod bare;
mod condition;
mod config;
mod connect;
mod consumer;
mod dead_letters;
mod deliveries;
mod endpoint;
mod files;
mod frame_inbox;
mod incoming;
mod instructions;
mod link;
mod managed;
pub mod management;
pub mod names;
mod outgoing;
mod passed_over;
mod process_link;
mod proofs;
mod publisher;
mod socket;
mod stamp;

pub use condition::{Member, Waiting};
pub use config::{Login, ProcessLogin, RabbitConfig, RabbitSecurity};
pub use dead_letters::{DeadLetter, Death};
pub use endpoint::{LinkReport, OpenError, RabbitEndpoint};
pub use files::{BrokerCertificate, BrokerSetup};
pub use instructions::README;
pub use managed::{BrokerError, BrokerPorts, ManagedBroker};
pub use management::{Management, ManagementError};
pub use stamp::Stamp;
