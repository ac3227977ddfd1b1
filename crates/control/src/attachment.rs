//! The conversation between an agent process and its node.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::channel_log::{LogAnswer, LogRequest};
use super::post::{DeliveredLetter, LetterOutcome, PostedLetter};
use super::{
    AgentLocation, Blob, DirectoryChange, EndedProcess, Fault, PlacedState, PlatformDescription,
    ProcessContact, PublishedKey, RefusalRecord, Rules, SealedKeys, Subject, UnixMillis,
};
use crate::ask::conversation;
use crate::authority::IssuedChain;
use crate::text::excerpt;

/// The file in a program's folder with its latest mark: a fresh secret in its text form.
pub const MARK: &str = ".sealbus-mark";

conversation! {
    /// The requests of an agent process to its node.
    pub enum AttachmentRequest in ask ("ask") {
        /// The first request on a connection.
        Attach {
            /// The one-time ticket, or the secret of [`Welcome::reattach`] after a broken connection.
            ticket: String,
            /// The process's clock.
            now: UnixMillis,
            /// The text that the process has just written into [`MARK`] in its program's folder. A program without unix
            /// sockets comes over the network, and its node recognises it by this text, because no other program can
            /// write there.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            mark: Option<String>,
        } -> Box<Welcome>;
        /// A certificate chain (DER, leaf first) for a key made in this process.
        Certify {
            /// The agent or process to certify.
            subject: Subject,
            /// PKCS#10, DER.
            request: Blob,
        } -> IssuedChain;
        /// An agent of this process states its key for sealed messages.
        PublishKey {
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
        /// The address on which this process listens for links.
        Announce {
            /// The address to which others connect.
            address: SocketAddr,
        } -> ();
        /// Agents of this process use channels from now on. The process is told of the other such processes: first all
        /// of them ([`AttachmentNotice::ProcessesAre`]), then changes ([`AttachmentNotice::ProcessesJoined`],
        /// [`AttachmentNotice::ProcessesEnded`]). The others are told of this one, and then the answer comes. A process
        /// asks again if the others were not known when it attached again.
        UseChannels -> ();
        /// The place of an agent. Later changes come as [`AttachmentNotice::DirectoryChanged`].
        Resolve {
            /// Local name.
            agent: String,
        } -> AgentLocation;
        /// The whole deny list, because changes to it did not fit the list that the process holds.
        DenyList -> Blob;
        /// An event in the life of an agent of this process. The answer comes when the platform has taken the report. A
        /// node then tells the Master; on an embedded platform the AMS itself takes it.
        Report {
            /// Local name.
            agent: String,
            /// The event.
            report: AgentReport,
        } -> ();
        /// The refusals of this process since the last report.
        Refusals {
            /// The refusals since the last report.
            records: Vec<RefusalRecord>,
        } -> ();
        /// A part of the frozen agents, after [`AttachmentNotice::Freeze`]. A part that comes again, because the answer
        /// was lost, changes nothing. The answer says that the node has the part; after the last part it also says that
        /// the node has not given up the move. [`FaultCode::BadRequest`](crate::FaultCode::BadRequest) means that the
        /// agents go on in the process.
        Frozen {
            /// The number of the freeze.
            freeze: u64,
            /// The part.
            part: FrozenPart,
        } -> ();
        /// Messages from its agents that must be kept for their receivers, and failure notices that came too late for
        /// agents handed in for a move to take along. The answer comes once all kept messages are on disk. For each
        /// message, it is the reason why the message is not kept, if it is not. A message that was given before, with the
        /// same origin and sequence number, is kept once.
        Post {
            /// The messages, in the order in which they were sent.
            letters: Vec<PostedLetter>,
        } -> Vec<Option<Fault>>;
        /// The outcomes of letters that were delivered to this process. Once the answer has come, these letters do not
        /// come again, unless they were [left](LetterOutcome::Left).
        Letters {
            /// Local name of the receiver.
            agent: String,
            /// The numbers of the letters, each with its outcome.
            outcomes: Vec<(u64, LetterOutcome)>,
        } -> ();
        /// The nodes that keep logs of persistent channels, as far as this process's own node knows them.
        Nodes -> Vec<String>;
        /// A request to the logs of persistent channels.
        ChannelLog {
            /// The node that keeps the logs.
            node: String,
            /// The request.
            request: LogRequest,
        } -> LogAnswer;
        /// The agents of this process cannot be moved. The answer says whether the node has them nevertheless, because
        /// they were handed in before. If so, the node answers their unread messages, and the process does not.
        NotFrozen {
            /// The reason.
            reason: String,
        } -> bool;
        /// The keys with which agents that moved here opened sealed messages. Only this process can read the answer.
        FormerKeys {
            /// The stated key of one of these agents, under its certificate in this process.
            key: Blob,
        } -> SealedKeys;
        /// The next part of the agents that this process must restore.
        Inherit {
            /// The number of parts received so far.
            index: u32,
        } -> FrozenPart;
    }
    /// Answers to an [`AttachmentRequest`].
    pub enum AttachmentAnswer ("answer") {
        Welcome(Box<Welcome>);
        Certified(IssuedChain);
        EncryptionKey(PublishedKey);
        Location(AgentLocation);
        DenyList { list: Blob };
        Inherited { part: FrozenPart };
        NotFrozen { handed_in: bool };
        FormerKeys { keys: SealedKeys };
        Posted { refused: Vec<Option<Fault>> };
        ChannelLog { log: LogAnswer };
        Nodes { nodes: Vec<String> };
        Done;
    }
}

/// An event in the life of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum AgentReport {
    /// The agent is in this state now.
    State {
        /// The state.
        state: PlacedState,
    },
    /// The agent ended by itself.
    Ended,
    /// The agent ended with an error.
    Failed {
        /// The error.
        error: String,
    },
}

/// The most characters of an agent's error.
const LONGEST_ERROR: usize = 1024;

impl AgentReport {
    /// The same report, with an error that is limited and cannot control a terminal. The text comes from the agent's process.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Failed { error } => Self::Failed {
                error: excerpt(&error, LONGEST_ERROR),
            },
            Self::State { .. } | Self::Ended => self,
        }
    }
}

/// The most bytes of the serialised agents of one process.
pub const MOST_FROZEN: usize = 256 * 1024 * 1024;

/// A part of the serialised `Vec<FrozenAgent>`. Parts come in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenPart {
    /// The index of the part, counted from 0.
    pub index: u32,
    /// Whether more parts follow.
    pub more: bool,
    /// The bytes.
    pub bytes: Blob,
}

/// The facts that a process learns when it attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The platform.
    pub platform: PlatformDescription,
    /// The node to which it is attached.
    pub node: String,
    /// This process's name, as certified.
    pub process: String,
    /// Local names of the agents that it may run, in the manifest's order.
    pub agents: Vec<String>,
    /// Its address, as it appears in certificates. The process must also listen there.
    pub address: IpAddr,
    /// The whole signed deny list in force.
    pub deny_list: Blob,
    /// The present processes whose agents use channels; `None` if this process has not
    /// [told](AttachmentRequest::UseChannels) the node that its own do, or if the node does not know them.
    #[serde(default)]
    pub processes: Option<Vec<ProcessContact>>,
    /// The rules for all processes.
    #[serde(default)]
    pub rules: Rules,
    /// The secret with which the process attaches again after a broken connection.
    pub reattach: String,
    /// Whether the process must restore agents that moved here ([`AttachmentRequest::Inherit`]).
    pub inherits: bool,
    /// Whether the platform is so small that each process says at once that its agents use channels. They can then
    /// begin to use them while no Master can be reached.
    #[serde(default)]
    pub all_use_channels: bool,
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
    /// Stop delivering, save every agent and answer with [`AttachmentRequest::Frozen`]. An earlier freeze is over.
    Freeze {
        /// The number of this freeze, so that parts of an earlier one are not taken for its own.
        freeze: u64,
    },
    /// The move failed. Go on as if there had been no [`AttachmentNotice::Freeze`].
    Thaw,
    /// A newer signed deny list: its changes since the last one, or the whole list.
    DenyList {
        /// The list.
        list: Blob,
    },
    /// Agents that this process has asked for have moved.
    DirectoryChanged {
        /// The changes.
        changes: Vec<DirectoryChange>,
    },
    /// All present processes whose agents use channels.
    ProcessesAre {
        /// The processes.
        processes: Vec<ProcessContact>,
    },
    /// Processes whose agents use channels and that can be reached now.
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
        /// The letters, in order.
        letters: Vec<DeliveredLetter>,
    },
    /// Processes that have ended. Some of them may be unknown to this one.
    ProcessesEnded {
        /// The processes.
        processes: Vec<EndedProcess>,
    },
}
