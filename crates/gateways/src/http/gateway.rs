//! The gateway itself: between the bus and other platforms.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use parking_lot::{Mutex, RwLock};
use sealbus_acl::envelope::{Envelope, Received};
use sealbus_acl::{AclMessage, Aid, DateTime, Limits};
use sealbus_bus::{
    Mailbox, MailboxLimits, Outbox, ReceivedMessage, RefusalReason, SendError, UndeliverableReason,
    failure_notice,
};
use sealbus_seal::PlatformName;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::address::{AddressError, HttpAddress};
use super::book::{Book, Bounded, usable};
use super::config::{ConfigError, HttpGatewayConfig, Known, milliseconds};
use super::counters::{Counts, GatewayCounters, Turned};
use super::inward::{self, TurnedAway};
use super::multipart;
use super::outside::{Outside, TRANSPORT};
use super::peer::{Outcome, Peer, PeerConfig, Request};
use super::policy::{GatewayPolicy, Origin, PolicyError};
use super::server::{Refused, Server, Service};
use super::tls::{Tls, TlsSetupError};
use super::transmission::{self, TransmissionError};

/// A stand-in that nobody wrote to for so long is taken away.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// How often the gateway's own certificate is looked at; more often if it is short-lived.
const RENEWAL_CHECK: Duration = Duration::from_secs(20);
const SHORTEST_RENEWAL_CHECK: Duration = Duration::from_secs(1);
/// Messages from outside that are remembered so as not to be delivered twice.
const REMEMBERED: usize = 65_536;
/// Requests that wait to be taken up by a peer's task; their bytes are limited apart from that.
const WAITING: usize = 256;
/// Messages taken from a mailbox at a time.
const ROW: usize = 32;
/// Bytes one permit stands for.
const UNIT: usize = 1 << 10;

/// Why a gateway was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// HTTPS.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// Its address.
    #[error(
        "the gateway cannot listen on {address}: {error}; free it, or choose another in the manifest"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The name others are to reach it by.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The agent it was to be opened for has left.
    #[error("the agent {0} is not on the bus")]
    NoAgent(String),
}

/// A running gateway. It ends when this is dropped.
pub struct HttpGateway {
    inner: Arc<Inner>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

struct Inner {
    platform: PlatformName,
    config: HttpGatewayConfig,
    known: HashMap<String, Known>,
    /// The addresses other platforms reach it by.
    own: Vec<String>,
    own_addresses: Vec<HttpAddress>,
    outbox: Arc<Outbox>,
    policy: RwLock<Arc<GatewayPolicy>>,
    book: Mutex<Book>,
    /// Messages from outside, by id: whether they were delivered.
    seen: Mutex<Bounded<bool>>,
    peers: Mutex<HashMap<Vec<HttpAddress>, PeerHandle>>,
    tls: Option<Arc<rustls::ClientConfig>>,
    counts: Counts,
    tasks: std::sync::Weak<Mutex<JoinSet<()>>>,
    runtime: Handle,
    boundary: String,
    next: AtomicU64,
}

/// The way to a peer's task.
#[derive(Clone)]
struct PeerHandle {
    requests: mpsc::Sender<Request<Ticket>>,
    /// Room for bytes on their way to it.
    room: Arc<Semaphore>,
}

/// What goes along with a message on its way out.
struct Ticket {
    message: Arc<AclMessage>,
    receiver: Arc<str>,
    _room: OwnedSemaphorePermit,
}

impl HttpGateway {
    /// Opens a gateway for the agent that `outbox` belongs to, which must be named
    /// [`gateway`](sealbus_bus::GATEWAY). Whoever reads that agent's mailbox is to hand failure notices for agents of
    /// other platforms to [`notice`](Self::notice).
    ///
    /// # Errors
    /// [`OpenError`]; nothing is open then.
    pub async fn open(config: HttpGatewayConfig, outbox: Arc<Outbox>) -> Result<Self, OpenError> {
        config.check()?;
        let bus = outbox.bus().clone();
        let agent = bus
            .agent(outbox.name())
            .ok_or_else(|| OpenError::NoAgent(outbox.name().to_string()))?;
        let tls = Tls::new(
            config.tls.as_ref(),
            config.trust.as_deref(),
            agent.credential(),
        )?;
        let listen = |error| OpenError::Listen {
            address: config.listen,
            error,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let address = config.address(bound)?;
        let known = config
            .platforms
            .iter()
            .map(|(name, platform)| Ok((name.to_ascii_lowercase(), platform.read(name)?)))
            .collect::<Result<_, ConfigError>>()?;
        let tasks: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let mut random = [0_u8; 16];
        // Boundaries need not be secret; ids are told apart by the start of the gateway too.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let inner = Arc::new(Inner {
            platform: bus.config().platform.clone(),
            known,
            own: vec![address.to_string()],
            own_addresses: vec![address],
            policy: RwLock::new(Arc::new(config.policy())),
            book: Mutex::default(),
            seen: Mutex::new(Bounded::new(REMEMBERED)),
            peers: Mutex::default(),
            tls: tls.client.clone(),
            counts: Counts::default(),
            tasks: Arc::downgrade(&tasks),
            runtime: Handle::current(),
            boundary: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            next: AtomicU64::new(0),
            config,
            outbox,
        });
        let limits = inner.config.limits.clone();
        let server = Server::new(inner.clone(), limits, tls.server.clone());
        let mut running = tasks.lock();
        running.spawn(server.accept(listener));
        if let Some(own) = tls.own {
            running.spawn(inner.clone().renew(own));
        }
        drop(running);
        let weak = Arc::downgrade(&inner);
        let reader = move |name: Arc<str>, mailbox: Mailbox| {
            if let Some(inner) = weak.upgrade() {
                inner.clone().spawn(inner.carry(name, mailbox));
            }
        };
        let most = inner.config.limits.foreign_agents;
        let is_open = bus.open_gateway(
            inner.outbox.name(),
            MailboxLimits::default(),
            most,
            Box::new(reader),
        );
        if !is_open {
            return Err(OpenError::NoAgent(inner.outbox.name().to_string()));
        }
        Ok(Self { inner, tasks })
    }

    /// The addresses other platforms reach it by.
    pub fn addresses(&self) -> &[String] {
        &self.inner.own
    }

    /// The rules in force.
    pub fn policy(&self) -> Arc<GatewayPolicy> {
        self.inner.policy.read().clone()
    }

    /// Puts other rules in force, for messages that come from now on.
    ///
    /// # Errors
    /// If a rule cannot be meant; the former ones stay in force then.
    pub fn set_policy(&self, policy: GatewayPolicy) -> Result<(), PolicyError> {
        policy.check()?;
        *self.inner.policy.write() = Arc::new(policy);
        Ok(())
    }

    /// What it has done so far.
    pub fn counters(&self) -> GatewayCounters {
        self.inner.counts.snapshot()
    }

    /// Sends the notice that a message of an agent of another platform was not delivered, which the bus put into the
    /// gateway's mailbox, to that agent. Returns false for anything else.
    pub async fn notice(&self, received: ReceivedMessage) -> bool {
        if !matches!(received.provenance(), sealbus_bus::Provenance::Platform) {
            return false;
        }
        let Ok(message) = received.into_message() else {
            return false;
        };
        let Some(receiver) = message.receivers.first().map(|it| it.name.clone()) else {
            return false;
        };
        if !sealbus_bus::is_foreign(&receiver, &self.inner.platform) {
            return false;
        }
        self.inner.send(message, &receiver.into(), true).await;
        true
    }

    /// Ends the gateway, after messages on their way were taken by their platforms or `patience` is over.
    pub async fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while Instant::now() < until && self.inner.is_busy() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }
}

impl Inner {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            let mut tasks = tasks.lock();
            while tasks.try_join_next().is_some() {}
            // Agents send from any thread.
            tasks.spawn_on(task, &self.runtime);
        }
    }

    fn is_busy(&self) -> bool {
        let whole = self.config.limits.outgoing / UNIT;
        let peers = self.peers.lock();
        peers
            .values()
            .any(|peer| peer.room.available_permits() < whole)
    }

    /// Shows the gateway's certificate as it is renewed.
    async fn renew(self: Arc<Self>, own: Arc<sealbus_seal::tls::CertificateSource>) {
        let mut shown = None;
        let mut pause = SHORTEST_RENEWAL_CHECK;
        loop {
            let agent = self.outbox.bus().agent(self.outbox.name());
            let credential = agent.and_then(|agent| agent.credential());
            if let Some(credential) = credential
                && shown
                    .as_ref()
                    .is_none_or(|shown| !Arc::ptr_eq(shown, &credential))
            {
                if let Err(error) = own.renew(&credential) {
                    tracing::error!(%error, "the gateway cannot show its new certificate");
                }
                if let Ok(certificate) = credential.certificate() {
                    let (begin, end) = (certificate.not_before(), certificate.not_after());
                    let seconds = end
                        .as_unix_seconds()
                        .saturating_sub(begin.as_unix_seconds());
                    // It is renewed at half its life.
                    pause = Duration::from_secs(seconds / 20)
                        .clamp(SHORTEST_RENEWAL_CHECK, RENEWAL_CHECK);
                }
                shown = Some(credential);
            }
            tokio::time::sleep(pause).await;
        }
    }

    // ---- out ----

    /// Carries messages from the mailbox of a stand-in to the agent it stands for.
    async fn carry(self: Arc<Self>, name: Arc<str>, mut mailbox: Mailbox) {
        let mut row = Vec::new();
        loop {
            let next = mailbox.recv_many(&mut row, ROW);
            match tokio::time::timeout(IDLE_TIME, next).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    // What comes in between is still in the mailbox.
                    self.outbox.bus().retire_stand_in(&name);
                    continue;
                }
            }
            for received in row.drain(..) {
                // What is in a mailbox decodes.
                if let Ok(message) = received.into_message() {
                    self.send(message, &name, false).await;
                }
            }
        }
    }

    /// Hands a message to the peer of its receiver, waiting for room.
    async fn send(
        self: &Arc<Self>,
        message: Arc<AclMessage>,
        receiver: &Arc<str>,
        is_notice: bool,
    ) {
        let built = self.build(&message, receiver);
        let (addresses, bytes) = match built {
            Ok(built) => built,
            Err(reason) => {
                Counts::add(&self.counts.failed, 1);
                if is_notice {
                    tracing::debug!(%receiver, reason, "a failure notice cannot be sent");
                } else {
                    self.tell(&message, receiver, reason);
                }
                return;
            }
        };
        let peer = self.peer(addresses);
        let whole = self.config.limits.outgoing / UNIT;
        let units = (bytes.len() / UNIT + 1).min(whole);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let Ok(room) = peer.room.clone().acquire_many_owned(units).await else {
            return;
        };
        let expires = Instant::now() + self.patience(&message);
        let request = Request {
            bytes,
            expires,
            ticket: Ticket {
                message,
                receiver: receiver.clone(),
                _room: room,
            },
        };
        // The peer's task lives as long as its handle.
        let _ = peer.requests.send(request).await;
    }

    /// How long a message is worth sending.
    fn patience(&self, message: &AclMessage) -> Duration {
        let usual = milliseconds(self.config.limits.patience);
        let now = SystemTime::now();
        let reply_by = message.reply_by.and_then(|it| it.system_time(now).ok());
        match reply_by.map(|it| it.duration_since(now)) {
            Some(Ok(left)) => left.min(usual),
            // An answer is late already; the message itself may still be of use.
            Some(Err(_)) | None => usual,
        }
    }

    /// The request for a message, all but the first lines, and where to send it.
    fn build(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<(Vec<HttpAddress>, Bytes), String> {
        let platform = receiver
            .rsplit_once('@')
            .map_or("", |(_, platform)| platform);
        let known = self.known.get(&platform.to_ascii_lowercase());
        let named = message.receivers.iter().find(|it| it.name == receiver);
        let (addresses, learnt) = {
            let book = self.book.lock();
            let addresses = match known.map(|known| &known.addresses) {
                Some(addresses) if !addresses.is_empty() => addresses.clone(),
                _ => {
                    let told = named.map(|it| usable(&it.addresses)).unwrap_or_default();
                    if told.is_empty() {
                        book.addresses(receiver).cloned().unwrap_or_default()
                    } else {
                        told
                    }
                }
            };
            (addresses, book.encoding(platform))
        };
        if addresses.is_empty() {
            return Err(match named.and_then(|it| it.addresses.first()) {
                Some(address) => match address.parse::<HttpAddress>() {
                    Err(error) => error.to_string(),
                    Ok(_) => "none of its addresses can be used".to_owned(),
                },
                None => format!(
                    "no address of platform {platform} is known: name one in the agent's identifier, such as http://host:7778/acc"
                ),
            });
        }
        if addresses.iter().any(|it| self.own_addresses.contains(it)) {
            return Err(format!(
                "{receiver} is said to be behind {}, which is this platform's own gateway",
                self.own[0]
            ));
        }
        let encoding = known.cloned().unwrap_or_default().encoding(learnt);
        let outside = Outside {
            platform: &self.platform,
            addresses: &self.own,
        };
        let mut seen = message.clone();
        outside.message(&mut seen);
        let mut to = Aid {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
            name: receiver.to_owned(),
        };
        if let Some(named) = named
            && !named.addresses.is_empty()
        {
            to.addresses.clone_from(&named.addresses);
        }
        let plain = |aid: &Aid| Aid {
            name: aid.name.clone(),
            addresses: aid.addresses.clone(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        };
        let from = seen.sender.as_ref().map(plain);
        let mut all: Vec<Aid> = seen.receivers.iter().map(plain).collect();
        for aid in &mut all {
            if aid.name == to.name {
                aid.addresses.clone_from(&to.addresses);
            }
        }
        let date =
            DateTime::from_system_time(SystemTime::now()).map_err(|error| error.to_string())?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut envelope = Envelope::new(
            all,
            from.unwrap_or_else(|| to.clone()),
            encoding.message.name(),
            date,
        );
        envelope.base.intended_receivers = vec![to];
        // It tells this copy from any other, should it have to be sent again.
        envelope.base.received = Some(Received {
            by: self.own[0].clone(),
            date,
            from: None,
            id: Some(format!("{}-{number}", self.boundary)),
            via: Some(TRANSPORT.to_owned()),
            user_defined: Vec::new(),
        });
        let encode =
            |error: sealbus_acl::EncodeError| UndeliverableReason::Encoding(error).to_string();
        let payload = transmission::encode_message(&seen, encoding).map_err(encode)?;
        let mut body = Vec::with_capacity(payload.len() + 2048);
        let boundary = transmission::write(envelope, &payload, encoding, &self.boundary, &mut body)
            .map_err(encode)?;
        let mut request = format!(
            "Cache-Control: no-cache\r\nMime-Version: 1.0\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: Keep-Alive\r\n\r\n",
            multipart::content_type(&boundary),
            body.len()
        )
        .into_bytes();
        request.append(&mut body);
        Ok((addresses, request.into()))
    }

    fn peer(self: &Arc<Self>, addresses: Vec<HttpAddress>) -> PeerHandle {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(&addresses) {
            return peer.clone();
        }
        let limits = &self.config.limits;
        let whole = limits.outgoing / UNIT;
        // Those that nothing is on the way to are made anew when they are needed.
        if peers.len() >= 256 {
            peers.retain(|_, peer| {
                peer.room.available_permits() < whole || peer.requests.capacity() < WAITING
            });
        }
        let (requests, taken) = mpsc::channel(WAITING);
        let config = PeerConfig {
            addresses: addresses.clone(),
            tls: self.tls.clone(),
            window: limits.window,
            answer_time: milliseconds(limits.answer_time),
        };
        let handle = PeerHandle {
            requests,
            room: Arc::new(Semaphore::new(whole)),
        };
        peers.insert(addresses, handle.clone());
        drop(peers);
        self.spawn(Peer::new(config, taken, self.clone()).run());
        handle
    }

    /// Tells the sender of a message, an agent of this platform, that it did not get through.
    fn tell(self: &Arc<Self>, message: &AclMessage, receiver: &str, reason: String) {
        let ams = self.aid("ams");
        let reason = UndeliverableReason::Foreign(reason);
        tracing::debug!(target: "sealbus::undeliverable", receiver, %reason, "message not delivered");
        let Some(notice) = failure_notice(&ams, &AclMessage::as_ref(message), receiver, &reason)
        else {
            return;
        };
        let Some(sender) = notice.receivers.first().map(|it| it.name.clone()) else {
            return;
        };
        let outbox = self.outbox.clone();
        // Its mailbox may be full: the peer goes on meanwhile.
        self.spawn(async move {
            if let Err(error) = outbox.relay(&Arc::new(notice), &sender).await {
                tracing::debug!(sender, %error, "a failure notice could not be delivered");
            }
        });
    }

    fn aid(&self, local: &str) -> Aid {
        Aid {
            name: format!("{local}@{}", self.platform),
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        }
    }

    // ---- in ----

    fn turn_away(&self, turned: &TurnedAway, from: IpAddr) -> Refused {
        self.counts.turned(turned.what);
        let (status, reason) = match turned.what {
            Turned::Malformed => (StatusCode::BAD_REQUEST, RefusalReason::Malformed),
            Turned::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::TooLarge),
            Turned::TooSlow => (StatusCode::REQUEST_TIMEOUT, RefusalReason::OverLimit),
            Turned::TooMany | Turned::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, RefusalReason::OverLimit)
            }
            Turned::ForgedSender => (StatusCode::FORBIDDEN, RefusalReason::ForgedSender),
            Turned::NotPermitted | Turned::Relay => {
                (StatusCode::FORBIDDEN, RefusalReason::NotPermitted)
            }
            Turned::Loop => (StatusCode::LOOP_DETECTED, RefusalReason::NotPermitted),
        };
        // One that has no room in its mailbox is no offence.
        if turned.what != Turned::Busy {
            let tried_by = format!("{} at {from}", turned.sender);
            self.outbox.bus().refused(
                &tried_by,
                None,
                turned.receiver.as_deref(),
                reason,
                turned.explanation.clone(),
            );
        }
        Refused {
            status,
            explanation: turned.explanation.clone(),
        }
    }

    /// Notes that a message is being delivered; `Some(delivered)` if it has come before.
    fn come(&self, id: Option<&str>) -> Option<bool> {
        let id = id?;
        let mut seen = self.seen.lock();
        let before = seen.get(id).copied();
        if before.is_none() {
            seen.insert(id, false);
        }
        before
    }
}

impl Service for Inner {
    fn description(&self) -> String {
        Outside {
            platform: &self.platform,
            addresses: &self.own,
        }
        .description()
    }

    async fn receive(
        &self,
        content_type: &str,
        body: Bytes,
        origin: &Origin,
    ) -> Result<(), Refused> {
        let limits = Limits {
            message_length: self.config.limits.body,
            ..Limits::default()
        };
        let transmission = transmission::read(content_type, &body, &limits)
            .map_err(|error| self.unreadable(&error, origin))?;
        let encoding = transmission::Encoding {
            envelope: transmission.envelope_representation,
            message: transmission.representation,
        };
        let policy = self.policy.read().clone();
        let accepted = inward::judge(transmission, origin, &self.platform, &self.own, &policy)
            .map_err(|turned| self.turn_away(&turned, origin.address))?;
        let sender = accepted.message.sender.as_ref();
        if let Some(sender) = sender {
            let mut book = self.book.lock();
            book.note(&sender.name, &sender.addresses, encoding);
        }
        let busy = |explanation: String| {
            let turned = TurnedAway {
                what: Turned::Busy,
                sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                receiver: None,
                explanation,
            };
            self.turn_away(&turned, origin.address)
        };
        let time = milliseconds(self.config.limits.receiver_time);
        for receiver in &accepted.receivers {
            let id = accepted.id.as_ref().map(|id| format!("{id} {receiver}"));
            match self.come(id.as_deref()) {
                None => {}
                Some(true) => {
                    Counts::add(&self.counts.repeated, 1);
                    continue;
                }
                Some(false) => {
                    let explanation = "the same message is being delivered already: ask again";
                    return Err(busy(explanation.to_owned()));
                }
            }
            let arrival = Arrival {
                inner: self,
                id,
                is_delivered: false,
            };
            let relay = self.outbox.relay(&accepted.message, receiver);
            match tokio::time::timeout(time, relay).await {
                Ok(Ok(())) => {
                    arrival.delivered();
                    Counts::add(&self.counts.received, 1);
                }
                // The platform's own trouble, such as that it is ending.
                Ok(Err(error @ (SendError::Detached(_) | SendError::UnreadFailures(_)))) => {
                    return Err(busy(error.to_string()));
                }
                Ok(Err(error)) => {
                    let turned = TurnedAway {
                        what: Turned::Malformed,
                        sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                        receiver: Some(receiver.clone()),
                        explanation: error.to_string(),
                    };
                    return Err(self.turn_away(&turned, origin.address));
                }
                Err(_) => {
                    let explanation = format!("the mailbox of {receiver} is full: try again later");
                    return Err(busy(explanation));
                }
            }
        }
        Ok(())
    }

    fn turned(&self, what: Turned, from: IpAddr, explanation: &str) {
        let turned = TurnedAway {
            what,
            sender: "a client".to_owned(),
            receiver: None,
            explanation: explanation.to_owned(),
        };
        self.turn_away(&turned, from);
    }
}

impl Inner {
    fn unreadable(&self, error: &TransmissionError, origin: &Origin) -> Refused {
        let turned = TurnedAway {
            what: Turned::Malformed,
            sender: "a client".to_owned(),
            receiver: None,
            explanation: error.to_string(),
        };
        let mut refused = self.turn_away(&turned, origin.address);
        if error.is_unsupported() {
            refused.status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        }
        refused
    }
}

/// A message that is being delivered. If it is not, it may come again.
struct Arrival<'a> {
    inner: &'a Inner,
    id: Option<String>,
    is_delivered: bool,
}

impl Arrival<'_> {
    fn delivered(mut self) {
        self.is_delivered = true;
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let Some(id) = &self.id else { return };
        let mut seen = self.inner.seen.lock();
        if self.is_delivered {
            seen.insert(id, true);
        } else {
            seen.remove(id);
        }
    }
}

impl Outcome<Ticket> for Inner {
    fn taken(&self, ticket: Ticket) {
        drop(ticket);
        Counts::add(&self.counts.sent, 1);
    }

    fn failed(self: &Arc<Self>, ticket: Ticket, reason: String) {
        Counts::add(&self.counts.failed, 1);
        self.tell(&ticket.message, &ticket.receiver, reason);
    }

    fn retried(&self) {
        Counts::add(&self.counts.retried, 1);
    }
}
