//! An agent process and its node.

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
        /// The purpose.
        subject: Subject,
        /// PKCS#10, DER.
        request: Blob,
    },
    /// Where this process listens for links.
    Announce {
        /// The address others connect to.
        address: SocketAddr,
    },
    /// Where an agent is.
    Resolve {
        /// Local name.
        agent: String,
    },
    /// An agent's life.
    Report {
        /// Local name.
        agent: String,
        /// The event.
        report: AgentReport,
    },
    /// The refusals of this process.
    Refusals {
        /// Counted since the last report.
        records: Vec<RefusalRecord>,
    },
    /// A part of what was frozen, after [`AttachmentNotice::Freeze`].
    Frozen {
        /// The part.
        part: FrozenPart,
    },
    /// Messages of its agents that are to be kept for their receivers.
    Post {
        /// In the order they were sent.
        letters: Vec<PostedLetter>,
    },
    /// The outcomes of letters that were delivered to this process.
    Letters {
        /// Local name of the receiver.
        agent: String,
        /// Their numbers, and what came of each.
        outcomes: Vec<(u64, LetterOutcome)>,
    },
    /// Something about the logs of persistent channels.
    ChannelLog {
        /// The node that keeps them.
        node: String,
        /// What.
        request: LogRequest,
    },
    /// The agents of this process cannot be moved.
    NotFrozen {
        /// Why.
        reason: String,
    },
    /// The next part of what this process is to restore.
    Inherit {
        /// Parts had so far.
        index: u32,
    },
}

/// An event in the life of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum AgentReport {
    /// It is in this state now.
    State {
        /// The state.
        state: AgentState,
    },
    /// It ended by itself.
    Ended,
    /// It ended by an error.
    Failed {
        /// The error.
        error: String,
    },
}

/// A part of the serialised `Vec<FrozenAgent>`; parts come in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenPart {
    /// Counted from 0.
    pub index: u32,
    /// Whether more follow.
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
    /// To `Post`, once all that is kept is on disk: for each letter why it is not kept, if it is not.
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
    /// This process's name, as it is certified.
    pub process: String,
    /// Local names of the agents it may run, in the manifest's order.
    pub agents: Vec<String>,
    /// Its address, as it appears in certificates; also where it is to listen.
    pub address: IpAddr,
    /// The signed deny list, as it is now.
    pub deny_list: Blob,
    /// The processes there are; none if the node does not know yet.
    #[serde(default)]
    pub processes: Option<Vec<ProcessContact>>,
    /// The rules for all processes.
    #[serde(default)]
    pub rules: Rules,
    /// Secret with which to attach again after a broken connection.
    pub reattach: String,
    /// Whether it is to restore agents that moved here ([`AttachmentRequest::Inherit`]).
    pub inherits: bool,
}

/// The notices of a node to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum AttachmentNotice {
    /// End all agents and exit.
    Stop {
        /// Milliseconds until it is ended by force.
        grace: u64,
        /// Why.
        reason: String,
    },
    /// Stop delivering, save every agent and answer with [`AttachmentRequest::Frozen`].
    Freeze,
    /// The move failed: go on as if there had been no [`AttachmentNotice::Freeze`].
    Thaw,
    /// A newer signed deny list.
    DenyList {
        /// The list.
        list: Blob,
    },
    /// Agents this process asked for are elsewhere now.
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
        /// All of it.
        rules: Rules,
    },
    /// Messages that were kept for an agent of this process.
    Letters {
        /// Local name of the receiver.
        agent: String,
        /// In order.
        letters: Vec<DeliveredLetter>,
    },
    /// Processes that are no more.
    ProcessesEnded {
        /// The processes.
        processes: Vec<EndedProcess>,
    },
}
