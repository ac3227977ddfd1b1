//! Requests to an agent of others, in the binding of its card.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sealbus::new_conversation_id;
use sealbus_manifest::neighbours::NeighbourEntry;
use sealbus_web::events::{Event, EventError, Events};
use sealbus_web::trust::FileError;
use sealbus_web::{Client, MayReach, Server, WebError, reach, trust, whole};
use serde_json::{Value, json};

use super::answer::{self, AnswerError, LONGEST_ANSWER, RemoteFault, Told};
use super::card::{Binding, Card, CardError, LONGEST_CARD, place};

/// How long a card may take, and an answer that does not wait for an agent's work.
const SHORT: Duration = Duration::from_secs(30);
/// How long an answer may take that waits for an agent's work.
const LONG: Duration = Duration::from_secs(600);
/// A stream that brings nothing for so long has broken.
const QUIET: Duration = Duration::from_secs(300);
/// Longest key, in bytes.
const LONGEST_KEY: usize = 16 << 10;
/// Most events that wait to be read.
const MOST_WAITING: usize = 4_096;

/// The other side did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    #[error(transparent)]
    Web(#[from] WebError),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Card(#[from] CardError),
    #[error(transparent)]
    Fault(#[from] RemoteFault),
    /// Redirections are not followed.
    #[error("it answered status {0}, and leads elsewhere: write the address it leads to")]
    Redirected(u16),
    #[error("it answered status {0} instead of a card")]
    NoCard(u16),
    #[error("it sent more events at once than anybody can read")]
    Flood,
}

impl RemoteError {
    /// Whether the connection broke, and the task may go on without it.
    pub(super) fn is_break(&self) -> bool {
        matches!(
            self,
            Self::Web(WebError::Broken(_) | WebError::Io(_) | WebError::Slow(_))
        )
    }
}

/// A neighbour cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file with certificates or a key.
    #[error(transparent)]
    File(#[from] FileError),
    /// The manifest is checked before.
    #[error("{0} is no address")]
    Address(String),
}

/// A neighbour whose card was checked.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) card: Card,
    /// The server that gave the card, and by what proof it is that one.
    pub(super) proof: String,
}

/// An agent of others.
pub(super) struct Remote {
    http: Client,
    card_at: Uri,
    hosts: Vec<String>,
    key: Option<(HeaderName, HeaderValue)>,
    known: Mutex<Result<Arc<Known>, String>>,
}

impl Remote {
    pub(super) fn new(entry: &NeighbourEntry) -> Result<Self, SetupError> {
        let card_at = place(&entry.url);
        let card_at: Uri = card_at.parse().map_err(|_| SetupError::Address(card_at))?;
        // An operator who writes a number means it. A name leads wherever its owner wants.
        let is_meant = entry.private || entry.is_of_this_machine();
        let may_reach: MayReach = if is_meant {
            Arc::new(|_| Ok(()))
        } else {
            Arc::new(|address| {
                let refused = reach::open_internet(address);
                refused.map_err(|why| format!("{why}; write private = true if that is right"))
            })
        };
        let key = match &entry.key_file {
            Some(file) => Some(key(file.as_ref(), entry.header.as_deref())?),
            None => None,
        };
        let tls = trust::client(entry.trust.as_deref().map(AsRef::as_ref))?;
        Ok(Self {
            http: Client::new(tls, may_reach),
            card_at,
            hosts: entry.hosts.clone(),
            key,
            known: Mutex::new(Err("its card has not been read yet".to_owned())),
        })
    }

    /// The neighbour as its card tells of it, or why nothing is known.
    pub(super) fn known(&self) -> Result<Arc<Known>, String> {
        self.known.lock().clone()
    }

    /// Reads the card anew. A neighbour that cannot be reached stays as it was known; one whose card is not believed any
    /// more is not asked any more.
    pub(super) async fn look(&self) -> Result<Arc<Known>, RemoteError> {
        let looked = self.card().await.map(Arc::new);
        let mut known = self.known.lock();
        match &looked {
            Ok(found) => *known = Ok(found.clone()),
            Err(error) if error.is_break() && known.is_ok() => {}
            Err(error) => *known = Err(error.to_string()),
        }
        looked
    }

    async fn card(&self) -> Result<Known, RemoteError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.card_at.clone();
        let answer = self.http.ask(request, SHORT).await?;
        let status = answer.status();
        if status.is_redirection() {
            return Err(RemoteError::Redirected(status.as_u16()));
        }
        if !status.is_success() {
            return Err(RemoteError::NoCard(status.as_u16()));
        }
        let server = answer.extensions().get::<Server>().map(Server::to_string);
        let body = whole(answer.into_body(), LONGEST_CARD, SHORT).await?;
        let card = Card::read(&body, &self.card_at, &self.hosts)?;
        let signed = if card.is_signed {
            "card signed by a key that is not known here"
        } else {
            "card not signed"
        };
        let proof = format!("{}; {signed}", server.unwrap_or_default());
        Ok(Known { card, proof })
    }

    /// Sends a message. The answer comes as a stream if the card promises one.
    pub(super) async fn send(&self, known: &Known, message: Value) -> Result<Stream, RemoteError> {
        let configuration = json!({"returnImmediately": true});
        if known.card.streams {
            let params = json!({"message": message});
            let answer = self.call(known, Operation::Stream, "", params, LONG);
            return Stream::open(answer.await?).await;
        }
        let params = json!({"message": message, "configuration": configuration});
        let answer = self.call(known, Operation::Send, "", params, LONG).await?;
        Ok(Stream::of(Told::read(answer.result().await?)?))
    }

    /// The task as it is now.
    pub(super) async fn get(&self, known: &Known, task: &str) -> Result<Told, RemoteError> {
        let answer = self.call(known, Operation::Get, task, json!({"id": task}), SHORT);
        Ok(Told::task(answer.await?.result().await?)?)
    }

    /// Ends the task.
    pub(super) async fn cancel(&self, known: &Known, task: &str) -> Result<(), RemoteError> {
        let answer = self.call(known, Operation::Cancel, task, json!({"id": task}), SHORT);
        answer.await?.result().await.map(drop)
    }

    /// Follows the task again.
    pub(super) async fn subscribe(&self, known: &Known, task: &str) -> Result<Stream, RemoteError> {
        let answer = self.call(
            known,
            Operation::Subscribe,
            task,
            json!({"id": task}),
            SHORT,
        );
        Stream::open(answer.await?).await
    }

    async fn call(
        &self,
        known: &Known,
        operation: Operation,
        task: &str,
        mut params: Value,
        time: Duration,
    ) -> Result<Answer, RemoteError> {
        let interface = &known.card.interface;
        let (method, path, name) = operation.names();
        let (method, url, body, id) = match interface.binding {
            Binding::JsonRpc => {
                let id = new_conversation_id();
                if let Some(tenant) = &interface.tenant {
                    params["tenant"] = tenant.as_str().into();
                }
                let body = json!({"jsonrpc": "2.0", "id": id, "method": name, "params": params});
                (Method::POST, interface.url.clone(), Some(body), Some(id))
            }
            Binding::Rest => {
                let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let tenant = interface.tenant.iter();
                let tenant: String = tenant.map(|it| format!("/{}", escaped(it))).collect();
                let url = format!(
                    "{}{tenant}{}",
                    interface.url,
                    path.replace("{id}", &escaped(task))
                );
                let body = (method == Method::POST).then_some(params);
                (method, url, body, None)
            }
        };
        let accept = match operation.is_stream() {
            true => "text/event-stream",
            false => "application/json",
        };
        let body = body.map(|body| Bytes::from(body.to_string()));
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(|_| WebError::Address)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        if let Some((name, value)) = &self.key {
            headers.insert(name.clone(), value.clone());
        }
        let response = self.http.ask(request, time).await?;
        if response.status().is_redirection() {
            return Err(RemoteError::Redirected(response.status().as_u16()));
        }
        Ok(Answer { response, id, time })
    }
}

#[derive(Clone, Copy)]
enum Operation {
    Send,
    Stream,
    Get,
    Cancel,
    Subscribe,
}

impl Operation {
    /// The method and the path of REST, and the method of JSON-RPC.
    fn names(self) -> (Method, &'static str, &'static str) {
        match self {
            Self::Send => (Method::POST, "/message:send", "SendMessage"),
            Self::Stream => (Method::POST, "/message:stream", "SendStreamingMessage"),
            Self::Get => (Method::GET, "/tasks/{id}", "GetTask"),
            Self::Cancel => (Method::POST, "/tasks/{id}:cancel", "CancelTask"),
            Self::Subscribe => (Method::POST, "/tasks/{id}:subscribe", "SubscribeToTask"),
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }
}

/// The header with the key of a neighbour.
fn key(
    file: &std::path::Path,
    header: Option<&str>,
) -> Result<(HeaderName, HeaderValue), SetupError> {
    let failed = |problem: &dyn std::fmt::Display| FileError::new(file, problem);
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST_KEY {
        return Err(failed(&"it holds no key").into());
    }
    let (name, value) = match header {
        Some(name) => (name.parse().ok(), text.to_owned()),
        None => (Some(AUTHORIZATION), format!("Bearer {text}")),
    };
    let value = HeaderValue::try_from(value).ok();
    let (Some(name), Some(mut value)) = (name, value) else {
        return Err(failed(&"its key cannot be sent in a header").into());
    };
    value.set_sensitive(true);
    Ok((name, value))
}

/// An answer that is not read yet.
struct Answer {
    response: Response<Incoming>,
    /// The request, in JSON-RPC.
    id: Option<String>,
    time: Duration,
}

impl Answer {
    /// The only result.
    async fn result(self) -> Result<Value, RemoteError> {
        let status = self.response.status();
        let body = whole(self.response.into_body(), LONGEST_ANSWER, self.time).await?;
        match &self.id {
            Some(id) if status.is_success() => Ok(answer::response(answer::json(&body)?, id)??),
            None if status.is_success() => Ok(answer::json(&body)?),
            _ => Err(answer::rest_fault(status.as_u16(), &body).into()),
        }
    }
}

/// The words of an agent of others, one after the other.
pub(super) struct Stream {
    body: Option<Incoming>,
    events: Events,
    waiting: VecDeque<Event>,
    /// An answer that is no stream.
    only: Option<Told>,
    id: Option<String>,
}

impl Stream {
    fn of(told: Told) -> Self {
        Self {
            body: None,
            events: Events::new(0),
            waiting: VecDeque::new(),
            only: Some(told),
            id: None,
        }
    }

    async fn open(answer: Answer) -> Result<Self, RemoteError> {
        let kind = answer.response.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream || !answer.response.status().is_success() {
            return Ok(Self::of(Told::read(answer.result().await?)?));
        }
        Ok(Self {
            body: Some(answer.response.into_body()),
            events: Events::new(LONGEST_ANSWER),
            waiting: VecDeque::new(),
            only: None,
            id: answer.id,
        })
    }

    /// The next that is told; none at the end. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Option<Told>, RemoteError> {
        if let Some(told) = self.only.take() {
            return Ok(Some(told));
        }
        loop {
            if let Some(event) = self.waiting.pop_front() {
                let told = answer::json(event.data.as_bytes())?;
                let told = match &self.id {
                    Some(id) => answer::response(told, id)??,
                    None => told,
                };
                return Ok(Some(Told::read(told)?));
            }
            let Some(body) = &mut self.body else {
                return Ok(None);
            };
            let frame = tokio::time::timeout(QUIET, body.frame()).await;
            let Some(frame) = frame.map_err(|_| WebError::Slow(QUIET))? else {
                self.body = None;
                continue;
            };
            let frame = frame.map_err(|error| WebError::Broken(error.to_string()))?;
            if let Ok(bytes) = frame.into_data() {
                let waiting = &mut self.waiting;
                self.events.push(&bytes, |event| waiting.push_back(event))?;
                if self.waiting.len() > MOST_WAITING {
                    return Err(RemoteError::Flood);
                }
            }
        }
    }
}
