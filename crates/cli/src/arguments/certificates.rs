//! `sealbus ca`: the platform's certification authority.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// Show the steps of each certification, and each revocation, in order
    #[command(after_help = "Example: sealbus ca log --agent seller-1")]
    Log(CaLog),
    /// List the issued certificates
    #[command(after_help = "Example: sealbus ca list --valid")]
    List(CaList),
    /// Revoke the certificates of an agent, which cuts it off at once
    #[command(after_help = "Example: sealbus ca revoke seller-1")]
    Revoke(CaRevoke),
    /// Print the root certificate (PEM), with which others check certificates of this platform
    #[command(after_help = "Example: sealbus ca root > factory.pem")]
    Root,
}

#[derive(Debug, Args)]
pub(crate) struct CaLog {
    /// Show only entries about this agent or node
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Show only this many last entries
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "follow")]
    pub(crate) lines: Option<u32>,
    /// Keep showing new entries
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaList {
    /// List only certificates that are neither expired nor revoked
    #[arg(long)]
    pub(crate) valid: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaRevoke {
    /// The agent, or a certificate's serial number
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The reason, shown with the revocation
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) reason: String,
}
