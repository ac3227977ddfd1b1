//! The tasks of a caller, bounded in number and in bytes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_callers::Caller;
use sealbus_seal::random_hex;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

use crate::Fault;
use crate::log::{Change, Log, State};
use crate::push::{KeptWebhook, PushConfig, Webhook};
use crate::record::{Opening, Posting, Recorded, change_line, webhook_line};
use crate::shelf::{LONGEST_FILE, Shelf};

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
/// Length of a task's file, in bytes, from which it takes no more news of webhooks.
const LONGEST_WITH_WEBHOOKS: usize = LONGEST_FILE / 4;

/// A task.
pub(crate) struct Task {
    /// The beginning of it.
    pub(crate) opening: Opening,
    log: Mutex<Log>,
    /// Changes with the log.
    changed: watch::Sender<u64>,
    at_work: Mutex<AtWork>,
    /// The addresses that are told of it. Code that takes several locks takes this one first.
    pub(crate) webhooks: Mutex<Vec<Webhook>>,
    /// The length of its file. None: it has none.
    kept: Mutex<Option<usize>>,
}

/// The work of a task.
#[derive(Default)]
struct AtWork {
    /// The caller's answers to the agent's questions.
    answers: Option<mpsc::Sender<String>>,
    doing: Option<AbortHandle>,
}

#[derive(Default)]
struct TaskTable {
    /// By the order in which their states last changed.
    by_change: BTreeMap<u64, Arc<Task>>,
    changes: HashMap<String, u64>,
    /// The task that each first message began.
    opened: HashMap<(String, String), String>,
    last: u64,
    bytes: usize,
    /// The files of the tasks, if they are kept.
    shelf: Option<Shelf>,
}

/// Messages of a caller that wait for the work on a task.
const MOST_HEARD: usize = 16;

/// The tasks of one caller.
pub(crate) struct Tasks {
    pub(crate) caller: Caller,
    /// Room for posts to webhooks.
    pub(crate) posts: Arc<Semaphore>,
    held: Mutex<TaskTable>,
}

/// The present time, in the form of tasks.
pub(crate) fn now() -> String {
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
    random_hex::<16>().map_err(|_| Fault::Internal)
}

impl Tasks {
    /// The tasks of a caller, with those on the shelf. Returns also the webhooks of these.
    pub(crate) fn new(
        caller: Caller,
        shelf: Option<Shelf>,
    ) -> (Self, Vec<(Arc<Task>, KeptWebhook)>) {
        let mut held = TaskTable::default();
        let mut webhooks = Vec::new();
        let mut kept = shelf.as_ref().map(Shelf::tasks).unwrap_or_default();
        kept.sort_by(|one, other| one.log.timestamp().cmp(other.log.timestamp()));
        held.shelf = shelf;
        for mut recorded in kept {
            let told = std::mem::take(&mut recorded.webhooks);
            let task = held.put(Task::kept(recorded));
            webhooks.extend(told.into_iter().map(|it| (task.clone(), it)));
            // Tasks at work are no more than they were.
            held.make_room();
        }
        let tasks = Self {
            caller,
            posts: Arc::new(Semaphore::new(MOST_POSTS)),
            held: Mutex::new(held),
        };
        (tasks, webhooks)
    }

    /// Opens a task. If the same message comes again, returns the same task, and false.
    pub(crate) fn open(&self, opening: Opening) -> Result<(Arc<Task>, bool), Fault> {
        let mut held = self.held.lock();
        if let Some(task) = held
            .opened
            .get(&opening.called())
            .and_then(|id| held.get(id))
            && task.opening.hash == opening.hash
        {
            return Ok((task, false));
        }
        let at_work = held.by_change.values().filter(|task| !task.has_ended());
        if at_work.count() >= MOST_AT_WORK {
            let why = format!("{MOST_AT_WORK} tasks of this caller are at work: cancel one");
            return Err(Fault::Exhausted(why));
        }
        let task = held.put(Task::new(opening));
        if !held.make_room() {
            held.remove(&task.opening.head.id);
            let why = "the tasks of this caller hold too many bytes: wait until some end";
            return Err(Fault::Exhausted(why.to_owned()));
        }
        *task.kept.lock() = held.shelf.is_some().then_some(0);
        held.keep(&task, &task.opening.line());
        Ok((task, true))
    }

    /// A task of an agent.
    pub(crate) fn get(&self, agent: &str, id: &str) -> Result<Arc<Task>, Fault> {
        let task = self.held.lock().get(id);
        task.filter(|task| task.opening.agent == agent)
            .ok_or(Fault::TaskNotFound)
    }

    /// The tasks of an agent, the latest first, each with the number of its change.
    pub(crate) fn list(&self, agent: &str) -> Vec<(u64, Arc<Task>)> {
        let held = self.held.lock();
        let latest = held.by_change.iter().rev();
        latest
            .filter(|(_, task)| task.opening.agent == agent)
            .map(|(change, task)| (*change, task.clone()))
            .collect()
    }

    /// Whether there are tasks of an agent.
    pub(crate) fn know(&self, agent: &str) -> bool {
        let held = self.held.lock();
        held.by_change.values().any(|it| it.opening.agent == agent)
    }

    /// The tasks at work.
    pub(crate) fn at_work(&self) -> Vec<Arc<Task>> {
        let held = self.held.lock();
        let tasks = held.by_change.values().filter(|task| !task.has_ended());
        tasks.cloned().collect()
    }

    /// Changes a task. False if the task cannot change so, as after its end.
    pub(crate) fn change(&self, task: &Arc<Task>, change: &Change) -> bool {
        // A reader holds one lock at a time. A writer holds both, in this order.
        let mut held = self.held.lock();
        let mut log = task.log.lock();
        let (before, state) = (log.bytes(), log.state());
        if !held.apply(task, &mut log, change) {
            return false;
        }
        let is_long = task
            .kept
            .lock()
            .is_some_and(|bytes| bytes > LONGEST_FILE / 2);
        if log.bytes() > LONGEST_TASK || is_long {
            let why = format!("the task holds more than {LONGEST_TASK} bytes");
            held.apply(task, &mut log, &failed(why));
        }
        let counted = log.bytes();
        held.bytes = held.bytes + counted - before;
        let has_changed = log.state() != state;
        drop(log);
        if has_changed {
            held.touch(task.clone());
        }
        if !held.make_room() {
            let mut log = task.log.lock();
            let why = "the tasks of this caller hold too many bytes";
            held.apply(task, &mut log, &failed(why.to_owned()));
            // A message takes the place of the oldest one, which may be longer.
            held.bytes = held.bytes + log.bytes() - counted;
        }
        drop(held);
        task.changed.send_modify(|number| *number += 1);
        true
    }

    /// Keeps a new webhook of a task, which is told of everything from now on.
    pub(crate) fn keep_webhook(
        &self,
        task: &Task,
        config: PushConfig,
    ) -> Result<KeptWebhook, Fault> {
        let held = self.held.lock();
        if !held.has_room_for_webhooks(task) {
            let why = "the task is too long, or had too many webhooks, for another one";
            return Err(Fault::Exhausted(why.to_owned()));
        }
        let told = task.log.lock().last();
        let posting = Posting::Begin(config.clone());
        held.keep(task, &webhook_line(&posting, told));
        Ok(KeptWebhook {
            config,
            told,
            is_lost: false,
        })
    }

    /// Notes what has become of a webhook, for a later run of the gateway. `after` is the last event that it was told.
    pub(crate) fn note_webhook(&self, task: &Task, posting: &Posting, after: u64) {
        let held = self.held.lock();
        // Without the note, later runs tell some events again.
        if held.has_room_for_webhooks(task) {
            held.keep(task, &webhook_line(posting, after));
        }
    }

    /// The task enters a state, with a word of the agent.
    pub(crate) fn enter(&self, task: &Arc<Task>, state: State, text: Option<&str>) -> bool {
        let text = text.map(str::to_owned);
        self.change(task, &Change::Enter { state, text })
    }

    /// The caller answers a question of the agent. An answer that comes again is no other one.
    pub(crate) fn answer(
        &self,
        task: &Arc<Task>,
        message: Box<RawValue>,
        text: String,
    ) -> Result<(), Fault> {
        // Locked to the end, so that two that come at once are one.
        let at_work = task.at_work.lock();
        if task.read(|log| log.has(&message)) {
            return Ok(());
        }
        // In a conversation of FIPA agents both may speak at any time.
        let is_talk = task.opening.is_talk && task.state() == State::Working;
        let change = match is_talk {
            true => Change::Said { message },
            false => Change::Answer { message },
        };
        // A message that the work does not get is not in the history.
        let room = at_work.answers.as_ref().map(mpsc::Sender::try_reserve);
        let why = match room {
            Some(Ok(room)) if self.change(task, &change) => {
                room.send(text);
                return Ok(());
            }
            Some(Err(TrySendError::Full(()))) => {
                let why = format!("{MOST_HEARD} messages wait for the agent: send it later");
                return Err(Fault::Exhausted(why));
            }
            _ if task.has_ended() => "The task has ended: send a message without taskId",
            _ => "The agent has asked nothing",
        };
        Err(Fault::UnsupportedOperation(why.to_owned()))
    }
}

impl TaskTable {
    fn get(&self, id: &str) -> Option<Arc<Task>> {
        self.by_change.get(self.changes.get(id)?).cloned()
    }

    /// Takes in a task.
    fn put(&mut self, task: Task) -> Arc<Task> {
        let task = Arc::new(task);
        let opening = &task.opening;
        self.opened
            .insert(opening.called(), opening.head.id.clone());
        self.bytes += task.log.lock().bytes();
        self.touch(task.clone());
        task
    }

    fn touch(&mut self, task: Arc<Task>) {
        self.last += 1;
        let id = task.opening.head.id.clone();
        if let Some(before) = self.changes.insert(id, self.last) {
            self.by_change.remove(&before);
        }
        self.by_change.insert(self.last, task);
    }

    /// Changes a log, and keeps the change.
    fn apply(&self, task: &Task, log: &mut Log, change: &Change) -> bool {
        let (after, at) = (log.last(), now());
        if !log.apply(change, &at) {
            return false;
        }
        if let Change::Again = change {
            self.on_file(task, |shelf, id, _| shelf.drop_parts(id));
        }
        if self.shelf.is_some()
            && let Some(line) = change_line(change, after, &at)
        {
            self.keep(task, &line);
        }
        true
    }

    /// Adds a line to a task's file.
    fn keep(&self, task: &Task, line: &[u8]) {
        self.on_file(task, |shelf, id, bytes| {
            shelf.add(id, line, bytes == 0)?;
            Ok(bytes + line.len())
        });
    }

    /// Whether a task's file takes more news of webhooks. A task without a file needs none.
    fn has_room_for_webhooks(&self, task: &Task) -> bool {
        task.kept
            .lock()
            .is_none_or(|bytes| bytes < LONGEST_WITH_WEBHOOKS)
    }

    /// Changes a task's file, and notes its length. A task without a whole file is not kept.
    fn on_file(&self, task: &Task, change: impl FnOnce(&Shelf, &str, usize) -> io::Result<usize>) {
        let mut kept = task.kept.lock();
        let (Some(shelf), Some(bytes)) = (&self.shelf, *kept) else {
            return;
        };
        let id = &task.opening.head.id;
        *kept = match change(shelf, id, bytes) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                if let Some(left_out) = crate::lines::admit("files") {
                    tracing::error!(task = id, %error, left_out, "a task is kept no longer, and does not outlive the gateway: make room on the disk");
                }
                shelf.remove(id);
                None
            }
        };
    }

    fn remove(&mut self, id: &str) {
        let task = self.changes.remove(id);
        if let Some(task) = task.and_then(|change| self.by_change.remove(&change)) {
            self.bytes -= task.log.lock().bytes();
            let name = task.opening.called();
            if self.opened.get(&name).is_some_and(|it| it == id) {
                self.opened.remove(&name);
            }
            if let Some(shelf) = self.shelf.as_ref().filter(|_| task.kept.lock().is_some()) {
                shelf.remove(id);
            }
        }
    }

    /// Forgets tasks that have ended, the oldest first. False if the rest is still too much.
    fn make_room(&mut self) -> bool {
        while self.by_change.len() > MOST_TASKS || self.bytes > MOST_BYTES {
            let mut oldest = self.by_change.values().filter(|task| task.has_ended());
            let Some(id) = oldest.next().map(|task| task.opening.head.id.clone()) else {
                return false;
            };
            self.remove(&id);
        }
        true
    }
}

/// The change of a task that fails.
fn failed(why: String) -> Change {
    let (state, text) = (State::Failed, Some(why));
    Change::Enter { state, text }
}

impl Task {
    fn new(opening: Opening) -> Self {
        Self::of(opening.log(), opening, None)
    }

    /// A task of an earlier run.
    fn kept(recorded: Recorded) -> Self {
        Self::of(recorded.log, recorded.opening, Some(recorded.whole))
    }

    fn of(log: Log, opening: Opening, kept: Option<usize>) -> Self {
        Self {
            opening,
            log: Mutex::new(log),
            changed: watch::channel(0).0,
            at_work: Mutex::default(),
            webhooks: Mutex::default(),
            kept: Mutex::new(kept),
        }
    }

    /// The names by which its agent knows it: parameters of the request.
    pub(crate) fn names(&self) -> Vec<(&'static str, String)> {
        let head = &self.opening.head;
        let mut names = vec![
            ("X-A2A-Task", head.id.clone()),
            ("X-A2A-Context", head.context.clone()),
            ("X-A2A-Message", self.opening.name.clone()),
        ];
        let attempt = self.read(Log::attempt);
        if attempt > 1 {
            names.push(("X-A2A-Attempt", attempt.to_string()));
        }
        names
    }

    /// The name of the conversation of an attempt.
    pub(crate) fn conversation(&self, attempt: u32) -> String {
        let id = &self.opening.head.id;
        match attempt {
            1 => id.clone(),
            attempt => format!("{id}-{attempt}"),
        }
    }

    /// Does this work in place of earlier work, which is dropped.
    pub(crate) fn put_to_work<F>(&self, work: impl FnOnce(mpsc::Receiver<String>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (answers, heard) = mpsc::channel(MOST_HEARD);
        let mut at_work = self.at_work.lock();
        if let Some(doing) = at_work.doing.take() {
            doing.abort();
        }
        at_work.answers = Some(answers);
        at_work.doing = Some(tokio::spawn(work(heard)).abort_handle());
    }

    pub(crate) fn state(&self) -> State {
        self.log.lock().state()
    }

    fn has_ended(&self) -> bool {
        self.state().is_terminal()
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

#[cfg(test)]
pub(crate) mod tests;
