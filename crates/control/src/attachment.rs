//! The conversation between an agent process and its node.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::channel_log::{LogAnswer, LogRequest};
use super::post::{DeliveredLetter, LetterOutcome, PostedLetter};
use super::{
    AgentLocation, AgentState, Blob, DirectoryChange, EndedProcess, Fault, PlatformDescription,
    ProcessContact, RefusalRecord, Rules, Subject, UnixMillis,
};
use crate::answers::answers;

/// The requests of an agent process to its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum AttachmentRequest {
    /// The first request on a connection.
    Attach {
        /// The one-time ticket, or the secret of [`Welcome::reattach`] after a broken connection.
        ticket: String,
        /// The process's clock.
        now: UnixMillis,
    },
    /// A certificate for a key made in this process.
    Certify {
        /// The agent or process to certify.
        subject: Subject,
        /// PKCS#10, DER.
        request: Blob,
    },
    /// The address on which this process listens for links.
    Announce {
        /// The address to which others connect.
        address: SocketAddr,
    },
    /// The place of an agent.
    Resolve {
        /// Local name.
        agent: String,
    },
    /// An event in the life of an agent.
    Report {
        /// Local name.
        agent: String,
        /// The event.
        report: AgentReport,
    },
    /// The refusals of this process.
    Refusals {
        /// The refusals since the last report.
        records: Vec<RefusalRecord>,
    },
    /// A part of the frozen agents, after [`AttachmentNotice::Freeze`].
    Frozen {
        /// The part.
        part: FrozenPart,
    },
    /// Messages from its agents that must be kept for their receivers.
    Post {
        /// In the order they were sent.
        letters: Vec<PostedLetter>,
    },
    /// The outcomes of letters that were delivered to this process.
    Letters {
        /// Local name of the receiver.
        agent: String,
        /// The numbers of the letters, each with its outcome.
        outcomes: Vec<(u64, LetterOutcome)>,
    },
    /// A request to the logs of persistent channels.
    ChannelLog {
        /// The node that keeps the logs.
        node: String,
        /// The request.
        request: LogRequest,
    },
    /// The agents of this process cannot be moved.
    NotFrozen {
        /// The reason.
        reason: String,
    },
    /// The next part of the agents that this process must restore.
    Inherit {
        /// The number of parts received so far.
        index: u32,
    },
}

/// An event in the life of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum AgentReport {
    /// The agent is in this state now.
    State {
        /// The state.
        state: AgentState,
    },
    /// The agent ended by itself.
    Ended,
    /// The agent ended with an error.
    Failed {
        /// The error.
        error: String,
    },
}

/// A part of the serialised `Vec<FrozenAgent>`. Parts come in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenPart {
    /// Counted from 0.
    pub index: u32,
    /// Whether more parts follow.
    pub more: bool,
    /// The bytes.
    pub bytes: Blob,
}

/// Answers to an [`AttachmentRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AttachmentAnswer {
    /// To `Attach`.
    Welcome(Box<Welcome>),
    /// To `Certify`.
    Certified {
        /// DER, leaf first.
        chain: Vec<Blob>,
    },
    /// To `Resolve`.
    Location(AgentLocation),
    /// To `Inherit`.
    Inherited {
        /// The part.
        part: FrozenPart,
    },
    /// To `Post`, once all kept letters are on disk. For each letter it says why the letter is not kept, if it is not.
    Posted {
        /// In the order of the letters.
        refused: Vec<Option<Fault>>,
    },
    /// To `ChannelLog`.
    ChannelLog {
        /// The answer.
        log: LogAnswer,
    },
    /// To everything else.
    Done,
}

answers! { AttachmentAnswer:
    welcome = Self::Welcome(welcome) => *welcome, Welcome;
    certified = Self::Certified { chain } => chain, Vec<Blob>;
    location = Self::Location(location) => location, AgentLocation;
    inherited = Self::Inherited { part } => part, FrozenPart;
    posted = Self::Posted { refused } => refused, Vec<Option<Fault>>;
    channel_log = Self::ChannelLog { log } => log, LogAnswer;
}

/// The facts that a process learns when it attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The platform.
    pub platform: PlatformDescription,
    /// The node it is attached to.
    pub node: String,
    /// This process's name, as certified.
    pub process: String,
    /// Local names of the agents it may run, in the manifest's order.
    pub agents: Vec<String>,
    /// Its address, as it appears in certificates. The process must listen there too.
    pub address: IpAddr,
    /// The signed deny list in force.
    pub deny_list: Blob,
    /// The present processes; none if the node does not know yet.
    #[serde(default)]
    pub processes: Option<Vec<ProcessContact>>,
    /// The rules for all processes.
    #[serde(default)]
    pub rules: Rules,
    /// The secret with which the process attaches again after a broken connection.
    pub reattach: String,
    /// Whether the process must restore agents that moved here ([`AttachmentRequest::Inherit`]).
    pub inherits: bool,
}

/// The notices of a node to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum AttachmentNotice {
    /// End all agents and exit.
    Stop {
        /// Milliseconds until the process is ended by force.
        grace: u64,
        /// The reason.
        reason: String,
    },
    /// Stop delivering, save every agent and answer with [`AttachmentRequest::Frozen`].
    Freeze,
    /// The move failed. Go on as if there had been no [`AttachmentNotice::Freeze`].
    Thaw,
    /// A newer signed deny list.
    DenyList {
        /// The list.
        list: Blob,
    },
    /// Agents that this process asked for have moved.
    DirectoryChanged {
        /// The changes.
        changes: Vec<DirectoryChange>,
    },
    /// Processes that can be reached now.
    ProcessesJoined {
        /// The processes.
        processes: Vec<ProcessContact>,
    },
    /// The rules for all processes from now on.
    Rules {
        /// All rules, in place of the earlier ones.
        rules: Rules,
    },
    /// Messages that were kept for an agent of this process.
    Letters {
        /// Local name of the receiver.
        agent: String,
        /// In order.
        letters: Vec<DeliveredLetter>,
    },
    /// Processes that have ended.
    ProcessesEnded {
        /// The processes.
        processes: Vec<EndedProcess>,
    },
}
