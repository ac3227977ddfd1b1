//! The connection to one other platform. It is made when there is something to send, and kept while it is used. A lost
//! connection is opened again after growing pauses.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::conversation::{Heard, PeerConversation};
use crate::http::conversation::HttpConversation;
use crate::iiop::IiopConversation;
use crate::prompt::PromptStream;
use crate::queue::{Expired, LONGEST_PAUSE, OutgoingQueue, SHORTEST_PAUSE, Verdict};
use crate::reach::OutOfReach;

/// The number of successive connections on which nothing was taken. Then requests put off hold up everything.
const MOST_OF_NO_USE: u32 = 3;
/// How long one address may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How often a platform may send requests on to another place before it takes one.
const MOST_FORWARDS: u32 = 2;
/// How long an unused connection stays open. It is closed before JADE closes it after 60 s.
const IDLE_TIME: Duration = Duration::from_secs(45);
/// Bytes written together at most.
const BATCH: usize = 128 << 10;
/// Bytes read together at most.
const READ: usize = 16 << 10;

/// A request to be sent, without its head's address lines, which depend on the address used.
pub(crate) struct Request<T> {
    pub(crate) bytes: Bytes,
    pub(crate) expires: Instant,
    /// The agent that the message is for.
    pub(crate) receiver: Arc<str>,
    pub(crate) ticket: T,
}

/// Hears how requests end.
pub(crate) trait Outcome<T>: Send + Sync + 'static {
    fn taken(&self, ticket: T);
    fn failed(self: &Arc<Self>, ticket: T, reason: String);
    fn retried(&self);
}

/// Whether a network address may be connected to.
pub(crate) type MayReach = Box<dyn Fn(IpAddr) -> Result<(), OutOfReach> + Send + Sync>;

/// How a peer is spoken to.
pub(crate) struct PeerConfig {
    /// The addresses, tried in order.
    pub(crate) addresses: Vec<Address>,
    /// Checks the addresses to which names are resolved.
    pub(crate) may_reach: MayReach,
    /// Whether an operator named the addresses. Their hosts need no check.
    pub(crate) is_of_operator: bool,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) window: usize,
    pub(crate) answer_time: Duration,
}

#[derive(Debug, Error)]
enum ConnectError {
    #[error("{0}: {1}")]
    Io(Address, io::Error),
    #[error("{0} did not accept a connection within {CONNECT_TIME:?}")]
    Slow(Address),
    #[error(
        "{0} needs certificates to check it against: name a file as trust in the gateway's configuration"
    )]
    NoTrust(Address),
    #[error("{0}: {1} is not a name that a certificate can carry")]
    Name(Address, String),
    #[error("{0}: {1}")]
    OutOfReach(Address, OutOfReach),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a connection ended.
enum Ended {
    /// The connection was idle: nothing is left to do.
    Idle,
    /// The connection is lost. The oldest unanswered request may be the cause.
    Lost(String),
    /// There was no connection: no address accepted one.
    Unreachable(String),
    /// The platform put a message off, which is set aside.
    PutOff(String),
    /// The platform ended the connection in order, without taking the unanswered requests.
    ClosedInOrder(String),
    /// The requests must go to another place.
    Forwarded(Address),
    /// Nobody sends any more.
    Closed,
}

pub(crate) struct Peer<T, O> {
    config: PeerConfig,
    requests: mpsc::Receiver<Request<T>>,
    queue: OutgoingQueue<T>,
    outcome: Arc<O>,
    /// The last error.
    trouble: String,
    /// The place to which the platform sent the requests on, and how often it did since it took one.
    elsewhere: Option<Address>,
    forwards: u32,
    /// Whether anything was taken on the last connection.
    is_of_use: bool,
    closed: bool,
}

impl<T: Send, O: Outcome<T>> Peer<T, O> {
    pub(crate) fn new(
        config: PeerConfig,
        requests: mpsc::Receiver<Request<T>>,
        outcome: Arc<O>,
    ) -> Self {
        Self {
            queue: OutgoingQueue::new(config.window),
            config,
            requests,
            outcome,
            trouble: String::new(),
            elsewhere: None,
            forwards: 0,
            is_of_use: false,
            closed: false,
        }
    }

    /// Sends requests until no more can come and all are settled.
    pub(crate) async fn run(mut self) {
        let mut pause = SHORTEST_PAUSE;
        let mut of_no_use = 0;
        loop {
            if self.queue.is_empty() {
                match self.requests.recv().await {
                    Some(request) => self.push(request),
                    None => return,
                }
            }
            self.queue.try_again(Instant::now());
            if !self.queue.has_work() {
                // Everything there is was set aside.
                if let Some(at) = self.queue.next_try() {
                    self.wait(at, true).await;
                }
                continue;
            }
            self.is_of_use = false;
            let ended = match self.connect().await {
                Ok((stream, address)) => self.converse(stream, &address).await,
                Err(trouble) => Ended::Unreachable(trouble),
            };
            if self.is_of_use {
                pause = SHORTEST_PAUSE;
                of_no_use = 0;
                self.forwards = 0;
            } else {
                of_no_use += 1;
            }
            let blamed = matches!(ended, Ended::Lost(_));
            let given_up = self.queue.connection_ended(blamed);
            let rests = match ended {
                Ended::Idle | Ended::Closed => {
                    self.trouble.clear();
                    false
                }
                Ended::Lost(trouble) | Ended::Unreachable(trouble) => {
                    self.trouble = trouble;
                    // The platform itself may know another place by now.
                    self.elsewhere = None;
                    true
                }
                Ended::ClosedInOrder(trouble) => {
                    self.trouble = trouble;
                    !self.is_of_use
                }
                Ended::Forwarded(address) => {
                    self.forwards += 1;
                    self.trouble = format!("it sent the message on to {address}");
                    let goes_on = self.forwards <= MOST_FORWARDS;
                    self.elsewhere = goes_on.then_some(address);
                    !goes_on
                }
                // Requests for other agents continue, unless the platform seems to take nothing at all.
                Ended::PutOff(trouble) => {
                    self.trouble = trouble;
                    of_no_use > MOST_OF_NO_USE
                }
            };
            if let Some(ticket) = given_up {
                let reason = format!(
                    "it was sent several times and never answered ({})",
                    self.trouble
                );
                self.outcome.failed(ticket, reason);
            }
            self.expire();
            if rests && self.queue.has_work() {
                self.outcome.retried();
                // Peers that lost the same platform must not all come back at the same moment.
                let until = Instant::now() + pause.mul_f64(0.75 + jitter() / 2.0);
                self.wait(until, false).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn push(&mut self, request: Request<T>) {
        self.queue.push(
            request.bytes,
            request.expires,
            request.receiver,
            request.ticket,
        );
    }

    fn expire(&mut self) {
        for Expired { ticket, reason } in self.queue.expired(Instant::now()) {
            let reason = match reason {
                Some(reason) => format!("it was put off for too long; last: {reason}"),
                None if self.trouble.is_empty() => "it could not be sent in time".to_owned(),
                None => format!("it could not be reached in time; last: {}", self.trouble),
            };
            self.outcome.failed(ticket, reason);
        }
    }

    /// Waits. Meanwhile takes new requests, and gives back those that expire. With `breaks_for_work`, stops once there
    /// is work.
    async fn wait(&mut self, until: Instant, breaks_for_work: bool) {
        loop {
            let expiry = self.queue.next_expiry().unwrap_or(until);
            tokio::select! {
                request = self.requests.recv(), if !self.closed => match request {
                    Some(request) => self.push(request),
                    None => self.closed = true,
                },
                () = tokio::time::sleep_until(until.min(expiry).into()) => self.expire(),
            }
            let is_work = breaks_for_work && self.queue.has_work();
            if Instant::now() >= until || self.queue.is_empty() || is_work {
                return;
            }
        }
    }

    /// Connects to the first address that accepts.
    async fn connect(&self) -> Result<(Box<dyn Stream>, Address), String> {
        let mut trouble = Vec::new();
        let elsewhere = self.elsewhere.as_slice();
        let addresses = if elsewhere.is_empty() {
            &self.config.addresses
        } else {
            elsewhere
        };
        for address in addresses {
            match tokio::time::timeout(CONNECT_TIME, self.connect_to(address)).await {
                Ok(Ok(stream)) => return Ok((stream, address.clone())),
                Ok(Err(error)) => trouble.push(error.to_string()),
                Err(_) => trouble.push(ConnectError::Slow(address.clone()).to_string()),
            }
        }
        Err(trouble.join("; "))
    }

    async fn connect_to(&self, address: &Address) -> Result<Box<dyn Stream>, ConnectError> {
        let io = |error| ConnectError::Io(address.clone(), error);
        let stream = self.connect_to_host(address).await?;
        stream.set_nodelay(true).map_err(io)?;
        let stream = PromptStream(stream);
        let is_secure = matches!(address, Address::Http(address) if address.is_secure());
        if !is_secure {
            return Ok(Box::new(stream));
        }
        let tls = self.config.tls.clone();
        let tls = tls.ok_or_else(|| ConnectError::NoTrust(address.clone()))?;
        let name = ServerName::try_from(address.host().to_owned())
            .map_err(|_| ConnectError::Name(address.clone(), address.host().to_owned()))?;
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(io)?;
        Ok(Box::new(stream))
    }

    /// Connects to the first network address of a host that may be reached and accepts.
    async fn connect_to_host(&self, address: &Address) -> Result<TcpStream, ConnectError> {
        let io = |error| ConnectError::Io(address.clone(), error);
        let host = (address.host(), address.port());
        let mut named = self.config.addresses.iter().map(Address::host);
        let is_named = self.config.is_of_operator && named.any(|it| it == address.host());
        let mut failed = io(io::ErrorKind::NotFound.into());
        for resolved in tokio::net::lookup_host(host).await.map_err(io)? {
            if !is_named && let Err(why) = (self.config.may_reach)(resolved.ip()) {
                failed = ConnectError::OutOfReach(address.clone(), why);
                continue;
            }
            match TcpStream::connect(resolved).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = io(error),
            }
        }
        Err(failed)
    }

    async fn converse(&mut self, stream: Box<dyn Stream>, address: &Address) -> Ended {
        let (mut read, mut write) = tokio::io::split(stream);
        let mut conversation = conversation(address);
        let window = conversation.window().unwrap_or(self.config.window);
        let mut input = vec![0; READ];
        let mut output: Vec<u8> = Vec::new();
        let mut written = 0;
        // The time at which the other side last gave a whole answer, or had nothing to answer. Bytes that are no answer do
        // not count: they may come one by one for ever.
        let mut heard = Instant::now();
        loop {
            if written == output.len() {
                output.clear();
                written = 0;
                while output.len() < BATCH {
                    if self.queue.unanswered() == 0 {
                        heard = Instant::now();
                    }
                    if self.queue.unanswered() >= window {
                        break;
                    }
                    let Some(request) = self.queue.next_to_write() else {
                        break;
                    };
                    conversation.write(&request, &mut output);
                }
            }
            let waits = self.queue.unanswered() > 0;
            let patience = if waits {
                self.config.answer_time
            } else {
                IDLE_TIME
            };
            let quiet = heard + patience;
            if Instant::now() >= quiet {
                return match waits {
                    true => Ended::Lost(format!("{address} did not answer within {patience:?}")),
                    false => Ended::Idle,
                };
            }
            let due = [self.queue.next_try(), self.queue.next_expiry()];
            let wakes = due.into_iter().flatten().fold(quiet, Instant::min);
            // Requests are taken only while there is room to write them.
            let takes = !self.closed && self.queue.unanswered() < window;
            tokio::select! {
                biased;
                count = read.read(&mut input) => {
                    let count = match count {
                        Ok(0) => return self.lost(format!("{address} closed the connection")),
                        Ok(count) => count,
                        Err(error) => return self.lost(format!("{address}: {error}")),
                    };
                    conversation.push(&input[..count]);
                    loop {
                        let (verdict, keeps_open) = match conversation.hear() {
                            Ok(Some(Heard::Answer { verdict, keeps_open })) => (verdict, keeps_open),
                            Ok(Some(Heard::Closed)) => {
                                return match self.lost(format!("{address} closed the connection")) {
                                    Ended::Lost(trouble) => Ended::ClosedInOrder(trouble),
                                    other => other,
                                };
                            }
                            Ok(Some(Heard::Elsewhere(there))) => return Ended::Forwarded(there),
                            Ok(None) => break,
                            Err(error) => return Ended::Lost(format!("{address}: {error}")),
                        };
                        heard = Instant::now();
                        let ticket = self.queue.answered(&verdict, heard);
                        match (verdict, ticket) {
                            (Verdict::Taken, Some(ticket)) => {
                                self.trouble.clear();
                                self.is_of_use = true;
                                self.outcome.taken(ticket);
                            }
                            (Verdict::Refused(reason), Some(ticket)) => {
                                self.outcome.failed(ticket, format!("{address} refused it with {reason}"));
                            }
                            (Verdict::Later(reason), _) => {
                                return Ended::PutOff(format!("{address} put it off with {reason}"));
                            }
                            (_, None) => return Ended::Lost(format!("{address} answered what it was not asked")),
                        }
                        if !keeps_open {
                            return Ended::Idle;
                        }
                    }
                }
                count = write.write(&output[written..]), if written < output.len() => match count {
                    Ok(count) => written += count,
                    Err(error) => return self.lost(format!("{address}: {error}")),
                },
                request = self.requests.recv(), if takes => match request {
                    Some(request) => {
                        self.push(request);
                        // Requests that wait together are written together.
                        while let Ok(request) = self.requests.try_recv() {
                            self.push(request);
                        }
                    }
                    None if self.queue.is_empty() => return Ended::Closed,
                    None => self.closed = true,
                },
                () = tokio::time::sleep_until(wakes.into()) => {}
            }
            let now = Instant::now();
            if self.queue.next_expiry().is_some_and(|at| at <= now) {
                self.expire();
            }
            self.queue.try_again(now);
            if self.closed && self.queue.is_empty() {
                return Ended::Closed;
            }
        }
    }

    /// The end of a connection without unanswered requests is nobody's fault.
    fn lost(&self, trouble: String) -> Ended {
        if self.queue.unanswered() == 0 {
            Ended::Idle
        } else {
            Ended::Lost(trouble)
        }
    }
}

/// The conversation in the transport of an address.
fn conversation(address: &Address) -> Box<dyn PeerConversation> {
    match address {
        Address::Http(address) => Box::new(HttpConversation::new(address.clone())),
        Address::Iiop(profile) => Box::new(IiopConversation::new(profile.clone())),
    }
}

/// A number from 0 to 1.
fn jitter() -> f64 {
    let mut byte = [0_u8];
    // Without randomness, the number is 0.
    let _ = aws_lc_rs::rand::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
