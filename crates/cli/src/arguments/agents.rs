//! Commands about agents: `ps`, `ticket`, `start`, `stop`, `restart`, `kill`, `move` and `logs`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use sealbus_bus::{Lifetime, milliseconds};
use sealbus_control::node::LogPosition;

use super::listing::Watch;
use crate::candidates;

#[derive(Debug, Args)]
pub(crate) struct Ticket {
    /// Name of the agent
    #[arg(value_name = "NAME")]
    pub(crate) agent: String,
    /// Names of further agents of the same process
    #[arg(value_name = "NAME")]
    pub(crate) others: Vec<String>,
    /// Node that the agent attaches to [default: the least loaded]
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(candidates::nodes))]
    pub(crate) node: Option<String>,
    /// Lifetime of the ticket, such as 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub(crate) lifetime: Lifetime,
    /// How long to wait for the name while another agent has it, such as one that is still leaving
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Identity {
    /// The file of the key, which only its owner can read
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Show refused attempts, with their authors and reasons
    #[arg(long)]
    pub(crate) refused: bool,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The agent; agents of the same process start with it
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    /// How long the agent may take to get its certificate and run
    #[arg(long, default_value = "15s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The agent; agents of the same process leave with it
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    /// How long the agent may take to leave by itself
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Restart {
    #[command(flatten)]
    pub(crate) stop: Stop,
    /// How long the agent may then take to get its certificate and run
    #[arg(long, default_value = "15s", value_name = "TIME")]
    pub(crate) start_timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The agent
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    /// The agent
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    /// The node that the agent moves to
    #[arg(value_name = "NODE", add = ArgValueCandidates::new(candidates::nodes))]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The agents [default: all that the platform started, including those that have ended]; with several, each line begins with
    /// the name. The steps of certification are left out, unless --grep asks for them
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: Vec<String>,
    /// Show only lines in which this regular expression is found
    #[arg(long, value_name = "PATTERN")]
    pub(crate) grep: Option<regex::Regex>,
    /// Keep showing new output
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many last lines of each agent
    #[arg(long, short = 'n', default_value_t = 100, value_name = "COUNT")]
    pub(crate) lines: u32,
    /// Begin with what was printed this long ago (10m); nodes note the time once a second, so the first lines may be
    /// older by that
    #[arg(long, value_name = "TIME", conflicts_with = "lines")]
    pub(crate) since: Option<Lifetime>,
}

impl Logs {
    /// Where the logs begin.
    pub(crate) fn first(&self) -> LogPosition {
        match self.since {
            None => LogPosition::LastLines { lines: self.lines },
            Some(Lifetime(ago)) => LogPosition::Since {
                ago: milliseconds(ago),
            },
        }
    }
}
