//! What things are called on the broker.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use sealbus_seal::{Identity, PlatformName, ProcessId};

/// The direct exchange that takes all messages; the routing key is the receiver's AID.
pub const MESSAGES: &str = "sealbus.messages";
/// The fanout exchange that takes what was not delivered.
pub const DEAD: &str = "sealbus.dead";
/// The queue where operators find what was not delivered.
pub const DEAD_LETTERS: &str = "sealbus.dead-letters";
/// Local name of the broker's own identity: no agent can have it.
pub const BROKER: &str = "broker";

/// The topic exchange that takes what the buses of processes say to each other.
pub const CHANNELS: &str = "sealbus.channels";
/// The content type of an ACL message, in the words of FIPA00069.
pub(crate) const ACL_MESSAGE: &str = "fipa.acl.rep.bitefficient.std";
/// The content type of a frame of the bus.
pub(crate) const FRAME: &str = "application/x-sealbus-frame";

/// The queue of an agent, by its whole name.
pub fn queue(agent: &str) -> String {
    format!("Agent-{agent}-MessageQueue")
}

/// The agent whose queue this is.
pub fn agent_of_queue(queue: &str) -> Option<&str> {
    queue.strip_prefix("Agent-")?.strip_suffix("-MessageQueue")
}

/// The user an agent is on the broker: the subject of its certificate as RFC 4514 prints it.
pub fn user(local_name: &str, address: IpAddr) -> String {
    format!("UID={local_name},CN={address}")
}

/// The user that an agent or a process with this identity is on the broker; nobody else is one.
pub fn user_of(identity: &Identity, address: IpAddr) -> Option<String> {
    match identity {
        Identity::Agent { name, .. } => Some(user(name.as_str(), address)),
        Identity::Process { node, process, .. } => {
            Some(format!("UID=node/{node}/process/{process},CN={address}"))
        }
        Identity::Node { .. } | Identity::Authority { .. } => None,
    }
}

/// The process of `platform` a user is.
pub fn process_of_user(user: &str, platform: &PlatformName) -> Option<Identity> {
    let (path, address) = user.strip_prefix("UID=")?.split_once(",CN=")?;
    let _: IpAddr = address.parse().ok()?;
    process(path, platform)
}

/// The process of `platform` at this path, `node/…/process/…`.
pub(crate) fn process(path: &str, platform: &PlatformName) -> Option<Identity> {
    let identity: Identity = format!("spiffe://{platform}/{path}").parse().ok()?;
    matches!(identity, Identity::Process { .. }).then_some(identity)
}

/// The path of a process, as [`process`] reads it.
pub(crate) fn path_of(process: &Identity) -> Option<String> {
    match process {
        Identity::Process { node, process, .. } => Some(format!("node/{node}/process/{process}")),
        _ => None,
    }
}

/// The queue of the frames for a process.
pub fn process_queue(process: &ProcessId) -> String {
    format!("Process-{process}-FrameQueue")
}

/// The process whose queue this is.
pub fn process_of_queue(queue: &str) -> Option<&str> {
    queue.strip_prefix("Process-")?.strip_suffix("-FrameQueue")
}

/// The routing key of what is for one process.
pub(crate) fn key_of_process(process: &str) -> String {
    format!("to.{process}")
}

/// The agent a user is, and where it says to be: the contrary of [`user`].
pub fn agent_of_user(user: &str) -> Option<(&str, IpAddr)> {
    let (name, address) = user.strip_prefix("UID=")?.split_once(",CN=")?;
    Some((name, address.parse().ok()?))
}

/// The identity that the broker proves when it is connected to.
pub fn broker_identity(platform: &PlatformName) -> Option<Identity> {
    Identity::agent(platform, BROKER).ok()
}

/// The whole name of the agent of `platform` that a user is.
pub(crate) fn sender_of_user(user: &str, platform: &PlatformName) -> Option<(Arc<str>, Identity)> {
    let (name, _) = agent_of_user(user)?;
    let identity = Identity::agent(platform, name).ok()?;
    Some((identity.agent_name()?.into(), identity))
}

/// A regular expression that matches just one of these texts.
pub(crate) fn exactly<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::from("^(");
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            out.push('|');
        }
        for character in text.chars() {
            if !character.is_ascii_alphanumeric() && character.is_ascii() {
                out.push('\\');
            }
            out.push(character);
        }
    }
    out.push_str(")$");
    out
}

/// A part of a path, as a URL writes it (RFC 3986 section 2.1).
pub(crate) fn escape(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{agent_of_queue, agent_of_user, escape, exactly, queue, user};

    #[test]
    fn names_go_there_and_back() {
        let address = "127.0.0.1".parse().unwrap();
        assert_eq!(user("a-1", address), "UID=a-1,CN=127.0.0.1");
        assert_eq!(
            agent_of_user("UID=a-1,CN=127.0.0.1"),
            Some(("a-1", address))
        );
        for not in ["a-1", "UID=a-1", "UID=a-1,CN=x", "CN=127.0.0.1,UID=a-1"] {
            assert_eq!(agent_of_user(not), None, "{not}");
        }
        assert_eq!(agent_of_queue(&queue("a@f")), Some("a@f"));
        assert_eq!(exactly(["a.b", "c"]), "^(a\\.b|c)$");
        assert_eq!(escape("/a b@c"), "%2Fa%20b%40c");
    }
}
