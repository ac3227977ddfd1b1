//! The native transport: brokerless, mutual TLS 1.3, process to process.
//!
//! Each process has one [`MeshEndpoint`]: a listener, and one link to each process that it talks to. A link carries the
//! messages of all agents of both processes. The logic is in state machines without I/O ([`frame`], [`session`],
//! [`flow`]). Each link has one task around them, which reads and writes. A link keeps an accepted message until the
//! other process has acknowledged it, even over broken connections.

mod config;
mod endpoint;
pub mod flow;
pub mod frame;
mod greeting;
mod inward;
mod link;
mod links;
mod outward;
mod own_process;
pub mod session;
mod statement;
mod strangers;
mod task;
mod traffic;
mod wire;

pub use config::{MeshConfig, MeshSecurity, ProcessSecurity};
pub use endpoint::{BindError, LinkReport, MeshEndpoint};
pub use greeting::protocol_name;
pub use strangers::{Stranger, Strangers, listen};

/// 128 random bits; `None` if the system gives none.
fn token() -> Option<frame::RandomId> {
    sealbus_seal::ProcessId::random()
        .ok()
        .map(|random| *random.as_bytes())
}
