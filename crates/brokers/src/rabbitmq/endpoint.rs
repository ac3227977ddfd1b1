//! The endpoint of a process: its agents' links to the broker, as a transport of the bus.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{
    Acknowledgement, Bus, Capabilities, Destination, Gate, LocalAgent, Outgoing,
    ProcessDestination, ProcessEndpoint, Rejected, Transport, TransportError, UndeliverableReason,
    WeakBus, is_foreign,
};
use sealbus_seal::{Credential, Identity, ProcessId, Timestamp, VerifyError};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::config::{ProcessLogin, RabbitConfig, RabbitSecurity};
use super::link::Link;
use super::process_link::ProcessLink;
use super::{consumer, frame_inbox, publisher};

/// Why there is no endpoint.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No broker is named.
    #[error("no broker is named: give at least one address, HOST:PORT")]
    NoAddress,
    /// Another transport carries this bus already.
    #[error("the bus has a transport already")]
    TransportTaken,
}

/// What is known about an agent's link, for `ps` and logs.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The agent.
    pub agent: Arc<str>,
    /// Whether messages can come now.
    pub is_receiving: bool,
    /// Why the broker takes no messages from it now, if so.
    pub blocked: Option<String>,
    /// Whether all it sent is confirmed.
    pub is_settled: bool,
    /// Messages the broker has confirmed, and messages received.
    pub messages: (u64, u64),
}

pub(crate) struct Shared {
    pub(crate) config: RabbitConfig,
    pub(crate) bus: WeakBus,
    /// Which of the brokers the next connection tries first.
    pub(crate) next_broker: AtomicUsize,
    /// By the agents' numbers.
    links: Mutex<HashMap<u64, Arc<Link>>>,
    /// The link for the buses of processes.
    process: OnceLock<Arc<ProcessLink>>,
    pub(crate) runtime: Handle,
}

/// The endpoint of a process. Cloning it gives another handle to the same one.
#[derive(Clone)]
pub struct RabbitEndpoint {
    shared: Arc<Shared>,
}

impl RabbitEndpoint {
    /// Becomes the transport of `bus`. Its tasks run on the runtime this is called on. Each agent connects when it is
    /// attached.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: RabbitConfig, bus: &Bus) -> Result<Self, OpenError> {
        if config.addresses.is_empty() {
            return Err(OpenError::NoAddress);
        }
        let start = random();
        let shared = Arc::new(Shared {
            config,
            bus: bus.downgrade(),
            next_broker: AtomicUsize::new(start as usize),
            links: Mutex::default(),
            process: OnceLock::new(),
            runtime: Handle::current(),
        });
        let process = shared.config.process.clone().and_then(|process| {
            let ProcessLogin {
                identity,
                credential,
            } = process;
            ProcessLink::new(identity, credential, shared.clone(), random())
        });
        if let Some(process) = process {
            let _ = shared.process.set(process.clone());
            shared.runtime.spawn(frame_inbox::run(process));
        }
        if !bus.set_transport(Arc::new(RabbitMq(shared.clone()))) {
            return Err(OpenError::TransportTaken);
        }
        Ok(Self { shared })
    }

    /// Waits until messages can come to `agent`, for `patience` at most; says whether they can.
    pub async fn receiving(&self, agent: &str, patience: Duration) -> bool {
        match self.receives(agent) {
            Some(receives) => becomes_true(receives, patience).await,
            None => false,
        }
    }

    /// Whether messages can come to `agent`, from now on; none if it is not attached.
    pub fn receives(&self, agent: &str) -> Option<watch::Receiver<bool>> {
        let links = self.shared.links.lock();
        let link = links
            .values()
            .find(|link| **link.agent.name() == *agent && !link.wire.has_left())?;
        Some(link.wire.is_receiving.subscribe())
    }

    /// Waits until frames of other processes can come, for `patience` at most; says whether they can.
    pub async fn receiving_frames(&self, patience: Duration) -> bool {
        let Some(process) = self.shared.process.get() else {
            return false;
        };
        becomes_true(process.wire.is_receiving.subscribe(), patience).await
    }

    /// The process has a new certificate: connections are made with it from now on.
    pub fn set_process_credential(&self, credential: Arc<Credential>) {
        if let Some(process) = self.shared.process.get() {
            process.set_credential(credential);
        }
    }

    /// The deny list has changed: agents of this process that were revoked send and receive nothing more. The broker
    /// closes their connections as well, once the Master has removed their users.
    pub fn trust_changed(&self) {
        let RabbitSecurity::Auth(trust) = &self.shared.config.security else {
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

    /// A process is no more: nothing is to be remembered of it.
    pub fn forget_process(&self, process: &Identity) {
        if let Some(own) = self.shared.process.get() {
            own.forget_process(process);
        }
    }

    /// The links there are.
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

    /// Waits until all that was sent is confirmed, for `grace` at most, then closes all connections.
    pub async fn shut_down(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
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
            // Without randomness: the time tells lives apart as well.
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

/// The endpoint as the bus sees it.
struct RabbitMq(Arc<Shared>);

impl Transport for RabbitMq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            levels: self.0.config.security.level().and_weaker(),
            largest_message: self.0.config.largest_message,
            acknowledgement: Acknowledgement::OnMajority,
            resumes: true,
            // A queue grows on the broker's disk; its alarms hold back all who send.
            pushes_back: false,
        }
    }

    fn attach(&self, agent: &Arc<LocalAgent>) -> Result<(), TransportError> {
        let level = self.0.config.security.level();
        if level.encrypts() && agent.credential().is_none() {
            return Err(TransportError::NoCredential {
                agent: agent.name().to_string(),
                level,
            });
        }
        let link = Link::new(agent.clone(), self.0.clone(), random());
        self.0.links.lock().insert(agent.number(), link.clone());
        self.0.runtime.spawn(consumer::run(link));
        Ok(())
    }

    /// The next connection is made with the new certificate; the broker does not ask an open one again.
    fn credential_changed(&self, _: &Arc<LocalAgent>) {}

    fn detach(&self, agent: &Arc<LocalAgent>) {
        let Some(link) = self.0.links.lock().get(&agent.number()).cloned() else {
            return;
        };
        if let Some(process) = self.0.process.get() {
            process.agent_left(agent.number());
        }
        link.wire.leaving.send_replace(true);
        link.wire.news.notify_one();
        let shared = Arc::downgrade(&self.0);
        let number = agent.number();
        // Its last messages are still on their way.
        self.0.runtime.spawn(async move {
            let patience = link.wire.config().give_up;
            let deadline = Instant::now() + patience;
            while !link.wire.is_settled()
                && Instant::now() < deadline
                && !*link.wire.ending.borrow()
            {
                sleep(Duration::from_millis(20)).await;
            }
            if let Some(shared) = Weak::upgrade(&shared) {
                shared.links.lock().remove(&number);
            }
        });
    }

    fn flush(&self) {}

    fn destination(
        &self,
        _: &ProcessEndpoint,
        receiver: &str,
    ) -> Result<Arc<dyn Destination>, TransportError> {
        if is_foreign(receiver, &self.0.config.platform) {
            return Err(TransportError::NotOffered {
                transport: self.name(),
                what: "messages to other platforms",
            });
        }
        Ok(Arc::new(Queue {
            shared: self.0.clone(),
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
        let own = self.0.process.get().ok_or_else(not_offered)?;
        if own.wire.has_left() {
            return Err(TransportError::ShutDown(self.name()));
        }
        let way = own.way(&process.identity).ok_or_else(not_offered)?;
        Ok(way)
    }
}

/// The way to an agent: its queue, wherever it is.
struct Queue {
    shared: Arc<Shared>,
    receiver: Arc<str>,
    gate: Gate,
}

impl Destination for Queue {
    fn try_send(&self, sender: &Arc<LocalAgent>, outgoing: &Outgoing<'_>) -> Result<(), Rejected> {
        let link = {
            let links = self.shared.links.lock();
            links.get(&sender.number()).cloned()
        };
        let link = link.ok_or(Rejected::Closed)?;
        if let Some(reason) = link.revocation.get() {
            return Err(Rejected::Impossible(reason.clone()));
        }
        let mut waiting = link.wire.outgoing.lock();
        waiting.check(&self.receiver)?;
        let mut payload = Vec::new();
        outgoing
            .encode_into(&mut payload)
            .map_err(|error| Rejected::Impossible(UndeliverableReason::Encoding(error)))?;
        let limit = self.shared.config.largest_message;
        if payload.len() > limit {
            let size = payload.len();
            return Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size,
                limit,
            }));
        }
        waiting.accept(&self.receiver, Bytes::from(payload), (), Instant::now());
        drop(waiting);
        if !link.wire.sends.swap(true, Ordering::AcqRel) {
            self.shared.runtime.spawn(publisher::run(link.clone()));
        }
        publisher::publish(&*link);
        Ok(())
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The queue goes with the agent, so nothing has to come back.
    fn recall(&self) {
        if let Some(bus) = self.shared.bus.upgrade() {
            bus.returned(&self.receiver, Vec::new(), false, || {});
        }
    }
}
