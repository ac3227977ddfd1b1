//! The conversation of the command line with the Master, over a unix socket that only the platform's owner may open.

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
    /// The platform's nodes.
    Nodes,
    /// The platform's agents.
    Agents,
    /// The refused attempts.
    Refusals,
    /// A one-time token for a node.
    Token {
        /// The node's name, if the token is only for that node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Lifetime of the token in seconds.
        lifetime: u64,
    },
    /// A one-time ticket for a program the platform does not start.
    Ticket {
        /// Local name of the agent that may use it.
        agent: String,
        /// The node to attach to; without it the least loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Lifetime of the ticket in seconds.
        lifetime: u64,
    },
    /// Start the agents of a manifest. The manifest is already validated, and the Master validates it again.
    Start {
        /// The manifest's agents.
        agents: Vec<sealbus_manifest::AgentEntry>,
    },
    /// Restart an agent of a manifest that has ended, with its process.
    StartAgain {
        /// Local name.
        agent: String,
    },
    /// End an agent, with its process, and revoke its certificate.
    Kill {
        /// Local name.
        agent: String,
        /// Milliseconds that it has to leave by itself.
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
        /// The position to begin at.
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
        /// The first sequence number.
        from: u64,
        /// Most events to return.
        limit: u32,
    },
    /// The certificates issued and not yet expired.
    Certificates {
        /// Whether to include expired and revoked ones.
        all: bool,
    },
    /// The platform's root certificate.
    Root,
    /// Revoke by an operator's order.
    Revoke {
        /// An agent's local name, or a serial number.
        what: String,
        /// The reason.
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
    /// Register a service in the DF in an agent's name, with the operator's authority.
    DfRegister {
        /// Local name of the agent.
        agent: String,
        /// Type of service.
        service_type: String,
        /// Name of the service.
        service_name: String,
        /// Lifetime of the entry in seconds. Without it the entry lasts as long as the agent.
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
    /// Take back the operators' rules for a platform.
    GatewayDeny {
        /// Name of the platform.
        platform: String,
    },
    /// Register this platform's DF with another platform's DF, which then searches here too.
    Federate {
        /// Name of the other DF, `df@plat1`.
        df: String,
        /// The other DF's addresses.
        addresses: Vec<String>,
    },
    /// The broker's state, its waiting messages, and its dead letters.
    Broker,
    /// Certify a broker that operators run themselves.
    CertifyBroker {
        /// The address on which the broker listens.
        address: IpAddr,
        /// The broker's signing request (PKCS #10).
        request: Blob,
    },
    /// End all agents, nodes and the Master.
    Shutdown {
        /// Milliseconds that agents have to leave by themselves.
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
    /// Milliseconds to wait for a reply from each receiver. With 0 the command does not wait.
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
        /// The waiting messages, in order on each node; only the first if there are many.
        letters: Vec<WaitingLetter>,
        /// The number of all waiting messages.
        total: u64,
        /// Nodes that did not answer. Their messages are unknown.
        silent: Vec<SilentNode>,
    },
    /// To `ChannelLogs`.
    ChannelLogs {
        /// By channel and node.
        logs: Vec<KeptLog>,
        /// Nodes that did not answer. Their logs are unknown.
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
        /// The offset at which the next piece begins.
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
        /// The log's root hash, hexadecimal.
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
        /// The gateway's state; none if it does not run, or does not answer.
        status: Option<GatewayStatus>,
        /// The rules that operators made.
        rules: GatewayPolicy,
    },
    /// To `Move`.
    Moved {
        /// The agents that moved together.
        agents: Vec<String>,
        /// The node that they are on now.
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
    /// The platform's name.
    pub name: String,
    /// Security level.
    pub level: String,
    /// Version of Sealbus that the Master runs.
    pub version: String,
    /// Process id of the Master.
    pub pid: u32,
    /// The address at which nodes join.
    pub enrolment: SocketAddr,
    /// The address on which the Master's agents listen for links.
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
    /// The addresses at which agents reach it.
    pub addresses: Vec<String>,
    /// The cluster's members, by name.
    pub members: Vec<BrokerMember>,
    /// Messages that wait for their agents there, by the agents' full names.
    pub waiting: Vec<(String, u64)>,
    /// Dead letters that the broker keeps.
    pub kept: u64,
    /// Dead letters since the Master was started.
    pub dead: u64,
    /// The latest dead letters, latest last.
    pub dead_letters: Vec<DeadLetterRecord>,
}

/// One broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerMember {
    /// The broker's name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// The shortages for which it lets the cluster take no messages: `memory`, `disk`.
    pub alarms: Vec<String>,
}

/// A message that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRecord {
    /// When it became a dead letter.
    pub at: UnixMillis,
    /// The sender, as far as the broker knows it. At the levels without proof, the sender named in the message.
    pub from: Option<String>,
    /// The receiver.
    pub to: Option<String>,
    /// The reason.
    pub why: String,
    /// The message's performative; none if it is no ACL message.
    pub performative: Option<String>,
    /// The message's length in bytes.
    pub bytes: u64,
    /// Whether its sender was told.
    pub told: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// Whether it is alive.
    pub state: NodeState,
    /// The node's address.
    pub address: String,
    /// The machine's name.
    pub host: String,
    /// The number of the node's processors.
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
    /// The node's name.
    pub node: String,
    /// The reason, as far as it is known.
    pub why: String,
}

/// Whether a node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// The node sends heartbeats.
    Alive,
    /// The node was there before the Master was restarted, or before the Master was cut off from all nodes. It has some
    /// time to come back.
    Expected,
    /// The node stopped sending heartbeats. Its agents were placed elsewhere.
    Dead,
    /// The node ends its processes in order to leave.
    Leaving,
    /// The node left. Its agents were placed elsewhere.
    Left,
}

impl NodeState {
    /// Whether the node can receive requests and notices.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Alive | Self::Leaving)
    }

    /// The reason why the node cannot receive requests, if it cannot.
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

    /// Whether the node is gone, and can only come back by enrolment.
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Left)
    }

    /// The state's name for operators.
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
    /// The agent's process.
    pub process: String,
    /// The process's id.
    pub pid: Option<u32>,
    /// The address on which its process listens.
    pub address: Option<SocketAddr>,
    /// The agent's life-cycle state; none when the agent has ended.
    pub state: Option<AgentState>,
    /// The obstacle, or the outcome.
    pub note: Option<String>,
    /// How often its process was restarted.
    pub restarts: u32,
    /// Serial number of its certificate, hexadecimal.
    pub serial: Option<String>,
    /// When the certificate expires.
    pub expires: Option<UnixMillis>,
}

/// An event of the certification log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificationEvent {
    /// Counted from 0 without gaps.
    pub sequence: u64,
    /// When.
    pub at: UnixMillis,
    /// Step 1 to 6 of certification; 0 for an event outside the six steps (revocation, refusal).
    pub step: u8,
    /// The agent, node or process.
    pub subject: String,
    /// The node that vouches for it.
    pub node: Option<String>,
    /// Serial number in hexadecimal, if there is one.
    pub serial: Option<String>,
    /// The event.
    pub what: String,
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SPIFFE identity.
    pub identity: String,
    /// The address it is bound to.
    pub address: String,
    /// The node that vouched for it.
    pub node: Option<String>,
    /// When its validity begins.
    pub not_before: UnixMillis,
    /// When its validity ends.
    pub not_after: UnixMillis,
    /// The certificate's place in the Merkle log.
    pub index: u64,
    /// The reason why it was revoked, if it was.
    pub revoked: Option<String>,
}

/// A service found in the DF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Full name of the agent.
    pub agent: String,
    /// Name of the service.
    pub name: Option<String>,
    /// The service's type.
    pub service_type: Option<String>,
}
