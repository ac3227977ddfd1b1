//! TLS with a server that is identified by its root's fingerprint alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_control::{LogShares, network_of};
use sealbus_mesh::{Stranger, Strangers, listen};
use sealbus_seal::tls::{Acceptor, Connector, ExpectedPeer, explain, server_name};
use sealbus_seal::{CLOCK_SKEW, Fingerprint, PlatformName};
use sealbus_web::accept_each;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::word::is_word;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The pause before an address that refused is tried again while another one does not answer.
const AGAIN: Duration = Duration::from_millis(300);
/// How long a connection may take in all until the identity at its other end is known.
const ADMISSION: Duration = Duration::from_secs(30);
/// Most connections whose other ends are still unknown.
const NEWCOMERS: usize = 256;

/// Listens on an address.
///
/// # Errors
/// The system's error, which names the port if it is in use.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            error.kind(),
            format!("the port {} on {} is in use", address.port(), address.ip()),
        ),
        _ => error,
    })
}

/// The entrance of a port that strangers can reach.
struct Door {
    strangers: Strangers<IpAddr>,
    /// The shares of the log for refusals, by the strangers' networks.
    log: Mutex<LogShares>,
}

impl Door {
    fn new(most: usize) -> Self {
        Self {
            strangers: Strangers::new(most),
            log: Mutex::default(),
        }
    }

    /// Whether to write a line about this stranger to the log now. If so, returns the number of lines left out since the
    /// last one.
    fn admit_line(&self, peer: SocketAddr) -> Option<u64> {
        self.log.lock().admit(network_of(peer.ip()).to_string())
    }
}

/// A stranger's place in the queue, until the stranger is let in or its connection ends.
pub struct WaitingStranger {
    door: Arc<Door>,
    place: Stranger<IpAddr>,
    peer: SocketAddr,
}

impl WaitingStranger {
    /// Lets the stranger in, which has proved its right. Its connection is no longer ended to make room.
    pub fn let_in(&self) {
        self.place.let_in();
    }

    /// The stranger's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Writes a refusal to the log, unless this stranger or all together have caused too many such lines lately.
    pub fn refused(&self, why: &str) {
        if let Some(left_out) = self.door.admit_line(self.peer) {
            tracing::warn!(peer = %self.peer, why = %sealbus_control::text::printable(why), left_out, "a newcomer was refused");
        }
    }

    /// Waits until the stranger has waited too long.
    async fn overdue(&self) {
        tokio::time::sleep(ADMISSION).await;
        if !self.place.is_waiting() {
            std::future::pending::<()>().await;
        }
    }
}

/// Accepts connections for ever. Hands each on after its handshake, with its place among those that are not [let
/// in](WaitingStranger::let_in) yet.
///
/// Strangers do not wait for each other. When there are too many, the oldest one of the address with the most ends. A
/// stranger that is not let in in time ends too.
pub async fn accept<F, S>(listener: TcpListener, acceptor: Acceptor, serve: F)
where
    F: Fn(server::TlsStream<TcpStream>, Arc<WaitingStranger>) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send,
{
    let door = Arc::new(Door::new(most_strangers()));
    accept_each(&listener, |stream, peer, _| {
        let waiting = Arc::new(WaitingStranger {
            door: door.clone(),
            place: door.strangers.came(network_of(peer.ip())),
            peer,
        });
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        Some(async move {
            tokio::select! {
                // A stranger that must go uses up no ticket in its last step.
                biased;
                () = waiting.place.must_go() => {}
                () = shake_hands(stream, &acceptor, waiting.clone(), serve) => {}
                () = waiting.overdue() => {
                    waiting.refused("it did not prove in time that it may come in");
                }
            }
        })
    })
    .await;
}

async fn shake_hands<F, S>(
    stream: TcpStream,
    acceptor: &Acceptor,
    waiting: Arc<WaitingStranger>,
    serve: F,
) where
    F: Fn(server::TlsStream<TcpStream>, Arc<WaitingStranger>) -> S,
    S: Future<Output = ()>,
{
    let (config, refusal) = match acceptor.accept() {
        Ok(accepting) => accepting,
        Err(error) => {
            return waiting.refused(&format!("no connection can be accepted: {error}"));
        }
    };
    let _ = stream.set_nodelay(true);
    let handshake = async {
        // The Master that leads notices by itself which nodes it does not hear, and hears the others on the bus.
        if is_word(&stream).await {
            return None;
        }
        Some(TlsAcceptor::from(config).accept(stream).await)
    };
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(None) => {}
        Ok(Some(Ok(stream))) => serve(stream, waiting).await,
        Ok(Some(Err(error))) => waiting.refused(&words(&error, |error| explain(error, &refusal))),
        Err(_) => waiting.refused("it did not finish its handshake in time"),
    }
}

/// How many strangers may wait: a share of this process's file descriptors, so that some stay free for operators and
/// agents.
pub fn most_strangers() -> usize {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    let limit = None::<u64>;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(NEWCOMERS, |limit| (limit / 8).clamp(8, NEWCOMERS))
}

/// Connects to one of `addresses` with a server that is `expected` and shows the root with that fingerprint. All are tried
/// at once, because the first may be the one that is away. As long as one of them has not answered at all, those that
/// refused are tried again: the server may be about to move there. The error lists the attempts.
pub async fn connect(
    addresses: &[String],
    platform: &PlatformName,
    root: Fingerprint,
    expected: ExpectedPeer,
    protocol: &[u8],
) -> Result<client::TlsStream<TcpStream>, String> {
    let connector =
        Connector::for_enrolment(platform.clone(), root, CLOCK_SKEW, expected, &[protocol]);
    // The attempts that are not needed end with this set.
    let mut attempts = JoinSet::new();
    let attempt = |address: String, pause: Duration| {
        let connector = connector.clone();
        async move {
            tokio::time::sleep(pause).await;
            let connected = connect_to(&address, &connector).await;
            connected.map_err(|why| (address, why))
        }
    };
    for address in addresses {
        attempts.spawn(attempt(address.clone(), Duration::ZERO));
    }
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    let mut awaited: BTreeSet<&String> = addresses.iter().collect();
    while let Some(attempted) = attempts.join_next().await {
        match attempted {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err((address, why))) => {
                awaited.remove(&address);
                failures.insert(address.clone(), why);
                if awaited.is_empty() {
                    break;
                }
                attempts.spawn(attempt(address, AGAIN));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let failures = failures.iter();
    let failures: Vec<_> = failures
        .map(|(address, why)| format!("{address}: {why}"))
        .collect();
    Err(failures.join("; "))
}

async fn connect_to(
    address: &str,
    connector: &Connector,
) -> Result<client::TlsStream<TcpStream>, String> {
    let connect = async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let (config, refusal) = connector
            .connect_to_any()
            .map_err(|error| error.to_string())?;
        TlsConnector::from(config)
            .connect(server_name(), stream)
            .await
            .map_err(|error| words(&error, |error| explain(error, &refusal)))
    };
    tokio::time::timeout(HANDSHAKE, connect)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {HANDSHAKE:?}")))
}

fn words(error: &io::Error, explain: impl Fn(&rustls::Error) -> String) -> String {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        Some(tls) => explain(tls),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise one stranger hides the refusals of all others.
    #[test]
    fn a_stranger_that_floods_the_log_leaves_room_for_others() {
        let door = Door::new(1);
        // All addresses that one stranger chooses among are one.
        let chosen = |host: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 1, 0, 0, 0, host], 7000));
        let written = (0..1000).filter(|host| door.admit_line(chosen(*host)).is_some());
        assert!(written.count() < 20);
        let other = SocketAddr::from(([192, 0, 2, 7], 7000));
        assert!(door.admit_line(other).is_some());
    }
}
