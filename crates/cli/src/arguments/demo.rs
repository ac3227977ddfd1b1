//! `sealbus demo`, and the programs that it starts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sealbus_seal::SecurityLevel;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Security level to measure; may be repeated [default: none, tls and auth]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Vec<SecurityLevel>,
    /// Transport of the messages
    #[arg(long, default_value = "mesh", value_name = "TRANSPORT")]
    pub(crate) transport: DemoTransport,
    /// Python interpreter with the package sealbus, for half of the agents [default: the one beside
    /// this program, or python3]
    #[arg(long, env = "SEALBUS_PYTHON", value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,
    /// Show the platform in a browser while the attacks are made
    #[arg(long)]
    pub(crate) window: bool,
    /// File for the report, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoTransport {
    Mesh,
    /// A RabbitMQ of the demo's own; the program must be installed
    #[value(name = "rabbitmq")]
    RabbitMq,
}

/// The Rust agents of the demo, which the demo's manifest starts.
#[derive(Debug, Args)]
pub(crate) struct DemoAgent {
    /// The role of the agent
    pub(crate) role: DemoRole,
}

/// The role of an agent of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoRole {
    Sender,
    Receiver,
}

/// The program that makes one of the demo's attacks.
#[derive(Debug, Args)]
pub(crate) struct DemoAttack {
    /// The attack
    pub(crate) kind: AttackKind,
    /// The agent that is attacked, with its platform
    #[arg(long)]
    pub(crate) receiver: String,
    /// Address of that agent's process, or of the broker
    #[arg(long)]
    pub(crate) address: std::net::SocketAddr,
    /// The virtual host, if the address is a broker's
    #[arg(long)]
    pub(crate) broker: Option<String>,
    /// The agent whose name the attacker borrows, with its platform
    #[arg(long)]
    pub(crate) innocent: String,
    /// Conversation-id of the messages
    #[arg(long)]
    pub(crate) conversation: String,
}

/// The attacks of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttackKind {
    Forgery,
    NoCertificate,
    OtherAuthority,
    Revoked,
}
