//! `sealbus masters`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Masters {
    #[command(subcommand)]
    pub(crate) command: Option<MastersCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MastersCommand {
    /// Let a Master that stands by lead, and the one that leads stand by
    #[command(after_help = "Example: sealbus masters hand-over")]
    HandOver,
}
