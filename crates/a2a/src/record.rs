//! A task as it is kept: a line of JSON for its beginning, and one for each change. Free of I/O.

use std::sync::Arc;

use sealbus::Delegation;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Fault;
use crate::extensions::{DELEGATION, read_chain};
use crate::log::{Change, Log, TaskFacts};
use crate::push::{KeptWebhook, MOST_WEBHOOKS, PushConfig};
use crate::wire::{SendMessageRequest, read as read_value};

/// The beginning of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// The agent's local name.
    pub(crate) agent: String,
    #[serde(serialize_with = "write_shared", deserialize_with = "read_shared")]
    pub(crate) head: Arc<TaskFacts>,
    pub(crate) at: String,
    /// The caller's name for the first message.
    pub(crate) name: String,
    /// The hash of the request.
    pub(crate) hash: [u8; 32],
    pub(crate) message: Box<RawValue>,
    /// The metadata of the request.
    pub(crate) metadata: Option<Map<String, Value>>,
    /// The extensions that the request activated, of those known here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) extensions: Vec<String>,
    /// Whether it is a conversation of FIPA agents.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_talk: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn write_shared<S: Serializer>(head: &Arc<TaskFacts>, to: S) -> Result<S::Ok, S::Error> {
    head.serialize(to)
}

fn read_shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<TaskFacts>, D::Error> {
    TaskFacts::deserialize(from).map(Arc::new)
}

/// A change, or news of a webhook.
#[derive(Serialize, Deserialize)]
struct Line<C, P> {
    /// The number of the last event before; for a webhook, of the last one that it needs no more.
    after: u64,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<P>,
}

/// News of a webhook, by its id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Posting {
    /// It is told from now on.
    Begin(PushConfig),
    /// It has taken all events up to this place.
    Told(String),
    /// It takes nothing more.
    Lost(String),
    /// It was deleted.
    End(String),
}

/// A line that does not belong to a task.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadRecord {
    /// The line, from 1.
    pub line: usize,
    /// The problem with it.
    pub problem: String,
}

/// A task that was read.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) opening: Opening,
    pub(crate) log: Log,
    pub(crate) webhooks: Vec<KeptWebhook>,
    /// The bytes of whole lines.
    pub(crate) whole: usize,
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Opening {
    pub(crate) fn log(&self) -> Log {
        Log::new(self.head.clone(), self.message.clone(), self.at.clone())
    }

    /// The caller's name for the task, until there is another one: the agent, and the first message.
    pub(crate) fn called(&self) -> (String, String) {
        (self.agent.clone(), self.name.clone())
    }

    /// The request, as it came.
    pub(crate) fn request(&self) -> Result<SendMessageRequest, Fault> {
        let message = serde_json::from_str(self.message.get()).map_err(|_| Fault::Internal)?;
        Ok(SendMessageRequest {
            message: read_value(message)?,
            configuration: None,
            metadata: self.metadata.clone(),
        })
    }

    /// On whose behalf the caller said to ask.
    pub(crate) fn chain(&self, platform: &str) -> Delegation {
        let is_active = self.extensions.iter().any(|it| it == DELEGATION);
        let request = self.request().ok().filter(|_| is_active);
        let metadata = request.and_then(|it| it.message.metadata);
        // It was checked when it came.
        read_chain(metadata.as_ref(), platform).unwrap_or_default()
    }

    pub(crate) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// The line of a change. None for notices of progress, which are not kept.
pub(crate) fn change_line(change: &Change, after: u64, at: &str) -> Option<Vec<u8>> {
    let at = at.to_owned();
    (!change.is_notice()).then(|| {
        line(&Line {
            after,
            at,
            change: Some(change),
            webhook: None::<&Posting>,
        })
    })
}

/// The line of news of a webhook.
pub(crate) fn webhook_line(posting: &Posting, after: u64) -> Vec<u8> {
    line(&Line {
        after,
        at: String::new(),
        change: None::<&Change>,
        webhook: Some(posting),
    })
}

/// Takes in news of a webhook.
fn take(webhooks: &mut Vec<KeptWebhook>, posting: Posting, after: u64) -> Result<(), String> {
    match posting {
        Posting::Begin(config) => {
            config.check("").map_err(|fault| fault.message())?;
            webhooks.retain(|it| it.config.id != config.id);
            webhooks.push(KeptWebhook {
                config,
                told: after,
                is_lost: false,
            });
            if webhooks.len() > MOST_WEBHOOKS {
                return Err(format!("the task has more than {MOST_WEBHOOKS} webhooks"));
            }
        }
        // One that was deleted meanwhile may still have been told.
        Posting::Told(id) => {
            for webhook in webhooks.iter_mut().filter(|it| it.config.id == id) {
                webhook.told = webhook.told.max(after);
            }
        }
        Posting::Lost(id) => {
            for webhook in webhooks.iter_mut().filter(|it| it.config.id == id) {
                webhook.is_lost = true;
            }
        }
        Posting::End(id) => webhooks.retain(|it| it.config.id != id),
    }
    Ok(())
}

/// Each whole line with its number. The last one may have been cut off as it was written.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    let whole = whole.filter(|line| line.ends_with(b"\n"));
    whole.enumerate().map(|(index, line)| (index + 1, line))
}

fn read_line<'l, T: Deserialize<'l>>(line: usize, bytes: &'l [u8]) -> Result<T, BadRecord> {
    serde_json::from_slice(bytes).map_err(|error| BadRecord {
        line,
        problem: error.to_string(),
    })
}

/// Reads a task. None: nothing was kept, because its first line was cut off.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Recorded>, BadRecord> {
    let mut lines = lines(bytes);
    let Some((number, first)) = lines.next() else {
        return Ok(None);
    };
    let opening: Opening = read_line(number, first)?;
    let mut log = opening.log();
    let mut webhooks = Vec::new();
    let mut whole = first.len();
    for (number, line) in lines {
        let read: Line<Change, Posting> = read_line(number, line)?;
        whole += line.len();
        let wrong = |problem: &str| BadRecord {
            line: number,
            problem: problem.to_owned(),
        };
        let (after, at) = (read.after, read.at);
        let change = match (read.change, read.webhook) {
            (Some(change), None) => change,
            (None, Some(posting)) => {
                take(&mut webhooks, posting, after).map_err(|problem| wrong(&problem))?;
                continue;
            }
            _ => return Err(wrong("it is neither a change nor news of a webhook")),
        };
        // Room is left for more events than there will ever be.
        if after < log.last() || after > u64::MAX / 2 {
            return Err(wrong("its number is not one of this place"));
        }
        log.skip_to(after);
        if !log.apply(&change, &at) {
            return Err(wrong("the task cannot change so here"));
        }
    }
    // The last it was told may be a notice, which was not kept, and whose number another event gets.
    for webhook in &mut webhooks {
        webhook.told = webhook.told.min(log.last());
    }
    Ok(Some(Recorded {
        opening,
        log,
        webhooks,
        whole,
    }))
}

/// The lines of a task without the parts of its result.
pub(crate) fn without_parts(bytes: &[u8]) -> Result<Vec<u8>, BadRecord> {
    let mut rest = Vec::new();
    for (number, line) in lines(bytes) {
        let is_part = number > 1
            && matches!(
                read_line::<Line<Change, Posting>>(number, line)?.change,
                Some(Change::Part { .. })
            );
        if !is_part {
            rest.extend_from_slice(line);
        }
    }
    Ok(rest)
}

/// The reader of tasks, for the fuzz target.
#[doc(hidden)]
pub mod fuzzing {
    use super::BadRecord;
    use crate::log::View;

    /// Reads a task as a gateway does that starts.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn read(bytes: &[u8]) -> Result<usize, BadRecord> {
        let recorded = super::read(bytes)?;
        super::without_parts(bytes)?;
        Ok(recorded.map_or(0, |it| it.log.shown(View::whole(None)).get().len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::log::{State, View};

    fn opening() -> Opening {
        Opening {
            agent: "clock".to_owned(),
            head: Arc::new(TaskFacts {
                id: "t".to_owned(),
                context: "c".to_owned(),
                result: "slow".to_owned(),
            }),
            at: "now".to_owned(),
            name: "m-1".to_owned(),
            hash: [7; 32],
            message: to_raw_value(&json!({"parts": [{"text": "ü\n"}]})).unwrap(),
            metadata: None,
            extensions: Vec::new(),
            is_talk: false,
        }
    }

    /// A task with these changes, and its file.
    fn kept(changes: Vec<Change>) -> (Log, Vec<u8>) {
        let opening = opening();
        let (mut log, mut file) = (opening.log(), opening.line());
        for (number, change) in changes.into_iter().enumerate() {
            let (after, at) = (log.last(), number.to_string());
            assert!(log.apply(&change, &at), "{change:?}");
            file.extend(change_line(&change, after, &at).unwrap_or_default());
        }
        (log, file)
    }

    fn enter(state: State, text: &str) -> Change {
        let text = (!text.is_empty()).then(|| text.to_owned());
        Change::Enter { state, text }
    }

    fn part(text: &str) -> Change {
        let part = to_raw_value(&json!({ "text": text })).unwrap();
        let is_whole = false;
        Change::Part { part, is_whole }
    }

    fn history() -> Vec<Change> {
        let message = to_raw_value(&json!({"parts": [{"text": "blue"}]})).unwrap();
        let about = json!({"sealbus/sender": "clock@home"});
        vec![
            enter(State::Working, ""),
            part("a"),
            enter(State::Working, "half"),
            Change::Again,
            enter(State::InputRequired, "which colour?"),
            Change::Answer { message },
            part("b"),
            Change::Complete {
                about: about.as_object().unwrap().clone(),
            },
        ]
    }

    fn shown(log: &Log) -> String {
        log.shown(View::whole(None)).get().to_owned()
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let (log, file) = kept(history());
        let read = read(&file).unwrap().unwrap();
        assert_eq!(shown(&read.log), shown(&log));
        assert_eq!(read.whole, file.len());
        assert_eq!((read.log.last(), read.log.attempt()), (log.last(), 2));
        // Events have their numbers, without the notice.
        let next = |log: &Log, after| {
            log.after(after)
                .map(|next| (next.number, next.told.to_string()))
        };
        assert_eq!(next(&read.log, 3), next(&log, 3));
        assert_eq!(read.opening.hash, [7; 32]);
    }

    #[test]
    fn a_file_that_was_cut_off_is_read_up_to_there() {
        let (_, file) = kept(history());
        for length in 0..file.len() {
            let whole = file[..length].iter().rposition(|byte| *byte == b'\n');
            let read = read(&file[..length]).unwrap();
            assert_eq!(read.map(|it| it.whole), whole.map(|it| it + 1));
        }
    }

    #[test]
    fn a_task_without_parts_is_smaller_and_says_the_rest() {
        let mut changes = history();
        changes.truncate(3);
        let (_, file) = kept(changes);
        let rest = without_parts(&file).unwrap();
        assert!(rest.len() < file.len());
        let read = read(&rest).unwrap().unwrap();
        assert_eq!(read.log.state(), State::Working);
        assert!(shown(&read.log).contains(r#""artifacts":[]"#));
    }

    fn webhook(id: &str) -> PushConfig {
        let config = json!({"id": id, "taskId": "t", "url": "https://hooks.example", "token": "t"});
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn webhooks_go_on_behind_what_they_were_told() {
        let (_, mut file) = kept(history());
        for (posting, after) in [
            (Posting::Begin(webhook("a")), 1),
            (Posting::Begin(webhook("b")), 2),
            (Posting::Told("a".to_owned()), 4),
            (Posting::Told("a".to_owned()), 3),
            (Posting::Begin(webhook("gone")), 2),
            (Posting::End("gone".to_owned()), 0),
            (Posting::Told("gone".to_owned()), 9),
            (Posting::Begin(webhook("early")), 1 << 40),
            (Posting::Lost("b".to_owned()), 0),
        ] {
            file.extend(webhook_line(&posting, after));
        }
        let found = |file: &[u8]| {
            let webhooks = read(file).unwrap().unwrap().webhooks;
            let found = webhooks.into_iter();
            let found = found.map(|it| (it.config.id, it.told, it.is_lost));
            found.collect::<Vec<_>>()
        };
        let last = read(&file).unwrap().unwrap().log.last();
        let expected = [("a", 4, false), ("b", 2, true), ("early", last, false)];
        let expected = expected.map(|(id, told, is_lost)| (id.to_owned(), told, is_lost));
        assert_eq!(found(&file), expected);
        assert_eq!(found(&without_parts(&file).unwrap()), expected);
        assert!(found(&kept(history()).1).is_empty());
        for number in 0..MOST_WEBHOOKS {
            let another = Posting::Begin(webhook(&number.to_string()));
            file.extend(webhook_line(&another, 0));
        }
        let problem = read(&file).unwrap_err().problem;
        assert!(problem.contains("more than 4 webhooks"), "{problem}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let (_, file) = kept(history());
        let line = |bytes: &[u8]| read(bytes).unwrap_err().line;
        assert_eq!(line(b"nothing\n"), 1);
        assert_eq!(line(&[&file[..], b"{}\n"].concat()), 9);
        assert_eq!(line(&[&file[..], b"{\"after\":1}\n"].concat()), 9);
        let hook = br#"{"after":1,"webhook":{"begin":{"id":"a","url":"ftp://a"}}}"#;
        assert_eq!(line(&[&file[..], hook, b"\n"].concat()), 9);
        // After its end a task does not change, and numbers only grow.
        let (_, first) = kept(vec![enter(State::Working, "")]);
        let late = br#"{"after":0,"at":"","change":"again"}"#;
        assert_eq!(line(&[&first[..], late, b"\n"].concat()), 3);
        let far = format!(r#"{{"after":{},"at":"","change":"again"}}"#, u64::MAX);
        assert_eq!(line(&[&first[..], far.as_bytes(), b"\n"].concat()), 3);
    }
}
