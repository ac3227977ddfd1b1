//! The runtime of one agent process. It is the same whether the platform is embedded in the process, a node started the
//! process, or the process joined with a ticket.
//!
//! A [`Process`] uses a [`Host`] and serves its agents:
//!
//! - It makes a key for itself and one for each agent, and has them certified. The keys never leave the process. It
//!   renews each certificate at half its life, while messages go on.
//! - It attaches the agents to the [`Bus`] and, unless the platform is embedded, the bus to its transport.
//! - It obeys deny lists at once, reports its agents' states and its refusals to the platform, and follows the
//!   directory's changes.
//! - It passes the platform's orders on to the agents ([`Wish`]): to stop, or to hand over their state for a move.
//!
//! Programs use the `sealbus` crate, which builds on this one and drives agents through their hooks.

mod again;
mod agent;
pub mod attachment;
mod carrier;
mod certification;
mod channel_log;
mod error;
mod freeze;
mod interceptor;
mod judgement;
mod keyring;
mod letters;
mod long_lived;
mod neighbours;
mod node_queue;
mod opening;
mod record;
mod renewal;
mod reports;
mod resolver;
mod rest;
mod revocation;
mod sealing;
mod standing;
mod traffic;
mod upkeep;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sealbus_bus::{Bus, Outbox, ProcessEndpoint, Transport};
use sealbus_channels::{Channels, UndeliveredEvents};
use sealbus_fipa::{Aid, AidError};
use sealbus_seal::{Identity, PlatformName, SecurityLevel, Timestamp, Trust};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use sealbus_control::attachment::{AgentReport, ask};
use sealbus_control::host::{Host, Membership};
use sealbus_control::traffic::{ProcessTraffic, Watch};
use sealbus_control::{FrozenAgent, PlacedState, Rules};

pub use agent::{AgentHandle, AgentSender, Parting, Thawed, Wish, Wishes};
pub use certification::CertificationError;
pub use error::{OpenAgentError, OpenError, ProcessEnd};
pub use interceptor::Interceptor;
pub use long_lived::{LongLivedKey, LongLivedKeyError};
pub use sealbus_brokers::quiet_log;

use agent::Entry;
use certification::{Certified, Certifier};
use freeze::Resting;
use renewal::Schedule;
use reports::Reports;
use standing::CertificateStanding;

/// One agent process on its platform. Clones are handles to the same process.
#[derive(Clone)]
pub struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    host: Arc<dyn Host>,
    certifier: Certifier,
    bus: Bus,
    trust: Arc<Trust>,
    /// How many changes of the deny list did not fit the one held here while the process waits for the whole list.
    unfit_denials: AtomicUsize,
    platform: PlatformName,
    level: SecurityLevel,
    /// Seals and opens messages; `None` where messages are not signed.
    sealing: Option<Arc<sealing::ProcessSealer>>,
    /// Letters that were handed to agents of this process.
    inbox: Arc<letters::Inbox>,
    /// The way for letters to the node, if messages are kept.
    post: Option<Arc<letters::NodePost>>,
    /// The transport; `None` on an embedded platform.
    transport: Option<Arc<dyn Transport>>,
    agents: Mutex<Agents>,
    /// The identity of the process and its certificate's standing; `None` on an embedded platform.
    own: Mutex<Option<(Identity, CertificateStanding)>>,
    /// Agents placed here that have not been opened yet. Empty once the process has announced itself.
    awaited: Mutex<HashSet<String>>,
    /// Starts of agents that nobody waits for any more, by local name. Each goes on until its agent has left.
    given_up: Mutex<HashMap<String, JoinHandle<()>>>,
    /// Agents that moved here and have not been opened yet.
    inherited: Mutex<HashMap<String, FrozenAgent>>,
    /// Agents at rest that have handed over their state.
    resting: Mutex<Vec<Resting>>,
    /// Held while the node is asked which of these agents it answers for.
    ending_at_rest: tokio::sync::Mutex<()>,
    announced: tokio::sync::Mutex<bool>,
    reports: Reports,
    watches: Arc<traffic::Watches>,
    /// The rules for all processes, as the platform last sent them.
    rules: watch::Sender<Rules>,
    recorder: Arc<record::Recorder>,
    /// Wakes the upkeep when the time of the next renewal may have changed.
    renewals_changed: Arc<Notify>,
    /// The number of refusals that the platform knows about.
    refusals_told: tokio::sync::Mutex<u64>,
    /// The origin of the clock that schedules renewals.
    started: Instant,
    stopping: watch::Sender<Option<Stopping>>,
    ended: watch::Sender<Option<ProcessEnd>>,
}

#[derive(Default)]
struct Agents {
    by_number: HashMap<u64, Arc<Entry>>,
    renewals: Schedule,
    last_number: u64,
}

/// The number of the process itself in the schedule.
const THE_PROCESS: u64 = 0;

/// The wish that all agents of the process end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The time until the process is ended by force, if the platform asked for the end.
    pub grace: Option<Duration>,
    /// The reason.
    pub reason: String,
}

/// How long closing waits for sent messages to be acknowledged; it waits half as long for receivers to be found.
const LAST_MESSAGES: Duration = Duration::from_secs(5);
/// How long the transport may take to close after that.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The reason why nobody waits any longer for messages that were sent.
const ENDS: &str = "the sender's process ends";

impl Process {
    /// The counters of this process, and the message heads that a watching reader has not seen yet.
    pub fn observe(&self, watch: Option<Watch>) -> ProcessTraffic {
        traffic::observe(&self.shared.bus, &self.shared.watches, watch)
    }

    /// The platform's name.
    pub fn platform(&self) -> &str {
        self.shared.platform.as_str()
    }

    /// The platform's root and deny lists, as this process knows them.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.shared.trust
    }

    /// The security level this platform runs at.
    pub fn level(&self) -> SecurityLevel {
        self.shared.level
    }

    /// The rules for all processes, as the platform tells them.
    pub fn rules(&self) -> watch::Receiver<Rules> {
        self.shared.rules.subscribe()
    }

    /// The facts that the process learned when it joined.
    pub fn membership(&self) -> &Membership {
        self.shared.host.membership()
    }

    /// The bus of its agents.
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// This process's identity and its address for others; `None` on an embedded platform.
    pub fn contact(&self) -> Option<ProcessEndpoint> {
        let identity = self.shared.own.lock().as_ref()?.0.clone();
        let address = self.address()?;
        Some(ProcessEndpoint { identity, address })
    }

    /// The address at which others reach this process; `None` on an embedded platform. On a broker the port is 0.
    pub fn address(&self) -> Option<SocketAddr> {
        let transport = self.shared.transport.as_ref()?;
        let listens_nowhere = || SocketAddr::new(self.membership().address, 0);
        Some(transport.address().unwrap_or_else(listens_nowhere))
    }

    /// Whether messages reach the agent `name` now; `None` if they reach every agent that is here.
    pub fn receives(&self, name: &str) -> Option<tokio::sync::watch::Receiver<bool>> {
        let transport = self.shared.transport.as_ref()?;
        transport.receives(&self.peer(name).ok()?.name)
    }

    /// The identifier of the agent `name`. A local name stands for an agent of this platform.
    pub fn peer(&self, name: &str) -> Result<Aid, AidError> {
        if name.contains('@') {
            Aid::new(name)
        } else {
            Aid::new(format!("{name}@{}", self.platform()))
        }
    }

    /// Announces this process's address to the platform, so that others find its agents. Once is enough.
    pub async fn announce(&self) -> Result<(), OpenError> {
        let (Some(transport), Some(address)) = (&self.shared.transport, self.address()) else {
            return Ok(());
        };
        let mut announced = self.shared.announced.lock().await;
        if !*announced {
            let agents = self.shared.bus.agents();
            let names = agents.iter().map(|agent| agent.name().clone()).collect();
            carrier::reachable(&**transport, names).await;
            self.shared
                .host
                .ask(ask::Announce { address })
                .await
                .map_err(OpenError::Announcement)?;
            *announced = true;
            // The platform may have refused the others, such as a caller of a gateway that was revoked.
            self.shared.awaited.lock().clear();
            if self.membership().all_use_channels {
                Channels::of(&self.shared.bus).register();
            }
        }
        Ok(())
    }

    /// Asks all agents of this process to end. New agents are refused.
    pub fn stop(&self, reason: &str) {
        self.shared.stop(Stopping {
            grace: None,
            reason: reason.to_owned(),
        });
    }

    /// Whether the process was asked to end.
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.borrow().is_some()
    }

    /// Waits until the process is asked to end: by [`stop`](Self::stop), by the platform, or because the platform is
    /// gone.
    pub async fn stopping(&self) -> Stopping {
        let mut stopping = self.shared.stopping.subscribe();
        match stopping.wait_for(Option::is_some).await {
            Ok(stopping) => stopping.clone().unwrap_or_else(Stopping::unexplained),
            // The sender lives as long as this handle.
            Err(_) => Stopping::unexplained(),
        }
    }

    /// Waits until the process has ended, and returns the reason.
    pub async fn ended(&self) -> ProcessEnd {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(ProcessEnd::Closed),
            Err(_) => ProcessEnd::Closed,
        }
    }

    /// The reason why the process has ended, if it has.
    pub fn end(&self) -> Option<ProcessEnd> {
        self.shared.ended.borrow().clone()
    }

    /// Leaves the platform: removes the remaining agents, sends out accepted messages, and sends the last reports about
    /// each agent.
    pub async fn close(&self) {
        let shared = &self.shared;
        self.stop("the process is closing");
        freeze::end_at_rest(shared).await;
        let entries: Vec<_> = shared.agents.lock().by_number.values().cloned().collect();
        // Agents without such events go first, because the others may wait for them.
        let leaving = entries.iter().map(|entry| async move {
            shared.until_delivered(entry, LAST_MESSAGES).await;
            shared.remove(entry, &Parting::Ended);
        });
        futures_util::future::join_all(leaving).await;
        // Each subscription ends by itself within its time.
        Channels::of(&shared.bus).settled().await;
        if let Some(transport) = &shared.transport {
            let begun = Instant::now();
            let stopping = shared.stopping.borrow().clone();
            let limits = stopping.as_ref().and_then(Stopping::limits);
            let (last_messages, last_words) = limits.unwrap_or((LAST_MESSAGES, LAST_WORDS));
            let before = shared.bus.counters().undeliverable;
            // The transport needs time for these messages, too.
            shared.bus.settle(last_messages / 2).await;
            let left = last_messages.saturating_sub(begun.elapsed());
            let mut closing = transport.shut_down(left + last_words);
            let is_closed = tokio::time::timeout(left, &mut closing).await.is_ok();
            if !is_closed {
                // Otherwise nobody would ever be told of messages that were not acknowledged.
                transport.give_up(ENDS).await;
                closing.await;
            }
            // The transport may have given some back.
            shared.bus.settle(Duration::ZERO).await;
            let count = shared.bus.counters().undeliverable - before;
            if count > 0 {
                tracing::warn!(
                    count,
                    "the process ends, and so many messages of its agents may not have arrived"
                );
            }
        }
        if let Err(what) = shared.inbox.all_confirmed().await {
            tracing::warn!("{what}: they may come again");
        }
        // Reports the most recent refusals. The platform may be away.
        let _ = tokio::time::timeout(LAST_MESSAGES, upkeep::tell_refusals(shared)).await;
        shared.reports.close().await;
        shared.host.close().await;
        shared.end(ProcessEnd::Closed);
    }
}

impl Stopping {
    /// How long closing waits for acknowledgements, and then for the transport. The node kills the process when the
    /// grace is over, and before that senders must be told of messages that did not arrive.
    fn limits(&self) -> Option<(Duration, Duration)> {
        // Without a grace, the node kills its own programs at once, and no others.
        let grace = self.grace.filter(|grace| !grace.is_zero())?;
        Some((LAST_MESSAGES.min(grace / 5 * 3), LAST_WORDS.min(grace / 5)))
    }

    fn unexplained() -> Stopping {
        Stopping {
            grace: None,
            reason: "no reason was given".to_owned(),
        }
    }
}

impl Shared {
    fn check_running(&self, agent: &str) -> Result<(), OpenAgentError> {
        match &*self.stopping.borrow() {
            None => Ok(()),
            Some(stopping) => Err(OpenAgentError::Ending {
                agent: agent.to_owned(),
                reason: stopping.reason.clone(),
            }),
        }
    }

    /// Notes an agent that is on the bus, and when its certificate must be renewed.
    fn enter(&self, outbox: Outbox, certified: &Certified) -> Arc<Entry> {
        let identity = certified.identity.clone();
        let entry = {
            let mut agents = self.agents.lock();
            let standing = self.standing_of(outbox.name(), certified, None);
            agents.last_number += 1;
            let entry = Arc::new(Entry::new(agents.last_number, outbox, standing, identity));
            agents.by_number.insert(entry.number, entry.clone());
            agents.renewals.insert(standing.due, entry.number);
            entry
        };
        self.renewals_changed.notify_one();
        entry
    }

    /// Waits until the events of an agent have arrived, and returns those that have not.
    async fn until_delivered(&self, entry: &Entry, limit: Duration) -> Vec<UndeliveredEvents> {
        let agent = entry.aid.name.as_str();
        let undelivered = Channels::of(&self.bus).until_delivered(agent, limit).await;
        for left in &undelivered {
            tracing::warn!(agent, "leaves, and nobody gets {left}");
        }
        undelivered
    }

    /// Removes an agent from the platform, once.
    fn remove(&self, entry: &Entry, parting: &Parting) {
        {
            let mut agents = self.agents.lock();
            if agents.by_number.remove(&entry.number).is_none() {
                return;
            }
            agents
                .renewals
                .remove(entry.standing.lock().due, entry.number);
        }
        self.bus.detach(&entry.aid.name);
        self.inbox.left(entry.aid.local_name());
        let report = match parting {
            Parting::Ended => AgentReport::Ended,
            Parting::Failed(error) => AgentReport::Failed {
                error: error.clone(),
            },
            Parting::Moved => return,
        };
        self.reports.send(entry.aid.local_name(), report);
    }

    /// Reports the agents that live here once more.
    fn report_agents(&self) {
        // Others cannot reach the process before the last agent is open, and each agent is reported later anyway.
        if !self.awaited.lock().is_empty() {
            return;
        }
        for entry in self.agents.lock().by_number.values() {
            let state = PlacedState::Active;
            let active = AgentReport::State { state };
            self.reports.send(entry.aid.local_name(), active);
        }
    }

    /// Notes that an agent placed in this process is open. Returns true for the last one.
    fn was_last_to_open(&self, name: &str) -> bool {
        let mut awaited = self.awaited.lock();
        awaited.remove(name) && awaited.is_empty()
    }

    fn stop(&self, wish: Stopping) {
        let first = self.stopping.send_if_modified(|stopping| {
            let first = stopping.is_none();
            if first {
                *stopping = Some(wish);
            }
            first
        });
        if first {
            for entry in self.agents.lock().by_number.values() {
                entry.wish(Wish::Stop);
            }
        }
    }

    /// Ends the process. Remaining agents are told to stop.
    fn end(&self, end: ProcessEnd) {
        let reason = end.to_string();
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(end);
            }
            first
        });
        if first {
            self.stop(Stopping {
                grace: None,
                reason,
            });
            // Agents that wait for the outcome of a move learn that they have ended here, and so do the senders of
            // their unread messages.
            let resting = std::mem::take(&mut *self.resting.lock());
            drop(resting);
        }
    }

    /// The time on the clock that schedules renewals.
    fn clock(&self) -> Duration {
        self.started.elapsed()
    }
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("platform", &self.shared.platform)
            .field("process", &self.membership().process)
            .finish_non_exhaustive()
    }
}
