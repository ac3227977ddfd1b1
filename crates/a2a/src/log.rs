//! The history of a task, as a log of numbered events: its state, its results, its messages. Free of I/O.

use std::collections::{BTreeMap, VecDeque};

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Notices of progress that are kept. Streams that begin later, or are slower, leave out earlier notices.
const MOST_NOTICES: usize = 64;
/// Messages of a history that are kept.
const MOST_HISTORY: usize = 64;

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

/// The facts about a task that never change.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) context: String,
    /// The name of the result.
    pub(crate) result: String,
}

#[derive(Debug)]
enum Event {
    Status(Status),
    /// A part of the result.
    Part {
        part: Box<RawValue>,
        is_whole: bool,
    },
}

#[derive(Clone, Debug, Serialize)]
struct Status {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Box<RawValue>>,
    timestamp: String,
}

/// A task's log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) head: Head,
    status: Status,
    events: BTreeMap<u64, Event>,
    notices: VecDeque<u64>,
    history: VecDeque<Box<RawValue>>,
    about: Map<String, Value>,
    last: u64,
    bytes: usize,
}

/// `Task`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Task<'a> {
    id: &'a str,
    context_id: &'a str,
    status: &'a Status,
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
enum Told<'a> {
    Task(Task<'a>),
    #[serde(rename_all = "camelCase")]
    StatusUpdate {
        task_id: &'a str,
        context_id: &'a str,
        status: &'a Status,
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
    pub(crate) fn new(head: Head, message: Box<RawValue>, now: String) -> Self {
        let mut log = Self {
            head,
            status: Status {
                state: State::Submitted,
                message: None,
                timestamp: now,
            },
            events: BTreeMap::new(),
            notices: VecDeque::new(),
            history: VecDeque::new(),
            about: Map::new(),
            last: 0,
            bytes: 0,
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

    /// Keeps a message in the history.
    pub(crate) fn remember(&mut self, message: Box<RawValue>) {
        self.bytes += message.get().len();
        self.history.push_back(message);
        if self.history.len() > MOST_HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.bytes -= oldest.get().len();
        }
    }

    /// Notes the agent that answered.
    pub(crate) fn tell_about(&mut self, about: Map<String, Value>) {
        self.about = about;
    }

    /// Sets the task's state, with the agent's text. A task that has ended does not change.
    pub(crate) fn enter(&mut self, state: State, text: Option<&str>, now: String) -> bool {
        if self.state().is_terminal() {
            return false;
        }
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
        self.status = Status {
            state,
            message,
            timestamp: now,
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
        true
    }

    /// A part of the result, or the whole of it.
    pub(crate) fn add(&mut self, part: &Value, is_whole: bool) -> bool {
        if self.state().is_terminal() {
            return false;
        }
        if let Ok(part) = to_raw_value(part) {
            self.push(Event::Part { part, is_whole });
        }
        true
    }

    fn push(&mut self, event: Event) {
        self.last += 1;
        self.bytes += event.bytes();
        self.events.insert(self.last, event);
    }

    fn task(&self, view: View) -> Task<'_> {
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
        Task {
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

    /// The task as an answer to a message, and as the first event of a stream.
    pub(crate) fn first(&self, view: View) -> Box<RawValue> {
        raw(&Told::Task(self.task(view)))
    }

    /// The first event after this number.
    pub(crate) fn after(&self, number: u64) -> Option<Next> {
        let (number, event) = self.events.range(number + 1..).next()?;
        let Head { id, context, .. } = &self.head;
        let (told, is_last) = match event {
            Event::Status(status) => {
                let told = Told::StatusUpdate {
                    task_id: id,
                    context_id: context,
                    status,
                };
                (told, status.state.is_still())
            }
            Event::Part { part, is_whole } => {
                let mut before = self.events.range(..number).map(|(_, event)| event);
                let told = Told::ArtifactUpdate {
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
mod tests {
    use super::*;

    fn log() -> Log {
        let head = Head {
            id: "t".to_owned(),
            context: "c".to_owned(),
            result: "brew".to_owned(),
        };
        Log::new(head, to_raw_value("hello").unwrap(), "now".to_owned())
    }

    fn value(raw: &RawValue) -> Value {
        serde_json::from_str(raw.get()).unwrap()
    }

    /// All events after a number.
    fn rest(log: &Log, mut number: u64) -> Vec<(u64, Value)> {
        let mut rest = Vec::new();
        while let Some(next) = log.after(number) {
            number = next.number;
            rest.push((number, value(&next.told)));
        }
        rest
    }

    #[test]
    fn a_task_is_what_its_events_say() {
        let mut log = log();
        assert!(log.enter(State::Working, None, "1".to_owned()));
        assert!(log.add(&json!({"text": "a"}), false));
        assert!(log.add(&json!({"text": "b"}), false));
        assert!(log.enter(State::Completed, None, "2".to_owned()));
        let task = value(&log.shown(View::whole(None)));
        assert_eq!(
            task["status"],
            json!({"state": "TASK_STATE_COMPLETED", "timestamp": "2"})
        );
        assert_eq!(
            task["artifacts"][0]["parts"],
            json!([{"text": "a"}, {"text": "b"}])
        );
        assert_eq!(task["history"], json!(["hello"]));
        let events = rest(&log, 0);
        let numbers: Vec<u64> = events.iter().map(|it| it.0).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(events[1].1["artifactUpdate"]["append"], false);
        assert_eq!(events[2].1["artifactUpdate"]["append"], true);
        assert!(log.after(3).unwrap().is_last);
        assert!(log.after(4).is_none());
        // A stream that broke continues at its last event.
        assert_eq!(rest(&log, 2), events[2..]);
        // The task does not change any more.
        assert!(!log.add(&json!({"text": "c"}), false));
        assert!(!log.enter(State::Canceled, None, "3".to_owned()));
        assert_eq!(rest(&log, 0), events);
        let short = value(&log.shown(View {
            history: Some(0),
            artifacts: false,
        }));
        assert!(short.get("history").is_none() && short.get("artifacts").is_none());
    }

    #[test]
    fn progress_without_end_takes_no_memory() {
        let mut log = log();
        for step in 0..10_000 {
            log.enter(State::Working, Some(&format!("step {step}")), String::new());
        }
        assert_eq!(rest(&log, 0).len(), MOST_NOTICES);
        assert!(log.bytes() < MOST_NOTICES * 512);
        assert_eq!(log.last(), 10_000);
        for _ in 0..1_000 {
            log.remember(to_raw_value("again").unwrap());
        }
        assert_eq!(
            value(&log.shown(View::whole(None)))["history"]
                .as_array()
                .unwrap()
                .len(),
            MOST_HISTORY
        );
    }

    #[test]
    fn states_are_read_as_they_are_written() {
        for state in [State::Submitted, State::InputRequired, State::Rejected] {
            assert_eq!(State::read(state.as_str()), Some(state));
        }
        assert_eq!(State::read("TASK_STATE_UNSPECIFIED"), None);
    }
}
