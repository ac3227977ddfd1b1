//! The control conversations inside a platform: their messages, as serde types, and their transports.
//!
//! - [`enrolment`]: a node or a program joins over TLS, with a one-time token or ticket;
//! - [`attachment`]: an agent process and its node;
//! - [`node`]: a node and the Master or the CA, as the content of ACL messages;
//! - [`admin`]: the command line and the Master.
//!
//! The type of a request names its answer: see [`ask`]. [`rpc`] carries requests over a byte stream, and
//! [`correspondence`] carries them as ACL messages over the bus. An agent process sees its platform only through
//! [`host::Host`]. [`directory`] contains the places of agents: the Master keeps the original, and nodes follow it.
//!
//! The JSON has the same names as the types here, in kebab-case. Readers ignore unknown members, so that a newer peer
//! may add some. Instants are milliseconds since the Unix epoch.

pub mod admin;
pub mod ask;
mod asker;
pub mod attachment;
pub mod authority;
pub mod channel_log;
pub mod clock;
pub mod correspondence;
pub mod directory;
pub mod enrolment;
pub mod evidence;
mod exit;
mod fault;
pub mod host;
pub mod local;
pub mod mcp;
pub mod names;
pub mod neighbours;
pub mod node;
pub mod operators;
pub mod post;
pub mod rpc;
pub mod statement;
pub mod traffic;
pub mod turns;
pub mod word;
pub mod workload;

pub use sealbus_bus::{LogShares, network_of, text};

use std::net::{IpAddr, SocketAddr};

pub use sealbus_brokers::{BrokerDescription, Login};
use sealbus_gateways::GatewayPolicy;
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::Policy;
use serde::{Deserialize, Serialize};

use sealbus_manifest::isolation::Isolation;
use sealbus_manifest::{ChannelEntry, EvidenceEntry, TapEntry};

pub use fault::{Fault, FaultCode};
pub use sealbus_proof::Blob;
pub use sealbus_seal::Term;

/// Milliseconds since the Unix epoch.
pub type UnixMillis = u64;

/// The subject of a requested certificate. The signing request only proves possession of the key. The name is stated
/// beside it, and checked against the placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    /// An agent of this process, by local name.
    Agent {
        /// Local name, without `@hap`.
        name: String,
    },
    /// The agent process itself, for its links.
    Process,
}

/// The life-cycle states of FIPA00023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacedState {
    /// Placed, not yet running.
    Initiated,
    /// Running.
    Active,
    /// Halted by the platform or by itself.
    Suspended,
    /// Waits for an event.
    Waiting,
    /// Moves between nodes.
    Transit,
}

impl std::fmt::Display for PlacedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Initiated => "initiated",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Waiting => "waiting",
            Self::Transit => "transit",
        })
    }
}

/// The place of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "where", rename_all = "kebab-case")]
pub enum AgentLocation {
    /// In a process that listens for links.
    Process(ProcessContact),
    /// Between nodes. Messages to it must be held until its new place is known.
    InTransit,
    /// The agent is not on this platform.
    Unknown,
}

/// The identity and address of a process on the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessContact {
    /// The node that runs it.
    pub node: String,
    /// The process's name. It is unique for each start (`seller-1.3`) and certified.
    pub process: String,
    /// The address on which it listens.
    pub address: SocketAddr,
}

/// An agent's new place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryChange {
    /// Local name.
    pub agent: String,
    /// The agent's place now.
    #[serde(flatten)]
    pub location: AgentLocation,
}

/// A process that has ended: nothing sent to it arrives, and nothing comes from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EndedProcess {
    /// The node that ran it.
    pub node: String,
    /// The process's name.
    pub process: String,
}

impl ProcessContact {
    /// The process without its address.
    pub fn named(&self) -> EndedProcess {
        EndedProcess {
            node: self.node.clone(),
            process: self.process.clone(),
        }
    }
}

/// The rules for all processes of a platform: those of the manifest, and those that operators make for the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Permissions between agents.
    #[serde(default)]
    pub permission: Policy,
    /// The channels with settings other than the defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelEntry>,
    /// The agents whose received messages nodes record with their proofs.
    #[serde(default, skip_serializing_if = "EvidenceEntry::is_empty")]
    pub evidence: EvidenceEntry,
    /// The agents about whom watchers see less.
    #[serde(default, skip_serializing_if = "TapEntry::is_empty")]
    pub tap: TapEntry,
    /// The rights that operators give other platforms, in addition to the gateway's own configuration.
    #[serde(default, skip_serializing_if = "GatewayPolicy::is_empty")]
    pub gateway: GatewayPolicy,
}

/// A message that waited in a mailbox when its agent was frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingMessage {
    /// The message in FIPA's bit-efficient encoding.
    pub message: Blob,
    /// The proof of its sender when the message came in.
    pub provenance: WaitingProvenance,
}

/// The proof of the sender of a [`WaitingMessage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "kebab-case")]
pub enum WaitingProvenance {
    /// The message was sent within the process that had it.
    SameProcess {
        /// The sender's SPIFFE identity.
        identity: String,
    },
    /// The sender was proved by a certificate.
    Proved {
        /// The sender's SPIFFE identity.
        identity: String,
        /// The certificate's serial number, hexadecimal.
        serial: String,
    },
    /// The sender signed the message (level `signed`).
    Signed {
        /// The sender's SPIFFE identity.
        identity: String,
        /// The evidence, in the form of [`Evidence::decode`](sealbus_proof::Evidence::decode). The process that opens
        /// the message checks it.
        evidence: Blob,
    },
    /// The message came from another platform, through the gateway. The message itself contains the known facts about
    /// its origin.
    Foreign,
    /// Nothing was proved (levels `none` and `tls`).
    Claimed,
    /// The platform wrote the message.
    Platform,
}

impl WaitingProvenance {
    /// The bytes of the evidence, which count as part of the message.
    pub fn size(&self) -> usize {
        match self {
            Self::Signed { evidence, .. } => evidence.0.len(),
            _ => 0,
        }
    }
}

/// The key for sealed messages that an agent has stated last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedKey {
    /// A [`CertifiedEncryptionKey`](sealbus_seal::encryption::CertifiedEncryptionKey), followed by the key package;
    /// `None` if the agent has stated no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Blob>,
}

/// The keys of a process for sealed messages, sealed to the process that takes over its agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedKeys {
    /// An [`Encapsulation`](sealbus_seal::encryption::Encapsulation).
    pub encapsulation: Blob,
    /// The sealed keys.
    pub sealed: Blob,
}

/// One agent on its way: its saved state and its unread messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenAgent {
    /// Local name.
    pub agent: String,
    /// The state that the agent's `save` hook returned.
    pub state: Blob,
    /// The agent's unread messages, in order.
    pub mailbox: Vec<WaitingMessage>,
}

/// A refused message or connection, as the process counts it that refused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalRecord {
    /// When it last happened.
    pub at: UnixMillis,
    /// The source of the attempt, as far as it is known: a proved or claimed name, or an address.
    pub who: String,
    /// The identity that was proved, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved: Option<String>,
    /// The receiver of the attempt, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// The reason.
    pub reason: String,
    /// How often it happened since the last report.
    pub count: u64,
    /// The program whose process reports this, as its node knows it; `None` if the node or the Master itself refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RefusalRecord {
    /// The most characters of a name in a record.
    const NAME: usize = 256;
    /// The most characters of a reason.
    const REASON: usize = 1024;

    /// The same record, with texts that are limited and cannot control a terminal, because others made them.
    #[must_use]
    pub fn bounded(self) -> Self {
        let name = |name: String| text::excerpt(&name, Self::NAME);
        Self {
            who: name(self.who),
            proved: self.proved.map(name),
            receiver: self.receiver.map(name),
            reason: text::excerpt(&self.reason, Self::REASON),
            by: self.by.map(name),
            ..self
        }
    }
}

/// The facts that every member of a platform needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformDescription {
    /// The platform's name (`hap`).
    pub name: String,
    /// Security level: `none`, `tls`, `auth`.
    pub level: String,
    /// Certificates of the root authorities, DER.
    pub roots: Vec<Blob>,
    /// Lifetime of an agent certificate in seconds.
    pub certificate_lifetime: u64,
    /// The largest ACL message, in bytes.
    pub max_message: u64,
    /// The process of the system agents `ams`, `df` and `operator`. From level `auth` on it has all system agents.
    pub master: ProcessContact,
    /// The process of the control plane's agents, `master` and `ca`.
    pub control: ProcessContact,
    /// The transport that carries the platform's messages.
    #[serde(default)]
    pub transport: TransportDescription,
}

impl PlatformDescription {
    /// The level, if it is `auth` or above.
    fn authenticated(&self) -> Option<SecurityLevel> {
        self.level
            .parse()
            .ok()
            .filter(|level: &SecurityLevel| level.authenticates())
    }

    /// Whether the control plane has links of its own, because agents' messages have a level below `auth`. Its
    /// processes and those of agents then do not reach each other.
    pub fn is_control_apart(&self) -> bool {
        self.authenticated().is_none()
    }

    /// The platform as the processes of its control plane see it. Orders to nodes, and the nodes' reports to the
    /// Master, always have level `auth` at least. If agents' messages have a lower level, the control plane has mesh
    /// links of its own. Its messages are signed at most, because nodes read what the Master writes to them.
    pub fn control_plane(&self) -> Self {
        let (level, transport) = match self.authenticated() {
            Some(level) => (level.min(SecurityLevel::Signed), self.transport.clone()),
            None => (SecurityLevel::Auth, TransportDescription::Mesh),
        };
        Self {
            level: level.to_string(),
            transport,
            ..self.clone()
        }
        .for_control()
    }

    /// The same platform, for a process with agents of the control plane, whose messages may be longer than those of others.
    #[must_use]
    pub fn for_control(self) -> Self {
        Self {
            max_message: self.max_message.max(CONTROL_MESSAGE),
            ..self
        }
    }
}

/// The longest message that the control plane always carries, in bytes, however short the agents' messages must be. It
/// holds everything that a process can send in one frame.
const CONTROL_MESSAGE: u64 = rpc::LONGEST_FRAME as u64 + (1 << 20);

/// The transport of a platform's messages between processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TransportDescription {
    /// The mesh: process to process.
    #[default]
    Mesh,
    /// A broker. Its kind is its own name.
    #[serde(untagged)]
    Broker(BrokerDescription),
}

impl TransportDescription {
    /// Whether its links go on when another Master leads. A broker's users belong to one Master.
    pub fn outlives_masters(&self) -> bool {
        matches!(self, Self::Mesh)
    }
}

/// The description that a node gives of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// The node's address, as it appears in its agents' certificates.
    pub address: IpAddr,
    /// The name of its machine.
    pub host: String,
    /// The number of its processors.
    pub processors: u32,
    /// Version of Sealbus that it runs.
    pub version: String,
    /// The strongest isolation that its programs get. `None` if it cannot isolate programs, and therefore takes only
    /// programs that need no isolation.
    #[serde(default)]
    pub isolation: Option<Isolation>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_transport_travels_in_the_form_that_other_versions_know() {
        let least = json!({
            "kind": "rabbitmq", "addresses": ["a:1"], "vhost": "factory", "promise": "durable",
        });
        let most = json!({
            "kind": "rabbitmq", "addresses": ["a:1"], "vhost": "factory", "promise": "transient",
            "login": { "user": "agents", "password": "secret" }, "message_life": 60,
        });
        for form in [json!({ "kind": "mesh" }), least.clone(), most] {
            let transport: TransportDescription = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(serde_json::to_value(&transport).unwrap(), form);
            assert_eq!(transport.outlives_masters(), form["kind"] == "mesh");
        }
        let TransportDescription::Broker(broker) = serde_json::from_value(least).unwrap() else {
            panic!("a broker is described");
        };
        assert_eq!(broker.kind, "rabbitmq");
        assert_eq!(broker.own.get("vhost"), Some(&json!("factory")));
        assert_eq!(broker.own.len(), 1);
        let without_addresses = json!({ "kind": "rabbitmq", "vhost": "factory" });
        assert!(serde_json::from_value::<TransportDescription>(without_addresses).is_err());
    }
}
