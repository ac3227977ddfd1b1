//! The conversation of the command line with the Master, over a unix socket that only the platform's owner may open.

mod authorities;
mod broker;
mod certificates;
mod gateways;
mod masters;
mod nodes;
mod pages;
mod reading;

use std::net::{IpAddr, SocketAddr};

use sealbus_gateways::GatewayRule;
use sealbus_manifest::{Difference, Manifest};
use serde::{Deserialize, Serialize};

use super::channel_log::KeptLog;
use super::evidence::{EvidencePages, EvidenceQuestion};
use super::node::{LogPosition, LogText};
use super::post::WaitingLetter;
use super::traffic::{Traffic, Watch};
use super::{Blob, PlacedState, RefusalRecord, UnixMillis};
use crate::ask::conversation;

pub use authorities::AuthorityStatus;
pub use broker::{BrokerMember, BrokerStatus, CertifiedBroker, DeadLetterRecord};
pub use certificates::{CertificateStatus, Revoked};
pub use gateways::{CertifiedCaller, GatewayState};
pub use masters::{MasterRole, MasterStatus};
pub use nodes::{NodeState, NodeStatus, SilentNode};
pub use pages::{
    AgentsPage, CertificatesPage, List, Listed, Listing, NodesPage, Page, ServicesPage,
};

conversation! {
    /// The requests of an operator to the Master.
    pub enum AdminRequest in ask ("ask") {
        /// The platform as a whole.
        Status -> PlatformStatus;
        /// The Masters of the platform: the leading one, and those that stand by.
        Masters -> Vec<MasterStatus>;
        /// Let a Master that stands by lead in place of this one.
        HandOver -> ();
        /// The platform's nodes.
        Nodes {
            /// The page.
            #[serde(default)]
            page: Page,
        } -> NodesPage;
        /// The platform's agents.
        Agents {
            /// The page.
            #[serde(default)]
            page: Page,
        } -> AgentsPage;
        /// The refused attempts.
        Refusals -> Vec<RefusalRecord>;
        /// A one-time token for a node, or for a further Master.
        Token {
            /// The node's name, if the token is only for that node.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            node: Option<String>,
            /// Lifetime of the token in seconds.
            lifetime: u64,
            /// Whether it is for a Master, which gets a CA of its own.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            master: bool,
        } -> IssuedSecret;
        /// A one-time ticket for a program the platform does not start.
        Ticket {
            /// Local name of the agent that may use it.
            agent: String,
            /// Local names of further agents of the same process.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            others: Vec<String>,
            /// The node to attach to; without it the least loaded.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            node: Option<String>,
            /// Lifetime of the ticket in seconds.
            lifetime: u64,
        } -> IssuedSecret;
        /// The changes that a manifest would make if it were put in force.
        Compare {
            /// The manifest.
            wanted: Box<Manifest>,
        } -> Difference;
        /// Put a manifest in force: start, stop, restart and change everything that differs from the present one.
        Apply {
            /// The manifest.
            wanted: Box<Manifest>,
            /// The difference that the operator agreed to; `None` for the first manifest.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            agreed: Option<Difference>,
            /// Milliseconds that agents have to leave by themselves.
            grace: u64,
            /// Leave agents alone that another Master started. Start only processes that nobody knows.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            taken_over: bool,
        } -> ();
        /// Start an agent that the platform started before, with its process.
        StartAgain {
            /// Local name.
            agent: String,
            /// Milliseconds that it has until it is certified and runs.
            timeout: u64,
            /// Milliseconds that a running process has to leave by itself first. Without them, a running process is left
            /// alone, and the request is refused.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            grace: Option<u64>,
        } -> AgentsPage;
        /// End an agent, with its process, and revoke its certificate.
        Kill {
            /// Local name.
            agent: String,
            /// Milliseconds that it has to leave by itself.
            grace: u64,
        } -> ();
        /// Move an agent, with its process, to another node.
        Move {
            /// Local name.
            agent: String,
            /// The node.
            node: String,
        } -> Moved;
        /// A piece of an agent's log.
        Log {
            /// Local name.
            agent: String,
            /// The position to begin at.
            from: LogPosition,
        } -> LogText;
        /// The messages that wait for an agent, on all nodes.
        Mailbox {
            /// Local name.
            agent: String,
        } -> MailboxReport;
        /// The kept events of persistent channels, on all nodes.
        ChannelLogs -> ChannelLogsReport;
        /// A page of the kept messages with their authors' proofs, from each node.
        Evidence {
            /// The question.
            question: EvidenceQuestion,
        } -> EvidencePages;
        /// The traffic through the platform's processes.
        Observe {
            /// The messages to watch.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            watch: Option<Watch>,
        } -> Traffic;
        /// From now on this connection only reads.
        Narrow {
            /// Whether it may read the bodies of messages.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            bodies: bool,
        } -> ();
        /// Events of the certification log, from a sequence number on.
        CertificationEvents {
            /// The first sequence number.
            from: u64,
            /// Most events to return.
            limit: u32,
        } -> CertificationEvents;
        /// The certificates issued and not yet expired.
        Certificates {
            /// Whether to include expired and revoked ones.
            all: bool,
            /// The agent or node whose certificates are wanted; `None` for all.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            of: Option<String>,
            /// The page.
            #[serde(default)]
            page: Page,
        } -> CertificatesPage;
        /// The platform's CAs.
        Authorities -> Vec<AuthorityStatus>;
        /// Revoke a CA by an operator's order, with everything that it has certified.
        RevokeAuthority {
            /// Its name.
            name: String,
            /// The reason.
            reason: String,
        } -> Vec<AuthorityStatus>;
        /// The platform's root certificate, PEM.
        Root -> String;
        /// Revoke by an operator's order.
        Revoke {
            /// The name of an agent or a node, the identity of a process, or a serial number.
            what: String,
            /// The reason.
            reason: String,
        } -> Revoked;
        /// The signed head of the Merkle log of issued certificates.
        Checkpoint -> Checkpoint;
        /// Send a message as `operator@hap`. The answer is the replies, in FIPA's string encoding.
        Send {
            /// The message; its sender is filled in.
            message: SendMessage,
        } -> Vec<String>;
        /// Search the DF.
        DfSearch {
            /// Type of service; without it all.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            service_type: Option<String>,
            /// Name of the service.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            service_name: Option<String>,
            /// The page.
            #[serde(default)]
            page: Page,
        } -> ServicesPage;
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
        } -> ();
        /// Remove an agent's services from the DF, with the operator's authority.
        DfDeregister {
            /// Local name of the agent, which may have ended.
            agent: String,
            /// Name of the service. Without it all services of the agent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            service_name: Option<String>,
        } -> ();
        /// The gateways: their addresses, rules and counters.
        Gateway -> GatewayState;
        /// Let another platform write to agents of this one.
        GatewayAllow {
            /// The rule.
            rule: GatewayRule,
        } -> GatewayState;
        /// Take back the operators' rules for a platform.
        GatewayDeny {
            /// Name of the platform.
            platform: String,
        } -> GatewayState;
        /// Register this platform's DF with another platform's DF, which then searches here too.
        Federate {
            /// Name of the other DF, `df@plat1`.
            df: String,
            /// The other DF's addresses.
            addresses: Vec<String>,
        } -> ();
        /// The broker's state, its waiting messages, and its dead letters.
        Broker -> BrokerStatus;
        /// Certify a broker that operators run themselves.
        CertifyBroker {
            /// The address on which the broker listens.
            address: IpAddr,
            /// The broker's signing request (PKCS #10).
            request: Blob,
        } -> CertifiedBroker;
        /// Certify a caller of a gateway, which comes in with its certificate.
        CertifyCaller {
            /// The caller's local name.
            name: String,
            /// The caller's signing request (PKCS #10).
            request: Blob,
            /// Lifetime of the certificate in seconds.
            lifetime: u64,
        } -> CertifiedCaller;
        /// Make a backup of the platform's state. One backup is kept at a time, until it was read completely.
        Backup {
            /// Whether it contains the private keys of the root and the CA.
            keys: bool,
        } -> BackupMade;
        /// A piece of the latest backup. An empty piece follows the last one.
        BackupPiece {
            /// Where the piece begins, in bytes.
            from: u64,
        } -> Blob;
        /// End all agents, nodes and the Master.
        Shutdown {
            /// Milliseconds that agents have to leave by themselves.
            grace: u64,
        } -> ();
    }
    /// The Master's answers to an operator.
    pub enum AdminAnswer ("answer") {
        Status(PlatformStatus);
        Difference(Difference);
        Mailbox(MailboxReport);
        ChannelLogs(ChannelLogsReport);
        Evidence(EvidencePages);
        Traffic(Traffic);
        Masters { masters: Vec<MasterStatus> };
        Nodes(NodesPage);
        Agents(AgentsPage);
        Refusals { records: Vec<RefusalRecord> };
        Secret(IssuedSecret);
        Log(LogText);
        CertificationEvents(CertificationEvents);
        Certificates(CertificatesPage);
        Authorities { authorities: Vec<AuthorityStatus> };
        Root { certificate: String };
        Checkpoint(Checkpoint);
        Replies { replies: Vec<String> };
        Services(ServicesPage);
        Gateway(GatewayState);
        Moved(Moved);
        Revoked(Revoked);
        Broker(BrokerStatus);
        BrokerCertified(CertifiedBroker);
        CallerCertified(CertifiedCaller);
        BackupMade(BackupMade);
        BackupPiece { bytes: Blob };
        Done;
    }
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMade {
    /// Its length in bytes.
    pub length: u64,
    /// When it was made.
    pub made: UnixMillis,
}

/// A message that an operator sends.
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

/// The messages that wait for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxReport {
    /// The waiting messages, in order on each node; only the first ones if there are many.
    pub letters: Vec<WaitingLetter>,
    /// The number of all waiting messages.
    pub total: u64,
    /// Nodes that did not answer. Their messages are unknown.
    pub silent: Vec<SilentNode>,
}

/// The kept events of persistent channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelLogsReport {
    /// By channel and node.
    pub logs: Vec<KeptLog>,
    /// Nodes that did not answer. Their logs are unknown.
    pub silent: Vec<SilentNode>,
}

/// A new token or ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedSecret {
    /// The printable token or ticket.
    pub token: String,
    /// When it ends.
    pub expires: UnixMillis,
}

/// A part of the certification log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificationEvents {
    /// The events, in order.
    pub events: Vec<CertificationEvent>,
    /// The sequence number of the next event.
    pub next: u64,
}

/// The head of the log of issued certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Certificates in the log.
    pub size: u64,
    /// The log's root hash, hexadecimal.
    pub root: String,
    /// The signed checkpoint.
    pub signed: Blob,
}

/// A finished move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The agents that moved together.
    pub agents: Vec<String>,
    /// The node that they are on now.
    pub node: String,
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
    /// The witnesses that found the issuance log cut off or rewritten, and what each of them reports.
    #[serde(default)]
    pub log_alarms: Vec<String>,
    /// When the CA's own certificate ends.
    #[serde(default)]
    pub ca_ends: UnixMillis,
    /// Tasks that an operator must do soon. Each text begins with the name of the warning.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Tasks that an operator must do at once. Each text begins with the name of the warning.
    #[serde(default)]
    pub alarms: Vec<String>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Full name, `seller-1@factory`.
    pub name: String,
    /// The node on which it is placed; `None` if no node can take it now.
    pub node: Option<String>,
    /// The agent's process.
    pub process: String,
    /// The process's id.
    pub pid: Option<u32>,
    /// The address on which its process listens.
    pub address: Option<SocketAddr>,
    /// The agent's life-cycle state; `None` if the agent has ended.
    pub state: Option<PlacedState>,
    /// The reason why it cannot run, or how it ended.
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
    /// The number of the event, counted from 0 without gaps.
    pub sequence: u64,
    /// The time of the event.
    pub at: UnixMillis,
    /// Step 1 to 6 of certification; 0 for an event outside the six steps (revocation, refusal).
    pub step: u8,
    /// The agent, node or process.
    pub subject: String,
    /// The node that vouches for the subject.
    pub node: Option<String>,
    /// Serial number in hexadecimal, if there is one.
    pub serial: Option<String>,
    /// The event.
    pub what: String,
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
