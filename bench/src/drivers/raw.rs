//! The limit: framed messages over bare TCP or bare mutual TLS, on the runtime that Sealbus uses. Each pair has a
//! connection; in a broadcast the sender has one to each receiver.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sealbus_bench_driver::{Kind, Prepare, Role, Shape, monotonic_ns};
use sealbus_seal::SecurityLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::Mutex;

use crate::drivers::certify::Certificates;
use crate::drivers::stage::{DriverError, Prepared, Received, Sender, System, failed};
use crate::mesh::raw::{self, Security, Stream};

/// Waiting bytes are written when there are this many.
const WRITE: usize = 32 << 10;
const READ: usize = 64 << 10;
/// Most connections that may arrive at once.
pub(crate) const BACKLOG: u32 = 4096;
/// The longest message.
const LONGEST: usize = 64 << 20;

/// The settings of a raw system.
#[derive(Debug, Deserialize)]
pub(crate) struct Settings {
    pub(crate) level: SecurityLevel,
    /// Where the two processes are, if they are not on the machine's own network.
    sides: Option<Sides>,
}

/// The places of both processes.
#[derive(Debug, Deserialize)]
struct Sides {
    send: NetworkPlace,
    receive: NetworkPlace,
}

/// A network namespace, and the address in it.
#[derive(Debug, Deserialize)]
struct NetworkPlace {
    network: PathBuf,
    address: IpAddr,
}

impl NetworkPlace {
    /// Moves this thread there. All sockets are opened on it.
    fn enter(&self) -> Result<IpAddr, DriverError> {
        let network = std::fs::File::open(&self.network)?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(network.as_fd(), kind).map_err(failed)?;
        Ok(self.address)
    }
}

/// The addresses of the receivers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Here {
    pub(crate) address: SocketAddr,
}

/// A connection with the bytes that wait to be written.
pub(crate) struct Line {
    stream: Stream,
    waiting: Vec<u8>,
}

impl Line {
    async fn put(&mut self, content: &[u8]) -> Result<(), DriverError> {
        let length = u32::try_from(content.len()).map_err(failed)?;
        self.waiting.extend_from_slice(&length.to_be_bytes());
        self.waiting.extend_from_slice(content);
        if self.waiting.len() >= WRITE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        if !self.waiting.is_empty() {
            self.stream.write_all(&self.waiting).await?;
            self.stream.flush().await?;
            self.waiting.clear();
        }
        Ok(())
    }
}

/// A sender writes to the lines of its receivers; in a broadcast, all senders to the same ones.
pub(crate) struct Writer {
    lines: Vec<Arc<Mutex<Line>>>,
    /// Must be called before anything is sent.
    number: Option<Number>,
    answer: Vec<u8>,
}

/// The address a sender connects to, and its identity.
#[derive(Clone)]
struct Number {
    address: SocketAddr,
    level: SecurityLevel,
    security: Security,
    receiver: u32,
}

impl Number {
    async fn call(&self) -> Result<Arc<Mutex<Line>>, DriverError> {
        let mut stream = raw::connect(self.address, self.level, &self.security)
            .await
            .map_err(failed)?;
        stream.write_u32(self.receiver).await?;
        stream.flush().await?;
        Ok(Arc::new(Mutex::new(Line {
            stream,
            waiting: Vec::with_capacity(2 * WRITE),
        })))
    }
}

impl Sender for Writer {
    async fn send(&mut self, content: &[u8]) -> Result<(), DriverError> {
        for line in &self.lines {
            line.lock().await.put(content).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        for line in &self.lines {
            line.lock().await.flush().await?;
        }
        Ok(())
    }

    async fn ask(&mut self, content: &[u8]) -> Result<bool, DriverError> {
        if let Some(number) = self.number.take() {
            self.lines.push(number.call().await?);
        }
        self.send(content).await?;
        self.flush().await?;
        let line = self.lines.first().ok_or_else(|| failed("no line"))?;
        let stream = &mut line.lock().await.stream;
        read_frame(stream, &mut self.answer).await?;
        Ok(self.answer == content)
    }
}

/// Reads a length, and a frame of that length.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    content: &mut Vec<u8>,
) -> Result<(), DriverError> {
    let length = stream.read_u32().await? as usize;
    if length > LONGEST {
        return Err(failed("a message too long"));
    }
    content.resize(length, 0);
    stream.read_exact(content).await?;
    Ok(())
}

/// The connections of a process.
pub(crate) struct Connections;

impl System for Connections {
    type Sender = Writer;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let size = order.scenario.size;
        let (senders, here) = open(order, received, move |received, receiver, content| {
            let now_ns = monotonic_ns();
            let mut tally = received.tally.lock();
            tally.count(receiver, content, size, now_ns);
        })
        .await?;
        Ok(Prepared {
            system: Self,
            senders,
            here,
            client: "tokio, rustls".to_owned(),
        })
    }

    fn meet(&mut self, _there: &Value) -> Result<(), DriverError> {
        Ok(())
    }

    async fn leave(self) {}
}

/// Connects senders, or listens for them and gives each message to `deliver`.
pub(crate) async fn open(
    order: &Prepare,
    received: Arc<Received>,
    deliver: impl Fn(&Arc<Received>, u32, &[u8]) + Clone + Send + 'static,
) -> Result<(Vec<Writer>, Value), DriverError> {
    let Settings { level, sides } = serde_json::from_value(order.system.clone()).map_err(failed)?;
    let own = match (&sides, order.role) {
        (None, _) => IpAddr::from([127, 0, 0, 1]),
        (Some(sides), Role::Send) => sides.send.enter()?,
        (Some(sides), Role::Receive | Role::Both) => sides.receive.enter()?,
    };
    let security = if level.encrypts() {
        let mut certificates = Certificates::open(order)?;
        let process = raw::process("bench").map_err(failed)?;
        Some((certificates.credential(process)?, certificates.trust()?))
    } else {
        None
    };
    let scenario = &order.scenario;
    if order.role == Role::Send {
        let Here { address } = serde_json::from_value(order.there.clone()).map_err(failed)?;
        let number = match scenario.shape {
            Shape::Broadcast => scenario.receivers,
            Shape::OneToOne | Shape::ManyToOne => scenario.senders,
        };
        let mut lines = Vec::new();
        let mut numbers = Vec::new();
        for line in 0..number {
            let number = Number {
                address,
                level,
                security: security.clone(),
                receiver: match scenario.shape {
                    Shape::ManyToOne => 0,
                    Shape::OneToOne | Shape::Broadcast => line,
                },
            };
            match scenario.first_contact {
                true => numbers.push(number),
                false => lines.push(number.call().await?),
            }
        }
        let mut numbers = numbers.into_iter();
        let writers = (0..scenario.senders as usize).map(|sender| Writer {
            lines: match scenario.shape {
                Shape::Broadcast => lines.clone(),
                Shape::OneToOne | Shape::ManyToOne => {
                    lines.get(sender).cloned().into_iter().collect()
                }
            },
            number: numbers.next(),
            answer: Vec::new(),
        });
        return Ok((writers.collect(), Value::Null));
    }
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((own, 0)))?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    let kind = scenario.kind;
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (received, deliver) = (received.clone(), deliver.clone());
            let security = security.clone();
            tokio::spawn(async move {
                let stream = raw::greet(tcp, level, &security).await.map_err(failed)?;
                // The task ends when the sender goes. Missing messages are counted.
                match kind {
                    Kind::Stream => take(stream, &received, deliver).await,
                    Kind::RoundTrip => answer(stream, &received).await,
                }
            });
        }
    });
    let here = serde_json::to_value(Here { address }).map_err(failed)?;
    Ok((Vec::new(), here))
}

async fn take(
    mut stream: Stream,
    received: &Arc<Received>,
    deliver: impl Fn(&Arc<Received>, u32, &[u8]),
) -> Result<(), DriverError> {
    let receiver = stream.read_u32().await?;
    let mut buffer = vec![0; READ];
    let (mut begin, mut end) = (0, 0);
    loop {
        if end == buffer.len() {
            // An incomplete frame moves to the front, and gets more room if it needs it.
            buffer.copy_within(begin..end, 0);
            (begin, end) = (0, end - begin);
            if end == buffer.len() {
                if end > LONGEST {
                    return Err(failed("a message too long"));
                }
                buffer.resize(2 * end, 0);
            }
        }
        let read = stream.read(&mut buffer[end..]).await?;
        if read == 0 {
            return Ok(());
        }
        end += read;
        while let Some((length, rest)) = buffer[begin..end].split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(content) = rest.get(..length) else {
                break;
            };
            deliver(received, receiver, content);
            begin += 4 + length;
        }
        if begin == end {
            (begin, end) = (0, 0);
        }
    }
}

async fn answer(mut stream: Stream, received: &Received) -> Result<(), DriverError> {
    let _receiver = stream.read_u32().await?;
    let mut content = Vec::new();
    let mut frame = Vec::new();
    loop {
        read_frame(&mut stream, &mut content).await?;
        frame.clear();
        frame.extend_from_slice(&u32::try_from(content.len()).map_err(failed)?.to_be_bytes());
        frame.extend_from_slice(&content);
        stream.write_all(&frame).await?;
        stream.flush().await?;
        received.answered.fetch_add(1, Ordering::Relaxed);
    }
}
