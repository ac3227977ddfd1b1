//! The mesh endpoint of a process: a listener, and one link to each process it talks to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealbus_bus::{
    Acknowledgement, BoxFuture, Bus, Capabilities, Destination, LinkCounts, LocalAgent,
    ProcessDestination, ProcessEndpoint, Transport, TransportError,
};
use sealbus_seal::tls::TlsError;
use sealbus_seal::{Credential, Identity, SecurityLevel};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::config::MeshConfig;
use crate::frame::PROCESS_TARGET;
use crate::link::MeshDestination;
use crate::links::Links;
use crate::own_process::{OwnProcess, Tls};
use crate::strangers::listen;

/// How long the links of a process that was given up may take to report their messages.
const GIVING_UP: Duration = Duration::from_secs(2);

/// The reason why an endpoint could not be opened.
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
    /// The system gives no randomness.
    #[error("the operating system provides no random numbers")]
    NoRandomness,
}

fn unusable(error: TlsError) -> BindError {
    BindError::Credential(error.to_string())
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
    /// The numbers of messages sent and received over it.
    pub messages: (u64, u64),
    /// How many connections were made so far.
    pub connections: u64,
}

/// The mesh endpoint of a process. A clone is another handle to the same endpoint.
#[derive(Clone)]
pub struct MeshEndpoint {
    links: Arc<Links>,
}

impl MeshEndpoint {
    /// Listens, and becomes the transport of `bus`. The endpoint's tasks run on the runtime on which this is called.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(config: MeshConfig, bus: &Bus) -> Result<Self, BindError> {
        let tls = Tls::new(&config).map_err(unusable)?;
        let failed = |source| BindError::Listen {
            address: config.listen,
            source,
        };
        let listener = listen(config.listen).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let own = OwnProcess::new(config, local, tls).ok_or(BindError::NoRandomness)?;
        let links = Links::new(own, bus.downgrade());
        if !bus.set_transport(Arc::new(Mesh(links.clone()))) {
            return Err(BindError::TransportTaken);
        }
        links.listen(listener);
        Ok(Self { links })
    }

    /// The address at which the endpoint listens. If port 0 was configured, it has the port that was found.
    pub fn local_address(&self) -> SocketAddr {
        self.links.own.address
    }

    /// The information that others need to reach this process.
    pub fn process(&self) -> ProcessEndpoint {
        ProcessEndpoint {
            identity: self.links.own.config.process.clone(),
            address: self.links.own.address,
        }
    }

    /// Shows a renewed certificate of this process. New connections use it at once. Open connections are replaced in
    /// the background, without losing a message.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    pub fn set_process_credential(&self, credential: &Credential) -> Result<(), BindError> {
        if self.links.own.show(credential).map_err(unusable)? {
            self.links
                .for_each_link(|link| link.requests.make(|requests| &requests.refresh));
        }
        Ok(())
    }

    /// The deny list has changed. Connections and proofs that it denies are dropped at once.
    pub fn trust_changed(&self) {
        self.links
            .for_each_link(|link| link.requests.make(|requests| &requests.check));
    }

    /// The platform reports that a process is gone for good. Messages that the process had not acknowledged are now
    /// reported to their senders.
    pub fn forget_process(&self, process: &Identity) {
        self.links.forget_former(process);
        if let Some(link) = self.links.get(process) {
            link.requests.make(|requests| &requests.forget);
            link.wake();
        }
    }

    /// The present links.
    pub fn links(&self) -> Vec<LinkReport> {
        self.links
            .all()
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

    /// Waits, for `grace` at most, until all sent messages are acknowledged and the peers know the outcome of theirs.
    /// Then closes all connections and the listener.
    pub async fn shut_down(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            if !self.links.are_any_unacknowledged() && !self.links.owe_outcomes() {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        self.links.stop_listening();
        self.links.for_each_link(|link| {
            link.outward.lock().has_ended = true;
            link.requests.make(|requests| &requests.end);
        });
        // The tasks say goodbye when they run next.
        while self
            .links
            .all()
            .iter()
            .any(|link| link.wire.lock().is_some())
            && Instant::now() < deadline + Duration::from_millis(200)
        {
            sleep(Duration::from_millis(1)).await;
        }
        self.links.clear();
    }
}

/// The endpoint, for the bus.
struct Mesh(Arc<Links>);

impl Transport for Mesh {
    fn name(&self) -> &'static str {
        "mesh"
    }

    fn capabilities(&self) -> Capabilities {
        let level = self.0.own.config.security.level();
        // Agents that prove themselves can also sign single messages.
        let most = match level {
            SecurityLevel::Auth => SecurityLevel::Signed,
            level => level,
        };
        Capabilities {
            level,
            levels: most.and_weaker(),
            largest_message: self.0.own.config.largest_message,
            acknowledgement: Some(Acknowledgement::ReceiverProcess),
            resumes: true,
            pushes_back: true,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.0.own.address)
    }

    fn links(&self) -> Option<LinkCounts> {
        let mut counts = LinkCounts::default();
        for link in self.endpoint().links() {
            counts.connected += usize::from(link.is_connected);
            counts.unacknowledged += link.unacknowledged;
        }
        Some(counts)
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
        let _ = self.0.own.given_up.set(why.to_owned());
        self.0
            .for_each_link(|link| link.requests.make(|requests| &requests.forget));
        Box::pin(async move {
            let are_told = async {
                while self.0.are_any_unacknowledged() {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            // The links' tasks report as soon as they run.
            let _ = timeout(GIVING_UP, are_told).await;
        })
    }

    fn shut_down(&self, grace: Duration) -> BoxFuture<'_, ()> {
        let endpoint = self.endpoint();
        Box::pin(async move { endpoint.shut_down(grace).await })
    }

    fn attach(&self, agent: &Arc<LocalAgent>) -> Result<(), TransportError> {
        let level = self.0.own.config.security.level();
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

    fn destination(
        &self,
        process: &ProcessEndpoint,
        receiver: &str,
    ) -> Result<Arc<dyn Destination>, TransportError> {
        if process.identity == self.0.own.config.process {
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
        if process.identity == self.0.own.config.process {
            return Err(over_limit(process, "this is the process itself"));
        }
        Ok(Arc::new(self.way_to(process, PROCESS_TARGET)?))
    }
}

impl Mesh {
    fn endpoint(&self) -> MeshEndpoint {
        MeshEndpoint {
            links: self.0.clone(),
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
