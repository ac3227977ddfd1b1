//! The native transport: brokerless, mutual TLS 1.3, process to process.
//!
//! Each process has one [`MeshEndpoint`]: a listener, and one link to each process it talks to, over which all their
//! agents talk. The thinking is in state machines without I/O ([`frame`], [`session`], [`flow`]); around them
//! each link has one task that reads and writes. A message accepted for sending is kept
//! until the other process has acknowledged it, over broken connections too.

mod config;
mod endpoint;
pub mod flow;
pub mod frame;
mod greeting;
mod inward;
mod link;
mod outward;
pub mod session;
mod task;
mod traffic;
mod wire;

pub use config::{MeshConfig, MeshSecurity, ProcessSecurity};
pub use endpoint::{BindError, LinkReport, MeshEndpoint};
pub use greeting::protocol_name;

/// 128 random bits; `None` if the system gives none.
fn token() -> Option<frame::Token> {
    sealbus_seal::ProcessId::random()
        .ok()
        .map(|random| *random.as_bytes())
}
