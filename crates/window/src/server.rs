//! The listening side: HTTP, with a limit on everything that a stranger can make grow.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use sealbus_bus::network_of;
use sealbus_control::traffic::Watch;
use sealbus_control::{Fault, FaultCode};
use sealbus_mesh::{Stranger, Strangers};
use sealbus_seal::KeyError;
use sealbus_seal::token::Secret;
use sealbus_web::{HeadLimits, accept_each, answer_http1};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::act::Confirmed;
use crate::door::Door;
use crate::feed::{Lines, follow, replay};
use crate::page::{FILES, POLICY};
use crate::place::WindowAddress;
use crate::question::Question;
use crate::rights::Rights;
use crate::seen::Seen;
use crate::session::Sessions;

/// Most open connections, and most streams among them.
const CONNECTIONS: usize = 128;
const STREAMS: usize = 8;
/// Most open connections without a session. A further one ends the oldest connection of the address that has the most.
const STRANGERS: usize = 64;
/// Most questions to the Master at a time.
const QUESTIONS: usize = 4;
/// The limits of a request's head.
const HEAD: HeadLimits = HeadLimits {
    time: Duration::from_secs(30),
    length: 16 << 10,
    fields: 64,
};
/// How long a handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most bytes of a request's body, and the time that the body may take.
const BODY: usize = 16 << 10;
const BODY_TIME: Duration = Duration::from_secs(10);
/// Most lines of a stream that wait to be written.
const WAITING: usize = 4;
/// The field with the key of a session. A page of another origin cannot set it, and a browser never adds it by itself.
const SESSION: HeaderName = HeaderName::from_static("sealbus-session");

type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

/// The source of a window's content.
pub enum Source {
    /// The platform whose Master runs on this state directory.
    Platform {
        /// The directory.
        directory: PathBuf,
        /// The page's rights.
        rights: Rights,
    },
    /// A recording.
    Recording(Arc<[Seen]>),
}

/// A window on one platform.
pub struct Window {
    source: Source,
    door: Door,
    place: WindowAddress,
    port: u16,
    sessions: Mutex<Sessions>,
    streams: Arc<Semaphore>,
    questions: Semaphore,
    entered: Notify,
}

/// The body of `POST /session`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enter {
    once: Secret,
}

/// The body of `POST /stream`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamRequest {
    /// The messages that the page wants to see; without it only counters.
    watch: Option<Watch>,
}

/// The reason why a request is not served.
struct NotServed(StatusCode, String);

fn refused(status: StatusCode, why: impl Into<String>) -> NotServed {
    NotServed(status, why.into())
}

impl Window {
    /// A window on this port.
    pub fn new(source: Source, place: WindowAddress, port: u16) -> Arc<Self> {
        Arc::new(Self {
            source,
            door: Door::new(place.scheme(), place.hosts(port)),
            place,
            port,
            sessions: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            questions: Semaphore::new(QUESTIONS),
            entered: Notify::new(),
        })
    }

    /// A link that opens the window once, within a minute. The secret is in the fragment, which browsers never send.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn link(&self) -> Result<String, KeyError> {
        let once = self.sessions.lock().link(Instant::now())?;
        let hosts = self.place.hosts(self.port);
        let host = hosts.first().map_or("localhost", String::as_str);
        Ok(format!(
            "{}://{host}/#once={}",
            self.place.scheme(),
            once.text()
        ))
    }

    /// Waits until a link has opened a page.
    pub async fn entered(&self) {
        self.entered.notified().await;
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let strangers = Strangers::new(STRANGERS);
        accept_each(&listener, |stream, from, open| {
            // Answers are written whole. If the option cannot be set, the connection is already broken.
            let _ = stream.set_nodelay(true);
            let stranger = strangers.came(network_of(from.ip()));
            (open < CONNECTIONS).then(|| self.clone().connection(stream, stranger))
        })
        .await;
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, stranger: Stranger<IpAddr>) {
        tokio::select! {
            () = self.greet(stream, &stranger) => {}
            () = stranger.must_go() => tracing::debug!("a connection without a session made room for another"),
        }
    }

    async fn greet(self: &Arc<Self>, stream: TcpStream, stranger: &Stranger<IpAddr>) {
        let Some(tls) = self.place.tls() else {
            return self.speak(stream, stranger).await;
        };
        match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(stream, stranger).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }

    async fn speak(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        stranger: &Stranger<IpAddr>,
    ) {
        let answer = |request| self.clone().answer(request, stranger);
        let served = answer_http1(stream, HEAD, answer).await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection broke");
        }
    }

    async fn answer<B: Body + Send>(
        self: Arc<Self>,
        request: Request<B>,
        stranger: &Stranger<IpAddr>,
    ) -> HttpAnswer
    where
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut answer = match self.served(request, stranger).await {
            Ok(answer) => answer,
            Err(NotServed(status, why)) => {
                tracing::debug!(%status, why, "a request was refused");
                with(
                    status,
                    "application/json",
                    json!({ "error": why }).to_string(),
                )
            }
        };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        answer
    }

    async fn served<B: Body + Send>(
        self: Arc<Self>,
        request: Request<B>,
        stranger: &Stranger<IpAddr>,
    ) -> Result<HttpAnswer, NotServed>
    where
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let admitted = self.door.admit(&head);
        admitted.map_err(|why| refused(StatusCode::FORBIDDEN, why))?;
        let path = head.uri.path();
        // A request that a browser makes by itself, for a link or an image, changes nothing and shows nothing of the
        // platform.
        if head.method == Method::GET {
            let file = FILES.iter().find(|file| file.path == path);
            let file =
                file.ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is no such page"))?;
            return Ok(with(StatusCode::OK, file.kind, file.text));
        }
        if head.method != Method::POST {
            let why = "only GET and POST are served";
            return Err(refused(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if path == "/session" {
            let Enter { once } = read(body).await?;
            return self.enter(&once);
        }
        let key = head.headers.get(SESSION);
        let key = key.and_then(|key| key.to_str().ok()?.parse::<Secret>().ok());
        let end = key.and_then(|key| self.sessions.lock().end(&key, Instant::now()));
        let Some(end) = end else {
            let why =
                "the session has ended: press Enter where `sealbus window` runs for a new link";
            return Err(refused(StatusCode::FORBIDDEN, why));
        };
        stranger.let_in();
        match path {
            "/stream" => self.stream(read(body).await?, end),
            "/ask" => self.ask(read(body).await?).await,
            "/act" => self.act(read(body).await?).await,
            _ => Err(refused(StatusCode::NOT_FOUND, "there is no such question")),
        }
    }

    fn enter(&self, once: &Secret) -> Result<HttpAnswer, NotServed> {
        let entered = self.sessions.lock().enter(once, Instant::now());
        let entered = entered
            .map_err(|error| refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let Some(key) = entered else {
            let why = "the link was used, or is older than a minute: press Enter where `sealbus window` runs for another";
            return Err(refused(StatusCode::FORBIDDEN, why));
        };
        self.entered.notify_one();
        Ok(json_of(&json!({ "session": key.text() })))
    }

    fn rights(&self) -> Rights {
        match &self.source {
            Source::Platform { rights, .. } => *rights,
            Source::Recording(_) => Rights::default(),
        }
    }

    /// The page's content, until its session ends.
    fn stream(self: Arc<Self>, look: StreamRequest, end: Instant) -> Result<HttpAnswer, NotServed> {
        if !look.watch.as_ref().is_none_or(Watch::is_bounded) {
            let why = "at most 16 agents and performatives of 256 bytes each are watched";
            return Err(refused(StatusCode::BAD_REQUEST, why));
        }
        let wants_bodies = look.watch.as_ref().is_some_and(|watch| watch.bodies);
        if wants_bodies && !self.rights().bodies {
            let why = "this window shows no bodies of messages: `sealbus window --bodies` starts one that does";
            return Err(refused(StatusCode::FORBIDDEN, why));
        }
        let Ok(place) = self.streams.clone().try_acquire_owned() else {
            let why = "too many pages are open: close one";
            return Err(refused(StatusCode::TOO_MANY_REQUESTS, why));
        };
        let (sender, mut receiver) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let _place = place;
            let lines = Lines::new(sender);
            let telling = async {
                match &self.source {
                    Source::Platform { directory, rights } => {
                        follow(directory, *rights, look.watch.as_ref(), &lines).await;
                    }
                    Source::Recording(recording) => {
                        replay(recording.clone(), &lines).await;
                        lines.unread().await;
                    }
                }
            };
            // The page asks again, and learns why the stream ended.
            let _ = tokio::time::timeout_at(end.into(), telling).await;
        });
        let lines = stream::poll_fn(move |waiting| {
            let line = receiver.poll_recv(waiting);
            line.map(|line| line.map(|line| Ok(Frame::data(line))))
        });
        let mut answer = Response::new(BodyExt::boxed(StreamBody::new(lines)));
        let kind = HeaderValue::from_static("application/jsonl");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(answer)
    }

    async fn ask(&self, question: Question) -> Result<HttpAnswer, NotServed> {
        let Source::Platform { directory, .. } = &self.source else {
            let why = "a recording knows messages and refusals only";
            return Err(refused(StatusCode::NOT_FOUND, why));
        };
        let Ok(_place) = self.questions.acquire().await else {
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "the window ends"));
        };
        match question.answer(directory).await {
            Ok(answer) => Ok(json_of(&answer)),
            Err(fault) => Err(told(fault)),
        }
    }

    async fn act(&self, confirmed: Confirmed) -> Result<HttpAnswer, NotServed> {
        let Source::Platform {
            directory,
            rights: Rights { operates: true, .. },
        } = &self.source
        else {
            let why = "this window only reads: `sealbus window --operate` starts one that may kill, move and revoke";
            return Err(refused(StatusCode::FORBIDDEN, why));
        };
        let Ok(_place) = self.questions.acquire().await else {
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "the window ends"));
        };
        let done = confirmed.carry_out(directory).await.map_err(told)?;
        Ok(json_of(&done))
    }
}

/// The answer for a fault: its message and its advice.
fn told(fault: Fault) -> NotServed {
    let status = match fault.code {
        FaultCode::BadRequest => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    let advice = fault.advice.map(|advice| format!("; {advice}"));
    refused(
        status,
        format!("{}{}", fault.message, advice.unwrap_or_default()),
    )
}

/// Reads a body, which is JSON.
async fn read<B: Body + Send, T: DeserializeOwned>(body: B) -> Result<T, NotServed>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = tokio::time::timeout(BODY_TIME, Limited::new(body, BODY).collect()).await;
    let whole =
        whole.map_err(|_| refused(StatusCode::REQUEST_TIMEOUT, "the body took too long"))?;
    let whole = whole.map_err(|error| refused(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    serde_json::from_slice(&whole.to_bytes())
        .map_err(|error| refused(StatusCode::BAD_REQUEST, error.to_string()))
}

fn with(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(text.into()).boxed());
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn json_of(value: &impl Serialize) -> HttpAnswer {
    match serde_json::to_vec(value) {
        Ok(text) => with(StatusCode::OK, "application/json", text),
        Err(error) => with(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            error.to_string(),
        ),
    }
}

#[cfg(test)]
mod tests;
