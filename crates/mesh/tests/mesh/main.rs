//! Agents talk over the mesh: the suite of all transports, conversations, channels, breaks, moves, departures, and
//! messages to other platforms.

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
mod stand_ins;
#[path = "../support/mod.rs"]
mod support;
