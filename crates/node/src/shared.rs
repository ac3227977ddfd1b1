//! The state that the parts of a node share.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use sealbus_bus::LogShares;
use sealbus_journal::Journal;
use sealbus_seal::denylist::{DenyList, DenyListError, DenyListUpdate, SignedDenyList};
use sealbus_seal::{Credential, Fingerprint, Identity, Name, Timestamp, Trust};
use tokio::sync::{Notify, mpsc, watch};

use super::held::HeldCertificates;
use super::isolation::ProgramIsolation;
use super::leaders::Leaders;
use super::log::Logs;
use super::memory::Memory;
use super::processes::{Placement, Processes, Turn};
use super::reports::Reports;
use super::room::Rooms;
use super::socket_of;
use super::witness::Witnesses;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::clock::now;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::directory::{MOST_FOLLOWED, RecentNames, Replica};
use sealbus_control::host::Command;
use sealbus_control::names::MASTER;
use sealbus_control::node::{MasterRequest, ask_master};
use sealbus_control::rpc::{RpcCaller, Untold};
use sealbus_control::text::excerpt;
use sealbus_control::{
    AgentLocation, Blob, Fault, FaultCode, NodeDescription, PlatformDescription, ProcessContact,
    PublishedKey,
};
use sealbus_keeping::channel_log::KeptChannelLogs;
use sealbus_keeping::node_journal::NodeJournal;
use sealbus_keeping::post::KeptLetters;
use sealbus_process::Process;

/// How long the Master may take to say where an agent is, or which key it has stated.
pub(crate) const RESOLVING: Duration = Duration::from_secs(3);
/// The most characters of the reason in a log line that a process or an agent causes.
const LONGEST_REASON: usize = 1024;

/// The node's own process, while it is on the bus.
#[derive(Clone)]
pub(crate) struct Presence {
    /// Sends requests in the name of `node-N`.
    pub(crate) correspondent: Correspondent,
    /// The node's own process.
    pub(crate) process: Process,
    /// Commands to the node's own process.
    pub(crate) commands: mpsc::Sender<Command>,
}

/// The state that the parts of a node share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) description: NodeDescription,
    pub(crate) platform: RwLock<PlatformDescription>,
    pub(crate) credential: ArcSwap<Credential>,
    /// The Masters, and the term that the node obeys.
    pub(crate) leaders: Leaders,
    pub(crate) trust: Arc<Trust>,
    /// The certificates that its processes hold.
    pub(crate) held: Mutex<HeldCertificates>,
    /// Held while a deny list is applied and passed on, so that changes are passed on in order.
    pub(crate) denying: tokio::sync::Mutex<()>,
    /// Whether changes of the deny list did not fit the list held here, so that the whole list is needed.
    pub(crate) lacks_denials: AtomicBool,
    /// Whether the list held here is later than the one that the Master sent. The Master then went on from an older
    /// copy of it.
    pub(crate) holds_later_denials: AtomicBool,
    /// Whether the whole list of a Master that stands by is needed.
    pub(crate) lacks_denials_beside: AtomicBool,
    pub(crate) replica: Mutex<Replica>,
    /// For each agent, the node on which it ran before its present one.
    pub(crate) former: Mutex<HashMap<String, String>>,
    /// How often another node was asked for an agent.
    pub(crate) questions: AtomicUsize,
    /// Notified when the Master must be asked about the directory at once.
    pub(crate) wanting: Notify,
    /// Held while a change of the directory is passed on.
    pub(crate) telling: tokio::sync::Mutex<()>,
    /// The revision up to which the processes were told of those that use channels; 0 while not all are known here.
    /// Wakes tasks that wait for a change of the directory, or until a process has confirmed the news.
    pub(crate) heard: watch::Sender<u64>,
    /// The latest contacts of the nodes.
    pub(crate) nodes: Mutex<HashMap<String, ProcessContact>>,
    /// The agents that the node's own process has asked for.
    pub(crate) asked: Mutex<RecentNames>,
    pub(crate) processes: Processes,
    /// Messages kept for agents that are away.
    pub(crate) post: Arc<KeptLetters>,
    /// Held while letters from another node come in, so that they come in in the order in which they were sent.
    pub(crate) letters_in_order: tokio::sync::Mutex<()>,
    /// Logs of persistent channels.
    pub(crate) channel_logs: Arc<KeptChannelLogs>,
    /// The journal of messages and logs.
    pub(crate) journal: Journal,
    pub(crate) logs: Logs,
    /// The shares of the node's own log for forbidden attempts of processes and agents.
    pub(crate) refusals: Mutex<LogShares>,
    /// The checkpoints of issuance logs that this node saw.
    pub(crate) witness: Witnesses,
    pub(crate) memory: Memory,
    pub(crate) presence: watch::Sender<Option<Presence>>,
    /// The reports that wait for the Master.
    pub(crate) reports: Reports,
    /// The attachment socket.
    pub(crate) socket: PathBuf,
    /// The fingerprint of the platform's root certificate.
    pub(crate) root: Fingerprint,
    /// The isolation of the node's programs.
    pub(crate) sealing: Arc<ProgramIsolation>,
    /// The room that the programs' folders took when the disk last had room.
    pub(crate) rooms: Mutex<Rooms>,
    /// The address at which programs with tickets attach.
    pub(crate) attachment: Option<SocketAddr>,
    /// The wish to end.
    pub(crate) leaving: watch::Sender<Option<Leave>>,
    /// Whether the Master knows that the node has left.
    pub(crate) parted: watch::Sender<bool>,
}

/// The parts of a node that exist before it begins.
pub(crate) struct NodeParts {
    pub(crate) name: String,
    pub(crate) description: NodeDescription,
    pub(crate) platform: PlatformDescription,
    pub(crate) credential: Credential,
    pub(crate) leaders: Leaders,
    pub(crate) trust: Arc<Trust>,
    pub(crate) journal: NodeJournal,
    pub(crate) logs: Logs,
    pub(crate) memory: Memory,
    pub(crate) reports: Reports,
    pub(crate) sealing: ProgramIsolation,
    pub(crate) attachment: Option<SocketAddr>,
}

/// How a node leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    /// The time processes have to end by themselves.
    pub(crate) grace: Duration,
    /// Whether the Master itself ordered it, so that it need not be told.
    pub(crate) is_masters: bool,
}

impl Shared {
    /// The state of a node that begins.
    pub(crate) fn new(parts: NodeParts) -> Arc<Self> {
        let NodeJournal {
            journal,
            post,
            logs: channel_logs,
        } = parts.journal;
        Arc::new(Self {
            name: parts.name,
            description: parts.description,
            platform: RwLock::new(parts.platform),
            credential: ArcSwap::from_pointee(parts.credential),
            root: parts.leaders.enrolment().root,
            leaders: parts.leaders,
            trust: parts.trust,
            held: Mutex::default(),
            denying: tokio::sync::Mutex::default(),
            lacks_denials: AtomicBool::new(false),
            holds_later_denials: AtomicBool::new(false),
            lacks_denials_beside: AtomicBool::new(false),
            replica: Mutex::new(Replica::default()),
            former: Mutex::default(),
            questions: AtomicUsize::new(0),
            wanting: Notify::new(),
            telling: tokio::sync::Mutex::default(),
            heard: watch::Sender::default(),
            nodes: Mutex::default(),
            asked: Mutex::new(RecentNames::new(MOST_FOLLOWED)),
            processes: Processes::default(),
            post: Arc::new(post),
            letters_in_order: tokio::sync::Mutex::default(),
            channel_logs: Arc::new(channel_logs),
            journal,
            logs: parts.logs,
            refusals: Mutex::default(),
            witness: Witnesses::new(parts.memory.directory()),
            presence: watch::Sender::new(None),
            reports: parts.reports,
            socket: socket_of(parts.memory.directory()),
            memory: parts.memory,
            sealing: Arc::new(parts.sealing),
            rooms: Mutex::default(),
            attachment: parts.attachment,
            leaving: watch::Sender::new(None),
            parted: watch::Sender::new(false),
        })
    }

    /// The address in the certificates of this node and its agents.
    pub(crate) fn address(&self) -> IpAddr {
        self.description.address
    }

    /// Whether the node's own process goes on when another Master leads.
    pub(crate) fn turns_at_once(&self) -> bool {
        self.platform.read().transport.outlives_masters()
    }

    /// Begins to leave. The first wish counts.
    pub(crate) fn leave(&self, leave: Leave) {
        self.leaving.send_if_modified(|leaving| {
            let first = leaving.is_none();
            if first {
                *leaving = Some(leave);
            }
            first
        });
    }

    /// Reports to the Master, now or when it is back.
    pub(crate) fn report(&self, request: MasterRequest) {
        self.reports.put(request);
    }

    /// Logs that a source was refused something, unless that source has caused too many such lines recently.
    pub(crate) fn log_refusal(&self, source: &str, why: &str) {
        if let Some(left_out) = self.refusals.lock().admit(source.to_owned()) {
            let why = excerpt(why, LONGEST_REASON);
            tracing::warn!(source, why, left_out, "refused");
        }
    }

    pub(crate) fn correspondent(&self) -> Result<Correspondent, Fault> {
        match &*self.presence.borrow() {
            Some(presence) => Ok(presence.correspondent.clone()),
            None => Err(Fault::new(
                FaultCode::Unavailable,
                "the node is not on the bus now",
            )),
        }
    }

    /// The key for sealed messages that an agent has stated last.
    pub(crate) async fn encryption_key(&self, agent: String) -> Result<PublishedKey, Fault> {
        if Name::new("agent", &agent).is_err() {
            return Ok(PublishedKey::default());
        }
        let asking = ask_master::EncryptionKey { agent };
        self.correspondent()?.ask(MASTER, asking, RESOLVING).await
    }

    /// Whether an agent is placed in a process. If the agent came by this process's ticket, but the platform shows it
    /// in another process by now, it is not: it came there with another ticket.
    pub(crate) fn is_placed(&self, placement: &Placement, agent: &str) -> bool {
        let is_elsewhere = || match self.replica.lock().locate(agent) {
            AgentLocation::Process(place) => place.process != placement.process,
            _ => false,
        };
        placement.has(agent) && !(placement.has_ticket && is_elsewhere())
    }

    /// Notifies a process of this node without waiting for it. A process that reads nothing is ended, because it would
    /// go on talking to others that it must no longer believe.
    pub(super) fn tell(&self, process: &str, caller: &RpcCaller, notice: &AttachmentNotice) {
        if caller.try_notify(notice) == Err(Untold::ReadsNothing) {
            self.end_unreading(process);
        }
    }

    /// Applies a newer deny list or its changes, and passes them on at once.
    pub(crate) async fn deny_list_changed(&self, list: Blob) {
        let _denying = self.denying.lock().await;
        let applied = self.trust.apply_deny_list(&list.0, present());
        match &applied {
            Ok(_) => self.lacks_denials.store(false, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(%error, "a deny list was not accepted");
                if error.needs_whole_list() {
                    self.lacks_denials.store(true, Ordering::Relaxed);
                }
                if matches!(error, DenyListError::Stale { .. }) {
                    self.holds_later_denials.store(true, Ordering::Relaxed);
                }
            }
        }
        if matches!(applied, Ok(DenyListUpdate::Applied { .. })) {
            self.pass_on_denials(list).await;
        }
    }

    /// As [`deny_list_changed`](Self::deny_list_changed), for the list of a Master that does not lead. It denies in
    /// addition to the leading one.
    pub(crate) async fn denied_beside(&self, list: Blob) {
        let _denying = self.denying.lock().await;
        match self.trust.apply_deny_list_beside(&list.0, present()) {
            Ok(DenyListUpdate::Applied { version }) => {
                // Processes that came later may lack the version that the changes follow.
                let lists = self.trust.deny_lists();
                for list in lists.iter().filter(|list| list.version() == version) {
                    self.pass_on_denials(Blob(list.whole())).await;
                }
            }
            Ok(DenyListUpdate::AlreadyHeld { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "the deny list of a Master that stands by");
                if error.needs_whole_list() {
                    self.lacks_denials_beside.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    async fn pass_on_denials(&self, list: Blob) {
        let presence = self.presence.borrow().clone();
        if let Some(presence) = presence {
            let _ = presence
                .commands
                .send(Command::DenyList(list.clone()))
                .await;
        }
        let notice = AttachmentNotice::DenyList { list };
        for (process, caller) in self.processes.callers() {
            self.tell_denials(&process, &caller, &notice);
        }
    }

    /// Tells a process of a deny list without waiting for it. While it reads a long list there may be no room for
    /// another one: its connection then [tells](Self::tell_lacking_denials) it the lists in force.
    fn tell_denials(&self, process: &str, caller: &RpcCaller, list: &AttachmentNotice) {
        if caller.try_notify(list) == Err(Untold::ReadsNothing) {
            self.processes.lacks_denials(process);
        }
    }

    /// Tells a process the deny lists in force, one after another, each time its connection had no room for one. However many
    /// lists there were meanwhile, at most one of them waits for room. A process that reads nothing loses its connection.
    pub(crate) async fn tell_lacking_denials(&self, caller: &RpcCaller, turn: &Turn) {
        loop {
            turn.lacks_denials().await;
            for list in self.trust.deny_lists().iter() {
                let list = Blob(list.whole());
                // An error means that the connection has ended.
                let _ = caller.notify(&AttachmentNotice::DenyList { list }).await;
            }
        }
    }

    /// Tells a process that has come the denials that the list in its welcome lacks.
    pub(crate) fn tell_denials_beside(&self, process: &str, caller: &RpcCaller) {
        for list in self.trust.outlasting_deny_lists(|_| true) {
            let list = Blob(list.whole());
            self.tell_denials(process, caller, &AttachmentNotice::DenyList { list });
        }
    }

    /// Notes where the Masters are, also for the time after a restart.
    pub(crate) fn masters_are_at(&self, addresses: &[String]) {
        if !self.leaders.are_at(addresses) {
            return;
        }
        let (enrolment, credential) = (self.leaders.enrolment(), self.credential.load_full());
        let kept = self
            .memory
            .keep_identity(&self.name, &enrolment, &credential);
        if let Err(error) = kept {
            tracing::warn!(%error, "where the Masters are is known until the node ends");
        }
    }

    /// Lists with denials that the list of the present CA has lost, or with a later version: the CA was restored from a
    /// backup, or came after another one. Lists in `looked_at` are left out. Each list with such denials is added to
    /// it, because it is handed back at once.
    pub(crate) fn deny_lists_to_hand_back(
        &self,
        looked_at: &mut BTreeSet<(Identity, u64)>,
    ) -> Vec<Arc<SignedDenyList>> {
        let key = |list: &DenyList| (list.authority().clone(), list.version());
        let mut lists = self
            .trust
            .outlasting_deny_lists(|list| looked_at.insert(key(list)));
        if self.holds_later_denials.swap(false, Ordering::Relaxed) {
            let latest = self.trust.latest_deny_list();
            lists.extend(latest.filter(|list| !looked_at.contains(&key(list))));
        }
        lists
    }

    /// The whole signed deny list that the Master told last.
    pub(crate) fn deny_list(&self) -> Blob {
        let list = self.trust.latest_deny_list();
        Blob(list.map(|list| list.whole()).unwrap_or_default())
    }

    /// The version of the deny list that the Master's changes must follow; 0 if the whole list is needed.
    pub(crate) fn deny_list_version(&self) -> u64 {
        if self.lacks_denials.load(Ordering::Relaxed) {
            return 0;
        }
        let list = self.trust.latest_deny_list();
        list.map_or(0, |list| list.version())
    }
}

fn present() -> Timestamp {
    Timestamp::from_unix_seconds(now() / 1000)
}

#[cfg(test)]
mod tests;
