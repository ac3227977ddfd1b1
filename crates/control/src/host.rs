//! The interface of an agent process to its platform.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sealbus_channels::ChannelPath;
use sealbus_journal::Retention;
use tokio::sync::{mpsc, oneshot};

use crate::attachment::AgentReport;
use crate::channel_log::{LogAnswer, LogRequest};
use crate::post::{DeliveredLetter, LetterOutcome, PostedLetter};
use crate::{
    AgentLocation, Blob, DirectoryChange, EndedProcess, Fault, FaultCode, FrozenAgent,
    PlatformDescription, ProcessContact, RefusalRecord, Rules, Subject,
};

/// The facts that a process learned when it joined its platform.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The platform.
    pub platform: PlatformDescription,
    /// The node that vouches for this process.
    pub node: String,
    /// This process's name, as it is certified.
    pub process: String,
    /// Local names of the agents it may run, in the manifest's order.
    pub agents: Vec<String>,
    /// The address in its certificates; also where it is to listen.
    pub address: IpAddr,
    /// The port it is to listen on; 0 lets the system choose.
    pub port: u16,
    /// The signed deny list, as it was then; newer ones come as [`Command::DenyList`].
    pub deny_list: Blob,
    /// Whether agents moved here: [`Host::inherit`] has their state and mailboxes.
    pub inherits: bool,
    /// The other processes there were then, as [`Command::ProcessesAre`]; this one may be among them.
    pub processes: Option<Vec<ProcessContact>>,
    /// The rules for all processes at that time; changes come as [`Command::Rules`].
    pub rules: Rules,
    /// Whether other processes can reach this one and be reached: false on an embedded platform,
    /// which needs no mesh endpoint.
    pub reachable: bool,
}

/// A notice of the platform to a process.
#[derive(Debug)]
pub enum Command {
    /// End all agents and leave.
    Stop {
        /// Time until the process is ended by force.
        grace: Duration,
        /// Why.
        reason: String,
    },
    /// Stop delivering, let every agent save its state, and answer with state and unread messages,
    /// one entry an agent. From then on messages that come in are refused as `in transit`, so that
    /// their senders hold them. Dropping `answer` says that the process cannot be moved.
    Freeze {
        /// Where to answer.
        answer: oneshot::Sender<Result<Vec<FrozenAgent>, String>>,
    },
    /// The move failed: go on as if there had been no [`Command::Freeze`].
    Thaw,
    /// A newer signed deny list, to be verified and obeyed at once.
    DenyList(Blob),
    /// Messages that were kept for an agent of this process, in order.
    Letters {
        /// Its local name.
        agent: String,
        /// The messages.
        letters: Vec<DeliveredLetter>,
    },
    /// Agents this process asked for are elsewhere now.
    DirectoryChanged(Vec<DirectoryChange>),
    /// Processes that can be reached now, or at another address.
    ProcessesJoined(Vec<ProcessContact>),
    /// All the processes there are: others that were known are no more. `None`: the platform does not know now.
    ProcessesAre(Option<Vec<ProcessContact>>),
    /// The rules for all processes from now on.
    Rules(Rules),
    /// Processes that are no more: links to them are to be given up.
    ProcessesEnded(Vec<EndedProcess>),
}

/// The platform, as an agent process sees it: by an attachment to a node, or embedded.
///
/// All calls may be made from several tasks at once. Those that need the Master fail with
/// [`FaultCode::Unavailable`] while it is away; asking again
/// later is right then.
pub trait Host: Send + Sync + 'static {
    /// The facts learned on joining.
    fn membership(&self) -> &Membership;

    /// A certificate chain (DER, leaf first) for the key that `request` (PKCS#10, DER) proves
    /// possession of.
    fn certify(
        &self,
        subject: Subject,
        request: Vec<u8>,
    ) -> BoxFuture<'_, Result<Vec<Vec<u8>>, Fault>>;

    /// Says where this process listens for links.
    fn announce(&self, address: SocketAddr) -> BoxFuture<'_, Result<(), Fault>>;

    /// Where an agent is, by local name. Later changes come as [`Command::DirectoryChanged`].
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<AgentLocation, Fault>>;

    /// Says what happened to an agent of this process. Returns when whoever stands for the platform here
    /// has taken it: the node, which tells the Master; on an embedded platform the AMS itself.
    fn report<'a>(
        &'a self,
        agent: &'a str,
        report: AgentReport,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// Says what this process refused since the last call.
    fn refused(&self, records: Vec<RefusalRecord>) -> BoxFuture<'_, Result<(), Fault>>;

    /// Whether messages of this process's agents are kept for their receivers.
    fn keeps_letters(&self) -> bool {
        true
    }

    /// Has messages kept for their receivers; answers when they are on disk: for each why it is not kept, if it is not.
    /// One that was given before, by its origin and sequence number, is kept once.
    fn post(&self, letters: Vec<PostedLetter>) -> BoxFuture<'_, Result<Vec<Option<Fault>>, Fault>>;

    /// Says what came of letters that came as [`Command::Letters`]; once this returns they do not come again, unless they
    /// were [left](LetterOutcome::Left).
    fn settle_letters<'a>(
        &'a self,
        agent: &'a str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// Asks the logs of persistent channels that a node keeps. Only the node of this process keeps what its agents publish.
    fn channel_log<'a>(
        &'a self,
        node: &'a str,
        request: LogRequest,
    ) -> BoxFuture<'a, Result<LogAnswer, Fault>>;

    /// Has so much kept of a persistent channel, where no manifest says it: on an embedded platform.
    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        _retention: Retention,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let message = format!("how much is kept of {channel} is said in the platform's manifest");
        let fault = Fault::new(FaultCode::NotPermitted, message)
            .advise("see `retention` of [[channel]] there");
        Box::pin(std::future::ready(Err(fault)))
    }

    /// State and mailboxes of agents that moved here; empty unless [`Membership::inherits`]. To be
    /// restored before the process announces its address.
    fn inherit(&self) -> BoxFuture<'_, Result<Vec<FrozenAgent>, Fault>>;

    /// The process has left the platform: what was kept for as long as it ran is removed.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The platform's commands; `None` after the first call. When the channel ends the platform is
    /// gone for good, and the process is to leave.
    fn commands(&self) -> Option<mpsc::Receiver<Command>>;
}

/// The error for the platform's own agents that ask for a log.
pub fn no_logs() -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        "the platform's own agents use no persistent channels",
    )
}

/// The error for the platform's own agents that want a message kept.
pub fn no_letters() -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        "the platform's own agents send no persistent messages",
    )
}
