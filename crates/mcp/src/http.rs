//! The listening side: streamable HTTP, with limits on all that a stranger can make grow.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sealbus_control::mcp::{McpCallerStatus, McpStatus};
use sealbus_manifest::mcp::McpEntry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::keys::{Keys, Unknown};
use crate::server::{Desk, Server};

/// The path of the only endpoint.
pub(crate) const PATH: &str = "/mcp";

/// Open connections.
const CONNECTIONS: usize = 1_024;
/// The head of a request: its bytes, its fields, and the time that it may take.
const HEAD: usize = 32 << 10;
const FIELDS: usize = 64;
const HEAD_TIME: Duration = Duration::from_secs(60);
/// The body of a request, the time that it may take, and all bodies of one caller that are read at a time.
const BODY: usize = 4 << 20;
const BODY_TIME: Duration = Duration::from_secs(30);
const BODIES: usize = 16 << 20;
/// Requests of one caller that are served at a time, open streams among them.
const REQUESTS: usize = 256;
/// Sessions of one caller, in the protocol before 2026-07-28. A session that is idle for five minutes ends.
const SESSIONS: usize = 64;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What one caller is served by. The sessions of callers are apart: another caller's id is no id.
struct Door {
    caller: Arc<Caller>,
    service: StreamableHttpService<Server, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    requests: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// Requests that found a place.
    served: AtomicU64,
}

/// Serves all callers.
pub(crate) struct Http {
    address: SocketAddr,
    desk: Arc<Desk>,
    doors: Keys<Door>,
    /// Refused requests, by the word for the reason.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// The word for the reason of a refusal; none for an answer.
fn word(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::UNAUTHORIZED => "unknown-key",
        StatusCode::FORBIDDEN => "not-permitted",
        StatusCode::TOO_MANY_REQUESTS => "too-many",
        StatusCode::PAYLOAD_TOO_LARGE => "too-large",
        StatusCode::REQUEST_TIMEOUT => "too-slow",
        other if other.is_client_error() => "malformed",
        _ => return None,
    })
}

impl Http {
    /// Serves at this address.
    pub(crate) fn new(
        entry: &McpEntry,
        address: SocketAddr,
        desk: &Arc<Desk>,
        callers: Keys<Arc<Caller>>,
    ) -> Arc<Self> {
        let loopback = ["localhost", "127.0.0.1", "[::1]"];
        let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let hosts: Vec<String> = hosts.into_iter().chain(entry.hosts.clone()).collect();
        // The server itself gives out no page, so its own origin is no page's.
        let port = address.port();
        let own = loopback.map(|host| format!("http://{host}:{port}"));
        let origins: Vec<String> = own.into_iter().chain(entry.origins.clone()).collect();
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(BODY);
        let door = |caller: Arc<Caller>| {
            let sessions = Arc::new(LocalSessionManager::default());
            let (desk, agent) = (desk.clone(), caller.clone());
            let serve = move || Ok(Server::new(desk.clone(), agent.clone()));
            Door {
                caller,
                service: StreamableHttpService::new(serve, sessions.clone(), config.clone()),
                sessions,
                requests: Arc::new(Semaphore::new(REQUESTS)),
                bodies: Arc::new(Semaphore::new(BODIES)),
                served: AtomicU64::new(0),
            }
        };
        let known = callers.callers.into_iter();
        Arc::new(Self {
            address,
            desk: desk.clone(),
            refused: Mutex::default(),
            doors: Keys {
                callers: known.map(|(key, caller)| (key, door(caller))).collect(),
                anonymous: callers.anonymous.map(door),
            },
        })
    }

    /// Serves for ever; connections end with it.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        connections.spawn(self.clone().serve(stream, place));
                    }
                    Err(_) => drop(stream),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection of a caller could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, _place: OwnedSemaphorePermit) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let answer = service_fn(|request| {
            let http = self.clone();
            async move { Ok::<_, Infallible>(http.answer(request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_headers(FIELDS)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), answer)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a caller's connection broke");
        }
    }

    /// The gateway's state for operators.
    pub(crate) async fn status(&self) -> McpStatus {
        let known = self.doors.callers.values().map(|door| (door, false));
        let anonymous = self.doors.anonymous.iter().map(|door| (door, true));
        let mut callers = Vec::new();
        for (door, anonymous) in known.chain(anonymous) {
            let name = door.caller.voice.name();
            callers.push(McpCallerStatus {
                agent: name.split('@').next().unwrap_or(name).to_owned(),
                anonymous,
                requests: door.served.load(Ordering::Relaxed),
                open: (REQUESTS - door.requests.available_permits()) as u64,
                sessions: door.sessions.sessions.read().await.len() as u64,
            });
        }
        callers.sort_by(|one, other| one.agent.cmp(&other.agent));
        let refused = self.refused.lock();
        McpStatus {
            address: format!("http://{}{PATH}", self.address),
            tools: self.desk.catalogue.read().len() as u64,
            callers,
            refused: refused
                .iter()
                .map(|(word, count)| ((*word).to_owned(), *count))
                .collect(),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answer = self.served(request).await;
        if let Some(word) = word(answer.status()) {
            *self.refused.lock().entry(word).or_default() += 1;
        }
        answer
    }

    async fn served(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != PATH {
            return refused(StatusCode::NOT_FOUND, "the endpoint is /mcp");
        }
        let keys = request.headers().get_all(AUTHORIZATION);
        let door = match self.doors.caller(keys.iter().map(HeaderValue::as_bytes)) {
            Ok(door) => door,
            Err(unknown) => return unauthorized(unknown),
        };
        let Ok(place) = door.requests.clone().try_acquire_owned() else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "too many requests at a time");
        };
        door.served.fetch_add(1, Ordering::Relaxed);
        let opens = !request.headers().contains_key("mcp-session-id");
        if opens && door.sessions.sessions.read().await.len() >= SESSIONS {
            // Requests of the present protocol need no session, but nothing before the body tells them apart for sure.
            let is_stateless = request
                .headers()
                .get("mcp-protocol-version")
                .is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
            if !is_stateless {
                return refused(StatusCode::TOO_MANY_REQUESTS, "too many sessions: end one");
            }
        }
        let (head, body) = request.into_parts();
        let (body, room) = match tokio::time::timeout(BODY_TIME, read(body, &door.bodies)).await {
            Ok(Ok(body)) => body,
            Ok(Err(Unread(status, why))) => return refused(status, why),
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        };
        let request = Request::from_parts(head, Full::new(body));
        let answer = door.service.handle(request).await;
        drop(room);
        tracing::debug!(caller = door.caller.voice.name(), status = %answer.status(), "answered");
        answer.map(|body| {
            Counted {
                body,
                _place: place,
            }
            .boxed()
        })
    }
}

/// Why a body was not read to its end.
struct Unread(StatusCode, &'static str);

/// Reads a whole body. It takes room as it comes, not as it is announced, and holds it as long as the permit lives.
async fn read(
    mut body: Incoming,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Unread> {
    const TOO_LONG: Unread = Unread(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
    if body.size_hint().lower() > BODY as u64 {
        return Err(TOO_LONG);
    }
    let mut whole = BytesMut::new();
    let mut taken: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unread(StatusCode::BAD_REQUEST, "the body was cut off"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > BODY {
            return Err(TOO_LONG);
        }
        let length = u32::try_from(data.len()).map_err(|_| TOO_LONG)?;
        let Ok(piece) = room.clone().try_acquire_many_owned(length) else {
            let why = "too many bodies at a time: try again";
            return Err(Unread(StatusCode::TOO_MANY_REQUESTS, why));
        };
        match &mut taken {
            Some(taken) => taken.merge(piece),
            None => taken = Some(piece),
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.freeze(), taken))
}

fn refused(status: StatusCode, why: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}

/// RFC 6750: the scheme, and nothing about why a key opens nothing.
fn unauthorized(unknown: Unknown) -> Answer {
    let (why, word) = match unknown {
        Unknown::NoKey => ("a key is needed: Authorization: Bearer KEY", "Bearer"),
        Unknown::WrongKey => ("the key opens nothing", "Bearer error=\"invalid_token\""),
    };
    if unknown == Unknown::WrongKey {
        tracing::warn!("a caller with a wrong key was sent away");
    }
    let mut answer = refused(StatusCode::UNAUTHORIZED, why);
    let word = HeaderValue::from_static(word);
    answer.headers_mut().insert(WWW_AUTHENTICATE, word);
    answer
}

/// An answer that holds its caller's place until it is written, or the caller has gone.
struct Counted {
    body: BoxBody<Bytes, Infallible>,
    _place: OwnedSemaphorePermit,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        waiting: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(waiting)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
