//! Watching a running platform: `top`, `sniff` and `window`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;

use crate::candidates;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print one table and end, as is done when standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Begin with this list
    #[arg(long, value_name = "LIST", default_value = "agents")]
    pub(crate) list: TopList,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN", default_value = "rate")]
    pub(crate) sort: TopSort,
    /// Show only names that contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
    /// The time between two looks, from which rates are computed
    #[arg(long, short, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: Lifetime,
}

/// The lists of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopList {
    Agents,
    Channels,
    Processes,
}

/// The orders of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopSort {
    /// The most messages a second first
    Rate,
    /// The most waiting messages first; of channels, the most subscriptions
    Waiting,
    /// The most refused attempts first; of channels, the most lost events and failed filters
    Errors,
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct Sniff {
    /// Show only messages from or to these agents; `*` stands for any characters
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: Vec<String>,
    /// Show only messages of this conversation
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Show only messages of this interaction protocol
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
    /// Show only messages with one of these performatives, such as cfp,propose
    #[arg(long, value_name = "PERFORMATIVE", value_delimiter = ',')]
    pub(crate) performative: Vec<String>,
    /// Show only events on this channel, or channels: `*` stands for one level, `**` for the rest
    #[arg(long, value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: Option<String>,
    /// Show refused attempts alone
    #[arg(long, conflicts_with_all = ["conversation", "protocol", "performative", "channel"])]
    pub(crate) refused: bool,
    /// Also show the bodies of messages, 4 KiB of each. The Master's log notes it
    #[arg(long, conflicts_with_all = ["open", "refused"])]
    pub(crate) bodies: bool,
    /// End after this many messages
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<Lifetime>,
    /// Also write the shown messages and refusals to this file, which `--open` reads again
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    pub(crate) record: Option<PathBuf>,
    /// Read a recorded file, or `-` for standard input, in place of a running platform
    #[arg(long, value_name = "FILE")]
    pub(crate) open: Option<PathBuf>,
    /// At the end, print a sequence diagram for Mermaid
    #[arg(long, conflicts_with = "svg")]
    pub(crate) mermaid: bool,
    /// At the end, print a sequence diagram as SVG
    #[arg(long)]
    pub(crate) svg: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Window {
    /// Show a file that `sniff --record` or the window wrote, or `-` for standard input, in place of a running platform
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The port; 0 means any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// The address to listen on. Beyond loopback it needs --certificate
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) address: IpAddr,
    /// The name by which browsers reach the window, besides the address
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The certificate for TLS, with those of its issuers (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Print the link only, and start no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// End when standard input ends: a program that starts the window holds it open
    #[arg(long, hide = true)]
    pub(crate) until_input_ends: bool,
    /// Let the page show the bodies of messages, 4 KiB of each. The Master's log notes it
    #[arg(long, conflicts_with = "file")]
    pub(crate) bodies: bool,
    /// Let the page kill, move and revoke agents. It asks again, and the agent's name is typed
    #[arg(long, conflicts_with = "file")]
    pub(crate) operate: bool,
}
