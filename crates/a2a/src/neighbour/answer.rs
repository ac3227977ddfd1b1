//! Answers of an agent of others: objects of the specification's section 4, in ProtoJSON. Unknown members are passed over.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::body::{BYTES, JSON, WrittenBody};
use sealbus::{AclMessage, Content, Performative};
use sealbus_callers::shown;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fault::RemoteFault;
use crate::wire::LONGEST_TEXT;
use crate::{acl, wire};

/// Longest answer that is not a stream, and longest event of one, in bytes.
pub(super) const LONGEST_ANSWER: usize = 8 << 20;

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is not what A2A says.
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
    /// It answers another request.
    #[error("it answered a request that it was not asked")]
    ForeignId,
    /// It tells of another task.
    #[error("it told of another task than the one it was asked about")]
    ForeignTask,
    /// The task never comes to an end.
    #[error("its task has more than {0}")]
    TooMuch(&'static str),
}

/// `Part`, as the content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// JSON; a `url` is the object that the part is.
    Data(Value),
    /// Bytes.
    Raw(Vec<u8>),
    /// A whole ACL message.
    Acl(Box<AclMessage>),
}

impl Part {
    fn read(part: Value) -> Result<Self, AnswerError> {
        let Value::Object(mut part) = part else {
            return Err(unreadable("a part is no object"));
        };
        let metadata = part.get("metadata").and_then(Value::as_object);
        let data = acl::read(metadata).map_err(|error| unreadable(&error.to_string()))?;
        if let Some(whole) = data.and_then(|data| data.whole) {
            return Ok(Self::Acl(Box::new(whole)));
        }
        if let Some(Value::String(text)) = part.remove("text") {
            return Ok(Self::Text(text));
        }
        if let Some(data) = part.remove("data") {
            return Ok(Self::Data(data));
        }
        match part.get("raw").map(Value::as_str) {
            Some(Some(raw)) => {
                let bytes = STANDARD.decode(raw);
                Ok(Self::Raw(
                    bytes.map_err(|_| unreadable("raw is no base64"))?,
                ))
            }
            Some(None) => Err(unreadable("raw is no text")),
            None if part.contains_key("url") => Ok(Self::Data(Value::Object(part))),
            None => Err(unreadable("a part has none of text, raw, url, data")),
        }
    }

    /// The part as a body.
    pub fn body(&self) -> WrittenBody {
        let written = |content: Content, language: &str| WrittenBody {
            content,
            language: Some(language.to_owned()),
            ontology: None,
        };
        match self {
            Self::Text(text) => text.clone().into(),
            Self::Data(data) => written(data.to_string().into(), JSON),
            Self::Raw(bytes) => written(bytes.clone().into(), BYTES),
            Self::Acl(message) => WrittenBody {
                content: message
                    .content
                    .clone()
                    .unwrap_or_else(|| String::new().into()),
                language: message
                    .language
                    .as_ref()
                    .and_then(|it| it.as_str())
                    .map(str::to_owned),
                ontology: None,
            },
        }
    }

    /// The part as a message of its agent: an `inform`, if it is no whole message.
    pub fn acl(self) -> AclMessage {
        match self {
            Self::Acl(message) => *message,
            other => {
                let mut message = AclMessage::new(Performative::Inform);
                other.body().put_into(&mut message);
                message
            }
        }
    }

    /// About what it takes.
    pub fn bytes(&self) -> usize {
        64 + match self {
            Self::Text(text) => text.len(),
            Self::Data(data) => data.to_string().len(),
            Self::Raw(bytes) => bytes.len(),
            Self::Acl(message) => message.content_bytes().map_or(0, <[u8]>::len),
        }
    }
}

/// All parts as one body: texts as one text, any other part by itself, several as a list in JSON. None if there are none.
pub fn body(mut parts: Vec<Part>) -> Option<WrittenBody> {
    if parts.len() <= 1 {
        return parts.pop().map(|part| part.body());
    }
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    if let Some(text) = texts.collect::<Option<String>>() {
        return Some(text.into());
    }
    let list = parts.into_iter().map(|part| match part {
        Part::Text(text) => text.into(),
        Part::Data(data) => data,
        Part::Raw(bytes) => json!({"raw": STANDARD.encode(bytes)}),
        Part::Acl(message) => acl::part(&message),
    });
    Some(Part::Data(list.collect()).body())
}

/// `TaskState`, as far as it matters to the one who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Not begun.
    Submitted,
    /// At work.
    Working,
    /// It asks something.
    InputRequired,
    /// It wants a login.
    AuthRequired,
    /// It has ended well.
    Completed,
    /// It has ended without a result.
    Failed,
    /// It was cancelled.
    Canceled,
    /// It is not done at all.
    Rejected,
}

impl Course {
    fn read(state: &str) -> Option<Self> {
        Some(match state {
            "TASK_STATE_SUBMITTED" => Self::Submitted,
            "TASK_STATE_WORKING" => Self::Working,
            "TASK_STATE_INPUT_REQUIRED" => Self::InputRequired,
            "TASK_STATE_AUTH_REQUIRED" => Self::AuthRequired,
            "TASK_STATE_COMPLETED" => Self::Completed,
            "TASK_STATE_FAILED" => Self::Failed,
            "TASK_STATE_CANCELED" => Self::Canceled,
            "TASK_STATE_REJECTED" => Self::Rejected,
            _ => return None,
        })
    }
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// How far it is.
    pub course: Course,
    /// The agent's words about it.
    pub parts: Vec<Part>,
    /// When it came about, as the agent writes it.
    pub stamp: String,
}

impl Status {
    /// The text that the agent says to it; harmless to show.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Data(data) => data.to_string(),
            Part::Raw(_) | Part::Acl(_) => String::new(),
        });
        shown(&texts.collect::<Vec<_>>().join(" "), LONGEST_TEXT)
    }
}

/// `Artifact`.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// Its name among those of its task.
    pub id: String,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// One thing that an agent of others tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A direct answer, without a task.
    Message(Vec<Part>),
    /// A task as it is now.
    Task {
        /// Its identifier.
        id: String,
        /// Its context.
        context: String,
        /// Its state.
        status: Status,
        /// Its results so far.
        artifacts: Vec<Artifact>,
    },
    /// A new state.
    Status {
        /// The task.
        id: String,
        /// The state.
        status: Status,
    },
    /// A result, or more of one.
    Artifact {
        /// The task.
        id: String,
        /// The result.
        artifact: Artifact,
        /// It comes after what was told of it before.
        append: bool,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenTask {
    id: String,
    #[serde(default)]
    context_id: String,
    status: WrittenStatus,
    #[serde(default)]
    artifacts: Vec<WrittenArtifact>,
}

#[derive(Deserialize)]
struct WrittenStatus {
    state: String,
    message: Option<WrittenMessage>,
    #[serde(default)]
    timestamp: String,
}

#[derive(Deserialize)]
struct WrittenMessage {
    #[serde(default)]
    parts: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenArtifact {
    #[serde(default)]
    artifact_id: String,
    #[serde(default)]
    parts: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate {
    task_id: String,
    status: WrittenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate {
    task_id: String,
    artifact: WrittenArtifact,
    #[serde(default)]
    append: bool,
}

pub(super) fn unreadable(problem: &str) -> AnswerError {
    AnswerError::Unreadable(problem.to_owned())
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, AnswerError> {
    wire::read(value).map_err(|fault| AnswerError::Unreadable(fault.message()))
}

fn parts(written: Vec<Value>) -> Result<Vec<Part>, AnswerError> {
    written.into_iter().map(Part::read).collect()
}

impl WrittenStatus {
    fn read(self) -> Result<Status, AnswerError> {
        let course = Course::read(&self.state);
        let said = self.message.map(|message| message.parts);
        Ok(Status {
            course: course.ok_or_else(|| unreadable("a task has an unknown state"))?,
            parts: parts(said.unwrap_or_default())?,
            stamp: self.timestamp,
        })
    }
}

impl WrittenArtifact {
    fn read(self) -> Result<Artifact, AnswerError> {
        Ok(Artifact {
            id: self.artifact_id,
            parts: parts(self.parts)?,
        })
    }
}

impl Told {
    /// A `StreamResponse`, or a `SendMessageResponse`.
    ///
    /// # Errors
    /// [`AnswerError::Unreadable`].
    pub fn read(value: Value) -> Result<Self, AnswerError> {
        let Value::Object(mut told) = value else {
            return Err(unreadable("it is no object"));
        };
        if let Some(task) = told.remove("task") {
            return Self::task(task);
        }
        if let Some(message) = told.remove("message") {
            return Ok(Self::Message(parts(
                typed::<WrittenMessage>(message)?.parts,
            )?));
        }
        if let Some(update) = told.remove("statusUpdate") {
            let update: StatusUpdate = typed(update)?;
            return Ok(Self::Status {
                id: update.task_id,
                status: update.status.read()?,
            });
        }
        if let Some(update) = told.remove("artifactUpdate") {
            let update: ArtifactUpdate = typed(update)?;
            return Ok(Self::Artifact {
                id: update.task_id,
                artifact: update.artifact.read()?,
                append: update.append,
            });
        }
        Err(unreadable(
            "it has none of task, message, statusUpdate, artifactUpdate",
        ))
    }

    /// A `Task` by itself.
    ///
    /// # Errors
    /// [`AnswerError::Unreadable`].
    pub fn task(value: Value) -> Result<Self, AnswerError> {
        let task: WrittenTask = typed(value)?;
        if task.id.is_empty() || task.id.len() > 1_024 || task.context_id.len() > 1_024 {
            return Err(unreadable("the id of a task has 1 to 1024 bytes"));
        }
        let artifacts = task.artifacts.into_iter().map(WrittenArtifact::read);
        Ok(Self::Task {
            id: task.id,
            context: task.context_id,
            status: task.status.read()?,
            artifacts: artifacts.collect::<Result<_, _>>()?,
        })
    }
}

/// The JSON of an answer.
///
/// # Errors
/// If it is none, or has more than 65,536 values.
pub fn json(body: &[u8]) -> Result<Value, AnswerError> {
    wire::parse(body).map_err(|fault| AnswerError::Unreadable(fault.message()))
}

/// The result in a response of JSON-RPC to the request `id`, or the error.
///
/// # Errors
/// [`AnswerError`] if it is no response, or one to another request.
pub fn response(value: Value, id: &str) -> Result<Result<Value, RemoteFault>, AnswerError> {
    let Value::Object(mut response) = value else {
        return Err(unreadable("it is no response of JSON-RPC"));
    };
    let error = response.remove("error").filter(|error| !error.is_null());
    let answers = response.get("id").cloned().unwrap_or_default();
    // An error that comes before the id was read has none.
    if answers != *id && !(error.is_some() && answers.is_null()) {
        return Err(AnswerError::ForeignId);
    }
    if let Some(error) = error {
        return Ok(Err(RemoteFault::read(&error, 0)));
    }
    let result = response.remove("result");
    Ok(Ok(result.ok_or_else(|| {
        unreadable("it has neither result nor error")
    })?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_answers_its_request() {
        let ok = json!({"jsonrpc": "2.0", "id": "7", "result": {"message": {"parts": [{"text": "hi"}]}}});
        let result = response(ok.clone(), "7").unwrap().unwrap();
        assert_eq!(
            Told::read(result),
            Ok(Told::Message(vec![Part::Text("hi".into())]))
        );
        assert_eq!(response(ok, "8"), Err(AnswerError::ForeignId));
        let fault = json!({"id": null, "error": {"code": -32001, "message": "no\u{1b}", "data": [{"reason": "TASK_NOT_FOUND"}]}});
        let fault = response(fault, "7").unwrap().unwrap_err();
        assert_eq!(
            (fault.code, fault.reason.as_str(), fault.text.as_str()),
            (-32001, "TASK_NOT_FOUND", "no ")
        );
        assert!(response(json!([]), "7").is_err());
        assert!(response(json!({"id": "7"}), "7").is_err());
    }

    #[test]
    fn parts_become_one_body() {
        let text = |text: &str| Part::Text(text.to_owned());
        assert_eq!(body(vec![]), None);
        assert_eq!(body(vec![text("a"), text("b")]), Some("ab".into()));
        let mixed = body(vec![text("a"), Part::Data(json!(1)), Part::Raw(vec![0])]).unwrap();
        assert_eq!(mixed.content, r#"["a",1,{"raw":"AA=="}]"#.to_owned().into());
        let link = Part::read(json!({"url": "https://a", "mediaType": "x"})).unwrap();
        assert_eq!(
            link,
            Part::Data(json!({"url": "https://a", "mediaType": "x"}))
        );
        for wrong in [json!({}), json!(1), json!({"raw": "?"}), json!({"raw": 1})] {
            assert!(Part::read(wrong).is_err());
        }
    }

    #[test]
    fn a_task_needs_its_members() {
        let task = json!({"id": "t", "status": {"state": "TASK_STATE_WORKING"}});
        assert!(Told::task(task.clone()).is_ok());
        for (place, wrong) in [
            ("id", json!("")),
            ("id", json!("x".repeat(2_000))),
            ("status", json!({"state": "x"})),
        ] {
            let mut task = task.clone();
            task[place] = wrong;
            assert!(Told::task(task).is_err());
        }
    }
}
