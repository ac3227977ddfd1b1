//! TLS with a server that is known by its root's fingerprint alone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::tls::{Acceptor, Connector, explain, server_name};
use sealbus_seal::{CLOCK_SKEW, Fingerprint, PlatformName};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that have not finished their handshake.
const NEWCOMERS: usize = 64;
/// The pause after the system refused to accept, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens on an address.
///
/// # Errors
/// The system's error, which names the port if it is in use.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => io::Error::new(
                error.kind(),
                format!("the port {} on {} is in use", address.port(), address.ip()),
            ),
            _ => error,
        })
}

/// Accepts connections for ever, and hands each on after its handshake.
pub async fn accept<F, S>(listener: TcpListener, acceptor: Acceptor, serve: F)
where
    F: Fn(server::TlsStream<TcpStream>, SocketAddr) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send,
{
    let newcomers = Arc::new(Semaphore::new(NEWCOMERS));
    // They end with this.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = newcomers.clone().acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let acceptor = acceptor.clone();
        let serve = serve.clone();
        connections.spawn(async move {
            let (config, refusal) = match acceptor.accept() {
                Ok(accepting) => accepting,
                Err(error) => {
                    tracing::error!(%error, "no connection can be accepted");
                    return;
                }
            };
            let _ = stream.set_nodelay(true);
            let handshake = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(HANDSHAKE, handshake).await {
                Ok(Ok(stream)) => {
                    drop(permit);
                    serve(stream, peer).await;
                }
                Ok(Err(error)) => {
                    let why = words(&error, |error| explain(error, &refusal));
                    tracing::info!(%peer, %why, "a newcomer was refused");
                }
                Err(_) => tracing::info!(%peer, "a newcomer did not finish its handshake in time"),
            }
        });
    }
}

/// Connects to one of `addresses` whose server shows the root of that fingerprint. The error says
/// what was tried.
pub async fn connect(
    addresses: &[String],
    platform: &PlatformName,
    root: Fingerprint,
    protocol: &[u8],
) -> Result<client::TlsStream<TcpStream>, String> {
    let connector = Connector::for_enrolment(platform.clone(), root, CLOCK_SKEW, &[protocol]);
    let mut failures = Vec::new();
    for address in addresses {
        match connect_to(address, &connector).await {
            Ok(stream) => return Ok(stream),
            Err(why) => failures.push(format!("{address}: {why}")),
        }
    }
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
