//! Message brokers as the Message Transport Service.
//!
//! With a broker, the agents' processes do not talk to each other. Each process talks to the broker, and the broker keeps
//! what it accepted until the receiver has taken it. Above the [`Transport`](sealbus_bus::Transport) trait nothing differs
//! from the mesh.
//!
//! This crate delivers once and in order over any broker that implements two contracts:
//!
//! - [`Client`] connects agents and processes: it opens a connection that [publishes](Sending) or one that
//!   [receives](Receiving).
//! - [`Administration`] is the Master's side: it makes queues and logins, removes them, and hands over dead letters.
//!
//! Each broker is a module and a cargo feature of its own. A message is accepted when it waits in this process. It is
//! confirmed when the broker has it, and it is published again if a connection breaks before. The receiver drops what it has
//! seen, restores the order by the [`Stamp`], and acknowledges what the agent has taken out of its mailbox.
//!
//! Each agent has a queue and logs in by connections of its own: one to receive, and one to send from its first message on.
//! A broker that is short of memory stops reading from connections that publish, and acknowledgements must still get through.
//! Each process has a queue and a login as well, for the frames that channels stand on. The broker proves the process, and a
//! signature proves that an agent speaks through it.

#![forbid(unsafe_code)]

mod accounts;
mod acks;
mod administration;
mod client;
mod config;
mod endpoint;
mod envelope;
mod frame_inbox;
mod inbox;
mod incoming;
mod link;
mod outgoing;
mod passed_over;
mod process_link;
mod proofs;
mod publisher;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod site;
mod stamp;

pub use accounts::{Accounts, Placed};
pub use administration::{Account, Administration, DeadLetter, Death, Member, Waiting};
pub use client::{Answer, BrokerFailure, Client, Condition, Owner, Receiving, Sending};
pub use config::{BrokerConfig, BrokerSecurity, Login, ProcessLogin};
pub use endpoint::{BrokerEndpoint, LinkReport, OpenError};
pub use envelope::{Delivery, Envelope, Kind, Receiver};
pub use site::{BROKER, Found, Program, Site};
pub use stamp::Stamp;
