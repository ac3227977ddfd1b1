//! All the Master knows, on one desk, and the one task that works at it: requests come as jobs, are
//! done one after the other without waiting, and what they changed is in the store before anyone
//! hears of it. Jobs that come while the store writes share the next write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::issuance::Placements;
use sealbus_seal::token::{Purpose, Secret, TokenBook, TokenError};
use sealbus_seal::{Identity, Name, PlatformName, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use super::state::{About, Effect, MasterState};
use sealbus_ca::CaService;
use sealbus_control::clock::{now, timestamp};
use sealbus_control::node::{DirectoryUpdate, NodeRequest};
use sealbus_control::{
    AgentState, Fault, FaultCode, PlatformDescription, RefusalRecord, Subject, UnixMillis,
};
use sealbus_store::{Batch, Rows, Store, StoreError};

/// Jobs that wait before those who ask wait.
const JOBS: usize = 1024;
/// Jobs done before what they changed is written.
const JOBS_A_WRITE: usize = 256;
/// Refusals remembered.
const REFUSALS: usize = 1000;
/// How often expired certificates are forgotten.
const PRUNING: UnixMillis = 60_000;
/// Who wakes so many milliseconds after the moment it was to wake at did not run.
const LATE: UnixMillis = 1000;
/// The pause before a write that failed is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the Master knows.
pub(crate) struct Desk {
    /// Nodes, groups, directory.
    pub(crate) state: MasterState,
    /// The CA service.
    pub(crate) ca: CaService,
    /// Tokens and tickets that were made.
    pub(crate) tokens: Tokens,
    /// What is to be told to every member.
    pub(crate) platform: PlatformDescription,
    /// The platform's name.
    pub(crate) name: PlatformName,
    /// The broker the platform runs on, if it does.
    pub(crate) broker: Option<Arc<super::Broker>>,
    /// What was refused, latest last, and how often in all.
    pub(crate) refusals: Refusals,
    /// Which operators wait for something to come about, by group.
    pub(crate) waiting: HashMap<String, Vec<oneshot::Sender<Result<String, Fault>>>>,
    /// Who waits until the AMS knows what was done at the desk so far.
    pub(crate) followers: Vec<oneshot::Sender<()>>,
    /// When the Master was started.
    pub(crate) since: UnixMillis,
    pruned: UnixMillis,
    closing: bool,
}

/// Tokens and tickets, with the row they are kept in.
pub(crate) struct Tokens {
    book: TokenBook,
    changed: bool,
}

/// The row the tokens are kept in.
pub(crate) const TOKENS_ROW: &str = "tokens";

/// What was refused anywhere on the platform.
#[derive(Default)]
pub(crate) struct Refusals {
    /// How often in all.
    pub(crate) total: u64,
    /// The latest.
    pub(crate) latest: std::collections::VecDeque<RefusalRecord>,
}

/// What leaves the desk, once it is in the store.
#[derive(Debug)]
pub(crate) enum Outward {
    /// Ask a node.
    Ask {
        /// The node.
        node: String,
        /// What.
        request: Box<NodeRequest>,
        /// What it is about.
        about: About,
    },
    /// Enter or remove an agent in the AMS.
    WhitePages {
        /// Local name.
        agent: String,
        /// Its state.
        state: Option<AgentState>,
    },
    /// Tell who waits that the AMS knows all that left before.
    Followed(oneshot::Sender<()>),
}

type Done = Box<dyn FnOnce(Result<(), Fault>) + Send>;
type Job = Box<dyn FnOnce(&mut Desk, UnixMillis) -> Done + Send>;

/// Where jobs are handed in.
#[derive(Clone)]
pub(crate) struct DeskHandle {
    jobs: mpsc::Sender<Job>,
}

/// What those who have to tell others learn: it changes with every write.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Revision of the directory.
    pub(crate) directory: u64,
    /// Version of the deny list.
    pub(crate) deny_list: u64,
}

impl Tokens {
    /// From the stored row, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn load(row: Option<&[u8]>) -> Result<Self, serde_json::Error> {
        let entries: Vec<_> = row
            .map(serde_json::from_slice)
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            book: TokenBook::from_entries(entries),
            changed: false,
        })
    }

    /// The one name a token was made for, if it is known and was made for one.
    pub(crate) fn name_of(&self, secret: &Secret) -> Option<String> {
        let hash = secret.hash();
        let (_, entry) = self.book.entries().find(|(known, _)| **known == hash)?;
        entry.name.as_ref().map(ToString::to_string)
    }

    /// Whether a token could be redeemed; it stays as it is.
    ///
    /// # Errors
    /// As [`TokenBook::redeem`].
    pub(crate) fn check(
        &self,
        purpose: Purpose,
        secret: &Secret,
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let name = Name::new("node", name.unwrap_or("any"))?;
        self.book
            .clone()
            .redeem(purpose, secret, &name, now)
            .map(|_| ())
    }

    /// The book, to be changed.
    pub(crate) fn change(&mut self) -> &mut TokenBook {
        self.changed = true;
        &mut self.book
    }
}

impl Refusals {
    /// Notes what was refused.
    pub(crate) fn note(&mut self, records: Vec<RefusalRecord>) {
        for record in records {
            tracing::warn!(
                target: "sealbus::refusals",
                who = %record.who, receiver = record.receiver.as_deref(), count = record.count,
                "{}", record.reason
            );
            self.total += record.count;
            if self.latest.len() == REFUSALS {
                self.latest.pop_front();
            }
            self.latest.push_back(record);
        }
    }
}

/// The parts a desk is made of.
pub(crate) struct Parts {
    /// Nodes, groups, directory.
    pub(crate) state: MasterState,
    /// The CA service.
    pub(crate) ca: CaService,
    /// Tokens and tickets.
    pub(crate) tokens: Tokens,
    /// What is to be told to every member.
    pub(crate) platform: PlatformDescription,
    /// The platform's name.
    pub(crate) name: PlatformName,
}

/// Opens the desk. The task ends when all handles are gone; then what is left is written.
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
        platform,
        name,
    } = parts;
    let now = now();
    let desk = Desk {
        state,
        ca,
        tokens,
        platform,
        name,
        broker: None,
        refusals: Refusals::default(),
        waiting: HashMap::new(),
        followers: Vec::new(),
        since: now,
        pruned: now,
        closing: false,
    };
    let (told, news) = watch::channel(desk.news());
    let work = Work {
        desk,
        store,
        outward,
        told,
        unwritten: Batch::new(),
        held: Vec::new(),
    };
    tokio::spawn(work.run(waiting));
    (DeskHandle { jobs }, effects, news)
}

impl DeskHandle {
    /// Does `work` at the desk; returns when what it changed is in the store.
    ///
    /// # Errors
    /// The job's own; [`FaultCode::Storage`] if what it changed could not be written;
    /// [`FaultCode::Unavailable`] if the Master is ending.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, UnixMillis) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |desk, now| {
            let result = work(desk, now);
            Box::new(move |written: Result<(), Fault>| {
                let _ = sender.send(written.and(result));
            })
        });
        let ending = || Fault::new(FaultCode::Unavailable, "the Master is ending");
        self.jobs.send(job).await.map_err(|_| ending())?;
        receiver.await.map_err(|_| ending())?
    }
}

impl DeskHandle {
    /// Closes the desk, when what came before is done and written: the store is free then.
    pub(crate) async fn close(&self) {
        let closing = self.run(|desk, _| {
            desk.closing = true;
            Ok(())
        });
        // It is closed already, or could not write; either way there is nothing more to be done.
        let _ = closing.await;
        self.jobs.closed().await;
    }
}

struct Work {
    desk: Desk,
    store: Arc<dyn Store>,
    outward: mpsc::UnboundedSender<Outward>,
    told: watch::Sender<News>,
    /// Changes the store has not taken yet.
    unwritten: Batch,
    /// Effects that must not come before them.
    held: Vec<Outward>,
}

impl Work {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut batch = Vec::new();
        loop {
            self.settle(Vec::new()).await;
            let due = self
                .desk
                .state
                .next_tick()
                .map_or(PRUNING, |at| at.saturating_sub(now()));
            let mut pause = Duration::from_millis(due.min(PRUNING));
            if !self.unwritten.is_empty() || self.desk.state.has_unsaved() {
                pause = pause.min(AFTER_FAILURE);
            }
            let due = now().saturating_add(pause.as_millis() as u64);
            let first = tokio::time::timeout(pause, jobs.recv()).await;
            let now = now();
            let late = now.saturating_sub(due);
            if late >= LATE {
                tracing::warn!(seconds = late / 1000, "the Master did not run for a while");
                self.desk.state.did_not_run(late, now);
            }
            let mut done = Vec::new();
            match first {
                Ok(None) => break,
                Ok(Some(job)) => {
                    batch.push(job);
                    while batch.len() < JOBS_A_WRITE
                        && let Ok(job) = jobs.try_recv()
                    {
                        batch.push(job);
                    }
                    for job in batch.drain(..) {
                        let finish = job(&mut self.desk, now);
                        done.push((finish, self.gather(now)));
                    }
                }
                Err(_) => {}
            }
            self.desk.state.tick(now);
            if self.desk.pruned + PRUNING <= now {
                self.desk.pruned = now;
                self.desk.ca.prune(timestamp(now));
            }
            self.gather(now);
            self.settle(done).await;
            if self.desk.closing {
                break;
            }
        }
        self.settle(Vec::new()).await;
        // The store goes before the jobs' channel closes.
        let Self { store, .. } = self;
        drop(store);
        drop(jobs);
    }

    /// Carries out what can be carried out here, and takes the rows that changed. True if any did.
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
                    for waiting in desk.waiting.remove(&group).into_iter().flatten() {
                        let _ = waiting.send(result.clone());
                    }
                }
            }
        }
        let followers = desk.followers.drain(..).map(Outward::Followed);
        self.held.extend(followers);
        let mut rows = Rows::default();
        if std::mem::take(&mut desk.tokens.changed) {
            let entries: Vec<_> = desk.tokens.book.entries().collect();
            rows.put(TOKENS_ROW.to_owned(), &entries);
        }
        let rows = [desk.state.take_rows(now), desk.ca.take_rows(), rows.take()].concat();
        let changed = !rows.is_empty();
        self.unwritten.extend(rows);
        changed
    }

    /// Writes what changed, then lets those who wait, and the effects, go.
    async fn settle(&mut self, done: Vec<(Done, bool)>) {
        let written = if self.unwritten.is_empty() {
            Ok(())
        } else {
            // Kept until it is written: the next batch goes on top of it.
            self.store
                .commit(self.unwritten.clone())
                .await
                .map(|_| self.unwritten = Batch::new())
        };
        if let Err(error) = &written {
            tracing::error!(%error, "the platform's state could not be written");
        }
        for (finish, changed) in done {
            match &written {
                Err(error) if changed => finish(Err(storage(error))),
                _ => finish(Ok(())),
            }
        }
        if written.is_ok() {
            for effect in self.held.drain(..) {
                let _ = self.outward.send(effect);
            }
            let news = self.desk.news();
            self.told.send_if_modified(|told| {
                let changed = told.directory != news.directory || told.deny_list != news.deny_list;
                *told = news;
                changed
            });
        }
    }
}

impl Desk {
    fn news(&self) -> News {
        News {
            directory: self.state.directory().revision(),
            deny_list: self.ca.deny_list().0,
        }
    }

    /// What a node at these versions has to be told.
    pub(crate) fn update(&self, directory: u64) -> DirectoryUpdate {
        self.state.directory().since(directory)
    }

    /// The identity of an agent of this platform.
    ///
    /// # Errors
    /// [`FaultCode::IllegalName`].
    pub(crate) fn agent(&self, name: &str) -> Result<Identity, Fault> {
        if name == sealbus_brokers::rabbitmq::names::BROKER {
            let message = format!("{name} is the platform's broker, and no agent");
            return Err(Fault::new(FaultCode::IllegalName, message).advise("choose another name"));
        }
        Identity::agent(&self.name, name)
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }
}

/// The placements of one process, as the CA asks for them: while an agent moves it is placed where
/// the process is that asks.
pub(crate) struct PlacementsOf<'d> {
    /// The Master's state.
    pub(crate) state: &'d MasterState,
    /// The process that is to hold the key.
    pub(crate) process: &'d str,
}

impl Placements for PlacementsOf<'_> {
    fn is_member(&self, node: &Name) -> bool {
        self.state.is_member(node.as_str())
    }

    fn node_of(&self, agent: &Name) -> Option<Name> {
        let agent = agent.as_str();
        let node = if self.state.nodes().contains_key(agent) {
            // A node's own agent bears its name.
            agent
        } else {
            match self.state.process(self.process) {
                Some((_, process)) if process.agents.contains_key(agent) => &process.node,
                _ => &self.state.group_of(agent)?.1.process.as_ref()?.node,
            }
        };
        Name::new("node", node).ok()
    }
}

/// Whether a process may still be certified: the Master has not told it to stop, and it is one of
/// this node's.
///
/// # Errors
/// [`FaultCode::NotPlaced`].
pub(crate) fn check_process(
    state: &MasterState,
    node: &str,
    process: &str,
    subject: &Subject,
) -> Result<(), Fault> {
    let own = |node: &str| {
        let node = state.nodes().get(node);
        node.is_some_and(|node| node.process == process)
    };
    if own(node) {
        return Ok(());
    }
    let refuse = |why: &str| {
        Fault::new(
            FaultCode::NotPlaced,
            format!("the process {process} on {node} {why}"),
        )
    };
    match state.process(process) {
        None => Err(refuse("is none the Master placed, or was given up")),
        Some((_, found)) if found.node != node => Err(refuse("was placed elsewhere")),
        Some((_, found)) if found.stop_by.is_some() => Err(refuse("was told to stop")),
        Some((_, found)) => match subject {
            Subject::Agent { name } if found.barred.contains(name) => {
                let message = format!("{name} was revoked by an operator");
                Err(Fault::new(FaultCode::NotPermitted, message)
                    .advise("kill it and start it again, if it is to be trusted again"))
            }
            _ => Ok(()),
        },
    }
}

fn storage(error: &StoreError) -> Fault {
    Fault::new(FaultCode::Storage, error.to_string())
        .advise("nothing was changed for the one who asks; what runs goes on")
}
