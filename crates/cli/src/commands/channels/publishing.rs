//! `channel publish`: the output of the command.

use sealbus::channel::{ChannelPath, LogPlace, Reach};
use serde_json::{Value, json};

/// For `--json`.
pub(super) fn to_json(reach: &Reach, channel: &ChannelPath) -> Value {
    json!({
        "channel": channel.as_str(),
        "processes": reach.processes,
        "groups": reach.groups,
        "kept": reach.kept.as_ref().map(|place| json!({
            "node": &*place.node,
            "number": place.number,
        })),
    })
}

/// For people. The command itself subscribes to nothing.
pub(super) fn to_text(reach: &Reach, channel: &ChannelPath) -> String {
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
