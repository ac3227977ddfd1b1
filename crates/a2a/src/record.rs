//! A task as it is kept: a line of JSON for its beginning, and one for each change. Free of I/O.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Fault;
use crate::log::{Change, Head, Log};
use crate::wire::{SendMessage, read as read_value};

/// The beginning of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// The agent's local name.
    pub(crate) agent: String,
    pub(crate) head: Head,
    pub(crate) at: String,
    /// The caller's name for the first message.
    pub(crate) name: String,
    /// The hash of the request.
    pub(crate) hash: [u8; 32],
    pub(crate) message: Box<RawValue>,
    /// The metadata of the request.
    pub(crate) metadata: Option<Map<String, Value>>,
}

#[derive(Serialize, Deserialize)]
struct Line<C> {
    /// The number of the last event before.
    after: u64,
    at: String,
    change: C,
}

/// A line is none of a task.
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
    pub(crate) fn request(&self) -> Result<SendMessage, Fault> {
        let message = serde_json::from_str(self.message.get()).map_err(|_| Fault::Internal)?;
        Ok(SendMessage {
            message: read_value(message)?,
            configuration: None,
            metadata: self.metadata.clone(),
        })
    }

    pub(crate) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// The line of a change. None for notices of progress, which are not kept.
pub(crate) fn change_line(change: &Change, after: u64, at: &str) -> Option<Vec<u8>> {
    let at = at.to_owned();
    (!change.is_notice()).then(|| line(&Line { after, at, change }))
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
    let mut whole = first.len();
    for (number, line) in lines {
        let Line { after, at, change } = read_line::<Line<Change>>(number, line)?;
        let wrong = |problem: &str| BadRecord {
            line: number,
            problem: problem.to_owned(),
        };
        // Room is left for more events than there will ever be.
        if after < log.last() || after > u64::MAX / 2 {
            return Err(wrong("its number is not one of this place"));
        }
        log.skip_to(after);
        if !log.apply(&change, &at) {
            return Err(wrong("the task cannot change so here"));
        }
        whole += line.len();
    }
    Ok(Some(Recorded {
        opening,
        log,
        whole,
    }))
}

/// The lines of a task without the parts of its result.
pub(crate) fn without_parts(bytes: &[u8]) -> Result<Vec<u8>, BadRecord> {
    let mut rest = Vec::new();
    for (number, line) in lines(bytes) {
        let is_part = number > 1
            && matches!(
                read_line::<Line<Change>>(number, line)?.change,
                Change::Part { .. }
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
            head: Head {
                id: "t".to_owned(),
                context: "c".to_owned(),
                result: "slow".to_owned(),
            },
            at: "now".to_owned(),
            name: "m-1".to_owned(),
            hash: [7; 32],
            message: to_raw_value(&json!({"parts": [{"text": "ü\n"}]})).unwrap(),
            metadata: None,
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

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let (_, file) = kept(history());
        let line = |bytes: &[u8]| read(bytes).unwrap_err().line;
        assert_eq!(line(b"nothing\n"), 1);
        assert_eq!(line(&[&file[..], b"{}\n"].concat()), 9);
        // After its end a task does not change, and numbers only grow.
        let (_, first) = kept(vec![enter(State::Working, "")]);
        let late = br#"{"after":0,"at":"","change":"again"}"#;
        assert_eq!(line(&[&first[..], late, b"\n"].concat()), 3);
        let far = format!(r#"{{"after":{},"at":"","change":"again"}}"#, u64::MAX);
        assert_eq!(line(&[&first[..], far.as_bytes(), b"\n"].concat()), 3);
    }
}
