//! `sealbus send` and `sealbus mailbox`: messages to one agent.

use clap::Args;
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;

use super::listing::Watch;
use crate::candidates;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The receiver: seller-1, or seller-1@factory
    #[arg(value_name = "RECEIVER", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) receiver: String,
    /// The content; `-` reads it from standard input
    #[arg(value_name = "CONTENT", allow_hyphen_values = true)]
    pub(crate) content: String,
    /// The performative
    #[arg(long, default_value = "inform", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    /// Language of the content
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,
    /// Ontology of the content
    #[arg(long, value_name = "ONTOLOGY")]
    pub(crate) ontology: Option<String>,
    /// Interaction protocol
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
    /// Wait this long for a reply, and print it
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Lifetime>,
    /// Keep the message on a disk of the platform until the receiver takes it, for 7 days at most. An agent of the
    /// command's own sends the message, and the command waits for no reply
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) persistent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Mailbox {
    /// The agent
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) watch: Watch,
}
