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
    /// It was given to all of these, and one ended before it said that it has the event.
    Unacknowledged(Reach, String),
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
        Err(PublishError::Unacknowledged { reason, reach }) => {
            Ok(Fate::Unacknowledged(reach, reason.to_string()))
        }
        published => published.map(Fate::Reached),
    }
}

impl Fate {
    fn reach(&self) -> &Reach {
        match self {
            Fate::Reached(reach) | Fate::Unacknowledged(reach, _) => reach,
        }
    }

    /// For `--json`.
    pub(super) fn to_json(&self, channel: &ChannelPath) -> Value {
        let reach = self.reach();
        let mut told = json!({
            "channel": channel.as_str(),
            "processes": reach.processes,
            "groups": reach.groups,
            "kept": reach.kept.as_ref().map(|place| json!({
                "node": &*place.node,
                "number": place.number,
            })),
        });
        if let Fate::Unacknowledged(_, reason) = self {
            told["unacknowledged"] = Value::from(reason.as_str());
        }
        told
    }

    /// For people. The command itself subscribes to nothing.
    pub(super) fn to_text(&self, channel: &ChannelPath) -> String {
        let reach = self.reach();
        let mut to = match reach.processes {
            1 => "to one process".to_owned(),
            count => format!("to {count} processes"),
        };
        match reach.groups {
            0 => {}
            1 => to.push_str(", and to one member of a group"),
            count => to.push_str(&format!(", and to one member of each of {count} groups")),
        }
        let published = match (&reach.kept, reach.processes + reach.groups) {
            (None, 0) => format!("published on {channel}; nobody has subscribed"),
            (None, _) => format!("published on {channel} {to}"),
            (Some(LogPlace { node, number }), processes) => {
                let heard = match processes {
                    0 => "nobody listens now".to_owned(),
                    _ => format!("given {to} where somebody listens now"),
                };
                format!("published on {channel}: {node} keeps it as #{number}; {heard}")
            }
        };
        match self {
            Fate::Reached(_) => published,
            Fate::Unacknowledged(_, reason) => {
                format!("{published}; not acknowledged by all: {reason}")
            }
        }
    }
}
