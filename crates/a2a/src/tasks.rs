//! The tasks of a caller, bounded in number and in bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_callers::Caller;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::Fault;
use crate::log::{Head, Log, State};
use crate::push::{PushConfig, Webhook};

/// Tasks of a caller that are kept. Tasks that ended first go first.
const MOST_TASKS: usize = 1_000;
/// Tasks of a caller that are at work.
const MOST_AT_WORK: usize = 256;
/// Bytes of a caller's tasks.
const MOST_BYTES: usize = 32 << 20;
/// Bytes of one task's results and messages.
const LONGEST_TASK: usize = 8 << 20;

/// Posts to webhooks at a time.
const MOST_POSTS: usize = 32;
/// Webhooks of one task.
const MOST_WEBHOOKS: usize = 4;

/// A task.
pub(crate) struct Task {
    /// The agent's local name.
    pub(crate) agent: String,
    log: Mutex<Log>,
    /// Changes with the log.
    changed: watch::Sender<u64>,
    /// The caller's answers to the agent's questions.
    answers: mpsc::Sender<String>,
    webhooks: Mutex<Vec<Webhook>>,
    /// The caller's name for the first message, and the hash of the message.
    opened_by: (String, [u8; 32]),
}

/// The caller's messages to a task's work.
pub(crate) struct Hearing {
    pub(crate) answers: mpsc::Receiver<String>,
}

#[derive(Default)]
struct Held {
    /// By the order in which their states last changed.
    by_change: BTreeMap<u64, Arc<Task>>,
    changes: HashMap<String, u64>,
    /// The task that each first message began.
    opened: HashMap<(String, String), String>,
    last: u64,
    bytes: usize,
}

/// The tasks of one caller.
pub(crate) struct Tasks {
    pub(crate) caller: Caller,
    /// Room for posts to webhooks.
    pub(crate) posts: Arc<Semaphore>,
    held: Mutex<Held>,
}

/// The present time, in the form of tasks.
fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let (date, time) = (now.date(), now.time());
    format!(
        "{date}T{:02}:{:02}:{:02}.{:03}Z",
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

/// A new identifier, which nobody can guess.
pub(crate) fn new_id() -> Result<String, Fault> {
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| Fault::Internal)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Tasks {
    pub(crate) fn new(caller: Caller) -> Self {
        Self {
            caller,
            posts: Arc::new(Semaphore::new(MOST_POSTS)),
            held: Mutex::default(),
        }
    }

    /// Opens a task. If the same message comes again, returns the same task, and no new work.
    pub(crate) fn open(
        &self,
        agent: &str,
        opened_by: (String, [u8; 32]),
        head: Head,
        message: Box<RawValue>,
    ) -> Result<(Arc<Task>, Option<Hearing>), Fault> {
        let mut held = self.held.lock();
        let name = (agent.to_owned(), opened_by.0.clone());
        if let Some(task) = held.opened.get(&name).and_then(|id| held.get(id))
            && task.opened_by == opened_by
        {
            return Ok((task, None));
        }
        let at_work = held.by_change.values().filter(|task| !task.has_ended());
        if at_work.count() >= MOST_AT_WORK {
            let why = format!("{MOST_AT_WORK} tasks of this caller are at work: cancel one");
            return Err(Fault::Exhausted(why));
        }
        let (answers, hears) = mpsc::channel(1);
        let log = Log::new(head, message, now());
        let (id, bytes) = (log.head.id.clone(), log.bytes());
        let task = Arc::new(Task {
            agent: agent.to_owned(),
            changed: watch::channel(0).0,
            answers,
            opened_by,
            webhooks: Mutex::default(),
            log: Mutex::new(log),
        });
        held.bytes += bytes;
        held.opened.insert(name, id.clone());
        held.touch(&id, task.clone());
        if !held.make_room() {
            held.remove(&id);
            let why = "the tasks of this caller hold too many bytes: wait until some end";
            return Err(Fault::Exhausted(why.to_owned()));
        }
        Ok((task, Some(Hearing { answers: hears })))
    }

    /// A task of an agent.
    pub(crate) fn get(&self, agent: &str, id: &str) -> Result<Arc<Task>, Fault> {
        let task = self.held.lock().get(id);
        task.filter(|task| task.agent == agent)
            .ok_or(Fault::TaskNotFound)
    }

    /// The tasks of an agent, the latest first, each with the number of its change.
    pub(crate) fn list(&self, agent: &str) -> Vec<(u64, Arc<Task>)> {
        let held = self.held.lock();
        let latest = held.by_change.iter().rev();
        latest
            .filter(|(_, task)| task.agent == agent)
            .map(|(change, task)| (*change, task.clone()))
            .collect()
    }

    /// Changes a task. False if the task has ended: then it cannot change.
    fn change(&self, task: &Arc<Task>, change: impl FnOnce(&mut Log) -> bool) -> bool {
        // A reader holds one lock at a time. A writer holds both, in this order.
        let mut held = self.held.lock();
        let mut log = task.log.lock();
        let (before, state) = (log.bytes(), log.state());
        if !change(&mut log) {
            return false;
        }
        if log.bytes() > LONGEST_TASK {
            let why = format!("the task holds more than {LONGEST_TASK} bytes");
            log.enter(State::Failed, Some(&why), now());
        }
        let id = log.head.id.clone();
        let counted = log.bytes();
        held.bytes = held.bytes + counted - before;
        let has_changed = log.state() != state;
        drop(log);
        if has_changed {
            held.touch(&id, task.clone());
        }
        if !held.make_room() {
            let mut log = task.log.lock();
            let why = "the tasks of this caller hold too many bytes";
            log.enter(State::Failed, Some(why), now());
            held.bytes += log.bytes() - counted;
        }
        drop(held);
        task.changed.send_modify(|number| *number += 1);
        true
    }

    /// The task enters a state, with a word of the agent.
    pub(crate) fn enter(&self, task: &Arc<Task>, state: State, text: Option<&str>) -> bool {
        self.change(task, |log| log.enter(state, text, now()))
    }

    /// A part of the result comes, or the whole of it.
    pub(crate) fn add(&self, task: &Arc<Task>, part: &Value, is_whole: bool) -> bool {
        self.change(task, |log| log.add(part, is_whole))
    }

    /// The task has its result. `about` describes the agent that gave it.
    pub(crate) fn complete(&self, task: &Arc<Task>, about: Map<String, Value>) -> bool {
        self.change(task, |log| {
            log.tell_about(about);
            log.enter(State::Completed, None, now())
        })
    }

    /// The caller answers a question of the agent.
    pub(crate) fn answer(
        &self,
        task: &Arc<Task>,
        message: Box<RawValue>,
        text: String,
    ) -> Result<(), Fault> {
        let is_asked = self.change(task, |log| {
            let is_asked = log.state() == State::InputRequired;
            if is_asked {
                log.remember(message);
                log.enter(State::Working, None, now());
            }
            is_asked
        });
        // The work takes earlier messages before it asks, so there is room.
        if is_asked && task.answers.try_send(text).is_ok() {
            return Ok(());
        }
        let why = if task.has_ended() {
            "The task has ended: send a message without taskId"
        } else {
            "The agent has asked nothing"
        };
        Err(Fault::UnsupportedOperation(why.to_owned()))
    }
}

impl Held {
    fn get(&self, id: &str) -> Option<Arc<Task>> {
        self.by_change.get(self.changes.get(id)?).cloned()
    }

    fn touch(&mut self, id: &str, task: Arc<Task>) {
        self.last += 1;
        if let Some(before) = self.changes.insert(id.to_owned(), self.last) {
            self.by_change.remove(&before);
        }
        self.by_change.insert(self.last, task);
    }

    fn remove(&mut self, id: &str) {
        let task = self.changes.remove(id);
        if let Some(task) = task.and_then(|change| self.by_change.remove(&change)) {
            self.bytes -= task.log.lock().bytes();
            let name = (task.agent.clone(), task.opened_by.0.clone());
            if self.opened.get(&name).is_some_and(|it| it == id) {
                self.opened.remove(&name);
            }
        }
    }

    /// Forgets tasks that have ended, the oldest first. False if the rest is still too much.
    fn make_room(&mut self) -> bool {
        while self.by_change.len() > MOST_TASKS || self.bytes > MOST_BYTES {
            let mut oldest = self.by_change.values().filter(|task| task.has_ended());
            let Some(id) = oldest.next().map(|task| task.log.lock().head.id.clone()) else {
                return false;
            };
            self.remove(&id);
        }
        true
    }
}

impl Task {
    pub(crate) fn state(&self) -> State {
        self.log.lock().state()
    }

    fn has_ended(&self) -> bool {
        self.state().is_terminal()
    }

    /// Adds a webhook, in place of one with the same id.
    pub(crate) fn add_webhook(&self, webhook: Webhook) -> Result<(), Fault> {
        let mut webhooks = self.webhooks.lock();
        webhooks.retain(|it| it.config.id != webhook.config.id);
        if webhooks.len() >= MOST_WEBHOOKS {
            let why = format!("{MOST_WEBHOOKS} webhooks are told of the task: delete one");
            return Err(Fault::Exhausted(why));
        }
        webhooks.push(webhook);
        Ok(())
    }

    /// Removes a webhook. False if there is none.
    pub(crate) fn remove_webhook(&self, id: &str) -> bool {
        let mut webhooks = self.webhooks.lock();
        let before = webhooks.len();
        webhooks.retain(|it| it.config.id != id);
        webhooks.len() < before
    }

    /// The webhooks that are told.
    pub(crate) fn webhooks(&self) -> Vec<PushConfig> {
        let webhooks = self.webhooks.lock();
        webhooks.iter().map(|it| it.config.clone()).collect()
    }

    /// Reads the log.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Log) -> T) -> T {
        read(&self.log.lock())
    }

    /// Changes with the task.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until the task is in one of the wanted states.
    pub(crate) async fn until(&self, is_so: impl Fn(State) -> bool) {
        let mut changes = self.changes();
        while !is_so(self.state()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
