//! `channel publish`: how long the command stays, and what it says.

use sealbus::Acknowledgement;
use sealbus::channel::{ChannelPath, LogPlace, Qos, QosOverride, Reach, Reliability};

/// This command ends when it has published. Until then it holds what a group of subscriptions is to get, so it waits
/// until a member has it.
pub(super) fn until_it_is_there(qos: &Qos) -> QosOverride {
    let is_enough = qos.reliability == Reliability::BestEffort || qos.acknowledgement.is_some();
    QosOverride {
        acknowledgement: (!is_enough).then_some(Some(Acknowledgement::ReceiverProcess)),
        ..QosOverride::default()
    }
}

/// The fate of a published event. The command itself subscribes to nothing.
pub(super) fn published(channel: &ChannelPath, reach: &Reach) -> String {
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
