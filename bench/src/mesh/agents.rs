//! Agents that measure, in one process and over the mesh.

use std::collections::HashMap;
use std::iter::repeat_n;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, Outbox, ProcessEndpoint, ResolveError, Resolver,
};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::{Identity, SecurityLevel};

use crate::mesh::credentials::{Authority, platform};
use crate::mesh::{BenchError, failed, raw};

pub(crate) const ECHO: &str = "echo@bench";
pub(crate) const SINK: &str = "sink@bench";
pub(crate) const METER: &str = "meter@bench";

/// The places of agents.
#[derive(Default)]
pub(crate) struct Table(Mutex<HashMap<String, Location>>);

impl Table {
    pub(crate) fn put(&self, agent: &str, process: ProcessEndpoint) {
        self.0
            .lock()
            .insert(agent.to_owned(), Location::Process(process));
    }
}

impl Resolver for Table {
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        let location = self
            .0
            .lock()
            .get(agent)
            .cloned()
            .unwrap_or(Location::InTransit);
        Box::pin(async move { Ok(location) })
    }
}

fn message(receiver: &str, size: usize) -> Result<AclMessage, BenchError> {
    Ok(AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(METER).map_err(failed)?)
        .with_receiver(Aid::new(receiver).map_err(failed)?)
        .with_content("x".repeat(size)))
}

/// Bytes of an encoded message with content of this size.
pub(crate) fn encoded_size(size: usize) -> Result<usize, BenchError> {
    let mut encoded = Vec::new();
    bitefficient::encode(&message(ECHO, size)?, &mut encoded).map_err(failed)?;
    Ok(encoded.len())
}

/// This process's agent, and the access to the other process's agent.
pub(crate) struct Agents {
    endpoint: MeshEndpoint,
    table: Arc<Table>,
    outbox: Outbox,
    mailbox: tokio::sync::Mutex<Mailbox>,
}

impl Agents {
    pub(crate) async fn open(
        level: SecurityLevel,
        authority: &Authority,
    ) -> Result<Self, BenchError> {
        let process = raw::process("node-1")?;
        let security = || -> Result<ProcessSecurity, BenchError> {
            Ok(ProcessSecurity {
                credential: authority.credential(process.clone()).map_err(failed)?,
                trust: authority.trust().map_err(failed)?,
            })
        };
        let security = match level {
            SecurityLevel::None => MeshSecurity::None,
            SecurityLevel::Tls => MeshSecurity::Tls(security()?),
            SecurityLevel::Signed => MeshSecurity::Signed(security()?),
            _ => MeshSecurity::Auth(security()?),
        };
        let config = BusConfig::new(platform().map_err(failed)?);
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = MeshEndpoint::bind(MeshConfig::new(process, listen, security), &bus)
            .await
            .map_err(failed)?;
        let table = Arc::new(Table::default());
        bus.set_resolver(table.clone());
        let credential = match level.authenticates() {
            true => {
                let identity = Identity::from_agent_name(METER).map_err(failed)?;
                Some(authority.credential(identity).map_err(failed)?)
            }
            false => None,
        };
        let (outbox, mailbox) = bus.attach(METER, credential, None).map_err(failed)?;
        Ok(Self {
            endpoint,
            table,
            outbox,
            mailbox: tokio::sync::Mutex::new(mailbox),
        })
    }

    /// The endpoint of this process.
    pub(crate) fn process(&self) -> ProcessEndpoint {
        self.endpoint.process()
    }

    /// Sets the endpoint of the other process.
    pub(crate) fn meet(&self, there: ProcessEndpoint) {
        for agent in [ECHO, SINK] {
            self.table.put(agent, there.clone());
        }
    }

    pub(crate) async fn round_trips(
        &self,
        size: usize,
        count: usize,
    ) -> Result<Vec<Duration>, BenchError> {
        round_trips(&self.outbox, &mut *self.mailbox.lock().await, size, count).await
    }

    pub(crate) async fn stream(
        &self,
        size: usize,
        messages: usize,
        together: usize,
    ) -> Result<f64, BenchError> {
        let mut mailbox = self.mailbox.lock().await;
        stream(&self.outbox, &mut mailbox, size, messages, together).await
    }

    pub(crate) async fn leave(&self) {
        self.endpoint.shut_down(Duration::from_millis(200)).await;
    }
}

/// Sends a new message each time and waits for the answer to it.
async fn round_trips(
    outbox: &Outbox,
    mailbox: &mut Mailbox,
    size: usize,
    count: usize,
) -> Result<Vec<Duration>, BenchError> {
    let mut times = Vec::with_capacity(count);
    let sample = message(ECHO, size)?;
    for number in 0..count + count / 10 {
        let start = Instant::now();
        outbox.send(sample.clone()).await.map_err(failed)?;
        let answer = mailbox
            .recv()
            .await
            .ok_or_else(|| failed("the mailbox was closed"))?;
        let content = answer
            .message()
            .content_bytes()
            .map(|content| content.len());
        if content != Some(size) {
            return Err(failed(format!("an answer without the content: {answer:?}")));
        }
        if number >= count / 10 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

/// Sends messages one way, `together` at a time, and asks at the end whether all have come. Returns messages a second.
async fn stream(
    outbox: &Outbox,
    mailbox: &mut Mailbox,
    size: usize,
    messages: usize,
    together: usize,
) -> Result<f64, BenchError> {
    let mut rate = 0.0;
    // The first, shorter run warms up.
    for messages in [messages / 10, messages] {
        let sample = Arc::new(message(SINK, size)?);
        let mut question = message(SINK, 0)?;
        question.performative = Performative::QueryRef;
        let start = Instant::now();
        let messages = messages / together * together;
        for _ in 0..messages / together {
            match together {
                1 => outbox.send(sample.clone()).await,
                _ => outbox.send_many(repeat_n(sample.clone(), together)).await,
            }
            .map_err(failed)?;
        }
        outbox.send(question).await.map_err(failed)?;
        let answer = mailbox
            .recv()
            .await
            .ok_or_else(|| failed("the mailbox was closed"))?;
        rate = messages as f64 / start.elapsed().as_secs_f64();
        let answer = answer.into_message();
        let expected = (messages * size).to_string();
        if answer.content_text() != Some(expected.as_str()) {
            return Err(failed(format!(
                "{expected} bytes sent, {:?} received",
                answer.content_text()
            )));
        }
    }
    Ok(rate)
}

fn in_process() -> Result<(Bus, Outbox, Mailbox), BenchError> {
    let config = BusConfig::new(platform().map_err(failed)?);
    let bus = Bus::new(config, tokio::runtime::Handle::current());
    let (outbox, mailbox) = bus.attach(METER, None, None).map_err(failed)?;
    Ok((bus, outbox, mailbox))
}

pub(crate) async fn in_process_round_trips(
    size: usize,
    count: usize,
) -> Result<Vec<Duration>, BenchError> {
    let (bus, outbox, mut mailbox) = in_process()?;
    let (echo, echo_mailbox) = bus.attach(ECHO, None, None).map_err(failed)?;
    tokio::spawn(be_echo(echo, echo_mailbox));
    let times = round_trips(&outbox, &mut mailbox, size, count).await;
    bus.detach(ECHO);
    times
}

pub(crate) async fn in_process_stream(
    size: usize,
    messages: usize,
    together: usize,
) -> Result<f64, BenchError> {
    let (bus, outbox, mut mailbox) = in_process()?;
    let (sink, sink_mailbox) = bus.attach(SINK, None, None).map_err(failed)?;
    tokio::spawn(be_sink(sink, sink_mailbox));
    let rate = stream(&outbox, &mut mailbox, size, messages, together).await;
    bus.detach(SINK);
    rate
}

/// Sends each message's content back to its sender.
pub(crate) async fn be_echo(outbox: Outbox, mut mailbox: Mailbox) {
    while let Some(received) = mailbox.recv().await {
        let message = received.message();
        let content = message.content_text().unwrap_or_default().into_owned();
        let reply = message
            .create_reply(Performative::Inform)
            .with_content(content);
        if outbox.send(reply).await.is_err() {
            return;
        }
    }
}

/// Reads each message, and answers the one that asks.
pub(crate) async fn be_sink(outbox: Outbox, mut mailbox: Mailbox) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    loop {
        if mailbox.recv_many(&mut batch, 256).await == 0 {
            return;
        }
        for received in batch.drain(..) {
            let message = received.message();
            bytes += message.content_bytes().map_or(0, |content| content.len());
            if message.performative() == Performative::QueryRef {
                let reply = message
                    .create_reply(Performative::Inform)
                    .with_content(bytes.to_string());
                bytes = 0;
                if outbox.send(reply).await.is_err() {
                    return;
                }
            }
        }
    }
}
