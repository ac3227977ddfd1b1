//! `sealbus gateway`: the way to other platforms.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Show the gateway's addresses, rules and counters
    #[command(after_help = "Example: sealbus gateway list --json")]
    List,
    /// Let another platform write to agents of this one
    #[command(
        after_help = "Example: sealbus gateway allow plat1 --to 'seller-*' --to df --register"
    )]
    Allow(GatewayAllow),
    /// Take back the permission of another platform to write here
    #[command(after_help = "Example: sealbus gateway deny plat1")]
    Deny(GatewayDeny),
    /// Show how many messages the gateway has carried and refused
    #[command(after_help = "Example: sealbus gateway counters --json")]
    Counters,
    #[command(hide = true)]
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayAllow {
    /// Name of the other platform, which follows the last @ in its agents' names; * for all
    #[arg(id = "neighbour", value_name = "PLATFORM")]
    pub(crate) platform: String,
    /// Agents it may write to; a * at the end stands for any rest [default: *]
    #[arg(long, value_name = "AGENT")]
    pub(crate) to: Vec<String>,
    /// Network it must come from and is written to, such as 10.0.0.7 or 10.0.0.0/24
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
pub(crate) struct GatewayDeny {
    /// Name of the other platform
    #[arg(id = "neighbour", value_name = "PLATFORM")]
    pub(crate) platform: String,
}
