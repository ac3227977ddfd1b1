//! `sealbus channel`: channels of the AgentBus.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;
use sealbus_channels::{EventKey, QosOverride};

use crate::candidates;

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// Show the subscribers of channels, and the events kept
    #[command(after_help = "Example: sealbus channel list --json")]
    List,
    /// Publish an event on a channel
    #[command(
        after_help = "Example: sealbus channel publish /offers/tea 'fresh leaves' --property price=7"
    )]
    Publish(ChannelPublish),
    /// Print events as they are published: time, channel, verified sender, QoS, performative and content
    #[command(
        after_help = "Example: sealbus channel tail '/offers/**' --filter 'properties.price < 10'"
    )]
    Tail(ChannelTail),
    /// Print the last event of each key that a persistent channel keeps, over all nodes
    #[command(after_help = "Example: sealbus channel last /readings --per properties.sensor")]
    Last(ChannelLast),
    /// Ask everyone on a channel; print the answers as they come, and the names of agents that gave none
    #[command(after_help = "Example: sealbus channel request /wanted/tea '10 kg?' --timeout 2s")]
    Request(ChannelRequest),
}

#[derive(Debug, Args)]
pub(crate) struct ChannelPublish {
    /// The channel: /offers/tea, or an address; one that names an agent sends to that agent alone
    #[arg(value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: String,
    /// The content; `-` reads it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// The performative
    #[arg(long, default_value = "inform", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    #[command(flatten)]
    pub(crate) header: ChannelHeader,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelTail {
    /// The channel, or channels: `*` stands for one level, `**` for the rest
    #[arg(value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: String,
    /// Print only events that fulfil this expression (CEL), such as "sender == 'seller-1@factory'"
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// On persistent channels, begin this long ago (10m), or with the event of this number (17); each node counts what
    /// its own agents published on each channel
    #[arg(long, value_name = "TIME|NUMBER")]
    pub(crate) since: Option<Since>,
    /// On persistent channels, begin with this many last events
    #[arg(long, value_name = "COUNT", conflicts_with = "since")]
    pub(crate) last: Option<u64>,
    /// On persistent channels, begin with the last event of each value of this key, such as properties.sensor or sender
    #[arg(long, value_name = "KEY", conflicts_with_all = ["since", "last"])]
    pub(crate) last_per: Option<EventKey>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelLast {
    /// The channel
    #[arg(value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: String,
    /// The key: a property, such as properties.sensor, or another name of filters, such as sender
    #[arg(long, default_value = "channel", value_name = "KEY")]
    pub(crate) per: EventKey,
    /// Look only at events that fulfil this expression (CEL)
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "EXPR"
    )]
    pub(crate) filter: String,
    /// Wait this long for the nodes
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelRequest {
    /// The channel
    #[arg(value_name = "CHANNEL", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: String,
    /// The question; `-` reads it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Wait this long for answers
    #[arg(long, default_value = "2s", value_name = "TIME")]
    pub(crate) timeout: Lifetime,
    /// End after this many answers
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<usize>,
    /// The performative
    #[arg(long, default_value = "query-ref", value_name = "PERFORMATIVE")]
    pub(crate) performative: String,
    #[command(flatten)]
    pub(crate) header: ChannelHeader,
}

/// The header of a message: everything besides its content.
#[derive(Debug, Args)]
pub(crate) struct ChannelHeader {
    /// A property for filters, such as price=7; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) property: Vec<(String, String)>,
    /// QoS, such as at-least-once,priority=7,expiry=5s,ack=agent
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "QOS"
    )]
    pub(crate) qos: QosOverride,
}

/// The position from which a channel is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Time(Lifetime),
    Number(u64),
}

impl std::str::FromStr for Since {
    type Err = sealbus_bus::LifetimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The number may come as it is printed, with #. Unquoted, a shell takes # for a comment, so it may be left out.
        match text.strip_prefix('#').unwrap_or(text).parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) => text.parse().map(Self::Time),
        }
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, such as price=7")?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err("a name is made of letters, digits, '-' and '_'".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_channel_is_read_from_a_time_or_a_number_on() {
        for text in ["17", "#17"] {
            assert_eq!(text.parse(), Ok(Since::Number(17)));
        }
        let ago = Since::Time(Lifetime(Duration::from_secs(600)));
        assert_eq!("10m".parse(), Ok(ago));
        for text in ["", "#", "#x", "-1", "soon"] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
    }
}
