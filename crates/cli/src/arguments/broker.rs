//! `sealbus broker`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::listing::Listing;

#[derive(Debug, Subcommand)]
pub(crate) enum Broker {
    /// Write the files with which a RabbitMQ of your own carries a platform: configuration, plugins, definitions, and a
    /// certificate signed by the platform's CA
    #[command(
        name = "rabbitmq",
        after_help = "Example: sealbus broker rabbitmq platform.toml --write-config ./broker-1 --listen 10.0.0.5 --installed-at /etc/rabbitmq/factory"
    )]
    RabbitMq(BrokerRabbitMq),
    /// Show whether the brokers run and take messages, and how many messages wait there
    #[command(after_help = "Example: sealbus broker status --json")]
    Status(Listing),
    /// Show undelivered messages: when, from whom, to whom, and why
    #[command(after_help = "Example: sealbus broker dead-letters")]
    DeadLetters(Listing),
}

#[derive(Debug, Args)]
pub(crate) struct BrokerRabbitMq {
    /// The manifest, whose [rabbitmq] names the broker in `addresses`, or `-` for standard input
    #[arg(default_value = "platform.toml", value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,
    /// Folder for the files
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) write_config: PathBuf,
    /// Address that the broker listens on [default: the one in `addresses`, if there is only one]
    #[arg(long, value_name = "IP")]
    pub(crate) listen: Option<std::net::IpAddr>,
    /// Port for agents [default: as in `addresses`, or 5671]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Port of the management interface [default: as in `management`, or 15671]
    #[arg(long, value_name = "PORT")]
    pub(crate) management_port: Option<u16>,
    /// Path of the folder on the broker's machine [default: where it is written]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) installed_at: Option<PathBuf>,
}
