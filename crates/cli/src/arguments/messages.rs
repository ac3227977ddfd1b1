//! `sealbus send` and `sealbus mailbox`: messages to one agent.

use clap::Args;
use sealbus_bus::Lifetime;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The receiver: seller-1, or seller-1@factory
    #[arg(value_name = "RECEIVER")]
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
    pub(crate) wait: Option<Lifetime>,
}

#[derive(Debug, Args)]
pub(crate) struct Mailbox {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}
