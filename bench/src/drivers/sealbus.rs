//! Agents of Sealbus, driven through the bus as the SDK drives them: in one process, or in two processes over the mesh
//! or a RabbitMQ.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;
use sealbus_bench_driver::{Kind, Prepare, Role, Shape, monotonic_ns};
use sealbus_brokers::rabbitmq::RabbitClient;
use sealbus_brokers::{BrokerEndpoint, BrokerPromise};
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, Outbox, ProcessEndpoint, ResolveError, Resolver,
    Transport,
};
use sealbus_channels::{
    ChannelPath, ChannelPattern, Channels, Qos, Subscription, SubscriptionOptions,
};
use sealbus_fipa::{AclMessage, Aid, Content, Performative};
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::{Credential, Identity, SecurityLevel};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::drivers::broker::{Access, Doorway};
use crate::drivers::certify::Certificates;
use crate::drivers::sealing::Keys;
use crate::drivers::stage::{DriverError, Prepared, Received, Sender, System, failed};
use crate::mesh::credentials::platform;
use crate::mesh::raw;

/// Messages taken from a mailbox at a time.
const TOGETHER: usize = 256;
/// The channel of a broadcast.
const CHANNEL: &str = "/bench";
const FAREWELL: Duration = Duration::from_millis(200);
/// How long an agent may take to become reachable through the broker.
const REACHABLE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Settings {
    /// The mesh's level. Agents of one process have none.
    #[serde(default)]
    level: SecurityLevel,
    /// The broker's promise, if the agents use one.
    #[serde(default)]
    promise: BrokerPromise,
    /// The broker, if the agents use one.
    #[serde(flatten)]
    broker: Option<Access>,
}

/// The facts by which the other process is reached.
#[derive(Clone, Serialize, Deserialize)]
struct Endpoint {
    identity: String,
    address: SocketAddr,
    /// A part of the agents' names, because a broker remembers the agents of earlier runs.
    run: String,
}

impl Endpoint {
    fn to_process(&self) -> Result<ProcessEndpoint, DriverError> {
        Ok(ProcessEndpoint {
            identity: self.identity.parse().map_err(failed)?,
            address: self.address,
        })
    }
}

/// A directory in which every agent outside this process is in the other one.
#[derive(Default)]
struct Elsewhere(RwLock<Option<ProcessEndpoint>>);

impl Resolver for Elsewhere {
    fn resolve<'a>(&'a self, _agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        let location = self.0.read().clone().map(Location::Process);
        Box::pin(async move { Ok(location.unwrap_or(Location::InTransit)) })
    }
}

fn sender_name(run: &str, number: u32) -> String {
    format!("sender{run}-{number}@bench")
}

fn receiver_name(run: &str, number: u32) -> String {
    format!("receiver{run}-{number}@bench")
}

/// The transport that carries messages to the other process.
enum Carrier {
    Mesh(MeshEndpoint),
    RabbitMq(BrokerEndpoint, Box<Doorway>),
}

/// The form in which agents write the instrument's content, which is ASCII.
#[derive(Clone, Copy)]
pub(crate) enum Writing {
    /// As bytes.
    Bytes,
    /// As text, as JADE's agents do.
    Text,
}

impl Writing {
    fn content(self, bytes: &[u8]) -> Content {
        match self {
            Self::Bytes => bytes.into(),
            Self::Text => match str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => bytes.into(),
            },
        }
    }
}

/// An agent that sends.
pub(crate) struct Speaker {
    pub(crate) outbox: Outbox,
    pub(crate) mailbox: Mailbox,
    /// The part that is the same in every message.
    pub(crate) sample: AclMessage,
    /// The last message. The next one takes its place and its memory, unless somebody still has it.
    pub(crate) last: Option<Arc<AclMessage>>,
    pub(crate) writing: Writing,
    /// The channel of a broadcast.
    pub(crate) channel: Option<(Channels, ChannelPath)>,
}

impl Speaker {
    fn say(&mut self, content: &[u8]) -> Arc<AclMessage> {
        let last = self.last.as_mut().and_then(Arc::get_mut);
        if let Some(Content::Bytes(bytes)) = last.and_then(|last| last.content.as_mut()) {
            bytes.clear();
            bytes.extend_from_slice(content);
        } else {
            self.last = None;
        }
        let next = || {
            self.sample
                .clone()
                .with_content(self.writing.content(content))
        };
        self.last.get_or_insert_with(|| next().into()).clone()
    }
}

impl Sender for Speaker {
    async fn send(&mut self, content: &[u8]) -> Result<(), DriverError> {
        let message = self.say(content);
        let Some((channels, path)) = &self.channel else {
            return self.outbox.send(message).await.map_err(failed);
        };
        channels
            .publish(&self.outbox, path, &Qos::default(), message)
            .await
            .map_err(failed)?;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    async fn ask(&mut self, content: &[u8]) -> Result<bool, DriverError> {
        self.send(content).await?;
        let answer = self.mailbox.recv().await;
        let answer = answer.ok_or_else(|| failed("the mailbox was closed"))?;
        let message = answer.message();
        Ok(message.performative() == Performative::Inform
            && message
                .content_bytes()
                .is_some_and(|bytes| *bytes == *content))
    }
}

/// The agents of a process.
pub(crate) struct Agents {
    bus: Bus,
    carrier: Option<Carrier>,
    elsewhere: Arc<Elsewhere>,
    /// The keys for sealed messages, the run's folder, and the agents that state them, at level `sealed`.
    sealing: Option<Arc<Keys>>,
    stating: Vec<(String, Arc<Credential>)>,
    folder: String,
    /// The other process.
    other: Role,
    /// Agents that listen.
    listening: Vec<tokio::task::JoinHandle<()>>,
}

impl System for Agents {
    type Sender = Speaker;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let Settings {
            level,
            promise,
            broker,
        } = serde_json::from_value(order.system.clone()).map_err(failed)?;
        let config = BusConfig::new(platform().map_err(failed)?);
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let elsewhere = Arc::new(Elsewhere::default());
        let process = raw::process("bench").map_err(failed)?;
        let mut here = Endpoint {
            identity: process.to_string(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            run: String::new(),
        };
        let mut carrier = None;
        let mut certificates = None;
        if order.role != Role::Both {
            bus.set_resolver(elsewhere.clone());
            carrier = Some(match &broker {
                Some(access) => {
                    here.run = format!("-{}", order.run);
                    let mut door = access.open(level, promise)?;
                    let mut config = door.config()?;
                    config.process = Some(door.admit_process(process).await?);
                    let client = Arc::new(RabbitClient::new(&config));
                    let endpoint = BrokerEndpoint::open(config, client, &bus).map_err(failed)?;
                    if !endpoint.receiving_frames(REACHABLE).await {
                        return Err(failed("other processes cannot reach this one"));
                    }
                    Carrier::RabbitMq(endpoint, Box::new(door))
                }
                None => {
                    if level.encrypts() {
                        certificates = Some(Certificates::open(order)?);
                    }
                    let mesh = bind(&bus, level, process, certificates.as_mut()).await?;
                    here.address = mesh.process().address;
                    Carrier::Mesh(mesh)
                }
            });
        }
        let mut agents = Self {
            bus,
            carrier,
            elsewhere,
            sealing: None,
            stating: Vec::new(),
            folder: order.folder.clone(),
            other: match order.role {
                Role::Send => Role::Receive,
                Role::Receive | Role::Both => Role::Send,
            },
            listening: Vec::new(),
        };
        if let Some(certificates) = &certificates
            && level == SecurityLevel::Sealed
        {
            let keys = Arc::new(Keys::new(certificates.trust()?)?);
            agents.bus.set_sealer(keys.clone());
            agents.sealing = Some(keys);
        }
        let mut there = here.clone();
        if order.role == Role::Send {
            agents.meet(&order.there)?;
            there = serde_json::from_value(order.there.clone()).map_err(failed)?;
        }
        let scenario = &order.scenario;
        if order.role != Role::Send {
            for number in 0..scenario.receivers {
                let name = receiver_name(&here.run, number);
                let (outbox, mailbox) = agents.attach(&name, level, &mut certificates).await?;
                let received = received.clone();
                agents
                    .listening
                    .push(match (scenario.kind, scenario.shape) {
                        (Kind::RoundTrip, _) => {
                            tokio::spawn(answer(mailbox, received, outbox, Writing::Bytes))
                        }
                        (Kind::Stream, Shape::Broadcast) => {
                            let pattern = ChannelPattern::new(CHANNEL).map_err(failed)?;
                            let options = SubscriptionOptions::new(pattern);
                            let channels = Channels::of(&agents.bus);
                            let subscription =
                                channels.subscribe(&outbox, options).map_err(failed)?;
                            let size = scenario.size;
                            tokio::spawn(hear(number, size, subscription, received, outbox))
                        }
                        (Kind::Stream, _) => {
                            tokio::spawn(take(number, scenario.size, mailbox, received, outbox))
                        }
                    });
            }
        }
        let mut senders = Vec::new();
        if order.role != Role::Receive {
            for number in 0..scenario.senders {
                let name = sender_name(&here.run, number);
                let (outbox, mailbox) = agents.attach(&name, level, &mut certificates).await?;
                let mut sample = AclMessage::new(Performative::Inform)
                    .with_sender(Aid::new(&name).map_err(failed)?);
                let receiver = match scenario.shape {
                    Shape::OneToOne => Some(number),
                    Shape::ManyToOne => Some(0),
                    Shape::Broadcast => None,
                };
                let mut channel = None;
                match receiver {
                    Some(receiver) => {
                        let receiver =
                            Aid::new(receiver_name(&there.run, receiver)).map_err(failed)?;
                        sample = sample.with_receiver(receiver);
                    }
                    None => {
                        let path = ChannelPath::new(CHANNEL).map_err(failed)?;
                        channel = Some((Channels::of(&agents.bus), path));
                    }
                }
                senders.push(Speaker {
                    outbox,
                    mailbox,
                    sample,
                    last: None,
                    writing: Writing::Bytes,
                    channel,
                });
            }
        }
        if let Some(keys) = &agents.sealing {
            keys.publish(&order.folder, order.role, &agents.stating)?;
        }
        let here = match &agents.carrier {
            Some(_) => serde_json::to_value(here).map_err(failed)?,
            None => Value::Null,
        };
        Ok(Prepared {
            system: agents,
            senders,
            here,
            client: format!("Sealbus {}", env!("CARGO_PKG_VERSION")),
        })
    }

    fn meet(&mut self, there: &Value) -> Result<(), DriverError> {
        if self.carrier.is_some() {
            let there: Endpoint = serde_json::from_value(there.clone()).map_err(failed)?;
            let there = there.to_process()?;
            if let Some(keys) = &self.sealing {
                keys.learn(&self.folder, self.other)?;
            }
            self.bus.process_joined(there.clone());
            *self.elsewhere.0.write() = Some(there);
        }
        Ok(())
    }

    async fn leave(self) {
        for agent in &self.listening {
            agent.abort();
        }
        match self.carrier {
            None => {}
            Some(Carrier::Mesh(mesh)) => mesh.shut_down(FAREWELL).await,
            Some(Carrier::RabbitMq(endpoint, door)) => {
                endpoint.shut_down(FAREWELL).await;
                door.dismiss().await;
            }
        }
    }
}

impl Agents {
    async fn attach(
        &mut self,
        name: &str,
        level: SecurityLevel,
        certificates: &mut Option<Certificates>,
    ) -> Result<(Outbox, Mailbox), DriverError> {
        let credential = match (&mut self.carrier, certificates) {
            (Some(Carrier::RabbitMq(_, door)), _) => door.admit(name).await?,
            (_, Some(certificates)) if level.authenticates() => {
                let identity = Identity::from_agent_name(name).map_err(failed)?;
                Some(certificates.credential(identity)?)
            }
            _ => None,
        };
        if let (Some(_), Some(credential)) = (&self.sealing, &credential) {
            self.stating.push((name.to_owned(), credential.clone()));
        }
        let attached = self.bus.attach(name, credential, None).map_err(failed)?;
        if let Some(Carrier::RabbitMq(endpoint, _)) = &self.carrier
            && !endpoint.receiving(name, REACHABLE).await
        {
            return Err(failed(format!("{name} cannot receive")));
        }
        Ok(attached)
    }
}

async fn bind(
    bus: &Bus,
    level: SecurityLevel,
    process: Identity,
    certificates: Option<&mut Certificates>,
) -> Result<MeshEndpoint, DriverError> {
    let security = match certificates {
        None => MeshSecurity::None,
        Some(certificates) => {
            let security = ProcessSecurity {
                credential: certificates.credential(process.clone())?,
                trust: certificates.trust()?,
            };
            match level {
                SecurityLevel::Tls => MeshSecurity::Tls(security),
                SecurityLevel::None | SecurityLevel::Auth => MeshSecurity::Auth(security),
                // The agents seal their messages themselves.
                SecurityLevel::Signed | SecurityLevel::Sealed => MeshSecurity::Signed(security),
            }
        }
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    MeshEndpoint::bind(MeshConfig::new(process, listen, security), bus)
        .await
        .map_err(failed)
}

/// Counts the messages that come. The outbox keeps the agent attached.
async fn take(
    number: u32,
    size: usize,
    mut mailbox: Mailbox,
    received: Arc<Received>,
    _outbox: Outbox,
) {
    let mut batch = Vec::new();
    while mailbox.recv_many(&mut batch, TOGETHER).await > 0 {
        let mut tally = received.tally.lock();
        for message in batch.drain(..) {
            let now_ns = monotonic_ns();
            let view = message.message();
            let content = view.content_bytes();
            tally.count(number, content.as_deref().unwrap_or_default(), size, now_ns);
        }
    }
}

/// Counts the published events.
async fn hear(
    number: u32,
    size: usize,
    mut subscription: Subscription,
    received: Arc<Received>,
    _outbox: Outbox,
) {
    let mut batch = Vec::new();
    while subscription.recv_many(&mut batch, TOGETHER).await > 0 {
        let mut tally = received.tally.lock();
        for event in batch.drain(..) {
            let now_ns = monotonic_ns();
            let message = event.message.message();
            let content = message.content_bytes();
            tally.count(number, content.as_deref().unwrap_or_default(), size, now_ns);
        }
    }
}

/// Sends each message's content back to its sender.
pub(crate) async fn answer(
    mut mailbox: Mailbox,
    received: Arc<Received>,
    outbox: Outbox,
    writing: Writing,
) {
    while let Some(message) = mailbox.recv().await {
        let message = message.message();
        let reply = message.create_reply(Performative::Inform);
        let content = message.content_bytes().unwrap_or_default();
        if outbox
            .send(reply.with_content(writing.content(&content)))
            .await
            .is_err()
        {
            return;
        }
        received.answered.fetch_add(1, Ordering::Relaxed);
    }
}
