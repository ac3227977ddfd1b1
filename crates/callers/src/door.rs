//! The listening side: HTTP, with a limit on everything that a stranger can make grow.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, Uri, Version};
use parking_lot::Mutex;
use sealbus::Voice;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_control::mcp::{McpCallerStatus, McpStatus};
use sealbus_control::{LogShares, network_of};
use sealbus_manifest::callers::{CallersEntry, NoHostOrOrigin};
use sealbus_seal::{Identity, Timestamp, Trust, VerifiedIdentity};
use sealbus_web::{accept_each, answer_http1};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::body::{self, Unread};
use crate::caller::{Caller, Standing};
use crate::connection::{self, Answer, holding, text_answer, typed_answer};
use crate::counted::{Unwritten, right_ends};
use crate::entry::{Entries, Entry};
use crate::guest::{Guest, refused_from};
use crate::issuer::{Issuer, IssuerRefusal};
use crate::keys::{Keys, Shown, Unknown};
use crate::places::{Places, WrongPlace};
use crate::published::Published;
use crate::resource::{Resource, challenge};

/// The time that a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Bytes of all bodies of one caller that are read at a time.
const BODIES: usize = 16 << 20;
/// Requests of one caller that are served at a time, open streams among them.
const REQUESTS: usize = 256;

/// A gateway's service for the requests of its callers.
pub trait Service: Send + Sync + 'static {
    /// The state that the service keeps for one caller.
    type Seat: Send + Sync + 'static;
    /// Whether callers may come over HTTP/2, too, which gRPC needs.
    const SPEAKS_HTTP2: bool = false;

    /// The seat of a caller. Each caller has one.
    fn seat(&self, caller: Caller) -> Arc<Self::Seat>;

    /// The gateway's own agent is on the bus.
    fn began(&self, _voice: &Voice) {}

    /// Works beside the requests, for ever.
    fn attend(&self, _voice: &Voice) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// The gateway listens now, and callers reach it at URLs that begin with `base`. Returns the address to tell them.
    fn opened(&self, base: &str) -> String;

    /// How many tools or agents the gateway offers.
    fn offers(&self) -> usize;

    /// How many sessions a caller has open.
    fn sessions(&self, _seat: &Self::Seat) -> impl Future<Output = usize> + Send {
        std::future::ready(0)
    }

    /// The services about which the gateway wants [`news`](Self::news).
    fn wanted(&self) -> ServiceDescription;

    /// Takes the DF's news, in the form that [`follow`](crate::follow) gives.
    fn news(&self, news: Option<Vec<DfAgentDescription>>, platform: &str);

    /// The answer to a request without a key or on an unknown path, if the service has one for everybody. `base` is the
    /// beginning of URLs by which the caller reaches the gateway.
    fn public(&self, head: &Parts, base: &str) -> Option<Answer>;

    /// The door's refusal of a request for this address with a body of this type, in the form of the service's protocol.
    fn refusal(
        &self,
        _asked: &Uri,
        _media_type: Option<&HeaderValue>,
        answer: Answer,
    ) -> impl Future<Output = Answer> + Send {
        std::future::ready(answer)
    }

    /// Answers a caller's request.
    fn answer(
        &self,
        seat: &Arc<Self::Seat>,
        base: &str,
        request: Request<Bytes>,
    ) -> impl Future<Output = Answer> + Send;
}

/// The place of one caller: a seat at the service, and a share of the door.
struct Seated<T> {
    seat: Arc<T>,
    standing: Standing,
    name: String,
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    unwritten: Unwritten,
    /// Requests that found a place.
    served: AtomicU64,
}

/// The parts of the door besides its callers.
#[derive(Default)]
pub(crate) struct Entrance {
    pub(crate) tls: Option<TlsAcceptor>,
    /// By what certificates of this platform's agents are checked, if callers come with them.
    pub(crate) trust: Option<Arc<Trust>>,
    /// The issuer of tokens, and the news of it for callers without one.
    pub(crate) oauth: Option<(Arc<Issuer>, Resource)>,
}

/// Lets callers in to a service.
pub(crate) struct Door<S: Service> {
    service: Arc<S>,
    places: Places,
    entries: Entries,
    entrance: Entrance,
    published: Published,
    callers: Keys<Seated<S::Seat>>,
    /// Refused requests, by the word for the reason.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    /// The shares of the log for those that are sent away, by their addresses.
    log: Mutex<LogShares>,
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

impl<S: Service> Door<S> {
    /// Serves at this address. An error names what the entry says of places and cannot be read.
    pub(crate) fn new(
        entry: &CallersEntry,
        address: SocketAddr,
        entrance: Entrance,
        service: Arc<S>,
        callers: Keys<Caller>,
        voice: Voice,
    ) -> Result<Arc<Self>, NoHostOrOrigin> {
        let places = Places::new(entry, address)?;
        let place = |caller: Caller| Seated {
            name: caller.voice.name().to_owned(),
            standing: caller.standing.clone(),
            seat: service.seat(caller),
            connections: Entries::of_caller(),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            bodies: Arc::new(Semaphore::new(BODIES)),
            unwritten: Unwritten::default(),
            served: AtomicU64::new(0),
        };
        Ok(Arc::new(Self {
            callers: callers.map(place),
            places,
            entries: Entries::default(),
            entrance,
            published: Published::new(voice),
            service,
            refused: Mutex::default(),
            log: Mutex::default(),
        }))
    }

    /// The beginning of URLs by which callers reach it.
    pub(crate) fn base(&self) -> &str {
        self.places.own()
    }

    /// Serves for ever. Connections end with the returned future.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        accept_each(&listener, |stream, from, _| {
            let (door, entry) = (self.clone(), self.entries.came(from.ip()));
            // Answers are written whole. A connection that takes no option has already broken.
            let _ = stream.set_nodelay(true);
            Some(async move {
                tokio::select! {
                    () = entry.must_go() => {}
                    () = door.serve(stream, entry.clone()) => {}
                }
            })
        })
        .await;
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, entry: Arc<Entry>) {
        let Some(tls) = &self.entrance.tls else {
            let is_http2 = match S::SPEAKS_HTTP2 {
                true => connection::is_http2(&stream).await,
                false => Some(false),
            };
            let Some(is_http2) = is_http2 else { return };
            return self.speak(stream, is_http2, Guest::plain(entry)).await;
        };
        match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let connection = stream.get_ref().1;
                let trust = self.entrance.trust.as_deref();
                let guest = Guest::of(connection, trust, entry);
                let is_http2 = connection.alpn_protocol() == Some(connection::HTTP2);
                self.speak(stream, is_http2, guest).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a caller's TLS handshake failed"),
            Err(_) => tracing::debug!("a caller's TLS handshake took too long"),
        }
    }

    async fn speak<C>(self: Arc<Self>, stream: C, is_http2: bool, guest: Guest)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answer = move |request| {
            let (door, guest) = (self.clone(), guest.clone());
            // Boxed, so that its memory is free while a stream is open.
            Box::pin(async move { door.answer(request, &guest).await })
        };
        let served = if is_http2 {
            Box::pin(connection::http2(stream, answer)).await
        } else {
            Box::pin(answer_http1(stream, connection::HEAD, answer)).await
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a caller's connection broke");
        }
    }

    /// The gateway's state for operators.
    pub(crate) async fn status(&self, address: String) -> McpStatus {
        let mut callers = Vec::new();
        for (place, anonymous) in self.callers.all() {
            callers.push(McpCallerStatus {
                agent: place.name.clone(),
                anonymous,
                requests: place.served.load(Ordering::Relaxed),
                open: (REQUESTS - place.requests.available_permits()) as u64,
                sessions: self.service.sessions(&place.seat).await as u64,
            });
        }
        callers.sort_by(|one, other| one.agent.cmp(&other.agent));
        let refused = self.refused.lock();
        McpStatus {
            address,
            tools: self.service.offers() as u64,
            callers,
            refused: refused
                .iter()
                .map(|(word, count)| ((*word).to_owned(), *count))
                .collect(),
        }
    }

    async fn answer(&self, request: Request<Incoming>, guest: &Guest) -> Answer {
        let (head, mut body) = request.into_parts();
        let is_http2 = head.version == Version::HTTP_2;
        let waits = head.headers.contains_key(EXPECT);
        let asked = head.uri.clone();
        let media_type = head.headers.get(CONTENT_TYPE).cloned();
        let mut answer = self.served(head, &mut body, guest).await;
        if let Some(word) = word(answer.status()) {
            *self.refused.lock().entry(word).or_default() += 1;
            // Over HTTP/1, the next request comes behind the body.
            if !is_http2 && (waits || !body::pass_over(body).await) {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
        }
        let media_type = media_type.as_ref();
        self.service.refusal(&asked, media_type, answer).await
    }

    /// The caller, and when its right ends.
    async fn caller(
        &self,
        head: &Parts,
        guest: &Guest,
    ) -> Result<(&Seated<S::Seat>, Option<u64>), Answer> {
        // A key or a token says more than the connection on which it comes.
        if let Some(agent) = &guest.agent
            && !head.headers.contains_key(AUTHORIZATION)
        {
            let place = self.certified(agent, guest);
            return place.map_err(|unknown| self.unauthorized(unknown));
        }
        let no_key = |unknown| {
            if let Unknown::WrongKey = unknown {
                self.sent_away(guest, "a caller with a wrong key was sent away");
            }
            self.unauthorized(unknown)
        };
        let keys = head.headers.get_all(AUTHORIZATION);
        let shown = self.callers.caller(keys.iter().map(HeaderValue::as_bytes));
        let token = match shown.map_err(no_key)? {
            Shown::Caller(place) => return Ok((place, None)),
            Shown::Token(token) => token,
        };
        let oauth = self.entrance.oauth.as_ref();
        let (issuer, _) = oauth.ok_or_else(|| no_key(Unknown::WrongKey))?;
        let grant = issuer.check(token, guest.certificate.as_deref()).await;
        let grant = grant.map_err(|refusal| match refusal {
            IssuerRefusal::Token(error) => {
                self.sent_away(guest, &format!("a caller's token was refused: {error}"));
                self.unauthorized(Unknown::WrongKey)
            }
            IssuerRefusal::NoKeys(_) => {
                let why = "tokens cannot be checked now: their issuer does not answer";
                refused(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        })?;
        let place = self.callers.granted(&grant).map_err(|unknown| {
            let subject = crate::shown(&grant.subject, 100);
            let why = format!("the token of {subject} speaks for no caller of this gateway");
            self.sent_away(guest, &why);
            self.unauthorized(unknown)
        })?;
        Ok((place, Some(grant.expires)))
    }

    /// The caller with a certificate of this platform, if the certificate is still good, and when that ends.
    fn certified(
        &self,
        agent: &VerifiedIdentity,
        guest: &Guest,
    ) -> Result<(&Seated<S::Seat>, Option<u64>), Unknown> {
        let trust = self.entrance.trust.as_ref().ok_or(Unknown::WrongKey)?;
        // The connection may be older than a revocation.
        if let Err(error) = trust.check(agent, Timestamp::from(SystemTime::now())) {
            let why = format!("a caller's certificate was refused: {error}");
            self.sent_away(guest, &why);
            return Err(Unknown::WrongKey);
        }
        let Identity::Agent { name, .. } = agent.identity() else {
            return Err(Unknown::WrongKey);
        };
        let place = self.callers.certified(name.as_str()).inspect_err(|_| {
            let agent = agent.identity();
            let why = format!("the certificate of {agent} is that of no caller of this gateway");
            self.sent_away(guest, &why);
        })?;
        Ok((place, Some(refused_from(agent))))
    }

    /// Logs why somebody is sent away, unless that address has caused too many such lines lately.
    fn sent_away(&self, guest: &Guest, why: &str) {
        let from = guest.entry.from;
        if let Some(left_out) = self.log.lock().admit(network_of(from).to_string()) {
            tracing::warn!(%from, left_out, "{why}");
        }
    }

    /// RFC 6750: the answer names the scheme, and no reason why a key is not accepted.
    fn unauthorized(&self, unknown: Unknown) -> Answer {
        let (status, why, word) = match unknown {
            Unknown::NoKey => (
                StatusCode::UNAUTHORIZED,
                "a key is needed: Authorization: Bearer KEY",
                None,
            ),
            Unknown::WrongKey => (
                StatusCode::UNAUTHORIZED,
                "the key opens nothing",
                Some("invalid_token"),
            ),
            Unknown::Scopes => (
                StatusCode::FORBIDDEN,
                "the token lacks scopes",
                Some("insufficient_scope"),
            ),
        };
        let resource = self.entrance.oauth.as_ref().map(|oauth| &oauth.1);
        let mut answer = refused(status, why);
        let word = challenge(resource, word);
        answer.headers_mut().insert(WWW_AUTHENTICATE, word);
        answer
    }

    /// The answer that everybody gets.
    async fn public(&self, head: &Parts, base: &str) -> Option<Answer> {
        if let Some((_, resource)) = &self.entrance.oauth
            && head.method == Method::GET
            && resource.is_at(head.uri.path())
        {
            let document = resource.document.clone();
            return Some(typed_answer(StatusCode::OK, "application/json", document));
        }
        match self.published.answer(head).await {
            Some(answer) => Some(answer),
            None => self.service.public(head, base),
        }
    }

    async fn served(&self, mut head: Parts, body: &mut Incoming, guest: &Guest) -> Answer {
        // HTTP/2 has a name of its own for it.
        if let Some(authority) = head.uri.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            head.headers.insert(HOST, host);
        }
        let base = match self.places.check(&head.headers) {
            Ok(base) => base,
            Err(WrongPlace::NoHost) => {
                return refused(StatusCode::BAD_REQUEST, "one Host is needed");
            }
            Err(WrongPlace::Host) => {
                return refused(StatusCode::FORBIDDEN, "this Host is not listed in `hosts`");
            }
            Err(WrongPlace::Origin) => {
                return refused(
                    StatusCode::FORBIDDEN,
                    "this Origin is not listed in `origins`",
                );
            }
        };
        let unread = "too many answers that were not read: read them first";
        // No further card is made and signed for a stranger that reads none.
        if !head.headers.contains_key(AUTHORIZATION) && !guest.entry.has_public_place() {
            return refused(StatusCode::TOO_MANY_REQUESTS, unread);
        }
        if let Some(answer) = self.public(&head, &base).await {
            return match guest.entry.public_place() {
                Some(place) => holding(answer, place),
                None => refused(StatusCode::TOO_MANY_REQUESTS, unread),
            };
        }
        let (place, expires) = match self.caller(&head, guest).await {
            Ok(caller) => caller,
            Err(answer) => return answer,
        };
        if place.standing.is_revoked() {
            self.sent_away(guest, "a caller that was revoked was sent away");
            return self.unauthorized(Unknown::WrongKey);
        }
        let Ok(permit) = place.requests.clone().try_acquire_owned() else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "too many requests at a time");
        };
        if !guest.entry.let_in(&place.connections) {
            return refused(StatusCode::TOO_MANY_REQUESTS, "too many connections");
        }
        // After the work, it would be too late: the caller would ask again for what is done.
        if !place.unwritten.has_room() {
            return refused(StatusCode::TOO_MANY_REQUESTS, unread);
        }
        place.served.fetch_add(1, Ordering::Relaxed);
        let (body, room) = match body::read(body, &place.bodies).await {
            Ok(body) => body,
            Err(Unread(status, why)) => return refused(status, why),
        };
        let request = Request::from_parts(head, body);
        let answer = self.service.answer(&place.seat, &base, request).await;
        drop(room);
        tracing::debug!(caller = place.name, status = %answer.status(), "answered");
        let (head, body) = answer.into_parts();
        // A caller that does not read its answers leaves them here.
        let end = right_ends(expires, place.standing.clone());
        match place.unwritten.count(body, end, permit) {
            Some(body) => Answer::from_parts(head, body.boxed()),
            None => refused(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request was carried out, and its answer is lost: too many answers were not read",
            ),
        }
    }
}

fn refused(status: StatusCode, why: &'static str) -> Answer {
    text_answer(status, Bytes::from_static(why.as_bytes()))
}
