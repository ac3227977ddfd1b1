//! `sealbus df`: the directory facilitator.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;

use super::listing::Watch;
use crate::candidates;

#[derive(Debug, Subcommand)]
pub(crate) enum Df {
    /// Find agents by their services; without options, list all
    #[command(after_help = "Example: sealbus df search --type book-selling")]
    Search(DfSearch),
    /// Register a service in the name of an agent
    #[command(
        after_help = "Example: sealbus df register seller-1 --type book-selling --name books"
    )]
    Register(DfRegister),
    /// Remove an agent's services
    #[command(after_help = "Example: sealbus df deregister seller-1 --name books")]
    Deregister(DfDeregister),
    /// Register this platform's DF with another platform's, which then searches here too
    #[command(
        after_help = "Example: sealbus df federate df@plat1 --address http://192.0.2.7:7778/acc"
    )]
    Federate(DfFederate),
}

#[derive(Debug, Args)]
pub(crate) struct DfSearch {
    /// Type of the service
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) service_type: Option<String>,
    /// Name of the service
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) service_name: Option<String>,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct DfRegister {
    /// The agent that offers the service
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    /// Type of the service
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) service_type: String,
    /// Name of the service
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) service_name: String,
    /// Lifetime of the entry unless it is renewed [default: as long as the agent]
    #[arg(long, value_name = "TIME")]
    pub(crate) lifetime: Option<Lifetime>,
}

#[derive(Debug, Args)]
pub(crate) struct DfDeregister {
    /// The agent that offers the service
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    /// Name of the service [default: all of the agent]
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) service_name: Option<String>,
}

/// Have this platform's DF searched by another platform's DF too.
#[derive(Debug, Args)]
pub(crate) struct DfFederate {
    /// Name of the other DF
    #[arg(value_name = "DF")]
    pub(crate) df: String,
    /// Address of the other DF; may be given several times
    #[arg(long = "address", value_name = "URL", required = true)]
    pub(crate) addresses: Vec<String>,
}
