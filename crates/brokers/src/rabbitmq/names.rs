//! The names of exchanges, queues and users on the broker.

use std::fmt::Write;
use std::net::IpAddr;

use sealbus_seal::{Identity, PlatformName};

use crate::config::BrokerPromise;
use crate::envelope::{Queue, Receiver};

/// The direct exchange for all messages. The routing key is the receiver's AID.
pub const MESSAGES: &str = "sealbus.messages";
/// The fanout exchange for undelivered messages.
pub(crate) const DEAD: &str = "sealbus.dead";
/// The queue in which operators find undelivered messages.
pub(crate) const DEAD_LETTERS: &str = "sealbus.dead-letters";
pub use crate::site::BROKER;

/// The topic exchange for the frames between the buses of processes.
pub const CHANNELS: &str = "sealbus.channels";
/// The content type of an ACL message, in the words of FIPA00069.
pub(crate) const ACL_MESSAGE: &str = "fipa.acl.rep.bitefficient.std";
/// The content type of a frame of the bus.
pub(crate) const FRAME: &str = "application/x-sealbus-frame";

/// The names of all queues of agents and of processes, as a regular expression.
pub(super) const ALL_QUEUES: &str =
    "^(Agent-.*-(Transient)?MessageQueue|Process-.*-(Transient)?FrameQueue)$";
/// The names of all marks, as a regular expression.
pub(super) const ALL_MARKS: &str = "^(Agent|Process)-.*-Mark$";

/// The mark of an agent or a process: an exchange that ends with the broker's process and that nobody uses. While it is
/// there, the broker has lost nothing.
pub(super) fn mark(owner: &Receiver) -> String {
    match owner {
        Receiver::Agent(name) => format!("Agent-{name}-Mark"),
        Receiver::Process(number) => format!("Process-{number}-Mark"),
    }
}

/// The word in a queue's name for its promise.
fn word(promise: BrokerPromise) -> &'static str {
    match promise {
        BrokerPromise::Durable => "",
        BrokerPromise::Transient => "Transient",
    }
}

/// The name of a queue of an agent or a process.
pub fn queue(queue: &Queue) -> String {
    let word = word(queue.promise);
    match &queue.owner {
        Receiver::Agent(name) => format!("Agent-{name}-{word}MessageQueue"),
        Receiver::Process(number) => format!("Process-{number}-{word}FrameQueue"),
    }
}

/// The queue of an agent or a process that has this name.
pub fn queue_of_name(name: &str) -> Option<Queue> {
    let part = |prefix: &str, suffix: &str| name.strip_prefix(prefix)?.strip_suffix(suffix);
    let of = |promise| {
        let word = word(promise);
        let owner = match part("Agent-", &format!("-{word}MessageQueue")) {
            Some(agent) => Receiver::Agent(agent.into()),
            None => Receiver::Process(part("Process-", &format!("-{word}FrameQueue"))?.into()),
        };
        Some(Queue { owner, promise })
    };
    of(BrokerPromise::Durable).or_else(|| of(BrokerPromise::Transient))
}

/// An agent's user on the broker: the subject of its certificate as RFC 4514 prints it.
pub fn user(local_name: &str, address: IpAddr) -> String {
    format!("UID={local_name},CN={address}")
}

/// The user of an agent or a process with this identity on the broker. Other identities have none.
pub fn user_of(identity: &Identity, address: IpAddr) -> Option<String> {
    match identity {
        Identity::Agent { name, .. } => Some(user(name.as_str(), address)),
        Identity::Process { node, process, .. } => {
            Some(user(&format!("node/{node}/process/{process}"), address))
        }
        Identity::Node { .. } | Identity::Authority { .. } => None,
    }
}

/// The agent or the process of `platform` that a user stands for, and its address: the inverse of [`user_of`].
pub fn identity_of_user(user: &str, platform: &PlatformName) -> Option<(Identity, IpAddr)> {
    let (name, address) = user.strip_prefix("UID=")?.split_once(",CN=")?;
    let address = address.parse().ok()?;
    let identity = match name.strip_prefix("node/") {
        Some(_) => format!("spiffe://{platform}/{name}").parse().ok()?,
        None => Identity::agent(platform, name).ok()?,
    };
    user_of(&identity, address)?;
    Some((identity, address))
}

/// The routing key of messages for one process.
pub(crate) fn key_of_process(process: &str) -> String {
    format!("to.{process}")
}

/// The identity that the broker proves to its clients.
pub(crate) fn broker_identity(platform: &PlatformName) -> Option<Identity> {
    Identity::agent(platform, BROKER).ok()
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

/// A part of a path, in the form of a URL (RFC 3986 section 2.1).
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
    use sealbus_seal::{Identity, PlatformName, ProcessId};

    use super::{escape, exactly, identity_of_user, queue, queue_of_name, user, user_of};
    use crate::config::BrokerPromise;
    use crate::envelope::{Queue, Receiver};

    #[test]
    fn names_go_there_and_back() {
        let address = "127.0.0.1".parse().unwrap();
        let platform = PlatformName::new("f").unwrap();
        assert_eq!(user("a-1", address), "UID=a-1,CN=127.0.0.1");
        let process = ProcessId::from_bytes([7; 16]);
        for identity in [
            Identity::agent(&platform, "a-1").unwrap(),
            Identity::process(&platform, "node-1", process).unwrap(),
        ] {
            let user = user_of(&identity, address).unwrap();
            assert_eq!(
                identity_of_user(&user, &platform),
                Some((identity, address))
            );
        }
        for not in [
            "a-1",
            "UID=a-1",
            "UID=a-1,CN=x",
            "CN=127.0.0.1,UID=a-1",
            "UID=node/node-1,CN=127.0.0.1",
        ] {
            assert_eq!(identity_of_user(not, &platform), None, "{not}");
        }
        for owner in [
            Receiver::Agent("a@f".into()),
            Receiver::Process("07".into()),
        ] {
            for promise in [BrokerPromise::Durable, BrokerPromise::Transient] {
                let owner = owner.clone();
                let of = Queue { owner, promise };
                assert_eq!(queue_of_name(&queue(&of)), Some(of));
            }
        }
        assert_eq!(exactly(["a.b", "c"]), "^(a\\.b|c)$");
        assert_eq!(escape("/a b@c"), "%2Fa%20b%40c");
    }
}
