//! The endpoint of a process: its agents' links to the broker, as a transport of the bus.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{
    BoxFuture, Bus, Capabilities, Destination, Gate, LocalAgent, Outgoing, ProcessDestination,
    ProcessEndpoint, Rejected, Transport, TransportError, UndeliverableReason, is_foreign,
};
use sealbus_proof::Statement;
use sealbus_seal::{Credential, Identity, ProcessId, SecurityLevel, Timestamp, VerifyError};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::authorship::Written;
use crate::broker::Broker;
use crate::client::Client;
use crate::config::{BrokerConfig, ProcessLogin};
use crate::link::Link;
use crate::process_link::ProcessLink;
use crate::{frame_inbox, inbox, publisher};

/// The reason why there is no endpoint.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// No broker is named.
    #[error("no broker is named: give at least one address, HOST:PORT")]
    NoAddress,
    /// Another transport carries this bus already.
    #[error("the bus has a transport already")]
    TransportTaken,
}

/// The state of an agent's link, for `ps` and logs.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The agent.
    pub agent: Arc<str>,
    /// Whether messages can come now.
    pub is_receiving: bool,
    /// The reason why the broker takes no messages from the agent now, if it takes none.
    pub blocked: Option<String>,
    /// Whether everything that the agent sent is confirmed.
    pub is_settled: bool,
    /// Messages the broker has confirmed, and messages received.
    pub messages: (u64, u64),
}

struct Shared {
    broker: Arc<Broker>,
    /// The links, by the agents' numbers.
    links: Mutex<HashMap<u64, Arc<Link>>>,
    /// The link for the buses of processes.
    process: OnceLock<Arc<ProcessLink>>,
    /// The transport was shut down.
    has_ended: AtomicBool,
}

/// The endpoint of a process. A clone is another handle to the same endpoint.
#[derive(Clone)]
pub struct BrokerEndpoint {
    shared: Arc<Shared>,
}

impl BrokerEndpoint {
    /// Becomes the transport of `bus`. The endpoint's tasks run on the runtime on which this is called. Each agent
    /// connects through `client` when it is attached.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn open(
        config: BrokerConfig,
        client: Arc<dyn Client>,
        bus: &Bus,
    ) -> Result<Self, EndpointError> {
        if config.addresses.is_empty() {
            return Err(EndpointError::NoAddress);
        }
        let start = random();
        let broker = Arc::new(Broker {
            config,
            client,
            bus: bus.downgrade(),
            next_address: AtomicUsize::new(start as usize),
            runtime: Handle::current(),
        });
        let shared = Arc::new(Shared {
            broker: broker.clone(),
            links: Mutex::default(),
            process: OnceLock::new(),
            has_ended: AtomicBool::new(false),
        });
        let process = broker.config.process.clone().and_then(|process| {
            let ProcessLogin {
                identity,
                credential,
            } = process;
            ProcessLink::new(identity, credential, broker.clone(), random())
        });
        if let Some(process) = process {
            let _ = shared.process.set(process.clone());
            broker.runtime.spawn(frame_inbox::run(process));
        }
        let endpoint = Self { shared };
        if !bus.set_transport(Arc::new(endpoint.clone())) {
            return Err(EndpointError::TransportTaken);
        }
        Ok(endpoint)
    }

    /// Waits until messages can come to `agent`, for `patience` at most. Returns whether they can.
    pub async fn receiving(&self, agent: &str, patience: Duration) -> bool {
        match self.receives(agent) {
            Some(receives) => becomes_true(receives, patience).await,
            None => false,
        }
    }

    /// Waits until frames of other processes can come, for `patience` at most. Returns whether they can.
    pub async fn receiving_frames(&self, patience: Duration) -> bool {
        let Some(process) = self.shared.process.get() else {
            return false;
        };
        becomes_true(process.wire.is_receiving.subscribe(), patience).await
    }

    /// The present links.
    pub fn links(&self) -> Vec<LinkReport> {
        let links: Vec<_> = self.shared.links.lock().values().cloned().collect();
        links
            .iter()
            .map(|link| LinkReport {
                agent: link.agent.name().clone(),
                is_receiving: *link.wire.is_receiving.borrow(),
                blocked: link.wire.blocked.lock().clone(),
                is_settled: link.wire.is_settled(),
                messages: (
                    link.wire.sent.load(Ordering::Relaxed),
                    link.wire.received.load(Ordering::Relaxed),
                ),
            })
            .collect()
    }
}

impl BrokerEndpoint {
    /// Waits until all sent messages are confirmed, then closes all connections.
    async fn end(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        self.shared.has_ended.store(true, Ordering::Release);
        let links: Vec<_> = self.shared.links.lock().values().cloned().collect();
        for link in &links {
            link.wire.leaving.send_replace(true);
            link.wire.news.notify_one();
        }
        while Instant::now() < deadline
            && links
                .iter()
                .any(|link| !link.wire.is_settled() || Arc::strong_count(link) > 2)
        {
            sleep(Duration::from_millis(5)).await;
        }
        for link in links {
            link.wire.ending.send_replace(true);
        }
        if let Some(process) = self.shared.process.get() {
            process.wire.leaving.send_replace(true);
            process.wire.news.notify_one();
            while Instant::now() < deadline && !process.wire.is_settled() {
                sleep(Duration::from_millis(5)).await;
            }
            process.wire.ending.send_replace(true);
        }
    }
}

async fn becomes_true(mut state: watch::Receiver<bool>, patience: Duration) -> bool {
    let waited = tokio::time::timeout(patience, state.wait_for(|is| *is));
    matches!(waited.await, Ok(Ok(_)))
}

/// 64 random bits.
fn random() -> u64 {
    ProcessId::random().map_or_else(
        |_| {
            // If there is no randomness, the time distinguishes lives.
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64)
        },
        |id| {
            id.as_bytes()
                .iter()
                .take(8)
                .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        },
    )
}

impl Transport for BrokerEndpoint {
    fn name(&self) -> &'static str {
        self.shared.broker.client.name()
    }

    fn capabilities(&self) -> Capabilities {
        let level = self.shared.broker.config.security.level();
        // Agents that have certificates can sign single messages.
        let most = match level {
            SecurityLevel::Auth => SecurityLevel::Signed,
            level => level,
        };
        Capabilities {
            level,
            levels: most.and_weaker(),
            largest_message: self.shared.broker.config.largest_message,
            acknowledgement: self.shared.broker.client.acknowledgement(),
            resumes: true,
            // A queue grows on the broker's disk. The broker's alarms hold back all senders.
            pushes_back: false,
        }
    }

    /// Later connections use the new certificate.
    fn set_process_credential(&self, credential: &Arc<Credential>) -> Result<(), TransportError> {
        if let Some(process) = self.shared.process.get() {
            process.set_credential(credential.clone());
        }
        Ok(())
    }

    /// Revoked agents of this process send and receive nothing more. The broker also closes their connections, once the
    /// Master has removed their logins.
    fn trust_changed(&self) {
        let Some(trust) = self.shared.broker.config.security.certified() else {
            return;
        };
        let now = Timestamp::from(SystemTime::now());
        let links: Vec<_> = self.shared.links.lock().values().cloned().collect();
        for link in links {
            let credential = link.agent.credential();
            let verified = credential.map(|credential| trust.verify(credential.chain(), now));
            if let Some(Err(error @ VerifyError::Revoked { .. })) = verified {
                link.revoked(&error.to_string());
            }
        }
    }

    /// Only frames are forgotten. Messages for the agents of the process wait at the broker.
    fn forget_process(&self, process: &Identity) {
        if let Some(own) = self.shared.process.get() {
            own.forget_process(process);
        }
    }

    fn give_up<'a>(&'a self, why: &'a str) -> BoxFuture<'a, ()> {
        let links: Vec<_> = self.shared.links.lock().values().cloned().collect();
        for link in links {
            publisher::give_up_at_once(&*link, why);
        }
        Box::pin(std::future::ready(()))
    }

    fn shut_down(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.end(grace))
    }

    fn receives(&self, agent: &str) -> Option<watch::Receiver<bool>> {
        let links = self.shared.links.lock();
        let link = links
            .values()
            .find(|link| **link.agent.name() == *agent && !link.wire.has_left())?;
        Some(link.wire.is_receiving.subscribe())
    }

    fn attach(&self, agent: &Arc<LocalAgent>) -> Result<(), TransportError> {
        let level = self.shared.broker.config.security.level();
        if level.encrypts() && agent.credential().is_none() {
            return Err(TransportError::NoCredential {
                agent: agent.name().to_string(),
                level,
            });
        }
        let link = Link::new(agent.clone(), self.shared.broker.clone(), random());
        self.shared
            .links
            .lock()
            .insert(agent.number(), link.clone());
        self.shared.broker.runtime.spawn(inbox::run(link));
        Ok(())
    }

    /// The next connection uses the new certificate. The broker does not ask an open connection again.
    fn credential_changed(&self, _: &Arc<LocalAgent>) {}

    fn detach(&self, agent: &Arc<LocalAgent>) {
        let Some(link) = self.shared.links.lock().get(&agent.number()).cloned() else {
            return;
        };
        if let Some(process) = self.shared.process.get() {
            process.agent_left(agent.number());
        }
        link.wire.leaving.send_replace(true);
        link.wire.news.notify_one();
        self.shared.forget_when_settled(link);
    }

    fn destination(
        &self,
        _: &ProcessEndpoint,
        receiver: &str,
    ) -> Result<Arc<dyn Destination>, TransportError> {
        if is_foreign(receiver, &self.shared.broker.config.platform) {
            return Err(TransportError::NotOffered {
                transport: self.name(),
                what: "messages to other platforms",
            });
        }
        Ok(Arc::new(QueueDestination {
            shared: self.shared.clone(),
            receiver: receiver.into(),
            gate: Gate::default(),
        }))
    }

    fn process_destination(
        &self,
        process: &ProcessEndpoint,
    ) -> Result<Arc<dyn ProcessDestination>, TransportError> {
        let not_offered = || TransportError::NotOffered {
            transport: self.name(),
            what: "frames to what is no process",
        };
        let own = self.shared.process.get().ok_or_else(not_offered)?;
        if own.wire.has_left() {
            return Err(TransportError::ShutDown(self.name()));
        }
        let way = own.way(&process.identity).ok_or_else(not_offered)?;
        Ok(way)
    }
}

impl Shared {
    /// The link of an agent, and whether it is new. The bus may hold messages of an agent that has left meanwhile. They
    /// go out on a link that only sends. `None`: the transport was shut down.
    fn link_of(self: &Arc<Self>, sender: &Arc<LocalAgent>) -> Option<(Arc<Link>, bool)> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&sender.number()) {
            return Some((link.clone(), false));
        }
        if self.has_ended.load(Ordering::Acquire) {
            return None;
        }
        let link = Link::new(sender.clone(), self.broker.clone(), random());
        link.wire.leaving.send_replace(true);
        links.insert(sender.number(), link.clone());
        Some((link, true))
    }

    /// Forgets the link of an agent that has left, once its last messages have gone out.
    fn forget_when_settled(self: &Arc<Self>, link: Arc<Link>) {
        let shared = Arc::downgrade(self);
        self.broker.runtime.spawn(async move {
            let deadline = Instant::now() + link.wire.config().give_up;
            while !link.wire.is_settled()
                && Instant::now() < deadline
                && !*link.wire.ending.borrow()
            {
                sleep(Duration::from_millis(20)).await;
            }
            if let Some(shared) = Weak::upgrade(&shared) {
                shared.links.lock().remove(&link.agent.number());
            }
        });
    }
}

/// The way to an agent: its queue, which is the same for every place of the agent.
struct QueueDestination {
    shared: Arc<Shared>,
    receiver: Arc<str>,
    gate: Gate,
}

impl QueueDestination {
    fn accept(&self, link: &Arc<Link>, outgoing: &Outgoing<'_>) -> Result<(), Rejected> {
        let mut unconfirmed = link.wire.unconfirmed.lock();
        // Under the lock, because a revocation takes it to give up all messages that were accepted before.
        if let Some(reason) = link.revocation.get() {
            return Err(Rejected::Impossible(reason.clone()));
        }
        unconfirmed.check(&self.receiver)?;
        let mut payload = Vec::new();
        outgoing
            .encode_into(&mut payload)
            .map_err(|error| Rejected::Impossible(UndeliverableReason::Encoding(error)))?;
        let limit = self.shared.broker.config.largest_message;
        if payload.len() > limit {
            let size = payload.len();
            return Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size,
                limit,
            }));
        }
        let level = self.shared.broker.config.security.level();
        let signs = level >= SecurityLevel::Signed || level.authenticates() && outgoing.is_signed();
        let written = signs.then(|| {
            let statement = Statement::direct(&self.receiver, &payload);
            Written::new(link.agent.clone(), statement)
        });
        unconfirmed.accept(
            &self.receiver,
            Bytes::from(payload),
            written,
            Instant::now(),
        );
        // Under the lock, because the sending task ends under it, too.
        let is_sending = link.wire.sends.swap(true, Ordering::AcqRel);
        drop(unconfirmed);
        if !is_sending {
            self.shared
                .broker
                .runtime
                .spawn(publisher::run(link.clone()));
        }
        publisher::publish(&**link);
        Ok(())
    }
}

impl Destination for QueueDestination {
    fn try_send(&self, sender: &Arc<LocalAgent>, outgoing: &Outgoing<'_>) -> Result<(), Rejected> {
        let (link, is_new) = self.shared.link_of(sender).ok_or(Rejected::Closed)?;
        let accepted = self.accept(&link, outgoing);
        if is_new {
            self.shared.forget_when_settled(link);
        }
        accepted
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The queue goes with the agent, so nothing has to come back.
    fn recall(&self) {
        if let Some(bus) = self.shared.broker.bus.upgrade() {
            bus.returned(&self.receiver, Vec::new(), false, || {});
        }
    }
}
