//! A peer that speaks the mesh's frames but keeps none of its rules.

#![allow(dead_code)] // each test binary uses a part of this module

pub(crate) mod scene;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_bus::RefusalReason;
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_mesh::frame::{self, Frame, Hello, LONGEST_BODY, PREFACE, PROTOCOL_VERSION};
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::tls::{self, CertificateSource, Connector};
use sealbus_seal::{Credential, Identity, SecurityLevel, Trust};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const ALPN_AUTH: &[u8] = b"sealbus-mesh/1/auth";

/// The number of the next connection. It must grow.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Intruder {
    stream: Box<dyn Stream>,
    pub(crate) channel: BoundConnection,
    pub(crate) role: Role,
    inbox: Vec<u8>,
    sequence: u64,
    greeted: bool,
}

/// The frames of a peer, as far as tests look at them.
#[derive(Debug)]
pub(crate) enum Seen {
    Accept {
        target: u32,
        limit: u64,
    },
    Acknowledge {
        received: u64,
    },
    CloseTarget {
        target: u32,
    },
    Goodbye {
        reason: frame::GoodbyeReason,
    },
    Message {
        sender: u32,
        target: u32,
        payload: Vec<u8>,
    },
    Prove {
        proof: Vec<u8>,
    },
    Refused {
        handle: u32,
        reason: RefusalReason,
        text: String,
    },
    Returned {
        why: frame::Why,
    },
    Row {
        payloads: Vec<Vec<u8>>,
    },
    Target {
        handle: u32,
    },
    Unread {
        number: u32,
        sender: u32,
        payload: Vec<u8>,
    },
    Other(frame::Kind),
}

impl Seen {
    fn of(frame: &Frame<'_>) -> Self {
        match *frame {
            Frame::Accept { target, limit } => Self::Accept { target, limit },
            Frame::Acknowledge { received } => Self::Acknowledge { received },
            Frame::CloseTarget { target } => Self::CloseTarget { target },
            Frame::Goodbye { reason, .. } => Self::Goodbye { reason },
            Frame::Message {
                sender,
                target,
                payload,
                ..
            } => Self::Message {
                sender,
                target,
                payload: payload.to_vec(),
            },
            Frame::Prove { proof, .. } => Self::Prove {
                proof: proof.to_vec(),
            },
            Frame::Refused {
                handle,
                reason,
                text,
            } => Self::Refused {
                handle,
                reason,
                text: text.to_owned(),
            },
            Frame::Returned { why, .. } => Self::Returned { why },
            Frame::Row { messages, .. } => Self::Row {
                payloads: messages.to_bytes().map(Vec::from).collect(),
            },
            Frame::Target { handle, .. } => Self::Target { handle },
            Frame::Unread {
                number,
                sender,
                more: false,
                piece,
            } => Self::Unread {
                number,
                sender,
                payload: piece.to_vec(),
            },
            ref frame => Self::Other(frame.kind()),
        }
    }
}

/// A TLS connection of the client `credential`, as far as the handshake.
pub(crate) async fn handshake(
    address: SocketAddr,
    level: SecurityLevel,
    credential: &Credential,
    trust: Arc<Trust>,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let source = CertificateSource::new(credential).unwrap();
    let connector = Connector::new(level, source, trust, &[ALPN_AUTH]).unwrap();
    let (config, _) = connector.connect_to_any().unwrap();
    let tcp = TcpStream::connect(address).await?;
    let mut stream = tokio_rustls::TlsConnector::from(config)
        .connect(tls::server_name(), tcp)
        .await?;
    // A TLS 1.3 client learns that it was refused when it first reads.
    stream.write_all(&PREFACE).await?;
    Ok(stream)
}

impl Intruder {
    /// Connects with the certificate of a process and says hello as that process.
    pub(crate) async fn dial(
        address: SocketAddr,
        credential: &Credential,
        trust: Arc<Trust>,
    ) -> io::Result<Self> {
        Self::dial_at(address, credential, trust, SecurityLevel::Auth).await
    }

    /// As [`dial`](Self::dial), at any level.
    pub(crate) async fn dial_at(
        address: SocketAddr,
        credential: &Credential,
        trust: Arc<Trust>,
        level: SecurityLevel,
    ) -> io::Result<Self> {
        let identity = credential.certificate().unwrap().identity().clone();
        let stream = handshake(address, level, credential, trust).await?;
        let channel = BoundConnection::of(stream.get_ref().1, level, PROTOCOL_VERSION).unwrap();
        let mut intruder = Self::over(Box::new(stream), channel, Role::Client);
        intruder.hello(&identity, level.code()).await?;
        Ok(intruder)
    }

    /// As [`dial`](Self::dial), under any name and at any level.
    pub(crate) async fn dial_as(
        address: SocketAddr,
        credential: &Credential,
        trust: Arc<Trust>,
        name: &Identity,
        level: u8,
    ) -> io::Result<Self> {
        let stream = handshake(address, SecurityLevel::Auth, credential, trust).await?;
        let channel =
            BoundConnection::of(stream.get_ref().1, SecurityLevel::Auth, PROTOCOL_VERSION).unwrap();
        let mut intruder = Self::over(Box::new(stream), channel, Role::Client);
        intruder.hello(name, level).await?;
        Ok(intruder)
    }

    pub(crate) fn over(stream: Box<dyn Stream>, channel: BoundConnection, role: Role) -> Self {
        Self {
            stream,
            channel,
            role,
            inbox: Vec::new(),
            sequence: 0,
            greeted: false,
        }
    }

    pub(crate) async fn hello(&mut self, name: &Identity, level: u8) -> io::Result<()> {
        self.hello_in(PROTOCOL_VERSION, name, level).await
    }

    /// As [`dial`](Self::dial), in any version.
    pub(crate) async fn hello_in(
        &mut self,
        version: u16,
        name: &Identity,
        level: u8,
    ) -> io::Result<()> {
        self.send(&Frame::Hello(Hello {
            version,
            level,
            resumed: false,
            incarnation: [7; 16],
            session: if self.role == Role::Client {
                [0; 16]
            } else {
                [9; 16]
            },
            given_up: [0; 16],
            received: 0,
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            largest_message: 1 << 20,
            process: &name.to_string(),
            address: "192.0.2.1:9",
        }))
        .await
    }

    pub(crate) async fn send(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.send_together(std::slice::from_ref(frame)).await
    }

    /// Sends frames so that they arrive together.
    pub(crate) async fn send_together(&mut self, frames: &[Frame<'_>]) -> io::Result<()> {
        let mut out = Vec::new();
        for frame in frames {
            frame.encode(self.sequence, &mut out);
            if frame.kind().is_counted() {
                self.sequence += 1;
            }
        }
        self.send_bytes(&out).await
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Binds an agent with an honest proof of its own.
    pub(crate) async fn bind(&mut self, handle: u32, agent: &Credential) -> io::Result<Vec<u8>> {
        let mut proof = Vec::new();
        Binding::prove(agent, &self.channel, self.role)
            .unwrap()
            .encode(&mut proof);
        self.send(&Frame::Bind {
            handle,
            proof: &proof,
        })
        .await?;
        Ok(proof)
    }

    /// Opens a target and waits until it is accepted. Returns the bytes that may be sent to it.
    pub(crate) async fn target(&mut self, handle: u32, name: &str) -> u64 {
        self.send(&Frame::Target { handle, name }).await.unwrap();
        let is_accepted =
            |seen: &Seen| matches!(seen, Seen::Accept { target, .. } if *target == handle);
        match self.until(is_accepted).await {
            Seen::Accept { limit, .. } => limit,
            _ => unreachable!(),
        }
    }

    /// Closes a target, and waits until the peer knows.
    pub(crate) async fn close(&mut self, target: u32) {
        self.send(&Frame::CloseTarget { target }).await.unwrap();
        self.until(|seen| matches!(seen, Seen::Other(frame::Kind::TargetClosed)))
            .await;
    }

    /// As [`target`](Self::target), but returns false if the peer ends the connection.
    pub(crate) async fn opens_target(&mut self, handle: u32, name: &str) -> bool {
        if self.send(&Frame::Target { handle, name }).await.is_err() {
            return false;
        }
        while let Some(seen) = self.next().await {
            if matches!(seen, Seen::Accept { target, .. } if target == handle) {
                return true;
            }
        }
        false
    }

    pub(crate) async fn message(
        &mut self,
        sender: u32,
        target: u32,
        message: &AclMessage,
    ) -> io::Result<()> {
        let mut payload = Vec::new();
        bitefficient::encode(message, &mut payload).unwrap();
        self.send(&Frame::Message {
            is_signed: false,
            sender,
            target,
            payload: &payload,
        })
        .await
    }

    /// The next frame; `None` when the peer has ended the connection.
    pub(crate) async fn next(&mut self) -> Option<Seen> {
        loop {
            if !self.greeted && self.inbox.len() >= PREFACE.len() {
                assert_eq!(self.inbox[..PREFACE.len()], PREFACE);
                self.inbox.drain(..PREFACE.len());
                self.greeted = true;
            }
            if self.greeted
                && let Some(parsed) = frame::parse(&self.inbox, LONGEST_BODY).unwrap()
            {
                let seen = Seen::of(&parsed.frame);
                let length = parsed.length;
                self.inbox.drain(..length);
                return Some(seen);
            }
            match self.stream.read_buf(&mut self.inbox).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Reads up to the first frame for which `is_it` holds.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Seen) -> bool) -> Seen {
        super::support::soon(async {
            loop {
                match self.next().await {
                    Some(seen) if is_it(&seen) => return seen,
                    Some(_) => {}
                    None => panic!("the peer ended the connection"),
                }
            }
        })
        .await
    }

    /// Reads until the peer ends the connection. Returns all frames that came before.
    pub(crate) async fn until_end(&mut self) -> Vec<Seen> {
        super::support::soon(async {
            let mut all = Vec::new();
            while let Some(seen) = self.next().await {
                all.push(seen);
            }
            all
        })
        .await
    }
}
