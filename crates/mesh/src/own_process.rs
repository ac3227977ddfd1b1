//! The facts about this process that its connections need: its statement about itself, and its TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sealbus_seal::tls::{Acceptor, CertificateSource, Connector, ExpectedPeer, TlsError};
use sealbus_seal::{Credential, Identity, Trust};
use tokio::net::TcpStream;

use crate::config::MeshConfig;
use crate::frame::RandomId;
use crate::greeting::{self, Greeted, GreetingError, Opened};

/// Both ends of TLS, and the certificate that this process shows there.
pub(crate) struct Tls {
    source: Arc<CertificateSource>,
    acceptor: Acceptor,
    connector: Connector,
    trust: Arc<Trust>,
}

impl Tls {
    /// TLS as configured; `None` at level `none`.
    pub(crate) fn new(config: &MeshConfig) -> Result<Option<Self>, TlsError> {
        let Some(security) = config.security.process() else {
            return Ok(None);
        };
        let level = config.security.level();
        let source = CertificateSource::new(&security.credential)?;
        let protocols = [greeting::protocol_name(level)];
        let trust = security.trust.clone();
        let expected = ExpectedPeer::ENDPOINT;
        Ok(Some(Self {
            acceptor: Acceptor::new(level, source.clone(), trust.clone(), expected, &protocols)?,
            connector: Connector::new(level, source.clone(), trust.clone(), &protocols)?,
            source,
            trust,
        }))
    }
}

/// The facts about this process that its connections need.
pub(crate) struct OwnProcess {
    pub(crate) config: Arc<MeshConfig>,
    pub(crate) incarnation: RandomId,
    pub(crate) process_uri: String,
    /// The address at which it listens.
    pub(crate) address: SocketAddr,
    pub(crate) address_text: String,
    tls: Option<Tls>,
    next_connection: AtomicU64,
    /// The reason why the platform has given up this process.
    pub(crate) given_up: OnceLock<String>,
}

impl OwnProcess {
    /// This process, which listens at `address`; `None` if the system gives no random numbers.
    pub(crate) fn new(config: MeshConfig, address: SocketAddr, tls: Option<Tls>) -> Option<Self> {
        Some(Self {
            incarnation: crate::token()?,
            process_uri: config.process.to_string(),
            address,
            address_text: address.to_string(),
            tls,
            next_connection: AtomicU64::new(1),
            given_up: OnceLock::new(),
            config: Arc::new(config),
        })
    }

    /// A number for a connection, unique in this process.
    pub(crate) fn next_connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn trust(&self) -> Option<&Arc<Trust>> {
        self.tls.as_ref().map(|tls| &tls.trust)
    }

    /// Opens a connection to a process, up to and including TLS.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        peer: &Identity,
    ) -> Result<Opened, GreetingError> {
        let secure = self.tls.as_ref().map(|tls| (&tls.connector, &tls.trust));
        greeting::open(address, peer, self.config.security.level(), secure).await
    }

    /// Takes an incoming connection, up to the greeting of the other process.
    pub(crate) async fn admit(&self, tcp: TcpStream) -> Result<Greeted, GreetingError> {
        let secure = self.tls.as_ref().map(|tls| (&tls.acceptor, &tls.trust));
        let level = self.config.security.level();
        greeting::admit(tcp, level, secure).await?.wait().await
    }

    /// Shows another certificate of this process on new connections. Returns false at level `none`.
    pub(crate) fn show(&self, credential: &Credential) -> Result<bool, TlsError> {
        match &self.tls {
            Some(tls) => tls.source.renew(credential).map(|()| true),
            None => Ok(false),
        }
    }
}
