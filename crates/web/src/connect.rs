//! Connections to servers of others.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::client::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::error::WebError;

/// How long a connection may take, its handshake included.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A rule for addresses: what is wrong with one.
pub type MayReach = Arc<dyn Fn(IpAddr) -> Result<(), String> + Send + Sync>;

/// The server that answered, as its connection proved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The network address.
    pub address: SocketAddr,
    /// The name that its certificate proved. None without TLS.
    pub name: Option<String>,
    /// The SHA-256 fingerprint of its certificate, in lower-case hexadecimal.
    pub certificate: Option<String>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.certificate) {
            (Some(name), Some(certificate)) => write!(f, "TLS {name} sha256:{certificate}"),
            _ => write!(f, "no TLS, {}", self.address),
        }
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Link, WebError>> + Send>>;

/// Opens the connections of a client.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn(Uri) -> Opening + Send + Sync>);

impl Connector {
    pub(crate) fn new<F>(open: impl Fn(Uri) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Link, WebError>> + Send + 'static,
    {
        Self(Arc::new(move |uri| Box::pin(open(uri))))
    }
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = WebError;
    type Future = Opening;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), WebError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Opening {
        (self.0)(uri)
    }
}

/// The way to servers of others.
#[derive(Clone)]
pub(crate) struct Others {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) may_reach: MayReach,
}

impl Others {
    pub(crate) async fn open(self, uri: Uri) -> Result<Link, WebError> {
        let connecting = tokio::time::timeout(CONNECT_TIME, self.connect(&uri)).await;
        connecting.unwrap_or(Err(WebError::Slow(CONNECT_TIME)))
    }

    async fn connect(&self, uri: &Uri) -> Result<Link, WebError> {
        let host = uri.host().ok_or(WebError::Address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = self.reach(host, port, is_secure).await?;
        let _ = stream.set_nodelay(true);
        let address = stream.peer_addr()?;
        if !is_secure {
            let server = Server {
                address,
                name: None,
                certificate: None,
            };
            return Ok(Link::new(stream, Some(server)));
        }
        let tls = self.tls.clone().ok_or(WebError::NoTrust)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| WebError::Address)?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown.and_then(|shown| shown.first());
        let certificate = certificate.map(|it| HEXLOWER.encode(digest(&SHA256, it).as_ref()));
        let server = Server {
            address,
            name: Some(host.to_owned()),
            certificate,
        };
        Ok(Link::new(stream, Some(server)))
    }

    /// Connects to the first network address of a host that may be reached and accepts.
    async fn reach(&self, host: &str, port: u16, is_secure: bool) -> Result<TcpStream, WebError> {
        let mut failed = WebError::from(io::Error::from(io::ErrorKind::NotFound));
        let resolved = tokio::net::lookup_host((host, port)).await;
        for address in resolved? {
            if let Err(why) = (self.may_reach)(address.ip()) {
                failed = WebError::OutOfReach(why);
                continue;
            }
            if !is_secure && !address.ip().to_canonical().is_loopback() {
                failed = WebError::Plain;
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }
}

/// A stream of bytes in both directions.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A connection, with what it proved of a server of others.
pub(crate) struct Link {
    io: TokioIo<Box<dyn Socket>>,
    server: Option<Server>,
}

impl Link {
    pub(crate) fn new(stream: impl Socket + 'static, server: Option<Server>) -> Self {
        Self {
            io: TokioIo::new(Box::new(stream)),
            server,
        }
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        match &self.server {
            Some(server) => Connected::new().extra(server.clone()),
            None => Connected::new(),
        }
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, io::Error>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
