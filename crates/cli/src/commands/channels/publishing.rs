//! `channel publish`: how long the command stays, and what it says.

use sealbus::channel::{
    Channel, ChannelPath, LogPlace, PublishError, QosOverride, Reach, Reliability,
};
use sealbus::{Acknowledgement, AclMessage};
use serde_json::{Value, json};

/// What became of an event.
pub(super) enum Fate {
    /// It was given to all of these.
    Reached(Reach),
    /// It was published, and a process ended before it said that it has the event.
    Unacknowledged(String),
}

/// Publishes an event. The command ends when it has published. Until then it holds what a group of subscriptions is to
/// get, so it waits until a member has it.
pub(super) async fn publish_and_stay(
    channel: &Channel,
    event: AclMessage,
) -> Result<Fate, PublishError> {
    let qos = channel.qos();
    if qos.reliability == Reliability::BestEffort || qos.acknowledgement.is_some() {
        return channel.publish(event).await.map(Fate::Reached);
    }
    let waits = QosOverride {
        acknowledgement: Some(Some(Acknowledgement::ReceiverProcess)),
        ..QosOverride::default()
    };
    match channel.publish_with(event, waits).await {
        // Nobody asked for acknowledgements: a reader that has what it wanted may end without one.
        Err(PublishError::Unacknowledged(reason)) => Ok(Fate::Unacknowledged(reason.to_string())),
        published => published.map(Fate::Reached),
    }
}

impl Fate {
    /// For `--json`.
    pub(super) fn to_json(&self, channel: &ChannelPath) -> Value {
        match self {
            Fate::Reached(reach) => json!({
                "channel": channel.as_str(),
                "processes": reach.processes,
                "groups": reach.groups,
                "kept": reach.kept.as_ref().map(|place| json!({
                    "node": &*place.node,
                    "number": place.number,
                })),
            }),
            Fate::Unacknowledged(reason) => {
                json!({ "channel": channel.as_str(), "unacknowledged": reason })
            }
        }
    }

    /// For people. The command itself subscribes to nothing.
    pub(super) fn to_text(&self, channel: &ChannelPath) -> String {
        let reach = match self {
            Fate::Reached(reach) => reach,
            Fate::Unacknowledged(reason) => {
                return format!("published on {channel}, but not acknowledged by all: {reason}");
            }
        };
        let mut to = match reach.processes {
            1 => "to one process".to_owned(),
            count => format!("to {count} processes"),
        };
        match reach.groups {
            0 => {}
            1 => to.push_str(", and to one member of a group"),
            count => to.push_str(&format!(", and to one member of each of {count} groups")),
        }
        match (&reach.kept, reach.processes + reach.groups) {
            (None, 0) => format!("published on {channel}; nobody has subscribed"),
            (None, _) => format!("published on {channel} {to}"),
            (Some(LogPlace { node, number }), processes) => {
                let heard = match processes {
                    0 => "nobody listens now".to_owned(),
                    _ => format!("given {to} where somebody listens now"),
                };
                format!("published on {channel}: {node} keeps it as #{number}; {heard}")
            }
        }
    }
}
