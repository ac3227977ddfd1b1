//! The listening side: HTTP in the dialects of other platforms, with hostile clients in mind.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::ServerConfig;
use sealbus_seal::Fingerprint;
use sealbus_web::accept_each;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::bounded_writes::BoundedWrites;
use crate::config::{GatewayLimits, milliseconds};
use crate::counters::Turned;
use crate::farewell::farewell;
use crate::places::{BodyRoom, ConnectionPlace, NoRoom, Places, TOO_MANY};
use crate::policy::MessageOrigin;

/// The number of connections beyond the limits that get an answer at a time. Further connections are just closed. A TLS
/// handshake takes the place of several, because it costs a signature.
const TOLD: u32 = 64;
const TOLD_BY_TLS: u32 = 8;

/// The part of the gateway that the server hands requests to.
pub(crate) trait Service: Send + Sync + 'static {
    /// The text that a GET is answered with.
    fn description(&self) -> String;

    /// Takes a whole request. Returns the status, and the text for it.
    fn receive(
        self: &Arc<Self>,
        content_type: &str,
        body: Bytes,
        origin: &MessageOrigin,
    ) -> impl Future<Output = Result<(), RefusedRequest>> + Send;

    /// Notes a refusal that came before there was a message.
    fn turned(&self, what: Turned, from: IpAddr, explanation: &str);
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    pub(crate) status: StatusCode,
    pub(crate) explanation: String,
}

pub(crate) struct Server<S> {
    service: Arc<S>,
    limits: GatewayLimits,
    tls: Option<TlsAcceptor>,
    places: Arc<Places>,
    /// Places for connections beyond the limits that get an answer.
    told: Arc<Semaphore>,
}

/// Answers a connection that is not served, or has sent no whole request, and ends the connection.
async fn dismiss(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    status: StatusCode,
    explanation: &str,
) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{explanation}\r\n",
        explanation.len() + 2
    );
    farewell(&mut stream, answer.as_bytes()).await;
}

/// Why a body was not read to its end.
enum Unread {
    TooLarge,
    NoRoom(NoRoom),
    Broken(hyper::Error),
    TooSlow,
}

/// Reads a body of at most this many bytes into the available room.
async fn read(mut body: Incoming, most: usize, room: &mut BodyRoom<'_>) -> Result<Bytes, Unread> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers contain nothing that is needed.
        let Ok(data) = frame.map_err(Unread::Broken)?.into_data() else {
            continue;
        };
        if whole.len() + data.len() > most {
            return Err(Unread::TooLarge);
        }
        room.take(data.len()).map_err(Unread::NoRoom)?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

impl<S: Service> Server<S> {
    pub(crate) fn new(
        service: Arc<S>,
        limits: GatewayLimits,
        places: Arc<Places>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            places,
            limits,
            tls: tls.map(TlsAcceptor::from),
            told: Arc::new(Semaphore::new(TOLD as usize)),
        })
    }

    /// Serves for ever. Connections end with the returned future.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        accept_each(&listener, |stream, mut from, _| {
            // An IPv4 address counts as one, whatever form the socket gives it.
            from.set_ip(from.ip().to_canonical());
            let entry = match self.places.enter(from.ip()) {
                Some(place) => Ok(place),
                None => Err(self.turn_away(from.ip())?),
            };
            let server = self.clone();
            Some(async move {
                match entry {
                    Ok(place) => server.serve(stream, from, place).await,
                    Err(told) => server.send_away(stream, told).await,
                }
            })
        })
        .await;
    }

    /// Notes a connection beyond the limits. Returns the right to answer it, unless too many get an answer already.
    fn turn_away(&self, from: IpAddr) -> Option<OwnedSemaphorePermit> {
        self.service.turned(Turned::TooMany, from, TOO_MANY);
        let places = self.tls.as_ref().map_or(1, |_| TOLD / TOLD_BY_TLS);
        self.told.clone().try_acquire_many_owned(places).ok()
    }

    /// Answers a connection beyond the limits.
    async fn send_away(self: Arc<Self>, stream: TcpStream, told: OwnedSemaphorePermit) {
        let _told = told;
        let status = StatusCode::SERVICE_UNAVAILABLE;
        match &self.tls {
            None => dismiss(stream, status, TOO_MANY).await,
            // The client would not understand the answer before the handshake.
            Some(acceptor) => {
                let time = milliseconds(self.limits.head_time);
                let greeted = tokio::time::timeout(time, acceptor.accept(stream)).await;
                if let Ok(Ok(stream)) = greeted {
                    dismiss(stream, status, TOO_MANY).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, place: ConnectionPlace) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let Some(acceptor) = &self.tls else {
            let origin = MessageOrigin {
                address: from.ip(),
                certificate: None,
            };
            return self.converse(stream, origin, &place).await;
        };
        let time = milliseconds(self.limits.head_time);
        match tokio::time::timeout(time, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let certificate = shown
                    .and_then(|chain| chain.first())
                    .map(|leaf| Fingerprint::of(leaf).to_string());
                let origin = MessageOrigin {
                    address: from.ip(),
                    certificate,
                };
                self.converse(stream, origin, &place).await;
            }
            Ok(Err(error)) => {
                let explanation = format!("the TLS handshake failed: {error}");
                self.service
                    .turned(Turned::Malformed, from.ip(), &explanation);
            }
            Err(_) => {
                let explanation = "the TLS handshake took longer than the limit head-time";
                self.service.turned(Turned::TooSlow, from.ip(), explanation);
            }
        }
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        origin: MessageOrigin,
        place: &ConnectionPlace,
    ) {
        let time = milliseconds(self.limits.body_time);
        let mut io = TokioIo::new(BoundedWrites::new(stream, time));
        let address = origin.address;
        let origin = &origin;
        let has_asked = &AtomicBool::new(false);
        let answer = |request: Request<Incoming>| async move {
            has_asked.store(true, Ordering::Relaxed);
            Ok::<_, Infallible>(self.answer(request, origin, place).await)
        };
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(milliseconds(self.limits.head_time))
            .max_buf_size(self.limits.head)
            .half_close(true)
            // Not `pipeline_flush`: the empty line that JADE sends after each request would hold its answer back.
            // JADE's client compares the names of header fields in this form.
            .title_case_headers(true)
            .serve_connection(&mut io, service_fn(answer))
            .await;
        // A client that just goes away did nothing wrong.
        let Err(error) = served else {
            return farewell(&mut io.into_inner(), b"").await;
        };
        let turned = if io.inner().is_late() {
            Some((
                Turned::TooSlow,
                "the client did not read an answer within the limit body-time",
            ))
        } else if error.is_parse_too_large() {
            Some((
                Turned::TooLarge,
                "the head of a request is larger than the limit head",
            ))
        } else if error.is_parse() {
            Some((Turned::Malformed, "it did not send an HTTP request"))
        } else if error.is_timeout() && !has_asked.load(Ordering::Relaxed) {
            // A connection that was of use may be idle until its time is over.
            let explanation = "the head of a request took longer than the limit head-time";
            self.service.turned(Turned::TooSlow, address, explanation);
            let status = StatusCode::REQUEST_TIMEOUT;
            return dismiss(io.into_inner(), status, explanation).await;
        } else {
            None
        };
        if let Some((what, explanation)) = turned {
            self.service.turned(what, address, explanation);
        }
        farewell(&mut io.into_inner(), b"").await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        origin: &MessageOrigin,
        place: &ConnectionPlace,
    ) -> Response<Full<Bytes>> {
        let is_old = request.version() < Version::HTTP_11;
        let keeps_alive = is_old
            && request
                .headers()
                .get(header::CONNECTION)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"));
        let mut response = match self.handle(request, origin, place).await {
            Ok(text) => Response::new(Full::new(Bytes::from(text))),
            Err(refused) => {
                let mut response = Response::new(Full::new(Bytes::from(format!(
                    "{}\r\n",
                    refused.explanation
                ))));
                *response.status_mut() = refused.status;
                let headers = response.headers_mut();
                let text = HeaderValue::from_static("text/plain; charset=utf-8");
                headers.insert(header::CONTENT_TYPE, text);
                if refused.status == StatusCode::METHOD_NOT_ALLOWED {
                    headers.insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
                }
                // Later requests on this connection would overtake the message that must be sent again, or cannot be
                // told apart from the rest of an unread body.
                let ends = refused.status.is_server_error()
                    || matches!(
                        refused.status,
                        StatusCode::REQUEST_TIMEOUT
                            | StatusCode::PAYLOAD_TOO_LARGE
                            | StatusCode::LENGTH_REQUIRED
                    );
                if ends {
                    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        if keeps_alive && !response.headers().contains_key(header::CONNECTION) {
            let value = HeaderValue::from_static("Keep-Alive");
            response.headers_mut().insert(header::CONNECTION, value);
        }
        response
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        origin: &MessageOrigin,
        place: &ConnectionPlace,
    ) -> Result<String, RefusedRequest> {
        let turn = |what, status, explanation: String| {
            self.service.turned(what, origin.address, &explanation);
            RefusedRequest {
                status,
                explanation,
            }
        };
        match *request.method() {
            Method::POST => {}
            Method::GET => return Ok(self.service.description()),
            _ => {
                let explanation = "send messages by POST".to_owned();
                return Err(turn(
                    Turned::Malformed,
                    StatusCode::METHOD_NOT_ALLOWED,
                    explanation,
                ));
            }
        }
        let headers = request.headers();
        if !headers.contains_key(header::CONTENT_LENGTH)
            && !headers.contains_key(header::TRANSFER_ENCODING)
        {
            let explanation =
                "the request says neither Content-Length nor Transfer-Encoding".to_owned();
            return Err(turn(
                Turned::Malformed,
                StatusCode::LENGTH_REQUIRED,
                explanation,
            ));
        }
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| str::from_utf8(value.as_bytes()).ok())
            .unwrap_or_default()
            .to_owned();
        let too_large = || {
            let explanation = format!(
                "the body is larger than {} bytes, the limit body",
                self.limits.body
            );
            turn(Turned::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, explanation)
        };
        let body = request.into_body();
        if body.size_hint().lower() > self.limits.body as u64 {
            return Err(too_large());
        }
        let mut room = place.body();
        let time = milliseconds(self.limits.body_time);
        let whole = read(body, self.limits.body, &mut room);
        let read = tokio::time::timeout(time, whole).await;
        let body = match read.unwrap_or(Err(Unread::TooSlow)) {
            Ok(body) => body,
            Err(Unread::TooLarge) => return Err(too_large()),
            Err(Unread::NoRoom(NoRoom(limit))) => {
                let explanation = format!(
                    "other bodies that are being read leave no room, the limit {limit}: try again"
                );
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Err(turn(Turned::TooMany, status, explanation));
            }
            Err(Unread::Broken(error)) => {
                let explanation =
                    format!("the body ended before its length, or cannot be read: {error}");
                let status = StatusCode::BAD_REQUEST;
                return Err(turn(Turned::Malformed, status, explanation));
            }
            Err(Unread::TooSlow) => {
                let explanation = "the body took longer than the limit body-time".to_owned();
                let status = StatusCode::REQUEST_TIMEOUT;
                return Err(turn(Turned::TooSlow, status, explanation));
            }
        };
        self.service.receive(&content_type, body, origin).await?;
        Ok(String::new())
    }
}
