//! The mesh endpoint of a process: a listener, and one link to each process it talks to.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::{
    Acknowledgement, BoxFuture, Bus, Capabilities, Destination, LocalAgent, ProcessDestination,
    ProcessEndpoint, RefusalReason, Transport, TransportError, WeakBus,
};
use sealbus_seal::tls::{Acceptor, CertificateSource, Connector, ExpectedPeer};
use sealbus_seal::{Credential, Identity, Trust};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::config::MeshConfig;
use crate::frame::{GoodbyeReason, PROCESS_TARGET, Token};
use crate::greeting::{self, Greeted, GreetingError, Opened, say_goodbye};
use crate::inward::Inward;
use crate::link::{Link, MeshDestination};
use crate::task::Task;

/// How long the links of a process that was given up may take to report their messages.
const GIVING_UP: Duration = Duration::from_secs(2);

/// Why an endpoint could not be opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another port, or 0 for a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate of this process cannot be used: {0}")]
    Credential(String),
    /// Another transport carries this bus already.
    #[error("the bus has a transport already")]
    TransportTaken,
    /// There is no randomness to be had.
    #[error("the operating system provides no random numbers")]
    NoRandomness,
}

/// The report on a link, for `ps` and logs.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The other process.
    pub process: Identity,
    /// The address of the other process.
    pub address: SocketAddr,
    /// Whether there is a connection now.
    pub is_connected: bool,
    /// Bytes accepted and not yet acknowledged.
    pub unacknowledged: usize,
    /// Messages sent and received over it.
    pub messages: (u64, u64),
    /// How often a connection was made.
    pub connections: u64,
}

/// The mesh endpoint of a process. A clone is another handle to the same endpoint.
#[derive(Clone)]
pub struct MeshEndpoint {
    inner: Arc<Inner>,
}

struct Tls {
    source: Arc<CertificateSource>,
    acceptor: Acceptor,
    connector: Connector,
    trust: Arc<Trust>,
}

pub(crate) struct Inner {
    pub(crate) config: Arc<MeshConfig>,
    pub(crate) incarnation: Token,
    pub(crate) process_uri: String,
    pub(crate) address_text: String,
    local: SocketAddr,
    tls: Option<Tls>,
    bus: WeakBus,
    runtime: tokio::runtime::Handle,
    links: Mutex<HashMap<Identity, Arc<Link>>>,
    /// Links with messages whose senders will flush them.
    deferred: Arc<Mutex<Vec<Arc<Link>>>>,
    next_connection: AtomicU64,
    unproved: Semaphore,
    /// Why the platform has given up this process.
    pub(crate) given_up: OnceLock<String>,
    end: Notify,
}

impl MeshEndpoint {
    /// Listens, and becomes the transport of `bus`. The endpoint's tasks run on the runtime on which this is called.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(config: MeshConfig, bus: &Bus) -> Result<Self, BindError> {
        let level = config.security.level();
        let tls = match config.security.process() {
            None => None,
            Some(security) => {
                let unusable =
                    |error: sealbus_seal::tls::TlsError| BindError::Credential(error.to_string());
                let source = CertificateSource::new(&security.credential).map_err(unusable)?;
                let protocols = [greeting::protocol_name(level)];
                let trust = security.trust.clone();
                Some(Tls {
                    acceptor: Acceptor::new(
                        level,
                        source.clone(),
                        trust.clone(),
                        ExpectedPeer::ENDPOINT,
                        &protocols,
                    )
                    .map_err(unusable)?,
                    connector: Connector::new(level, source.clone(), trust.clone(), &protocols)
                        .map_err(unusable)?,
                    source,
                    trust,
                })
            }
        };
        let listen = |source| BindError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
        let inner = Arc::new(Inner {
            incarnation: crate::token().ok_or(BindError::NoRandomness)?,
            process_uri: config.process.to_string(),
            address_text: local.to_string(),
            local,
            tls,
            bus: bus.downgrade(),
            runtime: tokio::runtime::Handle::current(),
            links: Mutex::default(),
            deferred: Arc::default(),
            next_connection: AtomicU64::new(1),
            unproved: Semaphore::new(config.unproved_connections),
            given_up: OnceLock::new(),
            end: Notify::new(),
            config: Arc::new(config),
        });
        if !bus.set_transport(Arc::new(Mesh(inner.clone()))) {
            return Err(BindError::TransportTaken);
        }
        tokio::spawn(listen_on(listener, Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// The address at which the endpoint listens, with the port found if port 0 was configured.
    pub fn local_address(&self) -> SocketAddr {
        self.inner.local
    }

    /// The facts that others need to reach this process.
    pub fn process(&self) -> ProcessEndpoint {
        ProcessEndpoint {
            identity: self.inner.config.process.clone(),
            address: self.inner.local,
        }
    }

    /// Shows a renewed certificate of this process. New connections use it at once. Open connections are replaced in
    /// the background, without losing a message.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    pub fn set_process_credential(&self, credential: &Credential) -> Result<(), BindError> {
        let Some(tls) = &self.inner.tls else {
            return Ok(());
        };
        tls.source
            .renew(credential)
            .map_err(|error| BindError::Credential(error.to_string()))?;
        self.inner
            .for_each_link(|link| link.requests.make(|requests| &requests.refresh));
        Ok(())
    }

    /// The deny list has changed. Connections and proofs that it denies are dropped at once.
    pub fn trust_changed(&self) {
        self.inner
            .for_each_link(|link| link.requests.make(|requests| &requests.check));
    }

    /// The platform reports that a process is gone for good. Messages that the process had not acknowledged are now
    /// reported to their senders.
    pub fn forget_process(&self, process: &Identity) {
        let link = self.inner.links.lock().get(process).cloned();
        if let Some(link) = link {
            link.requests.make(|requests| &requests.forget);
            link.wake();
        }
    }

    /// The links there are.
    pub fn links(&self) -> Vec<LinkReport> {
        let links: Vec<_> = self.inner.links.lock().values().cloned().collect();
        links
            .iter()
            .map(|link| {
                let is_connected = link.wire.lock().is_some();
                let outward = link.outward.lock();
                LinkReport {
                    process: link.peer.clone(),
                    address: *link.address.lock(),
                    is_connected,
                    unacknowledged: outward.session.kept(),
                    messages: (outward.sent, link.received.load(Ordering::Relaxed)),
                    connections: link.connections.load(Ordering::Relaxed),
                }
            })
            .collect()
    }

    /// Waits until all sent messages are acknowledged, for `grace` at most, then closes all connections and the
    /// listener.
    pub async fn shut_down(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            if !self.inner.are_any_unacknowledged() {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        self.inner.end.notify_waiters();
        self.inner.end.notify_one();
        self.inner.for_each_link(|link| {
            link.outward.lock().has_ended = true;
            link.requests.make(|requests| &requests.end);
        });
        // The tasks say goodbye when they run next.
        while self
            .inner
            .links
            .lock()
            .values()
            .any(|link| link.wire.lock().is_some())
            && Instant::now() < deadline + Duration::from_millis(200)
        {
            sleep(Duration::from_millis(1)).await;
        }
        self.inner.links.lock().clear();
    }
}

impl Inner {
    /// A number for a connection. No other connection of this process has it.
    pub(crate) fn next_connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn trust(&self) -> Option<&Arc<Trust>> {
        self.tls.as_ref().map(|tls| &tls.trust)
    }

    /// Opens a connection to a process, up to its TLS.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        peer: &Identity,
    ) -> Result<Opened, GreetingError> {
        let secure = self.tls.as_ref().map(|tls| (&tls.connector, &tls.trust));
        greeting::open(address, peer, self.config.security.level(), secure).await
    }

    /// Whether any link has messages that the peer has not acknowledged.
    fn are_any_unacknowledged(&self) -> bool {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        links
            .iter()
            .any(|link| link.outward.lock().needs_connection())
    }

    fn for_each_link(&self, each: impl Fn(&Link)) {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        for link in links {
            each(&link);
            link.wake();
        }
    }

    /// The link to a process, made anew if there is none. `None`: there are too many links, or the bus is gone.
    fn link(self: &Arc<Self>, peer: &Identity, address: SocketAddr) -> Option<Arc<Link>> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(peer) {
            return Some(link.clone());
        }
        if links.len() >= self.config.links {
            forget_idle(&mut links);
            if links.len() >= self.config.links {
                return None;
            }
        }
        let bus = self.bus.upgrade()?;
        let (link, connections) = Link::new(
            self.config.clone(),
            peer.clone(),
            address,
            self.bus.clone(),
            self.deferred.clone(),
        );
        links.insert(peer.clone(), link.clone());
        let inward = Inward::new(&link, bus);
        let task = Task::new(self.clone(), link.clone(), inward, connections);
        self.runtime.spawn(task.run());
        Some(link)
    }

    /// The treatment of an incoming connection.
    async fn take_in(self: Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        let Ok(permit) = self.unproved.try_acquire() else {
            self.note_refusal(
                from,
                RefusalReason::OverLimit,
                "too many connections are just being made".to_owned(),
            );
            return;
        };
        let secure = self.tls.as_ref().map(|tls| (&tls.acceptor, &tls.trust));
        let greeted = timeout(self.config.handshake_time, async {
            greeting::admit(tcp, self.config.security.level(), secure)
                .await?
                .wait()
                .await
        })
        .await
        .unwrap_or(Err(GreetingError::TooSlow));
        drop(permit);
        match greeted {
            Ok(greeted) => self.hand_over(greeted, from).await,
            Err(GreetingError::Refused {
                reason,
                explanation,
            }) => {
                self.note_refusal(from, reason, explanation);
            }
            Err(error @ GreetingError::TooSlow) => {
                self.note_refusal(from, RefusalReason::NotProved, error.to_string());
            }
            // The peer only probed whether the port is open, or changed its mind.
            Err(error) => tracing::debug!(%from, %error, "a connection came to nothing"),
        }
    }

    async fn hand_over(self: &Arc<Self>, mut greeted: Greeted, from: SocketAddr) {
        let peer = greeted.greeting.process.clone();
        let own = &self.config.process;
        if peer == *own || peer.platform() != own.platform() {
            let text = format!(
                "{peer} is not another process of platform {}",
                own.platform()
            );
            say_goodbye(&mut greeted.wire, GoodbyeReason::NotPermitted, &text, true);
            self.note_refusal(from, RefusalReason::WrongIdentity, text);
            return;
        }
        // A process that listens on all addresses can be reached at the address that it connected from.
        let address = match greeted.greeting.address {
            Some(address) if address.ip().is_unspecified() => {
                SocketAddr::new(from.ip(), address.port())
            }
            Some(address) => address,
            None => from,
        };
        match self.link(&peer, address) {
            // A full channel means that the link is busy with other connections of this peer.
            Some(link) => drop(link.incoming.try_send(greeted)),
            None => {
                let text = "this process talks to as many others as it may";
                say_goodbye(&mut greeted.wire, GoodbyeReason::OverLimit, text, true);
                self.note_refusal(from, RefusalReason::OverLimit, text.to_owned());
            }
        }
    }

    fn note_refusal(&self, from: SocketAddr, reason: RefusalReason, explanation: String) {
        if let Some(bus) = self.bus.upgrade() {
            bus.refused(&from.to_string(), None, None, reason, explanation);
        }
    }
}

/// Makes room: removes links without a connection that have nothing to send.
fn forget_idle(links: &mut HashMap<Identity, Arc<Link>>) {
    links.retain(|_, link| {
        let is_connected = link.wire.lock().is_some();
        let mut outward = link.outward.lock();
        let is_idle = !is_connected && !outward.needs_connection();
        if is_idle {
            outward.has_ended = true;
            link.requests.make(|requests| &requests.end);
            link.wake();
        }
        !is_idle
    });
}

async fn listen_on(listener: TcpListener, endpoint: Weak<Inner>) {
    loop {
        let Some(inner) = endpoint.upgrade() else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = inner.end.notified() => return,
        };
        match accepted {
            Ok((tcp, from)) => drop(tokio::spawn(inner.take_in(tcp, from))),
            Err(error) => {
                // For example too many open files. The peers try again.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The endpoint as the bus sees it.
struct Mesh(Arc<Inner>);

impl Transport for Mesh {
    fn name(&self) -> &'static str {
        "mesh"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            levels: self.0.config.security.level().and_weaker(),
            largest_message: self.0.config.largest_message,
            acknowledgement: Acknowledgement::ReceiverProcess,
            resumes: true,
            pushes_back: true,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.0.local)
    }

    fn set_process_credential(&self, credential: &Arc<Credential>) -> Result<(), TransportError> {
        self.endpoint()
            .set_process_credential(credential)
            .map_err(|error| TransportError::Credential(error.to_string()))
    }

    fn trust_changed(&self) {
        self.endpoint().trust_changed();
    }

    fn forget_process(&self, process: &Identity) {
        self.endpoint().forget_process(process);
    }

    fn give_up<'a>(&'a self, why: &'a str) -> BoxFuture<'a, ()> {
        // The first reason counts.
        let _ = self.0.given_up.set(why.to_owned());
        self.0
            .for_each_link(|link| link.requests.make(|requests| &requests.forget));
        Box::pin(async move {
            let are_told = async {
                while self.0.are_any_unacknowledged() {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            // The links' tasks do it as soon as they run.
            let _ = timeout(GIVING_UP, are_told).await;
        })
    }

    fn shut_down(&self, grace: Duration) -> BoxFuture<'_, ()> {
        let endpoint = self.endpoint();
        Box::pin(async move { endpoint.shut_down(grace).await })
    }

    fn attach(&self, agent: &Arc<LocalAgent>) -> Result<(), TransportError> {
        let level = self.0.config.security.level();
        if level.authenticates() && agent.credential().is_none() {
            return Err(TransportError::NoCredential {
                agent: agent.name().to_string(),
                level,
            });
        }
        Ok(())
    }

    fn credential_changed(&self, agent: &Arc<LocalAgent>) {
        self.0
            .for_each_link(|link| link.outward.lock().renew(agent));
    }

    fn detach(&self, agent: &Arc<LocalAgent>) {
        self.0.for_each_link(|link| {
            link.outward.lock().unbind(agent);
            link.requests.make(|requests| &requests.agents_left);
        });
    }

    fn flush(&self) {
        let links = std::mem::take(&mut *self.0.deferred.lock());
        for link in links {
            link.flush_deferred();
        }
    }

    fn destination(
        &self,
        process: &ProcessEndpoint,
        receiver: &str,
    ) -> Result<Arc<dyn Destination>, TransportError> {
        if process.identity == self.0.config.process {
            return Err(over_limit(
                process,
                "the agent is said to be in this process, and is not attached",
            ));
        }
        if *receiver == *PROCESS_TARGET {
            return Err(over_limit(process, "an agent without a name"));
        }
        Ok(Arc::new(self.way_to(process, receiver)?))
    }

    fn process_destination(
        &self,
        process: &ProcessEndpoint,
    ) -> Result<Arc<dyn ProcessDestination>, TransportError> {
        if process.identity == self.0.config.process {
            return Err(over_limit(process, "this is the process itself"));
        }
        Ok(Arc::new(self.way_to(process, PROCESS_TARGET)?))
    }
}

impl Mesh {
    fn endpoint(&self) -> MeshEndpoint {
        MeshEndpoint {
            inner: self.0.clone(),
        }
    }

    fn way_to(
        &self,
        process: &ProcessEndpoint,
        target: &str,
    ) -> Result<MeshDestination, TransportError> {
        let link = self
            .0
            .link(&process.identity, process.address)
            .ok_or_else(|| over_limit(process, "this process talks to as many others as it may"))?;
        *link.address.lock() = process.address;
        MeshDestination::open(&link, target).ok_or_else(|| {
            over_limit(
                process,
                "the link has ended, or serves as many agents as it may",
            )
        })
    }
}

fn over_limit(process: &ProcessEndpoint, what: &str) -> TransportError {
    TransportError::OverLimit(format!("{what} ({})", process.identity))
}
