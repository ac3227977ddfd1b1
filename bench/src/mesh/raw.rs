//! The floor: the same bytes over bare TCP and bare mutual TLS, on the same runtime.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_seal::tls::{self, Acceptor, CertificateSource, Connector, ExpectedPeer};
use sealbus_seal::{Credential, Identity, ProcessId, SecurityLevel, Trust};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::mesh::credentials::platform;
use crate::mesh::{BenchError, failed};

const PROTOCOL: &[u8] = b"bench";
/// Messages in one write when streaming.
const TOGETHER: usize = 256;

/// A connection of either kind.
pub(crate) type Stream = Pin<Box<dyn BytesStream>>;

/// The operations of a connection.
pub(crate) trait BytesStream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> BytesStream for T {}

/// The identity of a process of the benchmark.
pub(crate) fn process(node: &str) -> Result<Identity, BenchError> {
    let id = ProcessId::random().map_err(failed)?;
    Identity::process(&platform().map_err(failed)?, node, id).map_err(failed)
}

/// The certificate that one side of a connection presents, and the roots that it trusts. `None` at level `none`.
pub(crate) type Security = Option<(Arc<Credential>, Arc<Trust>)>;

pub(crate) async fn connect(
    address: SocketAddr,
    level: SecurityLevel,
    security: &Security,
) -> Result<Stream, BenchError> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let Some((credential, trust)) = security else {
        return Ok(Box::pin(tcp));
    };
    let source = CertificateSource::new(credential).map_err(failed)?;
    let connector = Connector::new(level, source, trust.clone(), &[PROTOCOL]).map_err(failed)?;
    let (config, _) = connector.connect_to_any().map_err(failed)?;
    Ok(Box::pin(
        TlsConnector::from(config)
            .connect(tls::server_name(), tcp)
            .await?,
    ))
}

/// The other side of [`connect`].
pub(crate) async fn accept(
    listener: &TcpListener,
    level: SecurityLevel,
    security: &Security,
) -> Result<Stream, BenchError> {
    let (tcp, _) = listener.accept().await?;
    greet(tcp, level, security).await
}

/// The second half of [`accept`], after a connection has come in.
pub(crate) async fn greet(
    tcp: TcpStream,
    level: SecurityLevel,
    security: &Security,
) -> Result<Stream, BenchError> {
    tcp.set_nodelay(true)?;
    let Some((credential, trust)) = security else {
        return Ok(Box::pin(tcp));
    };
    let source = CertificateSource::new(credential).map_err(failed)?;
    let endpoint = ExpectedPeer::ENDPOINT;
    let acceptor =
        Acceptor::new(level, source, trust.clone(), endpoint, &[PROTOCOL]).map_err(failed)?;
    let (config, _) = acceptor.accept().map_err(failed)?;
    Ok(Box::pin(TlsAcceptor::from(config).accept(tcp).await?))
}

/// Sends `size` bytes and waits for them to come back, again and again.
pub(crate) async fn round_trips(
    stream: &mut Stream,
    size: usize,
    count: usize,
) -> Result<Vec<Duration>, BenchError> {
    stream.write_all(b"r").await?;
    stream
        .write_u32(u32::try_from(size).map_err(failed)?)
        .await?;
    stream
        .write_u32(u32::try_from(count + count / 10).map_err(failed)?)
        .await?;
    let mut buffer = vec![7; size];
    let mut times = Vec::with_capacity(count);
    for number in 0..count + count / 10 {
        let start = Instant::now();
        stream.write_all(&buffer).await?;
        stream.flush().await?;
        stream.read_exact(&mut buffer).await?;
        if number >= count / 10 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

/// Sends messages one way. Returns messages a second.
pub(crate) async fn stream(
    stream: &mut Stream,
    size: usize,
    messages: usize,
) -> Result<f64, BenchError> {
    let batch = vec![7; size * TOGETHER];
    let batches = messages / TOGETHER;
    stream.write_all(b"s").await?;
    stream.write_u64((batch.len() * batches) as u64).await?;
    let start = Instant::now();
    for _ in 0..batches {
        stream.write_all(&batch).await?;
    }
    stream.flush().await?;
    stream.read_u8().await?;
    Ok((batches * TOGETHER) as f64 / start.elapsed().as_secs_f64())
}

/// The other side of round trips and streams.
pub(crate) async fn serve(
    listener: TcpListener,
    level: SecurityLevel,
    security: Security,
) -> Result<(), BenchError> {
    let mut stream = accept(&listener, level, &security).await?;
    loop {
        let Ok(what) = stream.read_u8().await else {
            return Ok(());
        };
        if what == b'r' {
            let size = stream.read_u32().await? as usize;
            let count = stream.read_u32().await?;
            let mut buffer = vec![0; size];
            for _ in 0..count {
                stream.read_exact(&mut buffer).await?;
                stream.write_all(&buffer).await?;
                stream.flush().await?;
            }
        } else {
            let mut left = stream.read_u64().await?;
            let mut buffer = vec![0; 256 << 10];
            while left > 0 {
                left -= stream.read(&mut buffer).await? as u64;
            }
            stream.write_u8(1).await?;
            stream.flush().await?;
        }
    }
}
