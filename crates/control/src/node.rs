//! A node and the Master or the CA: the content, as JSON, of ACL messages between `node-N@hap` and
//! `master@hap` or `ca@hap` with ontology [`ONTOLOGY`]. A `request` is answered with `inform` (the
//! answer) or `failure` (a [`Fault`]) that carries its `reply-with` as `in-reply-to`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sealbus_gateways::http::{GatewayCounters, GatewayPolicy};
use sealbus_seal::token::SecretHash;
use serde::{Deserialize, Serialize};

use super::attachment::{AgentReport, FrozenPart};
use super::channel_log::{LogAnswer, LogRequest};
use super::post::{LetterMark, PostedLetter, Trail, WaitingLetter};
use super::{
    AgentLocation, AgentState, Blob, DirectoryChange, EndedProcess, Fault, NodeDescription,
    ProcessContact, RefusalRecord, Rules, Subject, UnixMillis,
};
use crate::answers::answers;
use crate::statement::Signed;

/// Ontology of the platform's own messages.
pub const ONTOLOGY: &str = "sealbus-platform";
/// Content language of the platform's own messages.
pub const LANGUAGE: &str = "json";

/// The requests and reports of a node to the Master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum MasterRequest {
    /// The node is there (again), with all that runs on it.
    Register {
        /// Its kind.
        node: NodeDescription,
        /// How its agent is reached.
        contact: ProcessContact,
        /// Where its programs with tickets attach, if it lets them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attachment: Option<SocketAddr>,
        /// Its agent processes.
        processes: Vec<RunningProcess>,
        /// Processes whose end the Master may not have heard of yet, and how they ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<(String, Exit)>,
    },
    /// The node is alive.
    Heartbeat {
        /// Revision of the directory it holds.
        directory: u64,
        /// Version of the deny list it holds.
        deny_list: u64,
        /// Processes it runs.
        processes: u32,
    },
    /// A process was started.
    Started {
        /// Its name.
        process: String,
        /// Its id on that machine, if the node started it.
        pid: Option<u32>,
    },
    /// A process listens for links.
    Announced {
        /// Its name.
        process: String,
        /// Where.
        address: SocketAddr,
    },
    /// A process gave a certificate to its agent: the sixth step.
    Delivered {
        /// The process's name.
        process: String,
        /// The certified identity.
        subject: Subject,
    },
    /// An agent's life.
    Reported {
        /// The process's name.
        process: String,
        /// Local name.
        agent: String,
        /// The event.
        report: AgentReport,
    },
    /// A process ended.
    Exited {
        /// Its name.
        process: String,
        /// How.
        exit: Exit,
    },
    /// The node is about to leave: nothing more is to be placed on it, and what ends there now is to be started
    /// elsewhere.
    Leaving,
    /// All its processes have ended; the node ends with the answer.
    Left,
    /// The refusals of the node and its processes.
    Refusals {
        /// Counted since the last report.
        records: Vec<RefusalRecord>,
    },
    /// Where an agent is.
    Resolve {
        /// Local name.
        agent: String,
    },
}

/// The Master's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum MasterAnswer {
    /// To `Register` and `Heartbeat`.
    Current {
        /// The changes in the directory since the revision that the node holds.
        directory: DirectoryUpdate,
        /// The signed deny list, if newer than the node's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deny_list: Option<Blob>,
        /// Processes of the node that are to end: the Master has placed their agents elsewhere.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stop: Vec<String>,
        /// The Master does not know the node as registered: it is to `Register`.
        #[serde(default)]
        register: bool,
    },
    /// To `Resolve`.
    Location(AgentLocation),
    /// To everything else.
    Done,
}

/// What the gateway asks of the agent `operator`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum OperatorRequest {
    /// The rules that operators made.
    GatewayRules,
}

/// The answers of the agent `operator`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum OperatorAnswer {
    /// To `GatewayRules`.
    GatewayRules {
        /// The rules.
        rules: GatewayPolicy,
    },
}

/// What the agent `operator` asks of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum GatewayRequest {
    /// How it is.
    Status,
    /// These rules of the operators are in force from now on, beside those of its configuration.
    Rules {
        /// The rules.
        rules: GatewayPolicy,
    },
}

/// The gateway's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum GatewayAnswer {
    /// To `Status`.
    Status(GatewayStatus),
    /// To `Rules`.
    Done,
}

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// The addresses other platforms reach it by.
    pub addresses: Vec<String>,
    /// The rules of its configuration.
    pub own: GatewayPolicy,
    /// Its counters so far.
    pub counters: GatewayCounters,
}

/// A step of the directory from one revision to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryUpdate {
    /// Revision it starts from; 0 is the empty directory.
    pub from: u64,
    /// Revision it leads to.
    pub to: u64,
    /// The changes.
    pub changes: Vec<DirectoryStep>,
}

/// One step of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DirectoryStep {
    /// An agent's new place.
    Agent(DirectoryChange),
    /// Agents that are all at the same place, as a whole directory is told.
    Together {
        /// Local names.
        agents: Vec<String>,
        /// Where they are.
        at: AgentLocation,
    },
    /// A process can be reached, or can be at another address.
    Joined {
        /// The process.
        joined: ProcessContact,
    },
    /// A process ended.
    Ended {
        /// The process.
        ended: EndedProcess,
    },
    /// The rules for all processes.
    Rules {
        /// All of it.
        rules: Rules,
    },
}

/// An agent process as its node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningProcess {
    /// Its name.
    pub process: String,
    /// Its id on that machine, if the node started it.
    pub pid: Option<u32>,
    /// Where it listens, once it does.
    pub address: Option<SocketAddr>,
    /// Agents of it that reported a state, with the latest.
    pub agents: Vec<(String, AgentState)>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Exit {
    /// By itself.
    Code {
        /// Its exit code; 0 is success.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// It could not be started.
    NotStarted {
        /// Why.
        error: String,
    },
    /// A program with a ticket went away, or a process was lost while the node was down.
    Lost,
    /// A program with a ticket went away after all its agents had ended.
    Detached,
    /// Its node ended it in order to leave.
    NodeLeft,
}

impl Exit {
    /// Whether the process is to be started again where that is to be done on failure.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Code { code: 0 } | Self::Detached)
    }

    /// Whether it ended for what became of its node, and not for something of its own.
    pub fn is_of_its_node(&self) -> bool {
        matches!(self, Self::Lost | Self::NodeLeft)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code { code } => write!(f, "exit code {code}"),
            Self::Signal { signal } => write!(f, "signal {signal}"),
            Self::NotStarted { error } => write!(f, "not started: {error}"),
            Self::Lost => f.write_str("lost"),
            Self::Detached => f.write_str("left in order"),
            Self::NodeLeft => f.write_str("its node left"),
        }
    }
}

/// Requests of the Master to a node, or of one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum NodeRequest {
    /// Start a process.
    Start {
        /// The program to start.
        launch: Launch,
    },
    /// Let a program attach with a ticket.
    Expect {
        /// The process it will be; its `command` is empty.
        launch: Launch,
        /// Hash of the ticket's secret.
        ticket: SecretHash,
        /// When the ticket ends.
        expires: UnixMillis,
    },
    /// End all processes, and the node.
    Leave {
        /// Milliseconds until processes are ended by force.
        grace: u64,
    },
    /// End a process.
    Stop {
        /// Its name.
        process: String,
        /// Milliseconds until it is ended by force; 0 at once.
        grace: u64,
        /// Why.
        reason: String,
    },
    /// Freeze all agents of a process, for a move.
    Freeze {
        /// Its name.
        process: String,
        /// The node that may fetch what was frozen.
        destination: String,
    },
    /// A part of what was frozen; asked by the destination node.
    FetchFrozen {
        /// The process's name.
        process: String,
        /// The part, counted from 0.
        index: u32,
    },
    /// The move failed: the process goes on.
    Thaw {
        /// Its name.
        process: String,
    },
    /// A newer signed deny list.
    DenyList {
        /// The list.
        list: Blob,
    },
    /// The directory changed.
    Directory {
        /// The change.
        update: DirectoryUpdate,
    },
    /// Messages to one agent, to be kept by this node; asked by another node.
    Post {
        /// In order.
        letters: Vec<PostedLetter>,
    },
    /// How letters for an agent stand to what this node has of that agent's letters; asked by another node.
    Trail {
        /// Local name of the receiver.
        receiver: String,
        /// The letters.
        letters: Vec<LetterMark>,
    },
    /// The messages that wait here for an agent.
    Mailbox {
        /// Its local name.
        agent: String,
    },
    /// Something about the logs of persistent channels that this node keeps; asked by another node, or the Master.
    ChannelLog {
        /// What.
        request: LogRequest,
    },
    /// A piece of an agent's log.
    Log {
        /// The process group whose log it is (`seller-1`): it goes on over restarts.
        log: String,
        /// Where to begin.
        from: LogPosition,
        /// At most so many bytes.
        limit: u32,
    },
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum LogPosition {
    /// So many lines before the end.
    LastLines {
        /// How many.
        lines: u32,
    },
    /// A byte offset, as an earlier answer told.
    Offset {
        /// Bytes since the log's first.
        offset: u64,
    },
}

/// A node's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum NodeAnswer {
    /// To `Start`.
    Started {
        /// The process's id.
        pid: u32,
    },
    /// To `Freeze`.
    Frozen {
        /// Size of what was frozen, in bytes.
        size: u64,
    },
    /// To `FetchFrozen`.
    Part {
        /// The part.
        part: FrozenPart,
    },
    /// To `Log`.
    Log {
        /// The text.
        text: String,
        /// Where the next piece begins.
        next: u64,
    },
    /// To `Post`, once all that is kept is on disk: for each letter why it is not kept, if it is not.
    Posted {
        /// In the order of the letters.
        refused: Vec<Option<Fault>>,
    },
    /// To `Trail`.
    Trail {
        /// What is there.
        trail: Trail,
    },
    /// To `Mailbox`.
    Mailbox {
        /// The first that wait.
        letters: Vec<WaitingLetter>,
        /// How many there are in all.
        total: u64,
    },
    /// To `ChannelLog`.
    ChannelLog {
        /// The answer.
        log: LogAnswer,
    },
    /// To everything else.
    Done,
}

answers! { NodeAnswer:
    part = Self::Part { part } => part, FrozenPart;
    log = Self::Log { text, next } => (text, next), (String, u64);
    mailbox = Self::Mailbox { letters, total } => (letters, total), (Vec<WaitingLetter>, u64);
    channel_log = Self::ChannelLog { log } => log, LogAnswer;
}

/// A process the Master placed on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Its name (`seller-1.3`: the third start of `seller-1`).
    pub process: String,
    /// Its name in the manifest with the replica's number (`seller-1`), also its log's.
    pub group: String,
    /// Local names of the agents it may run.
    pub agents: Vec<String>,
    /// Program and arguments; empty for a program that comes with a ticket.
    pub command: Vec<String>,
    /// Directory it is started in.
    pub directory: Option<String>,
    /// Variables added to the few it inherits of the node's environment.
    pub environment: BTreeMap<String, String>,
    /// The node that holds the frozen agents it is to restore, and their process's name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherits: Option<Inheritance>,
}

/// Where frozen agents wait to be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inheritance {
    /// The node.
    pub node: String,
    /// The process frozen there.
    pub process: String,
}

/// The requests of a node to `ca@hap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum AuthorityRequest {
    /// A certificate for a process of the node or one of its agents.
    Certify {
        /// The node's word for it, a [`Vouching`](crate::statement::Vouching).
        voucher: Signed,
    },
}

/// The answers of `ca@hap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AuthorityAnswer {
    /// To `Certify`.
    Certified {
        /// DER, leaf first.
        chain: Vec<Blob>,
    },
}
