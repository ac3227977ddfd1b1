//! Message brokers as the Message Transport Service.
//!
//! With a broker, the agents' processes do not talk to each other. Each process talks to the broker. The broker keeps
//! each accepted message until its receiver has taken it. Code above the [`Transport`](sealbus_bus::Transport) trait
//! works as over the mesh.
//!
//! This crate delivers once and in order over any broker with implementations of two traits:
//!
//! - [`Client`] connects agents and processes: it opens a connection that [publishes](Sending) or one that
//!   [receives](Receiving).
//! - [`Administration`] is the Master's side: it makes and removes queues and logins, and hands over dead letters.
//!
//! Each broker is a module and a cargo feature of its own, and one line of [`BROKER_KINDS`]. By its [`BrokerKind`] other
//! crates read its section of a manifest, start it, and open its client.
//!
//! A message is accepted once it waits in this process, and confirmed once it is at the broker. If a connection breaks before the confirmation, this crate publishes the message
//! again. If the broker may lose confirmed messages, this crate also publishes those again that were confirmed lately. The receiver drops repeated messages, restores the order by the [`OrderStamp`], and acknowledges each message
//! that the agent has taken out of its mailbox.
//!
//! Each agent has a queue and logs in on connections of its own: one to receive, and one to send from its first message
//! on. The two are separate because a broker that is short of memory stops reading from connections that publish, and
//! acknowledgements must still get through. Each process also has a queue and a login, for the frames that channels
//! need. The broker proves the process, and a signature proves that an agent uses this process.

#![forbid(unsafe_code)]

mod accounts;
mod acks;
mod administration;
mod authorship;
mod broker;
mod client;
mod config;
mod deliveries;
mod endpoint;
mod envelope;
mod frame_inbox;
mod held;
mod inbox;
mod incoming;
mod kind;
mod kinds;
mod lasting_port;
mod link;
mod passed_over;
mod process_link;
mod proofs;
mod publisher;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod recent;
mod reconnecting;
mod site;
mod stamp;
mod unconfirmed;
mod wire;

pub use accounts::{Accounts, Placed};
pub use administration::{Account, Administration, DeadLetter, Death, Member, WaitingCounts};
pub use client::{Answer, BrokerFailure, Client, Condition, Owner, Receiving, Sending};
pub use config::{
    BrokerConfig, BrokerDescription, BrokerPromise, BrokerSecurity, Login, ProcessLogin,
};
pub use endpoint::{BrokerEndpoint, EndpointError, LinkReport};
pub use envelope::{BrokerDelivery, BrokerEnvelope, Kind, Queue, Receiver};
pub use kind::{BrokerKind, BrokerSection, BrokerSettings, NamedBroker, UnreadableFile};
pub use kinds::{BROKER_KINDS, broker_kind, quiet_log, transports};
pub use lasting_port::lasting_address;
pub use site::{BROKER, Program, RunningBroker, Site};
pub use stamp::OrderStamp;
