//! The beginning of a connection: TLS, then a hello from each side.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::Connection;
use sealbus_bus::RefusalReason;
use sealbus_seal::binding::{BindingError, BoundConnection, Role};
use sealbus_seal::tls::{self, Acceptor, Connector, ExpectedPeer, HandshakeRefusal};
use sealbus_seal::{Identity, SecurityLevel, Timestamp, Trust, VerifiedIdentity, VerifyError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::frame::{
    self, Frame, FrameError, GoodbyeReason, Hello, LONGEST_FIRST_BODY, PREFACE, PROTOCOL_VERSION,
    RandomId,
};
use crate::outward::ConnectionProof;
use crate::wire::{Progress, Wire};

/// The reason why a connection was not made.
#[derive(Debug, Error)]
pub(crate) enum GreetingError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{explanation}")]
    Refused {
        reason: RefusalReason,
        explanation: String,
    },
    #[error("the peer refused the connection ({reason:?}): {text}")]
    Goodbye { reason: GoodbyeReason, text: String },
    #[error("it says that the platform has revoked this process")]
    Disowned,
    #[error("the peer closed the connection before it identified itself")]
    Ended,
    #[error("the peer did not identify itself in time")]
    TooSlow,
    #[error(
        "too many connections wait to identify themselves, and most of them come from this address"
    )]
    Crowded,
}

impl From<FrameError> for GreetingError {
    fn from(error: FrameError) -> Self {
        Self::Refused {
            reason: RefusalReason::Malformed,
            explanation: error.to_string(),
        }
    }
}

impl From<VerifyError> for GreetingError {
    fn from(error: VerifyError) -> Self {
        Self::Refused {
            reason: RefusalReason::from(&error),
            explanation: error.to_string(),
        }
    }
}

impl From<BindingError> for GreetingError {
    fn from(error: BindingError) -> Self {
        Self::Refused {
            reason: RefusalReason::NotProved,
            explanation: error.to_string(),
        }
    }
}

/// A hello that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) level: u8,
    pub(crate) resumed: bool,
    pub(crate) incarnation: RandomId,
    pub(crate) session: RandomId,
    pub(crate) given_up: RandomId,
    pub(crate) received: u64,
    pub(crate) connection: u64,
    pub(crate) largest_message: u32,
    pub(crate) process: Identity,
    pub(crate) address: Option<SocketAddr>,
}

impl Greeting {
    fn new(hello: &Hello<'_>) -> Result<Self, GreetingError> {
        let refused = |reason, explanation| {
            Err(GreetingError::Refused {
                reason,
                explanation,
            })
        };
        if hello.version != PROTOCOL_VERSION {
            return refused(
                RefusalReason::LevelMismatch,
                format!(
                    "the peer speaks version {} of the mesh, this process {PROTOCOL_VERSION}",
                    hello.version
                ),
            );
        }
        match hello.process.parse::<Identity>() {
            Ok(process @ (Identity::Process { .. } | Identity::Node { .. })) => Ok(Self {
                level: hello.level,
                resumed: hello.resumed,
                incarnation: hello.incarnation,
                session: hello.session,
                given_up: hello.given_up,
                received: hello.received,
                connection: hello.connection,
                largest_message: hello.largest_message,
                process,
                address: hello.address.parse().ok(),
            }),
            Ok(other) => refused(
                RefusalReason::WrongIdentity,
                format!("{other} is not a process"),
            ),
            Err(error) => refused(RefusalReason::Malformed, error.to_string()),
        }
    }

    /// The hello, in the form that the session uses.
    pub(crate) fn hello(&self) -> Hello<'_> {
        Hello {
            version: PROTOCOL_VERSION,
            level: self.level,
            resumed: self.resumed,
            incarnation: self.incarnation,
            session: self.session,
            given_up: self.given_up,
            received: self.received,
            connection: self.connection,
            largest_message: self.largest_message,
            process: "",
            address: "",
        }
    }
}

/// A connection on which the other side has identified itself.
pub(crate) struct Greeted {
    pub(crate) wire: Wire,
    pub(crate) greeting: Greeting,
    /// The proved identity of the process.
    pub(crate) peer: Option<VerifiedIdentity>,
    pub(crate) proof: Option<ConnectionProof>,
    /// The bytes that came after the hello.
    pub(crate) inbox: Vec<u8>,
}

/// A connection before any hello; with TLS, if the level uses it.
pub(crate) struct Opened {
    wire: Wire,
    peer: Option<VerifiedIdentity>,
    proof: Option<ConnectionProof>,
}

/// The name of the protocol and level for TLS (RFC 7301). Sides at different levels have no common name.
pub fn protocol_name(level: SecurityLevel) -> &'static [u8] {
    match level {
        SecurityLevel::None | SecurityLevel::Tls => b"sealbus-mesh/1/tls",
        SecurityLevel::Auth | SecurityLevel::Signed | SecurityLevel::Sealed => {
            b"sealbus-mesh/1/auth"
        }
    }
}

/// Sets up the socket of a connection.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    // Processes of one host share no network that pacing could spare. Between them, a congestion control that paces
    // (BBR) costs a timer for each segment, and halves the throughput of bursts.
    #[cfg(target_os = "linux")]
    if let (Ok(here), Ok(there)) = (tcp.local_addr(), tcp.peer_addr())
        && here.ip() == there.ip()
        && let Err(error) = socket2::SockRef::from(tcp).set_tcp_congestion(LOCAL_CONGESTION_CONTROL)
    {
        tracing::debug!(%error, "the connection keeps the congestion control of the system");
    }
    Ok(())
}

/// A congestion control that does not pace, and is part of every Linux kernel (tcp(7)).
#[cfg(target_os = "linux")]
const LOCAL_CONGESTION_CONTROL: &[u8] = b"reno";

/// Opens a connection to a process.
pub(crate) async fn open(
    address: SocketAddr,
    expected: &Identity,
    level: SecurityLevel,
    secure: Option<(&Connector, &Arc<Trust>)>,
) -> Result<Opened, GreetingError> {
    let tcp = TcpStream::connect(address).await?;
    prepare(&tcp)?;
    let Some((connector, trust)) = secure else {
        return Ok(Opened {
            wire: Wire::plain(tcp),
            peer: None,
            proof: None,
        });
    };
    let (config, refusal) = connector
        .connect(ExpectedPeer::Exactly(expected.clone()))
        .map_err(|error| io::Error::other(error.to_string()))?;
    let stream = TlsConnector::from(config)
        .connect(tls::server_name(), tcp)
        .await
        .map_err(|error| failed_handshake(error, &refusal, level))?;
    let (tcp, connection) = stream.into_inner();
    let peer = tls::peer_identity(&connection, trust, now())?;
    let proof = proof(&connection, level, Role::Client)?;
    let wire = Wire::tls(tcp, Connection::Client(connection));
    Ok(Opened {
        wire,
        peer: Some(peer),
        proof,
    })
}

/// Takes an accepted connection through its TLS handshake.
pub(crate) async fn admit(
    tcp: TcpStream,
    level: SecurityLevel,
    secure: Option<(&Acceptor, &Arc<Trust>)>,
) -> Result<Opened, GreetingError> {
    prepare(&tcp)?;
    let mut first = [0; 1];
    if tcp.peek(&mut first).await? == 0 {
        return Err(GreetingError::Ended);
    }
    let is_tls = first[0] == TLS_HANDSHAKE;
    let mismatch = |explanation: String| GreetingError::Refused {
        reason: RefusalReason::LevelMismatch,
        explanation,
    };
    let Some((acceptor, trust)) = secure else {
        if is_tls {
            // The TLS alert handshake_failure: the only answer that a TLS client understands.
            let _ = tcp.try_write(&[0x15, 3, 3, 0, 2, 2, 40]);
            return Err(mismatch(
                "the peer comes with TLS, this process is at level none".to_owned(),
            ));
        }
        return Ok(Opened {
            wire: Wire::plain(tcp),
            peer: None,
            proof: None,
        });
    };
    if first[0] == PREFACE[0] {
        let text = format!("this process is at level {level}, you came at level none");
        // Closing a socket with unread bytes resets the connection, and the answer may be lost with it.
        let _ = tcp.try_read(&mut [0; LONGEST_FIRST_BODY]);
        let mut wire = Wire::plain(tcp);
        say_goodbye(&mut wire, GoodbyeReason::LevelMismatch, &text, true);
        return Err(mismatch(format!(
            "the peer comes at level none, this process is at level {level}"
        )));
    }
    if !is_tls {
        return Err(FrameError::NoPreface.into());
    }
    let (config, refusal) = acceptor
        .accept()
        .map_err(|error| io::Error::other(error.to_string()))?;
    let stream = TlsAcceptor::from(config)
        .accept(tcp)
        .await
        .map_err(|error| failed_handshake(error, &refusal, level))?;
    let (tcp, connection) = stream.into_inner();
    let peer = if level.authenticates() {
        Some(tls::peer_identity(&connection, trust, now())?)
    } else {
        None
    };
    let proof = proof(&connection, level, Role::Server)?;
    Ok(Opened {
        wire: Wire::tls(tcp, Connection::Server(connection)),
        peer,
        proof,
    })
}

/// The first byte of a TLS handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

fn proof<Data>(
    connection: &rustls::ConnectionCommon<Data>,
    level: SecurityLevel,
    role: Role,
) -> Result<Option<ConnectionProof>, BindingError> {
    if !level.authenticates() {
        return Ok(None);
    }
    Ok(Some(ConnectionProof {
        channel: BoundConnection::of(connection, level, PROTOCOL_VERSION)?,
        role,
    }))
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Finds out whether a server refuses this process's certificate. A server judges it after the client's part of the
/// handshake, so its verdict comes with the first bytes.
fn disowned(error: io::Error) -> GreetingError {
    use rustls::AlertDescription as Alert;
    match tls_error(&error) {
        Some(rustls::Error::AlertReceived(Alert::CertificateRevoked)) => GreetingError::Disowned,
        _ => error.into(),
    }
}

fn failed_handshake(
    error: io::Error,
    refusal: &HandshakeRefusal,
    level: SecurityLevel,
) -> GreetingError {
    use rustls::AlertDescription as Alert;
    let Some(inner) = tls_error(&error) else {
        return error.into();
    };
    if matches!(
        inner,
        rustls::Error::AlertReceived(Alert::CertificateRevoked)
    ) {
        return GreetingError::Disowned;
    }
    let explanation = tls::explain(inner, refusal);
    if let Some(reason) = refusal.get() {
        return GreetingError::Refused {
            reason: RefusalReason::from(reason),
            explanation,
        };
    }
    let at_levels = |what: &str| {
        format!("{what}: this process is at level {level} and the other one is not ({explanation})")
    };
    let (reason, explanation) = match inner {
        rustls::Error::NoCertificatesPresented => (RefusalReason::NotProved, explanation),
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => (
            RefusalReason::LevelMismatch,
            at_levels("no common security level"),
        ),
        rustls::Error::AlertReceived(Alert::HandshakeFailure) => (
            RefusalReason::LevelMismatch,
            at_levels("the peer takes no TLS"),
        ),
        rustls::Error::InvalidMessage(_) => (RefusalReason::Malformed, explanation),
        rustls::Error::AlertReceived(_) => (RefusalReason::NotProved, explanation),
        _ => (RefusalReason::Malformed, explanation),
    };
    GreetingError::Refused {
        reason,
        explanation,
    }
}

impl Opened {
    /// Sends the hello and waits for the answer, on the dialling side.
    pub(crate) async fn dial(
        mut self,
        expected: &Identity,
        hello: &Hello<'_>,
    ) -> Result<Greeted, GreetingError> {
        let mut out = PREFACE.to_vec();
        Frame::Hello(hello.clone()).encode(0, &mut out);
        self.wire.put(&out);
        send(&mut self.wire).await?;
        let greeted = self.wait().await?;
        if greeted.greeting.process != *expected {
            return Err(GreetingError::Refused {
                reason: RefusalReason::WrongIdentity,
                explanation: format!(
                    "{} answered where {expected} was expected",
                    greeted.greeting.process
                ),
            });
        }
        Ok(greeted)
    }

    /// Waits for the other side's hello, on the accepting side.
    pub(crate) async fn wait(mut self) -> Result<Greeted, GreetingError> {
        let mut inbox = Vec::new();
        self.wire.read_early(&mut inbox).map_err(disowned)?;
        let greeting = loop {
            if let Some((greeting, length)) = read_hello(&inbox)? {
                inbox.drain(..length);
                break greeting;
            }
            self.wire.tcp.readable().await?;
            let progress = self.wire.read(&mut inbox).map_err(disowned)?;
            if progress == Progress::Ended && read_hello(&inbox)?.is_none() {
                return Err(GreetingError::Ended);
            }
        };
        if let Some(peer) = &self.peer
            && *peer.identity() != greeting.process
        {
            return Err(GreetingError::Refused {
                reason: RefusalReason::WrongIdentity,
                explanation: format!("{} calls itself {}", peer.identity(), greeting.process),
            });
        }
        Ok(Greeted {
            wire: self.wire,
            greeting,
            peer: self.peer,
            proof: self.proof,
            inbox,
        })
    }
}

fn read_hello(inbox: &[u8]) -> Result<Option<(Greeting, usize)>, GreetingError> {
    let common = inbox.len().min(PREFACE.len());
    if inbox[..common] != PREFACE[..common] {
        return Err(FrameError::NoPreface.into());
    }
    if common < PREFACE.len() {
        return Ok(None);
    }
    let Some(parsed) = frame::parse(&inbox[PREFACE.len()..], LONGEST_FIRST_BODY)? else {
        return Ok(None);
    };
    match parsed.frame {
        Frame::Hello(hello) => Ok(Some((
            Greeting::new(&hello)?,
            PREFACE.len() + parsed.length,
        ))),
        Frame::Goodbye { reason, text } => Err(GreetingError::Goodbye {
            reason,
            text: text.to_owned(),
        }),
        _ => Err(FrameError::NoPreface.into()),
    }
}

/// Writes all pending bytes.
pub(crate) async fn send(wire: &mut Wire) -> io::Result<()> {
    loop {
        wire.flush()?;
        if !wire.wants_write() {
            return Ok(());
        }
        wire.tcp.writable().await?;
    }
}

/// Sends the reason for the end of the connection, and ends it without waiting.
pub(crate) fn say_goodbye(wire: &mut Wire, reason: GoodbyeReason, text: &str, is_first: bool) {
    let mut out = if is_first {
        PREFACE.to_vec()
    } else {
        Vec::new()
    };
    Frame::Goodbye { reason, text }.encode(0, &mut out);
    wire.put(&out);
    wire.close();
}

/// The time by this computer's clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}
