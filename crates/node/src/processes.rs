//! A node's knowledge about its processes.

mod asking;
mod channel_users;
mod frozen;
mod placement;
mod starts;
mod turn;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{Allowance, Budget};
use sealbus_seal::token::Secret;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::memory::Remembered;
use super::peer::Peer;
pub(super) use asking::wanted;
use channel_users::Channels;
use frozen::FreezeInProgress;
pub(crate) use frozen::{AfterMove, FrozenProcess};
use placement::Entries;
pub(crate) use placement::{Placement, listed};
use sealbus_control::clock::now;
use sealbus_control::directory::{MOST_FOLLOWED, RecentNames};
use sealbus_control::node::{Exit, Inheritance, Launch, RunningProcess};
use sealbus_control::rpc::RpcCaller;
use sealbus_control::{Fault, FaultCode, PlacedState};
pub(crate) use starts::{Begun, Outcome};
use turn::{Elsewhere, RequestPlaces};
pub(crate) use turn::{RequestPlace, Turn};

/// The most agents that a process asks for and gets news of. It looks up others when it writes to them.
const MOST_ASKED: usize = MOST_FOLLOWED;

/// How often a process may report refusals.
const REFUSALS: Allowance = Allowance {
    at_once: 4,
    every: Duration::from_secs(1),
};

/// The processes of a node.
pub(crate) struct Processes {
    start: Instant,
    pub(super) entries: Mutex<Entries>,
    pub(super) frozen: Mutex<HashMap<String, FrozenProcess>>,
    pub(super) ended: Arc<Mutex<Ends>>,
    elsewhere: Elsewhere,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            entries: Mutex::default(),
            frozen: Mutex::default(),
            ended: Arc::default(),
            elsewhere: Elsewhere::default(),
        }
    }
}

/// The ends of processes.
#[derive(Default)]
pub(super) struct Ends {
    /// The ends that the Master does not know yet.
    pub(super) unreported: BTreeMap<String, Exit>,
    /// The latest ends.
    last: VecDeque<End>,
}

/// The end of a process.
#[derive(Clone)]
pub(super) struct End {
    pub(super) exit: Exit,
    /// The process's file, which says how it ended.
    pub(super) row: Remembered,
    /// Held by the task that writes this file.
    pub(super) noting: Arc<tokio::sync::Mutex<()>>,
}

impl End {
    pub(super) fn of(
        remembered: &Remembered,
        exit: Exit,
        noting: Arc<tokio::sync::Mutex<()>>,
    ) -> Self {
        let row = Remembered {
            ended: Some(exit.clone()),
            ..remembered.clone()
        };
        Self { exit, row, noting }
    }
}

/// The node's knowledge about a process.
pub(super) struct Entry {
    pub(super) remembered: Remembered,
    placement: Arc<Placement>,
    /// The outcome of the process's start, if this node starts it.
    start: Option<watch::Receiver<Outcome>>,
    /// Whether the process was told to stop.
    pub(super) is_stopped: bool,
    /// Why the node ends the process by force, if it does.
    pub(super) verdict: Option<Exit>,
    pub(super) connection: Option<(u64, RpcCaller)>,
    /// The number of the present or the last connection. Earlier connections end.
    present: watch::Sender<u64>,
    /// Notified when a deny list found no room on that connection.
    lacks_denials: Arc<Notify>,
    /// The places for the process's requests.
    places: RequestPlaces,
    pub(super) address: Option<SocketAddr>,
    channels: Channels,
    pub(super) agents: BTreeMap<String, PlacedState>,
    /// The latest certificate chain of each agent, in its wire form. The chain of the process itself is under an empty name.
    pub(super) certificates: BTreeMap<String, Vec<u8>>,
    /// Whether the process was taken over after the node's restart and has not reported on its agents since.
    pub(super) is_unheard: bool,
    /// How many more reports of refusals the process may bring.
    refusals: Budget,
    /// The agents that the process has asked for.
    pub(super) asked: RecentNames,
    /// The origin under which the process numbers its persistent messages, once it has sent one.
    pub(super) origin: Option<u64>,
    pub(super) freezing: Option<FreezeInProgress>,
    /// The bytes of the notices that the process has brought for agents that it had handed in.
    late_notices: usize,
    /// Held by the task that notes the process on disk.
    pub(super) noting: Arc<tokio::sync::Mutex<()>>,
}

impl Entry {
    pub(super) fn new(remembered: Remembered) -> Self {
        Self {
            placement: Arc::new(Placement::of(&remembered.launch)),
            remembered,
            start: None,
            is_stopped: false,
            verdict: None,
            connection: None,
            present: watch::Sender::default(),
            lacks_denials: Arc::default(),
            places: RequestPlaces::default(),
            address: None,
            channels: Channels::Unused,
            agents: BTreeMap::new(),
            certificates: BTreeMap::new(),
            is_unheard: false,
            refusals: Budget::new(REFUSALS, Duration::ZERO),
            asked: RecentNames::new(MOST_ASKED),
            origin: None,
            freezing: None,
            late_notices: 0,
            noting: Arc::default(),
        }
    }

    /// The entry of a process that ran before the node was restarted.
    pub(super) fn taken_over(remembered: Remembered) -> Self {
        Self {
            is_unheard: true,
            channels: Channels::taken_over(remembered.channels),
            ..Self::new(remembered)
        }
    }

    /// Whether all agents of the process have ended.
    pub(super) fn is_done(&self) -> bool {
        self.agents.is_empty() && !self.is_unheard
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.remembered.pid.map(|(pid, _)| pid)
    }
}

fn unknown(process: &str) -> Fault {
    Fault::new(
        FaultCode::Unknown,
        format!("the process {process} is not on this node"),
    )
}

impl Processes {
    pub(super) fn with<T>(
        &self,
        process: &str,
        work: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, Fault> {
        self.entries
            .lock()
            .get_mut(process)
            .map(work)
            .ok_or_else(|| unknown(process))
    }

    /// All connections, by process.
    pub(crate) fn callers(&self) -> Vec<(String, RpcCaller)> {
        let entries = self.entries.lock();
        let connected = |(process, entry): (&String, &Entry)| {
            let (_, caller) = entry.connection.as_ref()?;
            Some((process.clone(), caller.clone()))
        };
        entries.iter().filter_map(connected).collect()
    }

    /// The connection to a process.
    pub(crate) fn connection(&self, process: &str) -> Option<(u64, RpcCaller)> {
        self.entries.lock().get(process)?.connection.clone()
    }

    /// The attached processes, each with the connection on which to ask it.
    pub(crate) fn attached(&self) -> Vec<(Arc<Placement>, RpcCaller)> {
        let entries = self.entries.lock();
        let attached = entries.values().filter_map(|entry| {
            let (_, caller) = entry.connection.as_ref()?;
            Some((entry.placement.clone(), caller.clone()))
        });
        attached.collect()
    }

    /// The running processes, for the Master.
    pub(crate) fn running(&self) -> Vec<RunningProcess> {
        let entries = self.entries.lock();
        entries
            .iter()
            .map(|(process, entry)| RunningProcess {
                process: process.clone(),
                pid: entry.pid(),
                address: entry.address,
                channels: entry.channels.are_used(),
                agents: entry
                    .agents
                    .iter()
                    .map(|(name, state)| (name.clone(), *state))
                    .collect(),
            })
            .collect()
    }

    /// The ends of processes that the Master may not know yet.
    pub(crate) fn ended(&self) -> Vec<(String, Exit)> {
        let ended = self.ended.lock();
        ended
            .unreported
            .iter()
            .map(|(process, exit)| (process.clone(), exit.clone()))
            .collect()
    }

    /// The number of processes.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// The agents that are placed in a process.
    pub(crate) fn placement(&self, process: &str) -> Result<Arc<Placement>, Fault> {
        self.with(process, |entry| entry.placement.clone())
    }

    /// Where the agents that a process restores were frozen, if it restores any.
    pub(crate) fn inherits(&self, process: &str) -> Result<Option<Inheritance>, Fault> {
        self.with(process, |entry| entry.remembered.launch.inherits.clone())
    }

    /// The agents of all processes. The value stays the same as long as no process comes or goes.
    pub(crate) fn agents(&self) -> Arc<HashSet<String>> {
        self.entries.lock().agents()
    }

    /// Notes that a process brings a report of refusals.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if it has brought too many: it must bring all its refusals in a later one.
    pub(crate) fn brings_refusals(&self, process: &str) -> Result<(), Fault> {
        let now = self.start.elapsed();
        self.with(process, |entry| match entry.refusals.take(REFUSALS, now) {
            true => Ok(()),
            false => Err(Fault::new(
                FaultCode::Unavailable,
                "a process reports its refusals once a second",
            )),
        })?
    }

    /// Notes the address on which a process listens.
    pub(crate) fn announced(&self, process: &str, address: SocketAddr) {
        let _ = self.with(process, |entry| entry.address = Some(address));
    }

    /// Notes an agent's state. `None` means that the agent has ended.
    pub(crate) fn reported(&self, process: &str, agent: &str, state: Option<PlacedState>) {
        let _ = self.with(process, |entry| {
            entry.is_unheard = false;
            match state {
                Some(state) => entry.agents.insert(agent.to_owned(), state),
                None => {
                    entry.certificates.remove(agent);
                    entry.agents.remove(agent)
                }
            }
        });
    }

    /// Admits the process that shows this secret. Remembers the hash of its secret for the next time. Returns whether
    /// the secret was its ticket.
    pub(crate) fn admit(
        &self,
        secret: &Secret,
        next: &Secret,
        peer: &Peer,
    ) -> Result<(Launch, bool), Fault> {
        let hash = secret.hash();
        let mut entries = self.entries.lock();
        let mut all = entries.values_mut();
        let found = all.find(|entry| entry.remembered.has_secret(hash));
        let entry = found.ok_or_else(|| {
            Fault::new(
                FaultCode::InvalidSecret,
                "the ticket is unknown here, or was used already",
            )
            .advise("a ticket is good once and on one node: make another with `sealbus ticket`")
        })?;
        peer.check(&entry.remembered)?;
        let first = match entry.remembered.ticket {
            Some((ticket, expires)) if ticket == hash => {
                if expires < now() {
                    return Err(
                        Fault::new(FaultCode::InvalidSecret, "the ticket has expired")
                            .advise("make another with `sealbus ticket`"),
                    );
                }
                entry.remembered.ticket = None;
                true
            }
            _ => false,
        };
        // The secret just shown stays valid, because the answer with the new one may be lost. Requests that a process
        // sent while the node was starting are only read now, perhaps several times.
        entry.remembered.reattach.retain(|known| *known == hash);
        entry.remembered.reattach.insert(0, next.hash());
        Ok((entry.remembered.launch.clone(), first))
    }

    /// The folder by whose mark the node recognises the program with this secret, if the program comes over the network.
    pub(crate) fn folder_of(&self, secret: &Secret) -> Option<PathBuf> {
        let hash = secret.hash();
        let entries = self.entries.lock();
        let mut all = entries.values();
        let found = all.find(|entry| entry.remembered.has_secret(hash))?;
        found.remembered.folder.clone()
    }

    /// Notes the connection of a process. An earlier connection no longer counts, and ends.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn connect(
        &self,
        process: &str,
        caller: &RpcCaller,
        connection: u64,
    ) -> Result<Turn, Fault> {
        self.with(process, |entry| {
            entry.connection = Some((connection, caller.clone()));
            entry.present.send_replace(connection);
            entry.lacks_denials = Arc::default();
            Turn {
                connection,
                present: entry.present.subscribe(),
                lacks_denials: entry.lacks_denials.clone(),
                places: entry.places.clone(),
                elsewhere: self.elsewhere.clone(),
            }
        })
    }

    /// Notes that a deny list found no room on the connection to a process.
    pub(crate) fn lacks_denials(&self, process: &str) {
        let _ = self.with(process, |entry| entry.lacks_denials.notify_one());
    }

    /// Waits until the process is attached, for `limit` at most.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) async fn await_attachment(
        &self,
        process: &str,
        limit: Duration,
    ) -> Result<(), Fault> {
        let (is_attached, mut present) = self.with(process, |entry| {
            (entry.connection.is_some(), entry.present.subscribe())
        })?;
        if !is_attached {
            // Whoever needs the connection then checks whether there is one.
            let _ = timeout(limit, present.changed()).await;
        }
        Ok(())
    }

    /// The programs that the node started.
    pub(super) fn pids(&self) -> HashSet<u32> {
        let entries = self.entries.lock();
        entries.values().filter_map(Entry::pid).collect()
    }

    /// The programs that the node started: process, group, id, and the most bytes in the group's folder.
    pub(super) fn started(&self) -> Vec<(String, String, u32, u64)> {
        let entries = self.entries.lock();
        let started = entries.iter().filter_map(|(process, entry)| {
            let launch = &entry.remembered.launch;
            let most = launch.confinement.room();
            Some((process.clone(), launch.group.clone(), entry.pid()?, most))
        });
        started.collect()
    }

    /// Whether this user belongs to a program.
    pub(super) fn is_slot(&self, uid: u32) -> bool {
        let entries = self.entries.lock();
        entries
            .values()
            .any(|entry| entry.remembered.slot == Some(uid))
    }

    /// Notes that a connection ended. Returns true if it was the present connection of a program with a ticket.
    pub(super) fn disconnected(&self, process: &str, connection: u64) -> bool {
        self.with(process, |entry| {
            if entry
                .connection
                .as_ref()
                .is_some_and(|(present, _)| *present == connection)
            {
                entry.connection = None;
                entry.freezing = None;
                entry.remembered.pid.is_none()
            } else {
                false
            }
        })
        .unwrap_or(false)
    }

    pub(super) fn is_connected(&self, process: &str) -> bool {
        self.with(process, |entry| entry.connection.is_some())
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests;
