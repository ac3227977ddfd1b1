//! The platform as a whole: `new`, `up`, `apply`, `down`, `status`, `doctor`, `describe`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;
use sealbus_seal::SecurityLevel;

use super::IsolationArguments;
use super::listing::Watch;
use crate::candidates;

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Folder for the project; its last part names the platform
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Example to begin with
    #[arg(long, default_value = "books", value_name = "TEMPLATE")]
    pub(crate) template: Template,
}

/// The examples that a project can begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// A seller answers the questions of a buyer that finds it in the DF
    Books,
    /// Sensors publish on a channel, and a dashboard shows the latest values
    Sensors,
    /// A contract net: painters bid for a fence, and the best offer gets the work
    Painters,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The manifest, or `-` for standard input [default: platform.toml if it exists, else a platform
    /// without agents]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
    /// Security level, in place of the manifest's
    #[arg(long)]
    pub(crate) level: Option<SecurityLevel>,
    /// Address on which the Master and the local nodes listen, in place of the manifest's
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Check the manifest and start nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the platform's log, with the steps of each certification, in place of the agents' output; also done when
    /// standard output is no terminal
    #[arg(long)]
    pub(crate) log: bool,
    /// Return when the platform is up, and leave it running; `sealbus down` ends it
    #[arg(long, short, conflicts_with = "check")]
    pub(crate) detach: bool,
    /// Also show the platform in a browser, as `sealbus window` does
    #[arg(long, conflicts_with_all = ["detach", "detached"])]
    pub(crate) window: bool,
    /// Join a platform as a further Master: a token of `sealbus token --master`, or a file with the certificates that
    /// `sealbus ca certify` printed; a Master that has joined needs neither again
    #[arg(long, value_name = "TOKEN|FILE", conflicts_with = "check")]
    pub(crate) join: Option<String>,
    /// Start although the clock is behind the last change of the platform's state, because the clock
    /// was ahead then and is right now
    #[arg(long)]
    pub(crate) accept_clock: bool,
    /// This is the platform that `--detach` starts
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) isolation: IsolationArguments,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// The changed manifest, or `-` for standard input [default: platform.toml]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
    /// Show the difference and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// How long agents may take to leave by themselves
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Put the private keys of the root and the CA into the file too
    #[arg(long)]
    pub(crate) with_keys: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The manifest, or `-` for standard input, if its [store] names the etcd into which the state is restored
    #[arg(long, value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// How long agents may take to leave by themselves
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Fail unless this many nodes are alive
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub(crate) nodes: u32,
    /// Fail unless this agent is active; may be given several times
    #[arg(long, value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: Vec<String>,
    /// How long the Master may take to answer
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The manifest of the platform that is to run here, or `-` for standard input [default: platform.toml if it exists]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) isolation: IsolationArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Describe {
    /// Show an agent: its process, certificate, services, waiting messages and refused attempts
    #[command(after_help = "Example: sealbus describe agent seller-1")]
    Agent(DescribeAgent),
    /// Show a node and the agents on it
    #[command(after_help = "Example: sealbus describe node node-1")]
    Node(DescribeNode),
    /// Show a channel: who hears an event on it, and the events that nodes keep
    #[command(after_help = "Example: sealbus describe channel /offers/tea")]
    Channel(DescribeChannel),
}

#[derive(Debug, Args)]
pub(crate) struct DescribeAgent {
    /// The agent
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeNode {
    /// The node
    #[arg(value_name = "NODE", add = ArgValueCandidates::new(candidates::nodes))]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeChannel {
    /// The channel, such as /offers/tea
    #[arg(value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: String,
}
