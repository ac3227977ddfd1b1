//! The Master's whole knowledge on one desk, and the one task that works at it. Requests come as jobs, which run one
//! after another without waiting. The changes of a job are in the store before anyone hears of them. Jobs that come
//! while the store writes share the next write.

mod jobs;
mod keeping;
mod keys;
mod outward;
mod refusals;
mod restored;
mod revocation;
#[cfg(test)]
mod tests;
mod tokens;
mod waiting;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::LogShares;
use sealbus_seal::{Identity, PlatformName};
use tokio::sync::{mpsc, oneshot, watch};

use super::state::{Effect, MasterState};
use super::written::Written;
use sealbus_ca::{CaService, CertificationLog};
use sealbus_control::clock::{now, timestamp};
use sealbus_control::directory::DirectoryUpdate;
use sealbus_control::{Fault, FaultCode, PlatformDescription, Term, UnixMillis};
use sealbus_store::{Batch, Store, StoreError};

use jobs::{Done, Job};
use keeping::Keeping;
pub(crate) use keys::{KEY_ROW, Keys};
pub(crate) use outward::Outward;
use refusals::Refusals;
pub(crate) use tokens::{TOKEN_ROW, Tokens};
pub(crate) use waiting::Awaited;

/// Jobs that wait before their askers wait.
const JOBS: usize = 1024;
/// Jobs done before their changes are written.
const JOBS_A_WRITE: usize = 256;
/// How long jobs are done without a turn for other tasks. A token may take long to sign.
const LONGEST_TURN: Duration = Duration::from_millis(100);
/// How many effects are held before overtaken ones are dropped.
const HELD: usize = 4096;
/// How often expired certificates are forgotten.
const PRUNING: UnixMillis = 60_000;
/// The pause before a failed write is repeated.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The Master's state.
pub(crate) struct Desk {
    /// Nodes, groups, directory.
    pub(crate) state: MasterState,
    /// The CA service.
    pub(crate) ca: CaService,
    /// The tokens that were made.
    pub(crate) tokens: Tokens,
    /// The keys that agents stated for sealed messages.
    pub(crate) keys: Keys,
    /// The platform's description for every member.
    pub(crate) platform: PlatformDescription,
    /// The Master's term, where there may be several, or the state was restored.
    pub(crate) term: Option<Term>,
    /// The addresses of all Masters, where there may be several.
    pub(crate) masters: Vec<String>,
    /// The platform's name.
    pub(crate) name: PlatformName,
    /// The platform's broker, if it has one.
    pub(crate) broker: Option<Arc<super::Broker>>,
    /// The refusals, latest last, and their total.
    pub(crate) refusals: Refusals,
    /// The shares of the log for acts that nodes may repeat without end, by the nodes' names.
    pub(crate) log: LogShares,
    /// The operators that wait for an event, by group.
    pub(crate) waiting: HashMap<String, Vec<oneshot::Sender<Result<String, Fault>>>>,
    /// The conditions that operators wait for, with any cause.
    pub(crate) awaited: Vec<Awaited>,
    /// The tasks that wait until the AMS knows all work done so far.
    pub(crate) followers: Vec<oneshot::Sender<()>>,
    /// The witnesses that found the issuance log cut off or rewritten, with the words of each.
    pub(crate) log_alarms: BTreeMap<String, String>,
    /// The same of witnesses outside the platform, which sign no such words.
    pub(crate) log_warnings: BTreeMap<String, String>,
    /// When each node gave its last sign of life on the bus.
    pub(crate) beats: HashMap<String, UnixMillis>,
    /// When the Master was started.
    pub(crate) since: UnixMillis,
    /// Whether the store is known not to answer.
    pub(crate) away: bool,
    pruned: UnixMillis,
    closing: bool,
}

/// A handle for submitting jobs.
#[derive(Clone)]
pub(crate) struct DeskHandle {
    jobs: mpsc::Sender<Job>,
    heard: Heard,
    keeping: Arc<Keeping>,
}

/// Nodes with a sign of life that the desk has not noted yet. A sign waits behind no job.
type Heard = Arc<Mutex<HashSet<String>>>;

/// The versions that observers watch. They change with every write.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Revision of the directory.
    pub(crate) directory: u64,
    /// Version of the deny list.
    pub(crate) deny_list: u64,
}

/// The parts of a desk.
pub(crate) struct Parts {
    /// Nodes, groups, directory.
    pub(crate) state: MasterState,
    /// The CA service.
    pub(crate) ca: CaService,
    /// The tokens that were made.
    pub(crate) tokens: Tokens,
    /// The keys that agents stated for sealed messages.
    pub(crate) keys: Keys,
    /// The platform's description for every member.
    pub(crate) platform: PlatformDescription,
    /// The platform's name.
    pub(crate) name: PlatformName,
}

/// Opens the desk. The task ends when all handles are gone, after it has written the remaining changes.
pub(crate) fn open(
    parts: Parts,
    store: Arc<dyn Store>,
) -> (
    DeskHandle,
    mpsc::UnboundedReceiver<Outward>,
    watch::Receiver<News>,
) {
    let (jobs, waiting) = mpsc::channel(JOBS);
    let (outward, effects) = mpsc::unbounded_channel();
    let Parts {
        state,
        ca,
        tokens,
        keys,
        platform,
        name,
    } = parts;
    let now = now();
    let desk = Desk {
        state,
        ca,
        tokens,
        keys,
        platform,
        term: None,
        masters: Vec::new(),
        name,
        broker: None,
        refusals: Refusals::default(),
        log: LogShares::default(),
        waiting: HashMap::new(),
        awaited: Vec::new(),
        followers: Vec::new(),
        log_alarms: BTreeMap::new(),
        log_warnings: BTreeMap::new(),
        beats: HashMap::new(),
        since: now,
        away: false,
        pruned: now,
        closing: false,
    };
    let (told, news) = watch::channel(desk.news());
    let heard = Heard::default();
    let keeping = Arc::new(Keeping::default());
    let work = Work {
        desk,
        heard: heard.clone(),
        keeping: keeping.clone(),
        store,
        outward,
        told,
        unwritten: Batch::new(),
        held: Vec::new(),
        most_held: HELD,
        started: Instant::now(),
    };
    tokio::spawn(work.run(waiting));
    let handle = DeskHandle {
        jobs,
        heard,
        keeping,
    };
    (handle, effects, news)
}

impl DeskHandle {
    /// Notes a member's sign of life at once, however much work the desk has.
    pub(crate) fn heard(&self, node: &str) {
        self.heard.lock().insert(node.to_owned());
    }

    /// Closes the desk after earlier jobs are done and written. Then the store is free.
    pub(crate) async fn close(&self) {
        let closing = self.run(|desk, _| {
            desk.closing = true;
            Ok(())
        });
        // The desk is closed already, or could not write. Either way there is nothing more to do.
        let _ = closing.await;
        self.jobs.closed().await;
    }
}

struct Work {
    desk: Desk,
    heard: Heard,
    keeping: Arc<Keeping>,
    store: Arc<dyn Store>,
    outward: mpsc::UnboundedSender<Outward>,
    told: watch::Sender<News>,
    /// Changes that the store has not taken yet.
    unwritten: Batch,
    /// Effects that must not precede these changes.
    held: Vec<Outward>,
    /// When more effects are held, overtaken ones are dropped.
    most_held: usize,
    /// When the desk was opened.
    started: Instant,
}

impl Work {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        loop {
            self.settle(Vec::new()).await;
            if self.desk.closing {
                break;
            }
            let due = self
                .desk
                .state
                .next_tick()
                .map_or(PRUNING, |at| at.saturating_sub(now()));
            let mut pause = Duration::from_millis(due.min(PRUNING));
            if !self.unwritten.is_empty() || self.desk.state.has_unsaved() {
                pause = pause.min(AFTER_FAILURE);
            }
            let first = tokio::time::timeout(pause, jobs.recv()).await;
            let now = now();
            self.desk.state.look(now);
            self.desk.away = self.keeping.away().is_some();
            for node in std::mem::take(&mut *self.heard.lock()) {
                self.desk.state.heard(&node, now);
                self.desk.beats.insert(node, now);
            }
            let mut done = Vec::new();
            match first {
                Ok(None) => break,
                Ok(Some(job)) => {
                    let begun = Instant::now();
                    let mut next = Ok(job);
                    while let Ok(job) = next {
                        let mut made = job(&mut self.desk, now);
                        made.is_stored |= self.gather(now);
                        done.push(made);
                        if done.len() == JOBS_A_WRITE || begun.elapsed() > LONGEST_TURN {
                            tokio::task::yield_now().await;
                            break;
                        }
                        next = jobs.try_recv();
                    }
                }
                Err(_) => {}
            }
            self.desk.state.tick(now);
            if self.desk.pruned + PRUNING <= now {
                self.desk.pruned = now;
                let Desk { beats, state, .. } = &mut self.desk;
                beats.retain(|node, _| state.nodes().contains_key(node));
                // If a clock is put forward by mistake, denials must not be forgotten. They hold for as long as time
                // really passes.
                let passed = self.started.elapsed().as_millis() as u64;
                let now = now.min(self.desk.since.saturating_add(passed));
                self.desk.ca.prune(timestamp(now));
            }
            self.gather(now);
            self.settle(done).await;
        }
        self.settle(Vec::new()).await;
        // The store is released before the jobs' channel closes.
        let Self { store, .. } = self;
        drop(store);
        drop(jobs);
    }

    /// Carries out the effects that belong here, and takes the changed rows. Returns true if there are any.
    fn gather(&mut self, now: UnixMillis) -> bool {
        let desk = &mut self.desk;
        for effect in desk.state.take_effects() {
            match effect {
                Effect::Ask {
                    node,
                    request,
                    about,
                } => {
                    self.held.push(Outward::Ask {
                        node,
                        request,
                        about,
                    });
                }
                Effect::WhitePages { agent, state } => {
                    self.held.push(Outward::WhitePages { agent, state });
                }
                Effect::Revoke {
                    process,
                    agent,
                    cause,
                } => {
                    let revoked =
                        desk.ca
                            .revoke_process(&process, agent.as_deref(), cause, timestamp(now));
                    if let Err(fault) = revoked {
                        tracing::error!(%process, %fault, "could not be revoked");
                    }
                }
                Effect::Step {
                    step,
                    agent,
                    node,
                    what,
                } => {
                    desk.ca
                        .events()
                        .enter(step, &agent, Some(&node), None, what, timestamp(now));
                }
                Effect::Settled { group, result } => {
                    if let Some(waiting) = desk.waiting.remove(&group) {
                        self.held.push(Outward::Settled { waiting, result });
                    }
                }
            }
        }
        let followers = desk.followers.drain(..).map(Outward::Followed);
        self.held.extend(followers);
        let rows = [
            desk.state.take_rows(now),
            desk.ca.take_rows(),
            desk.tokens.take_rows(),
            desk.keys.take_rows(),
        ]
        .concat();
        let changed = !rows.is_empty();
        self.unwritten.add(rows, CertificationLog::is_row);
        changed
    }

    fn tell_awaited(&mut self) {
        for awaited in std::mem::take(&mut self.desk.awaited) {
            if (awaited.is_over)(&self.desk) {
                // A task that no longer waits is not told.
                let _ = awaited.tell.send(());
            } else if !awaited.tell.is_closed() {
                self.desk.awaited.push(awaited);
            }
        }
    }

    /// Writes the changes, then releases the waiting tasks and the effects.
    async fn settle(&mut self, done: Vec<Done>) {
        if let Err(error) = self.desk.ca.publish(timestamp(now())) {
            tracing::error!(%error, "the deny list could not be signed: the latest revocations are not in force");
        }
        let rows = self.desk.ca.take_rows();
        self.unwritten.add(rows, CertificationLog::is_row);
        let written = if self.unwritten.is_empty() {
            Ok(())
        } else if let Some(error) = self.keeping.away().filter(|_| !self.desk.closing) {
            // Nobody waits for a store that does not answer. At the end, the store may answer again, and nobody looks
            // any more.
            Err(error)
        } else {
            // The changes are kept until they are written, and the next batch is added to them.
            let mut batch = self.unwritten.clone();
            let written = Written {
                at: now(),
                directory: self.desk.state.directory().revision(),
            };
            written.note(&mut batch);
            self.store
                .commit(batch)
                .await
                .map(|_| self.unwritten = Batch::new())
        };
        if let (Err(error), false) = (&written, self.desk.away) {
            tracing::error!(%error, "the platform's state could not be written");
        }
        if let Err(StoreError::Superseded { .. }) = &written {
            // Another Master decides now. No decision of this one may take effect.
            self.unwritten = Batch::new();
            self.held.clear();
            self.desk.closing = true;
        }
        for Done { answer, is_stored } in done {
            match &written {
                Err(error) if is_stored => answer(Err(storage(error))),
                _ => answer(Ok(())),
            }
        }
        // An effect that only cuts an agent or a process off needs no room on the disk. If the Master is killed before
        // the write, the platform is merely stricter than the stored state.
        let goes = |effect: &mut Outward| written.is_ok() || effect.is_an_end();
        for effect in self.held.extract_if(.., goes) {
            let _ = self.outward.send(effect);
        }
        if self.held.len() > self.most_held {
            outward::forget_overtaken(&mut self.held);
            self.most_held = HELD.max(2 * self.held.len());
        }
        if written.is_ok() {
            self.tell_awaited();
        }
        if self.desk.closing && written.is_err() {
            return;
        }
        let news = self.desk.news();
        self.told.send_if_modified(|told| {
            let before = told.clone();
            told.deny_list = news.deny_list;
            if written.is_ok() {
                told.directory = news.directory;
            }
            told.directory != before.directory || told.deny_list != before.deny_list
        });
    }
}

impl Desk {
    /// Whether certificates are renewed while the store does not answer.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if not.
    pub(crate) fn check_level(&self) -> Result<(), Fault> {
        let level = self.platform.level.parse();
        let level = level.map_err(|error| Fault::new(FaultCode::Internal, format!("{error}")))?;
        sealbus_ca::check_level(level)
    }

    fn news(&self) -> News {
        News {
            directory: self.state.directory().revision(),
            deny_list: self.ca.deny_list_version(),
        }
    }

    /// The directory's news since this revision, for a process of the Master's own.
    pub(crate) fn update(&self, directory: u64) -> DirectoryUpdate {
        self.state.directory().since(directory)
    }

    /// The identity of an agent of this platform.
    ///
    /// # Errors
    /// [`FaultCode::IllegalName`].
    pub(crate) fn agent(&self, name: &str) -> Result<Identity, Fault> {
        if name == sealbus_brokers::BROKER {
            let message = format!("{name} is the platform's broker, and no agent");
            return Err(Fault::new(FaultCode::IllegalName, message).advise("choose another name"));
        }
        Identity::agent(&self.name, name)
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }
}

fn storage(error: &StoreError) -> Fault {
    let (code, advice) = match error {
        StoreError::Superseded { .. } => (FaultCode::Unavailable, "ask the Master that leads now"),
        StoreError::Away { .. } => (
            FaultCode::Storage,
            "it is noted in memory, and done when the store answers if no other Master leads by then: look before you ask again",
        ),
        _ => (
            FaultCode::Storage,
            "it is noted in memory, and done once there is room: do not ask for it again",
        ),
    };
    Fault::new(code, error.to_string()).advise(advice)
}
