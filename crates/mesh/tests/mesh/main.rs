//! Agents talk over the mesh: the suite of all transports, conversations, channels, breaks, moves and departures.

#![allow(clippy::unwrap_used)]

mod broken_connections;
mod channels;
mod conformance;
mod conversation;
mod departed;
mod flow_and_movement;
mod forgotten;
mod leaving;
mod sizes;
#[path = "../support/mod.rs"]
mod support;
