//! The command line and the Master, over a unix socket that only the platform's owner may open.

use std::net::{IpAddr, SocketAddr};

use sealbus_gateways::http::{GatewayPolicy, GatewayRule};
use serde::{Deserialize, Serialize};

use super::channel_log::KeptLog;
use super::node::{GatewayStatus, LogPosition};
use super::post::WaitingLetter;
use super::{AgentState, Blob, RefusalRecord, UnixMillis};
use crate::answers::answers;

/// The requests of an operator to the Master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum AdminRequest {
    /// The platform as a whole.
    Status,
    /// Its nodes.
    Nodes,
    /// Its agents.
    Agents,
    /// The refused attempt.
    Refusals,
    /// A one-time token for a node.
    Token {
        /// The node's name, if the token is to be good for that one only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Seconds it is good for.
        lifetime: u64,
    },
    /// A one-time ticket for a program the platform does not start.
    Ticket {
        /// Local name of the agent it may be.
        agent: String,
        /// The node to attach to; without it the least loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Seconds it is good for.
        lifetime: u64,
    },
    /// Start what a manifest names (already validated; the Master validates again).
    Start {
        /// The manifest's agents.
        agents: Vec<sealbus_manifest::AgentEntry>,
    },
    /// Start an agent of a manifest again that has ended, with its process.
    StartAgain {
        /// Local name.
        agent: String,
    },
    /// End an agent, with its process, and revoke its certificate.
    Kill {
        /// Local name.
        agent: String,
        /// Milliseconds it has to leave by itself.
        grace: u64,
    },
    /// Move an agent, with its process, to another node.
    Move {
        /// Local name.
        agent: String,
        /// The node.
        node: String,
    },
    /// A piece of an agent's log.
    Log {
        /// Local name.
        agent: String,
        /// Where to begin.
        from: LogPosition,
    },
    /// The messages that wait for an agent, on all nodes.
    Mailbox {
        /// Local name.
        agent: String,
    },
    /// The kept events of persistent channels, on all nodes.
    ChannelLogs,
    /// Events of the certification log from a sequence number on.
    CertificationEvents {
        /// The first wanted.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// The certificates issued and not yet expired.
    Certificates {
        /// Expired and revoked ones too.
        all: bool,
    },
    /// The platform's root certificate.
    Root,
    /// Revoke by hand.
    Revoke {
        /// An agent's local name, or a serial number.
        what: String,
        /// Why.
        reason: String,
    },
    /// The signed head of the Merkle log of issued certificates, after checking all of it.
    Checkpoint,
    /// Send a message as `operator@hap`.
    Send {
        /// The message; its sender is filled in.
        message: SendMessage,
    },
    /// Search the DF.
    DfSearch {
        /// Type of service; without it all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service_type: Option<String>,
        /// Name of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service_name: Option<String>,
    },
    /// Register a service in the DF in an agent's name, by the operator's authority.
    DfRegister {
        /// Local name of the agent.
        agent: String,
        /// Type of service.
        service_type: String,
        /// Name of the service.
        service_name: String,
        /// Seconds; without it for the agent's life.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
    },
    /// The gateway: its addresses, rules and counters.
    Gateway,
    /// Let another platform write to agents of this one.
    GatewayAllow {
        /// The rule.
        rule: GatewayRule,
    },
    /// Take back what operators allowed a platform.
    GatewayDeny {
        /// Name of the platform.
        platform: String,
    },
    /// Have this platform's DF search in another platform's too, by registering with it.
    Federate {
        /// Name of the other DF, `df@plat1`.
        df: String,
        /// Its addresses.
        addresses: Vec<String>,
    },
    /// How the broker is, what waits there, and what was not delivered.
    Broker,
    /// Certify a broker that operators run themselves.
    CertifyBroker {
        /// Where it listens.
        address: IpAddr,
        /// Its signing request (PKCS #10).
        request: Blob,
    },
    /// End all agents, nodes and the Master.
    Shutdown {
        /// Milliseconds agents have to leave by themselves.
        grace: u64,
    },
}

/// A message an operator sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMessage {
    /// FIPA performative.
    pub performative: String,
    /// Names of the receivers, local or with `@hap`.
    pub receivers: Vec<String>,
    /// The content.
    pub content: String,
    /// Content language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Ontology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ontology: Option<String>,
    /// Interaction protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Milliseconds to wait for a reply of each receiver; 0 does not wait.
    #[serde(default)]
    pub wait: u64,
}

/// The Master's answers to an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AdminAnswer {
    /// To `Status`.
    Status(PlatformStatus),
    /// To `Mailbox`.
    Mailbox {
        /// The messages that wait, in order on each node; the first of many.
        letters: Vec<WaitingLetter>,
        /// How many there are in all.
        total: u64,
        /// Nodes that did not answer: what they keep is not known.
        silent: Vec<SilentNode>,
    },
    /// To `ChannelLogs`.
    ChannelLogs {
        /// By channel and node.
        logs: Vec<KeptLog>,
        /// Nodes that did not answer: what they keep is not known.
        silent: Vec<SilentNode>,
    },
    /// To `Nodes`.
    Nodes {
        /// By name.
        nodes: Vec<NodeStatus>,
    },
    /// To `Agents`, `Start` and `StartAgain`.
    Agents {
        /// By name.
        agents: Vec<AgentStatus>,
    },
    /// To `Refusals`.
    Refusals {
        /// Latest last.
        records: Vec<RefusalRecord>,
    },
    /// To `Token` and `Ticket`.
    Secret {
        /// The printable token or ticket.
        token: String,
        /// When it ends.
        expires: UnixMillis,
    },
    /// To `Log`.
    Log {
        /// The text.
        text: String,
        /// Where the next piece begins.
        next: u64,
    },
    /// To `CertificationEvents`.
    CertificationEvents {
        /// In order.
        events: Vec<CertificationEvent>,
        /// Sequence number the next one will have.
        next: u64,
    },
    /// To `Certificates` and `Revoke`.
    Certificates {
        /// Latest last.
        certificates: Vec<CertificateStatus>,
    },
    /// To `Root`.
    Root {
        /// The certificate, PEM.
        certificate: String,
    },
    /// To `Checkpoint`.
    Checkpoint {
        /// Certificates in the log.
        size: u64,
        /// Its root hash, hexadecimal.
        root: String,
        /// The signed checkpoint.
        signed: Blob,
    },
    /// To `Send`.
    Replies {
        /// Each in FIPA's string encoding.
        replies: Vec<String>,
    },
    /// To `DfSearch`.
    Services {
        /// One for each service found.
        services: Vec<ServiceStatus>,
    },
    /// To `Gateway`, `GatewayAllow` and `GatewayDeny`.
    Gateway {
        /// How it is; none if it does not run, or does not answer.
        status: Option<GatewayStatus>,
        /// The rules that operators made.
        rules: GatewayPolicy,
    },
    /// To `Move`.
    Moved {
        /// The agents that moved together.
        agents: Vec<String>,
        /// The node they are on now.
        node: String,
    },
    /// To `Broker`.
    Broker(BrokerStatus),
    /// To `CertifyBroker`.
    BrokerCertified {
        /// The root certificate, DER.
        root: Blob,
        /// The broker's certificate and its issuers', DER.
        chain: Vec<Blob>,
    },
    /// To everything else.
    Done,
}

answers! { AdminAnswer:
    status = Self::Status(status) => status, PlatformStatus;
    mailbox = Self::Mailbox { letters, total, silent } => (letters, total, silent), (Vec<WaitingLetter>, u64, Vec<SilentNode>);
    channel_logs = Self::ChannelLogs { logs, silent } => (logs, silent), (Vec<KeptLog>, Vec<SilentNode>);
    nodes = Self::Nodes { nodes } => nodes, Vec<NodeStatus>;
    agents = Self::Agents { agents } => agents, Vec<AgentStatus>;
    refusals = Self::Refusals { records } => records, Vec<RefusalRecord>;
    secret = Self::Secret { token, expires } => (token, expires), (String, UnixMillis);
    log = Self::Log { text, next } => (text, next), (String, u64);
    certification_events = Self::CertificationEvents { events, next } => (events, next), (Vec<CertificationEvent>, u64);
    certificates = Self::Certificates { certificates } => certificates, Vec<CertificateStatus>;
    root = Self::Root { certificate } => certificate, String;
    replies = Self::Replies { replies } => replies, Vec<String>;
    services = Self::Services { services } => services, Vec<ServiceStatus>;
    gateway = Self::Gateway { status, rules } => (status, rules), (Option<GatewayStatus>, GatewayPolicy);
    moved = Self::Moved { agents, node } => (agents, node), (Vec<String>, String);
    broker = Self::Broker(status) => status, BrokerStatus;
    broker_certified = Self::BrokerCertified { root, chain } => (root, chain), (Blob, Vec<Blob>);
}

/// The platform as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformStatus {
    /// Its name.
    pub name: String,
    /// Security level.
    pub level: String,
    /// Version of Sealbus the Master runs.
    pub version: String,
    /// Process id of the Master.
    pub pid: u32,
    /// Where nodes join.
    pub enrolment: SocketAddr,
    /// Where the Master's agents listen for links.
    pub address: SocketAddr,
    /// When the Master was started.
    pub since: UnixMillis,
    /// Living nodes.
    pub nodes: u32,
    /// Living agents.
    pub agents: u32,
    /// Certificates issued in all.
    pub certificates: u64,
    /// Refusals counted in all.
    pub refusals: u64,
}

/// The broker, or the cluster of brokers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Where agents reach it.
    pub addresses: Vec<String>,
    /// Its members, by name.
    pub members: Vec<BrokerMember>,
    /// Messages that wait for their agents there, by the agents' full names.
    pub waiting: Vec<(String, u64)>,
    /// Dead letters the broker keeps.
    pub kept: u64,
    /// Dead letters since the Master was started.
    pub dead: u64,
    /// The latest of them, latest last.
    pub dead_letters: Vec<DeadLetterRecord>,
}

/// One broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerMember {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// Why it lets the cluster take no messages: `memory`, `disk`.
    pub alarms: Vec<String>,
}

/// A message that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRecord {
    /// When.
    pub at: UnixMillis,
    /// The sender, as far as the broker knows or, at the levels without proof, the message says.
    pub from: Option<String>,
    /// The agent it was for.
    pub to: Option<String>,
    /// Why.
    pub why: String,
    /// Its performative; none if it is no ACL message.
    pub performative: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether its sender was told.
    pub told: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Whether it is alive.
    pub state: NodeState,
    /// Its address.
    pub address: String,
    /// The machine's name.
    pub host: String,
    /// Its processors.
    pub processors: u32,
    /// Processes placed on it.
    pub processes: u32,
    /// Agents placed on it.
    pub agents: u32,
    /// When it was last heard of.
    pub heard: UnixMillis,
}

/// A node that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentNode {
    /// Its name.
    pub node: String,
    /// Why not, as far as it is known.
    pub why: String,
}

/// Whether a node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It sends heartbeats.
    Alive,
    /// It was there before the Master was started again, or before the Master was cut off from all nodes, and has some
    /// time to come back.
    Expected,
    /// It stopped sending heartbeats; its agents were placed elsewhere.
    Dead,
    /// It ends its processes in order to leave.
    Leaving,
    /// It left; its agents were placed elsewhere.
    Left,
}

impl NodeState {
    /// Whether it can be asked and told.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Alive | Self::Leaving)
    }

    /// Why it cannot be asked, if it cannot.
    pub const fn absence(self) -> Option<&'static str> {
        match self {
            Self::Alive | Self::Leaving => None,
            Self::Expected => {
                Some("it was not heard since the Master was started again or cut off")
            }
            Self::Dead => Some("it is dead"),
            Self::Left => Some("it has left"),
        }
    }

    /// Whether it is no more, and comes back by enrolment only.
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Left)
    }

    /// Its name for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Expected => "expected",
            Self::Dead => "dead",
            Self::Leaving => "leaving",
            Self::Left => "left",
        }
    }
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Full name, `seller-1@factory`.
    pub name: String,
    /// The node it is placed on; none if no node can take it now.
    pub node: Option<String>,
    /// Its process.
    pub process: String,
    /// The process's id.
    pub pid: Option<u32>,
    /// Where its process listens.
    pub address: Option<SocketAddr>,
    /// Its life-cycle state; none when it has ended.
    pub state: Option<AgentState>,
    /// The obstacle, or the outcome.
    pub note: Option<String>,
    /// How often its process was started again.
    pub restarts: u32,
    /// Serial number of its certificate, hexadecimal.
    pub serial: Option<String>,
    /// When that ends.
    pub expires: Option<UnixMillis>,
}

/// An event of the certification log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificationEvent {
    /// Counted from 0 without gaps.
    pub sequence: u64,
    /// When.
    pub at: UnixMillis,
    /// Step 1 to 6 of certification; 0 for what lies outside (revocation, refusal).
    pub step: u8,
    /// The agent, node or process.
    pub subject: String,
    /// The node that vouches for it.
    pub node: Option<String>,
    /// Serial number, hexadecimal, where there is one.
    pub serial: Option<String>,
    /// The event.
    pub what: String,
}

/// A certificate issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SPIFFE identity.
    pub identity: String,
    /// Address it binds to.
    pub address: String,
    /// The node that vouched for it.
    pub node: Option<String>,
    /// When its life begins.
    pub not_before: UnixMillis,
    /// When it ends.
    pub not_after: UnixMillis,
    /// Its place in the Merkle log.
    pub index: u64,
    /// Why it was revoked.
    pub revoked: Option<String>,
}

/// A service found in the DF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Full name of the agent.
    pub agent: String,
    /// Name of the service.
    pub name: Option<String>,
    /// Its type.
    pub service_type: Option<String>,
}
