//! The history of a task, as a log of numbered events: its state, its results, its messages. Free of I/O.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Notices of progress that are kept. Streams that begin later, or are slower, leave out earlier notices.
const MOST_NOTICES: usize = 64;
/// Messages of a history that are kept.
const MOST_HISTORY: usize = 64;
/// More than the notices between two other events.
const LEAP: u64 = 1 << 32;

/// `TaskState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::Rejected => "TASK_STATE_REJECTED",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        [
            Self::Submitted,
            Self::Working,
            Self::InputRequired,
            Self::Completed,
            Self::Failed,
            Self::Canceled,
            Self::Rejected,
        ]
        .into_iter()
        .find(|state| state.as_str() == text)
    }

    /// Whether the task can change no more.
    pub(crate) fn is_terminal(self) -> bool {
        use State::{Canceled, Completed, Failed, Rejected};
        matches!(self, Completed | Failed | Canceled | Rejected)
    }

    /// Whether the task waits for its caller, or has ended.
    pub(crate) fn is_still(self) -> bool {
        self.is_terminal() || self == Self::InputRequired
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::read(&text).ok_or_else(|| de::Error::custom("it is no state of a task"))
    }
}

/// A change of a task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// It enters a state, with a word of the agent.
    Enter { state: State, text: Option<String> },
    /// A part of the result comes, or the whole of it.
    Part { part: Box<RawValue>, is_whole: bool },
    /// It has its result, from the agent that this describes.
    Complete { about: Map<String, Value> },
    /// The agent answers with a message: there is no result.
    Say {
        text: String,
        about: Map<String, Value>,
    },
    /// The caller answers a question of the agent.
    Answer { message: Box<RawValue> },
    /// The caller says something while the agent works.
    Said { message: Box<RawValue> },
    /// The agent is asked again, because it or the gateway ended while it worked. Parts of a result no longer count.
    Again,
}

impl Change {
    /// Whether it only tells how far the agent is.
    pub(crate) fn is_notice(&self) -> bool {
        let Self::Enter { state, text } = self else {
            return false;
        };
        *state == State::Working && text.is_some()
    }
}

/// The facts about a task that never change.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TaskFacts {
    pub(crate) id: String,
    pub(crate) context: String,
    /// The name of the result.
    pub(crate) result: String,
}

#[derive(Debug)]
enum Event {
    Status(TaskStatus),
    /// A part of the result.
    Part {
        part: Box<RawValue>,
        is_whole: bool,
    },
}

#[derive(Clone, Debug, Serialize)]
struct TaskStatus {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Box<RawValue>>,
    timestamp: String,
}

/// A task's log.
#[derive(Debug)]
pub(crate) struct Log {
    head: Arc<TaskFacts>,
    status: TaskStatus,
    events: BTreeMap<u64, Event>,
    notices: VecDeque<u64>,
    history: VecDeque<Box<RawValue>>,
    about: Map<String, Value>,
    /// The agent answered with a message, and not with a result.
    is_message: bool,
    last: u64,
    bytes: usize,
    attempt: u32,
}

/// `Task`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskObject<'a> {
    id: &'a str,
    context_id: &'a str,
    status: &'a TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<Vec<Artifact<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifact<'a> {
    artifact_id: &'static str,
    name: &'a str,
    parts: Vec<&'a RawValue>,
}

/// `StreamResponse`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum StreamResponse<'a> {
    Task(TaskObject<'a>),
    Message(&'a RawValue),
    #[serde(rename_all = "camelCase")]
    StatusUpdate {
        task_id: &'a str,
        context_id: &'a str,
        status: &'a TaskStatus,
    },
    #[serde(rename_all = "camelCase")]
    ArtifactUpdate {
        task_id: &'a str,
        context_id: &'a str,
        artifact: Artifact<'a>,
        append: bool,
        last_chunk: bool,
    },
}

/// The only artifact of a task.
const RESULT: &str = "result";

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) number: u64,
    pub(crate) told: Box<RawValue>,
    /// The stream ends with it.
    pub(crate) is_last: bool,
    /// It only tells how far the agent is, and no later run of the gateway knows it.
    pub(crate) is_notice: bool,
}

/// The amount of a task that an answer contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) history: Option<usize>,
    pub(crate) artifacts: bool,
}

impl View {
    /// Everything, with this many messages of history.
    pub(crate) fn whole(history: Option<usize>) -> Self {
        Self {
            history,
            artifacts: true,
        }
    }
}

impl Log {
    /// A new task, which began with this message.
    pub(crate) fn new(head: Arc<TaskFacts>, message: Box<RawValue>, now: String) -> Self {
        let mut log = Self {
            head,
            status: TaskStatus {
                state: State::Submitted,
                message: None,
                timestamp: now,
            },
            events: BTreeMap::new(),
            notices: VecDeque::new(),
            history: VecDeque::new(),
            about: Map::new(),
            is_message: false,
            last: 0,
            bytes: 0,
            attempt: 1,
        };
        log.remember(message);
        log
    }

    pub(crate) fn state(&self) -> State {
        self.status.state
    }

    pub(crate) fn timestamp(&self) -> &str {
        &self.status.timestamp
    }

    /// The number of the latest event.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The memory that the log takes, in bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How often the agent has been asked.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Continues behind events that were not kept.
    pub(crate) fn skip_to(&mut self, last: u64) {
        self.last = last;
    }

    /// Whether the history has this message, word for word.
    pub(crate) fn has(&self, message: &RawValue) -> bool {
        self.history.iter().any(|it| it.get() == message.get())
    }

    /// Keeps a message in the history.
    fn remember(&mut self, message: Box<RawValue>) {
        self.bytes += message.get().len();
        self.history.push_back(message);
        if self.history.len() > MOST_HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.bytes -= oldest.get().len();
        }
    }

    /// Changes the task. False if it cannot change so, as after its end.
    pub(crate) fn apply(&mut self, change: &Change, now: &str) -> bool {
        if self.state().is_terminal() {
            return false;
        }
        match change {
            Change::Enter { state, text } => self.enter(*state, text.as_deref(), now),
            Change::Part { part, is_whole } => self.push(Event::Part {
                part: part.clone(),
                is_whole: *is_whole,
            }),
            Change::Complete { about } => {
                self.about = about.clone();
                self.enter(State::Completed, None, now);
            }
            Change::Say { text, about } => {
                self.about = about.clone();
                self.enter(State::Completed, Some(text), now);
                self.is_message = true;
            }
            Change::Answer { message } => {
                if self.state() != State::InputRequired {
                    return false;
                }
                self.remember(message.clone());
                self.enter(State::Working, None, now);
            }
            Change::Said { message } => self.remember(message.clone()),
            Change::Again => {
                let is_part = |_: &u64, event: &mut Event| matches!(event, Event::Part { .. });
                let parts = self.events.extract_if(.., is_part);
                let bytes: usize = parts.map(|(_, part)| part.bytes()).sum();
                self.bytes -= bytes;
                self.attempt += 1;
                // Some numbers may belong to notices that were told and not kept.
                self.last += LEAP;
                self.enter(State::Working, Some("The agent is asked again."), now);
            }
        }
        true
    }

    /// The answer to a message: the task, or the agent's own message.
    pub(crate) fn answer(&self, view: View) -> Box<RawValue> {
        match self.status.message.as_deref().filter(|_| self.is_message) {
            Some(message) => raw(&StreamResponse::Message(message)),
            None => self.first(view),
        }
    }

    /// Sets the task's state, with the agent's text.
    fn enter(&mut self, state: State, text: Option<&str>, now: &str) {
        let number = self.last + 1;
        let message = text.map(|text| {
            json!({
                "messageId": format!("{}-{number}", self.head.id), "role": "ROLE_AGENT",
                "taskId": self.head.id, "contextId": self.head.context, "parts": [{"text": text}],
            })
        });
        let message = message.and_then(|message| to_raw_value(&message).ok());
        let is_notice = state == State::Working && message.is_some();
        if !is_notice && let Some(message) = &message {
            self.remember(message.clone());
        }
        self.status = TaskStatus {
            state,
            message,
            timestamp: now.to_owned(),
        };
        let event = Event::Status(self.status.clone());
        self.push(event);
        if is_notice {
            self.notices.push_back(number);
            if self.notices.len() > MOST_NOTICES
                && let Some(oldest) = self.notices.pop_front()
                && let Some(oldest) = self.events.remove(&oldest)
            {
                self.bytes -= oldest.bytes();
            }
        }
    }

    fn push(&mut self, event: Event) {
        self.last += 1;
        self.bytes += event.bytes();
        self.events.insert(self.last, event);
    }

    fn task(&self, view: View) -> TaskObject<'_> {
        let parts = self.events.values().filter_map(|event| match event {
            Event::Part { part, .. } => Some(&**part),
            Event::Status(_) => None,
        });
        let parts: Vec<&RawValue> = parts.collect();
        let artifacts = view.artifacts.then(|| {
            let artifact = (!parts.is_empty()).then(|| self.artifact(parts));
            artifact.into_iter().collect()
        });
        let most = view.history.unwrap_or(MOST_HISTORY);
        let passed = self.history.len().saturating_sub(most);
        TaskObject {
            id: &self.head.id,
            context_id: &self.head.context,
            status: &self.status,
            artifacts,
            history: self.history.iter().skip(passed).map(|it| &**it).collect(),
            metadata: &self.about,
        }
    }

    fn artifact<'a>(&'a self, parts: Vec<&'a RawValue>) -> Artifact<'a> {
        Artifact {
            artifact_id: RESULT,
            name: &self.head.result,
            parts,
        }
    }

    /// The task.
    pub(crate) fn shown(&self, view: View) -> Box<RawValue> {
        raw(&self.task(view))
    }

    /// The task as the first event of a stream.
    pub(crate) fn first(&self, view: View) -> Box<RawValue> {
        raw(&StreamResponse::Task(self.task(view)))
    }

    /// The first event after this number.
    pub(crate) fn after(&self, number: u64) -> Option<Next> {
        let (number, event) = self.events.range(number.saturating_add(1)..).next()?;
        let TaskFacts { id, context, .. } = &*self.head;
        let (told, is_last) = match event {
            Event::Status(status) => {
                let told = StreamResponse::StatusUpdate {
                    task_id: id,
                    context_id: context,
                    status,
                };
                (told, status.state.is_still())
            }
            Event::Part { part, is_whole } => {
                let mut before = self.events.range(..number).map(|(_, event)| event);
                let told = StreamResponse::ArtifactUpdate {
                    task_id: id,
                    context_id: context,
                    artifact: self.artifact(vec![part]),
                    append: before.any(|event| matches!(event, Event::Part { .. })),
                    last_chunk: *is_whole,
                };
                (told, false)
            }
        };
        Some(Next {
            number: *number,
            told: raw(&told),
            is_last,
            is_notice: self.notices.contains(number),
        })
    }
}

impl Event {
    /// The bytes of the event, with the log's own cost.
    fn bytes(&self) -> usize {
        128 + match self {
            Self::Status(status) => status.message.as_ref().map_or(0, |it| it.get().len()),
            Self::Part { part, .. } => part.get().len(),
        }
    }
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests;
