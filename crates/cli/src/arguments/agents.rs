//! Commands about agents: `ps`, `ticket`, `start`, `kill`, `move` and `logs`.

use clap::Args;
use sealbus_bus::Lifetime;

#[derive(Debug, Args)]
pub(crate) struct Ticket {
    /// Name of the agent
    #[arg(value_name = "NAME")]
    pub(crate) agent: String,
    /// Node that the agent attaches to [default: the least loaded]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Lifetime of the ticket, such as 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Show refused attempts, with their authors and reasons
    #[arg(long)]
    pub(crate) refused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The agent; agents of the same process start with it
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// The node that the agent moves to
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// Keep showing new output
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many last lines
    #[arg(long, short = 'n', default_value_t = 100, value_name = "COUNT")]
    pub(crate) lines: u32,
}
