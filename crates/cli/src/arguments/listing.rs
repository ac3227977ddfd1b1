//! `--watch`, which shows a listing again and again.

use clap::Args;
use sealbus_bus::Lifetime;

/// Shows a listing again and again.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Watch {
    /// Show it again every 2s, or as often as --watch=TIME says
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s"
    )]
    pub(crate) watch: Option<Lifetime>,
}

/// A listing without other options.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) watch: Watch,
}
