//! The conversations of a node with the Master and the CA: the JSON content of ACL messages between `node-N@hap` and
//! `master@hap` or `ca@hap`, with the ontology [`ONTOLOGY`]. The answer to a `request` is `inform` (with the result) or
//! `failure` (with a [`Fault`]). The answer repeats the request's `reply-with` as `in-reply-to`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sealbus_gateways::{GatewayCounters, GatewayPolicy};
use sealbus_manifest::isolation::Confinement;
use sealbus_seal::token::SecretHash;
use serde::{Deserialize, Serialize};

use super::attachment::{AgentReport, FrozenPart};
use super::authority::CertificatePage;
use super::channel_log::{LogAnswer, LogRequest};
pub use super::exit::Exit;
pub use super::post::WaitingLetters;
use super::post::{LetterMark, PostedLetter, Trail};
use super::traffic::{ProcessTraffic, Watch};
use super::{
    AgentLocation, Blob, Fault, NodeDescription, PlacedState, ProcessContact, PublishedKey,
    RefusalRecord, SealedKeys, Subject, UnixMillis,
};
use crate::ask::conversation;
use crate::directory::{DirectoryUpdate, Standing};

/// Ontology of the platform's own messages.
pub const ONTOLOGY: &str = "sealbus-platform";
/// Content language of the platform's own messages.
pub const LANGUAGE: &str = "json";
/// The most reports of a node that are handled together.
pub const MOST_REPORTS: usize = 64;

/// The processes in which a Master is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterContact {
    /// The process of `master` and `ca`.
    pub control: ProcessContact,
    /// The process of `ams`, `df` and `operator`.
    pub services: ProcessContact,
}

conversation! {
    /// The requests and reports of a node to the Master.
    pub enum MasterRequest in ask_master ("ask") {
        /// The node has started or come back, with all processes that run on it.
        Register {
            /// The node's description of itself.
            node: NodeDescription,
            /// The contact of its agent.
            contact: ProcessContact,
            /// The address at which programs with tickets attach, if the node lets them.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            attachment: Option<SocketAddr>,
            /// The node's agent processes.
            processes: Vec<RunningProcess>,
            /// Processes that have ended, perhaps without the Master's knowledge, and how they ended.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            ended: Vec<(String, Exit)>,
        } -> Current;
        /// The node is alive.
        Heartbeat {
            /// The standing of the node's replica of the directory.
            directory: Standing,
            /// The version of the deny list that the node has; 0 if it needs the whole list.
            deny_list: u64,
            /// The number of processes that it runs.
            processes: u32,
        } -> Current;
        /// A process was started.
        Started {
            /// The process's name.
            process: String,
            /// The process's id on that machine, if the node started it.
            pid: Option<u32>,
        } -> ();
        /// A process listens for links.
        Announced {
            /// The process's name.
            process: String,
            /// The address.
            address: SocketAddr,
        } -> ();
        /// Agents of a process use channels from now on. The node asks again until the others have been told of it.
        UsesChannels {
            /// The process's name.
            process: String,
        } -> ChannelListing;
        /// A process gave its agent a certificate, which is the sixth step.
        Delivered {
            /// The process's name.
            process: String,
            /// The certified identity.
            subject: Subject,
        } -> ();
        /// An agent states its key for sealed messages.
        KeyPublished {
            /// The process's name.
            process: String,
            /// Local name.
            agent: String,
            /// A [`CertifiedEncryptionKey`](sealbus_seal::encryption::CertifiedEncryptionKey), followed by the key package.
            key: Blob,
        } -> ();
        /// The key for sealed messages that an agent has stated last.
        EncryptionKey {
            /// Local name.
            agent: String,
        } -> PublishedKey;
        /// An event in the life of an agent.
        Reported {
            /// The process's name.
            process: String,
            /// Local name.
            agent: String,
            /// The event.
            report: AgentReport,
        } -> ();
        /// A process ended.
        Exited {
            /// The process's name.
            process: String,
            /// How the process ended.
            exit: Exit,
        } -> ();
        /// The node is about to leave. Nothing more may be placed on it, and processes that end there are restarted
        /// elsewhere.
        Leaving -> ();
        /// All its processes have ended. The node ends when it gets the answer.
        Left -> ();
        /// The refusals of the node and its processes.
        Refusals {
            /// The refusals since the last report.
            records: Vec<RefusalRecord>,
        } -> ();
        /// The node has a signed deny list of the CA that denies more than the newest one.
        Denied {
            /// The whole list.
            list: Blob,
        } -> ();
        /// Several reports, at most [`MOST_REPORTS`], in order. The answer has a fault for each that the Master refuses.
        Reports {
            /// The reports.
            reports: Vec<MasterRequest>,
        } -> Vec<Option<Fault>>;
        /// The place of an agent.
        Resolve {
            /// Local name.
            agent: String,
        } -> AgentLocation;
    }
    /// The Master's answers.
    pub enum MasterAnswer ("answer") {
        Current(Current);
        EncryptionKey(PublishedKey);
        Location(AgentLocation);
        Listed(ChannelListing);
        Heard { refused: Vec<Option<Fault>> };
        Done;
    }
}

conversation! {
    /// The requests of the gateway to the agent `operator`.
    pub enum OperatorRequest in ask_operator ("ask") {
        /// The gateway has started.
        GatewayRuns -> ();
    }
    /// The answers of the agent `operator`.
    pub enum OperatorAnswer ("answer") {
        Done;
    }
}

conversation! {
    /// The requests of the agent `operator` to the gateway.
    pub enum GatewayRequest in ask_gateway ("ask") {
        /// The gateway's state. Below level `auth`, anybody may ask in the operators' name; this request changes nothing.
        Status -> GatewayStatus;
    }
    /// The gateway's answers.
    pub enum GatewayAnswer ("answer") {
        Status(GatewayStatus);
    }
}

/// The state of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// The addresses at which other platforms reach it.
    pub addresses: Vec<String>,
    /// The rules of its configuration.
    pub own: GatewayPolicy,
    /// The operators' rules that are in force in addition.
    #[serde(default)]
    pub operators: GatewayPolicy,
    /// The gateway's counters so far.
    pub counters: GatewayCounters,
}

/// An entry of the directory for a process whose agents use channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelListing {
    /// A revision of the directory. A replica at that revision that has the processes that use channels has all that
    /// had said so before.
    pub revision: u64,
    /// Whether all others have been told of this process.
    pub is_told: bool,
}

/// The news for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// The answer to what the node states about its replica of the directory.
    pub directory: DirectoryUpdate,
    /// The signed changes of the deny list since the version that the node has, or the whole list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_list: Option<Blob>,
    /// Processes of the node that must end, because the Master has placed their agents elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether the Master does not know the node as registered, so that it must `Register`.
    #[serde(default)]
    pub register: bool,
    /// The addresses (`host:port`) of all Masters, if there may be several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masters: Vec<String>,
    /// Whether the store does not answer the Master. Other Masters may then have denials that it does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub away: bool,
}

/// An agent process, as its node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningProcess {
    /// The process's name.
    pub process: String,
    /// The process's id on that machine, if the node started it.
    pub pid: Option<u32>,
    /// The address on which it listens, once it does.
    pub address: Option<SocketAddr>,
    /// Whether its agents use channels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub channels: bool,
    /// The process's agents that have reported a state, each with its latest state.
    pub agents: Vec<(String, PlacedState)>,
}

conversation! {
    /// Requests of the Master to a node, or of one node to another.
    pub enum NodeRequest in ask_node ("ask") {
        /// Start a process. The answer is its id.
        Start {
            /// The program to start.
            launch: Launch,
        } -> u32;
        /// Let a program attach with a ticket.
        Expect {
            /// The process that the program will become. Its `command` is empty.
            launch: Launch,
            /// Hash of the ticket's secret.
            ticket: SecretHash,
            /// When the ticket expires.
            expires: UnixMillis,
        } -> ();
        /// End all processes, and the node.
        Leave {
            /// Milliseconds until processes are ended by force.
            grace: u64,
        } -> ();
        /// End a process.
        Stop {
            /// The process's name.
            process: String,
            /// Milliseconds until it is ended by force. With 0 it is ended at once.
            grace: u64,
            /// The reason.
            reason: String,
        } -> ();
        /// A part of the latest certificate chains that the CA issued to a process and its agents through this node.
        Certificates {
            /// The process's name.
            process: String,
            /// The agent after which the part begins; `None` for the first part.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            after: Option<String>,
        } -> CertificatePage;
        /// Freeze all agents of a process, for a move. The answer is the size of the frozen agents in bytes.
        Freeze {
            /// The process's name.
            process: String,
            /// The node that may fetch the frozen agents.
            destination: String,
        } -> u64;
        /// A part of the frozen agents. The destination node asks for it.
        FetchFrozen {
            /// The process's name.
            process: String,
            /// The part, counted from 0.
            index: u32,
        } -> FrozenPart;
        /// The keys of a frozen process for sealed messages. The destination node asks for them on behalf of the
        /// restoring process.
        FormerKeys {
            /// The process's name.
            process: String,
            /// The stated key of an agent in the new process.
            key: Blob,
        } -> SealedKeys;
        /// The move failed, and the process goes on.
        Thaw {
            /// The process's name.
            process: String,
        } -> ();
        /// A newer signed deny list: its changes since the last one, or the whole list.
        DenyList {
            /// The list.
            list: Blob,
        } -> ();
        /// The addresses (`host:port`) of all Masters, because the asking Master leads, or another one has joined.
        Masters {
            /// The addresses.
            addresses: Vec<String>,
            /// The processes of the asking Master.
            at: MasterContact,
        } -> ();
        /// The directory has changed. The answer comes when the node's processes know the other processes in the
        /// change, or have had time for it.
        Directory {
            /// The change.
            update: DirectoryUpdate,
        } -> DirectoryHeard;
        /// The place of an agent, as far as this node knows it. The asker is a node that believes that this one holds
        /// the agent's slice of the directory. A node that does not hold it answers
        /// [`FaultCode::Unavailable`](crate::FaultCode::Unavailable).
        Locate {
            /// Local name.
            agent: String,
        } -> AgentLocation;
        /// Messages to one agent that this node must keep, from another node. The answer comes once all kept letters
        /// are on disk. For each letter, it is the reason why the letter is not kept, if it is not.
        Post {
            /// The letters, in order.
            letters: Vec<PostedLetter>,
        } -> Vec<Option<Fault>>;
        /// How another node's letters for an agent compare with those of this node.
        Trail {
            /// Local name of the receiver.
            receiver: String,
            /// The letters.
            letters: Vec<LetterMark>,
        } -> Trail;
        /// The messages that wait here for an agent.
        Mailbox {
            /// The agent's local name.
            agent: String,
        } -> WaitingLetters;
        /// A request from another node or the Master to the logs of persistent channels that this node keeps.
        ChannelLog {
            /// The request.
            request: LogRequest,
        } -> LogAnswer;
        /// Cosign a checkpoint of a CA's issuance log, if it continues the one that this node last saw.
        Cosign {
            /// The body of `add-checkpoint` (C2SP tlog-witness).
            request: String,
            /// The CA's certificate chain in its wire form.
            authority: Blob,
        } -> Cosigning;
        /// A piece of an agent's log.
        Log {
            /// The process group of the log (`seller-1`). The log continues over restarts.
            log: String,
            /// The position to begin at.
            from: LogPosition,
            /// The most bytes to return.
            limit: u32,
        } -> LogText;
        /// The traffic through the node's processes. Processes that do not answer in time are left out.
        Observe {
            /// The messages to watch.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            watch: Option<Watch>,
        } -> Vec<ProcessTraffic>;
    }
    /// A node's answers.
    pub enum NodeAnswer ("answer") {
        Started { pid: u32 };
        Location(AgentLocation);
        Frozen { size: u64 };
        Part { part: FrozenPart };
        FormerKeys { keys: SealedKeys };
        Log(LogText);
        Posted { refused: Vec<Option<Fault>> };
        Trail { trail: Trail };
        Mailbox(WaitingLetters);
        ChannelLog { log: LogAnswer };
        Cosigned { cosigning: Cosigning };
        Observed { processes: Vec<ProcessTraffic> };
        Certificates(CertificatePage);
        Heard(DirectoryHeard);
        Done;
    }
}

/// The part of the directory that a node's processes know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryHeard {
    /// The revision up to which they know the processes that use channels.
    pub heard: u64,
}

/// A node's answer to a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cosigning {
    /// The node has stored the checkpoint.
    Cosigned {
        /// The line of its signature (C2SP tlog-cosignature), without the line end.
        signature: String,
        /// The node's certificate chain in its wire form.
        chain: Blob,
    },
    /// The proof must begin at the size that the node last saw.
    Seen {
        /// The number of entries.
        size: u64,
    },
    /// The log does not continue the one that the node saw.
    Alarm {
        /// The reason, for people.
        why: String,
    },
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogText {
    /// The text.
    pub text: String,
    /// The offset at which the next piece begins.
    pub next: u64,
}

/// A position in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum LogPosition {
    /// A number of lines before the end.
    LastLines {
        /// The number of lines.
        lines: u32,
    },
    /// A byte offset from an earlier answer.
    Offset {
        /// Bytes since the beginning of the log.
        offset: u64,
    },
    /// The lines of the last `ago` milliseconds, by the node's clock. The first lines may be a little older.
    Since {
        /// Milliseconds.
        ago: u64,
    },
}

/// A process that the Master placed on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The process's name (`seller-1.3` for the third start of `seller-1`).
    pub process: String,
    /// The process's name in the manifest with the replica's number (`seller-1`). The log has the same name.
    pub group: String,
    /// Local names of the agents that it may run.
    pub agents: Vec<String>,
    /// Program and arguments. Empty for a program that comes with a ticket.
    pub command: Vec<String>,
    /// The directory in which it is started.
    pub directory: Option<String>,
    /// Variables that are added to the few that it inherits from the node's environment.
    pub environment: BTreeMap<String, String>,
    /// The isolation of its process.
    #[serde(default)]
    pub confinement: Confinement,
    /// Where the frozen agents are that it must restore, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherits: Option<Inheritance>,
}

/// Where frozen agents wait to be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inheritance {
    /// The node.
    pub node: String,
    /// The process that was frozen there.
    pub process: String,
}
