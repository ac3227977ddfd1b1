//! Message brokers as the Message Transport Service: a module and a cargo feature each.
//!
//! With a broker the agents' processes do not talk to each other but each to the broker, which keeps what was accepted
//! until its receiver has taken it. Above the [`Transport`](sealbus_bus::Transport) trait nothing differs from the mesh.

#![forbid(unsafe_code)]

#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
