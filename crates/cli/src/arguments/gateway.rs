//! `sealbus gateway`: the way to other platforms.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;

use super::listing::Listing;
use crate::candidates;

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Show the gateways' addresses, rules and counters
    #[command(after_help = "Example: sealbus gateway list --json")]
    List(Listing),
    /// Let another platform write to agents of this one
    #[command(
        after_help = "Example: sealbus gateway allow plat1 --to 'seller-*' --to df --register"
    )]
    Allow(GatewayAllow),
    /// Take back the permission of another platform to write here
    #[command(after_help = "Example: sealbus gateway deny plat1")]
    Deny(GatewayDeny),
    /// Show how many messages the gateways have carried and refused
    #[command(after_help = "Example: sealbus gateway counters --json")]
    Counters(Listing),
    /// Make a key for a caller of [gateway.mcp] or [gateway.a2a]; it is shown once, and the manifest gets its hash
    #[command(after_help = "Example: sealbus gateway key assistant")]
    Key(GatewayKey),
    /// Certify a caller of [gateway.mcp] or [gateway.a2a], which comes in with its certificate
    #[command(after_help = "Example: sealbus gateway certificate assistant assistant.csr")]
    Certificate(GatewayCertificate),
    #[command(hide = true)]
    Run,
    #[command(hide = true)]
    Mcp,
    #[command(hide = true)]
    A2a,
    #[command(hide = true)]
    Neighbours,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayAllow {
    /// Name of the other platform, which follows the last @ in its agents' names; * for all
    #[arg(id = "neighbour", value_name = "PLATFORM")]
    pub(crate) platform: String,
    /// Agents that the platform may write to; a * at the end stands for any rest [default: *]
    #[arg(long, value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) to: Vec<String>,
    /// Network of the other platform, from which it must write and in which it is written to, such as 10.0.0.7 or 10.0.0.0/24
    #[arg(long, value_name = "NETWORK")]
    pub(crate) from: Vec<String>,
    /// SHA-256 fingerprint of the certificate it must show
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) certificate: Option<String>,
    /// Let its agents register with the DF and subscribe there, too
    #[arg(long)]
    pub(crate) register: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayKey {
    /// Name of the caller, which is an agent of the platform
    #[arg(value_name = "NAME")]
    pub(crate) caller: String,
    /// The caller is one of [gateway.a2a]
    #[arg(long)]
    pub(crate) a2a: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayCertificate {
    /// Name of the caller, whose entry in the manifest says `certificate = true`
    #[arg(value_name = "NAME")]
    pub(crate) caller: String,
    /// File with its signing request (PKCS #10, PEM) for an Ed25519 key; - for standard input
    #[arg(value_name = "REQUEST")]
    pub(crate) request: PathBuf,
    /// Lifetime of the certificate, such as 1h or 30d, which is the longest
    #[arg(long, default_value = "7d", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayDeny {
    /// Name of the other platform
    #[arg(id = "neighbour", value_name = "PLATFORM")]
    pub(crate) platform: String,
}

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// Name of the host's agent [default: the one of the ticket in SEALBUS_TICKET]
    #[arg(value_name = "NAME", required_unless_present = "ticket")]
    pub(crate) agent: Option<String>,
    /// Ticket with which the agent joins [default: a new one, from the platform on this machine]
    #[arg(
        long,
        env = "SEALBUS_TICKET",
        hide_env_values = true,
        value_name = "TICKET",
        allow_hyphen_values = true
    )]
    pub(crate) ticket: Option<String>,
    /// How long to wait for the name while another agent has it, such as one that is still leaving
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}
