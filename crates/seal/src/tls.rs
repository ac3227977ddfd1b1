//! TLS 1.3 in Sealbus: one provider, Ed25519 certificates, SPIFFE identities.
//!
//! X25519MLKEM768 comes first. There is no resumption, no session ticket and no early data, because each would admit a
//! peer whose certificate was revoked in the meantime. A full handshake costs 0.1 ms a connection.

mod provider;
mod source;
mod verifier;

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, CommonState, Error as RustlsError, ServerConfig};
use rustls_pki_types::ServerName;
use thiserror::Error;

use crate::certificate::Fingerprint;
use crate::identity::{IdentityKind, PlatformName};
use crate::level::SecurityLevel;
use crate::timestamp::Timestamp;
use crate::trust::Trust;
use crate::verified::VerifiedIdentity;
use crate::verify_error::VerifyError;

pub use provider::provider;
pub use source::CertificateSource;
use verifier::{Believed, PeerVerifier};
pub use verifier::{ExpectedPeer, HandshakeRefusal};

/// Why a TLS configuration could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TlsError {
    /// The level has no TLS.
    #[error("the security level {0} does not use TLS")]
    NoTls(SecurityLevel),
    /// rustls refused the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

impl From<RustlsError> for TlsError {
    fn from(error: RustlsError) -> Self {
        Self::Setup(error.to_string())
    }
}

/// The accepting end. It makes a configuration for each connection.
#[derive(Clone, Debug)]
pub struct Acceptor {
    source: Arc<CertificateSource>,
    /// The check of clients' proofs; `None` if clients need no certificate.
    verifier: Option<PeerVerifier>,
    protocols: Vec<Vec<u8>>,
}

/// The opening end. It makes a configuration for each connection.
#[derive(Clone, Debug)]
pub struct Connector {
    /// `None` if this end shows no certificate.
    source: Option<Arc<CertificateSource>>,
    verifier: PeerVerifier,
    protocols: Vec<Vec<u8>>,
}

impl Acceptor {
    /// An accepting end for `expected` clients. At level `tls` clients need no certificate. From `auth` on they must
    /// show one of `expected`. `protocols` are the ALPN names spoken (RFC 7301).
    pub fn new(
        level: SecurityLevel,
        source: Arc<CertificateSource>,
        trust: Arc<Trust>,
        expected: ExpectedPeer,
        protocols: &[&[u8]],
    ) -> Result<Self, TlsError> {
        if !level.encrypts() {
            return Err(TlsError::NoTls(level));
        }
        let verifier = level
            .authenticates()
            .then(|| PeerVerifier::new(Believed::Known(trust), expected));
        Ok(Self {
            source,
            verifier,
            protocols: owned(protocols),
        })
    }

    /// An accepting end for newcomers. They have no certificate yet, and recognise this server by its root's
    /// fingerprint. `source` must be from [`CertificateSource::with_root`].
    pub fn for_enrolment(source: Arc<CertificateSource>, protocols: &[&[u8]]) -> Self {
        Self {
            source,
            verifier: None,
            protocols: owned(protocols),
        }
    }

    /// The configuration for one connection, and the place for the reason if its client is refused.
    pub fn accept(&self) -> Result<(Arc<ServerConfig>, HandshakeRefusal), TlsError> {
        let refusal = HandshakeRefusal::default();
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match &self.verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.recording(&refusal)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&self.source) as _);
        config.alpn_protocols.clone_from(&self.protocols);
        // Only a full handshake, which checks the certificate, is allowed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok((Arc::new(config), refusal))
    }
}

impl Connector {
    /// An opening end. From level `auth` on it shows its certificate, too. `protocols` are the ALPN names spoken (RFC
    /// 7301).
    pub fn new(
        level: SecurityLevel,
        source: Arc<CertificateSource>,
        trust: Arc<Trust>,
        protocols: &[&[u8]],
    ) -> Result<Self, TlsError> {
        if !level.encrypts() {
            return Err(TlsError::NoTls(level));
        }
        Ok(Self {
            source: level.authenticates().then_some(source),
            verifier: PeerVerifier::new(Believed::Known(trust), ExpectedPeer::ENDPOINT),
            protocols: owned(protocols),
        })
    }

    /// An opening end for a newcomer that knows only the contents of a token: the platform's name and its root's
    /// fingerprint. The server must be `expected` and show the root.
    ///
    /// A newcomer has no deny list. If it hands over a secret or takes orders, `expected` should therefore be one
    /// identity, and not a kind that revoked certificates share.
    pub fn for_enrolment(
        platform: PlatformName,
        root: Fingerprint,
        clock_skew: Duration,
        expected: ExpectedPeer,
        protocols: &[&[u8]],
    ) -> Self {
        let believed = Believed::Pinned {
            platform,
            root,
            clock_skew,
        };
        Self {
            source: None,
            verifier: PeerVerifier::new(believed, expected),
            protocols: owned(protocols),
        }
    }

    /// The configuration for one connection to `expected`, and the place for the reason if the server is refused.
    pub fn connect(
        &self,
        expected: ExpectedPeer,
    ) -> Result<(Arc<ClientConfig>, HandshakeRefusal), TlsError> {
        self.configuration(&self.verifier.expecting(expected))
    }

    /// The configuration for one connection to the peers that this connector was made for.
    pub fn connect_to_any(&self) -> Result<(Arc<ClientConfig>, HandshakeRefusal), TlsError> {
        self.configuration(&self.verifier)
    }

    fn configuration(
        &self,
        verifier: &PeerVerifier,
    ) -> Result<(Arc<ClientConfig>, HandshakeRefusal), TlsError> {
        let refusal = HandshakeRefusal::default();
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.recording(&refusal));
        let mut config = match &self.source {
            Some(source) => builder.with_client_cert_resolver(Arc::clone(source) as _),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.protocols);
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        // A server is known by its SPIFFE identity, so there is no name to send.
        config.enable_sni = false;
        Ok((Arc::new(config), refusal))
    }
}

/// The check of clients' certificates by a server beside the mesh. The clients must be agents of the platform.
pub fn agents_of(trust: Arc<Trust>) -> Arc<dyn ClientCertVerifier> {
    let agents = ExpectedPeer::AnyOf(&[IdentityKind::Agent]);
    Arc::new(PeerVerifier::new(Believed::Known(trust), agents))
}

fn owned(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.to_vec()).collect()
}

/// The name to hand to rustls for any connection. It is neither sent nor checked.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into())
}

/// The identity of the other end of a finished handshake. O(1) after the handshake itself.
pub fn peer_identity(
    connection: &CommonState,
    trust: &Trust,
    now: Timestamp,
) -> Result<VerifiedIdentity, VerifyError> {
    match connection.peer_certificates() {
        Some([leaf, issuers @ ..]) => trust.verify_certificates(leaf, issuers, now),
        _ => Err(VerifyError::NoCertificate),
    }
}

/// The cause of a failed handshake, in words for an operator.
pub fn explain(error: &RustlsError, refusal: &HandshakeRefusal) -> String {
    use rustls::AlertDescription as Alert;
    if let Some(reason) = refusal.get() {
        return reason.to_string();
    }
    match error {
        RustlsError::NoCertificatesPresented => VerifyError::NoCertificate.to_string(),
        RustlsError::AlertReceived(alert) => match alert {
            Alert::UnknownCA => "the peer does not know the issuer of our certificate".to_owned(),
            Alert::CertificateExpired => {
                "the peer says that our certificate is expired or not yet valid: renew it, or set the clock".to_owned()
            }
            Alert::CertificateRevoked => "the peer says that our certificate is revoked".to_owned(),
            Alert::CertificateRequired => "the peer asks for a certificate".to_owned(),
            Alert::CertificateUnknown | Alert::BadCertificate => {
                "the peer does not accept our certificate; its log says why".to_owned()
            }
            Alert::ProtocolVersion => "the peer does not speak TLS 1.3".to_owned(),
            Alert::NoApplicationProtocol => "the peer speaks another protocol on this port".to_owned(),
            alert => format!("the peer broke off the TLS handshake: {alert:?}"),
        },
        error => error.to_string(),
    }
}
