//! TLS 1.3 in Sealbus: one provider, Ed25519 certificates, SPIFFE identities.
//!
//! X25519MLKEM768 comes first. There is no resumption, no session ticket and no early data. Each of them would admit a
//! peer whose certificate was revoked in the meantime. A full handshake costs 0.1 ms a connection.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError as TlsCertificateError, ClientConfig, CommonState, DigitallySignedStruct,
    DistinguishedName, Error as RustlsError, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use thiserror::Error;

use crate::certificate::{Credential, Fingerprint};
use crate::identity::{Identity, IdentityKind, PlatformName};
use crate::level::SecurityLevel;
use crate::timestamp::Timestamp;
use crate::trust::{Trust, VerifiedIdentity, VerifyError};

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

/// The cryptographic provider of every TLS connection: aws-lc-rs, with X25519MLKEM768, and with X25519 for peers that
/// do not know it.
///
/// Each configuration is given this provider. The process-wide default of rustls is never touched.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || CryptoProvider {
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(make())))
}

/// The certificate that a process or node shows now. A renewal needs no restart and no new configuration: the next
/// handshake shows the new certificate.
pub struct CertificateSource {
    current: ArcSwap<Shown>,
}

struct Shown {
    certified: Arc<CertifiedKey>,
    /// The same certificate with the root at the end, for clients that know only the root's fingerprint.
    with_root: Option<Arc<CertifiedKey>>,
}

impl CertificateSource {
    /// Shows `credential` from now on.
    pub fn new(credential: &Credential) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(Shown::new(credential, None)?),
        }))
    }

    /// As [`CertificateSource::new`], for servers at which newcomers [enrol](Connector::for_enrolment). Such servers
    /// also show the root certificate.
    pub fn with_root(
        credential: &Credential,
        root: &CertificateDer<'static>,
    ) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(Shown::new(credential, Some(root))?),
        }))
    }

    /// Shows another credential in all handshakes from now on.
    pub fn renew(&self, credential: &Credential) -> Result<(), TlsError> {
        let root = self
            .current
            .load()
            .with_root
            .as_ref()
            .and_then(|key| key.cert.last().cloned());
        self.current
            .store(Arc::new(Shown::new(credential, root.as_ref())?));
        Ok(())
    }
}

impl Shown {
    fn new(
        credential: &Credential,
        root: Option<&CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        let chain = credential.chain().to_certificates();
        let certified =
            CertifiedKey::from_der(chain, credential.key().private_key_der(), &provider())?;
        let with_root = root.map(|root| {
            let mut chain = certified.cert.clone();
            chain.push(root.clone());
            Arc::new(CertifiedKey::new(chain, Arc::clone(&certified.key)))
        });
        Ok(Self {
            certified: Arc::new(certified),
            with_root,
        })
    }
}

impl fmt::Debug for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateSource").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificateSource {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        Some(Arc::clone(
            current.with_root.as_ref().unwrap_or(&current.certified),
        ))
    }
}

impl ResolvesClientCert for CertificateSource {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certified = || Arc::clone(&self.current.load().certified);
        schemes.contains(&SignatureScheme::ED25519).then(certified)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The required identity of the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// Exactly this identity.
    Exactly(Identity),
    /// Any identity of these kinds.
    AnyOf(&'static [IdentityKind]),
}

impl ExpectedPeer {
    /// Any process or node of the platform. A mesh endpoint talks to these.
    pub const ENDPOINT: Self = Self::AnyOf(&[IdentityKind::Process, IdentityKind::Node]);
    /// Any node of the platform.
    pub const NODE: Self = Self::AnyOf(&[IdentityKind::Node]);

    fn check(&self, found: &Identity) -> Result<(), VerifyError> {
        match self {
            Self::Exactly(expected) if expected == found => Ok(()),
            Self::Exactly(expected) => Err(VerifyError::WrongIdentity {
                expected: expected.clone(),
                found: found.clone(),
            }),
            Self::AnyOf(kinds) if kinds.contains(&found.kind()) => Ok(()),
            Self::AnyOf(expected) => Err(VerifyError::WrongKind {
                identity: found.clone(),
                expected,
            }),
        }
    }
}

/// Why this end refused the other end's certificate in one handshake.
///
/// TLS itself tells the peer only a word such as `unknown_ca` or `certificate_expired`. This value holds the whole
/// reason, for the log and for the error of this end.
#[derive(Clone, Debug, Default)]
pub struct HandshakeRefusal(Arc<OnceLock<VerifyError>>);

impl HandshakeRefusal {
    /// The reason; `None` if the certificate was not refused.
    pub fn get(&self) -> Option<&VerifyError> {
        self.0.get()
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

    /// An accepting end for newcomers. They have no certificate yet, and know this server by its root's fingerprint.
    /// `source` must be [`CertificateSource::with_root`].
    pub fn for_enrolment(source: Arc<CertificateSource>, protocols: &[&[u8]]) -> Self {
        Self {
            source,
            verifier: None,
            protocols: owned(protocols),
        }
    }

    /// The configuration for one connection, and the place of the reason if its client was refused.
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
        // A full handshake, which checks the certificate, is the only way in.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok((Arc::new(config), refusal))
    }
}

impl Connector {
    /// An opening end. From level `auth` on this end shows its certificate too. `protocols` are the ALPN names spoken
    /// (RFC 7301).
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
    /// fingerprint. The server must be `expected` and show the root. Read the root from the finished handshake with
    /// [`pinned_root`].
    ///
    /// A newcomer has no deny list. If it hands over a secret or takes orders, `expected` should therefore be one
    /// identity, not a kind that revoked certificates share.
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

    /// The configuration for one connection to `expected`, and the place of the reason if the server was refused.
    pub fn connect(
        &self,
        expected: ExpectedPeer,
    ) -> Result<(Arc<ClientConfig>, HandshakeRefusal), TlsError> {
        let verifier = PeerVerifier {
            expected,
            ..self.verifier.clone()
        };
        self.configuration(&verifier)
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

/// The root certificate that the server of an enrolment showed.
pub fn pinned_root(
    connection: &CommonState,
    root: Fingerprint,
) -> Result<CertificateDer<'static>, VerifyError> {
    connection
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .find(|certificate| Fingerprint::of(certificate) == root)
        .map(|certificate| certificate.clone().into_owned())
        .ok_or(VerifyError::WrongRoot { expected: root })
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

/// The inputs of a verifier.
#[derive(Clone, Debug)]
enum Believed {
    Known(Arc<Trust>),
    Pinned {
        platform: PlatformName,
        root: Fingerprint,
        clock_skew: Duration,
    },
}

/// Checks the other end's certificate by its identity.
#[derive(Clone, Debug)]
struct PeerVerifier {
    believed: Believed,
    expected: ExpectedPeer,
    refusal: HandshakeRefusal,
}

impl PeerVerifier {
    fn new(believed: Believed, expected: ExpectedPeer) -> Self {
        Self {
            believed,
            expected,
            refusal: HandshakeRefusal::default(),
        }
    }

    fn recording(&self, refusal: &HandshakeRefusal) -> Arc<Self> {
        Arc::new(Self {
            refusal: refusal.clone(),
            ..self.clone()
        })
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), RustlsError> {
        self.judge(leaf, issuers, now.into()).map_err(|error| {
            // TLS turns this into the alert that tells the peer.
            let alert = match &error {
                VerifyError::UnknownIssuer { .. }
                | VerifyError::WrongRoot { .. }
                | VerifyError::WrongPlatform { .. } => TlsCertificateError::UnknownIssuer,
                VerifyError::Expired { .. } | VerifyError::NotYetValid { .. } => {
                    TlsCertificateError::Expired
                }
                VerifyError::Revoked { .. } => TlsCertificateError::Revoked,
                VerifyError::Malformed(_) => TlsCertificateError::BadEncoding,
                error => TlsCertificateError::Other(rustls::OtherError(Arc::new(error.clone()))),
            };
            // The slot belongs to one connection, which is refused once.
            let _ = self.refusal.0.set(error);
            RustlsError::InvalidCertificate(alert)
        })
    }

    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        let verified = match &self.believed {
            Believed::Known(trust) => trust.verify_certificates(leaf, issuers, now)?,
            Believed::Pinned {
                platform,
                root,
                clock_skew,
            } => {
                let wrong = || VerifyError::WrongRoot { expected: *root };
                let (last, issuers) = issuers.split_last().ok_or_else(wrong)?;
                if Fingerprint::of(last) != *root {
                    return Err(wrong());
                }
                Trust::new(platform.clone(), std::slice::from_ref(last), *clock_skew)
                    .map_err(|_| wrong())?
                    .verify_certificates(leaf, issuers, now)?
            }
        };
        self.expected.check(verified.identity())
    }
}

static ED25519: [&dyn SignatureVerificationAlgorithm; 1] = [webpki::aws_lc_rs::ED25519];

/// The only signatures believed in a handshake.
static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &ED25519,
    mapping: &[(SignatureScheme::ED25519, &ED25519)],
};

fn no_tls12() -> RustlsError {
    rustls::PeerIncompatible::Tls12NotOffered.into()
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, RustlsError> {
        self.verify(end_entity, intermediates, now)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &SIGNATURES)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        self.verify(end_entity, intermediates, now)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &SIGNATURES)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two providers in one tree panic at the first handshake, or one silently decides for the other.
    #[test]
    fn the_tree_holds_one_provider() {
        // The lock file would not do: it names optional dependencies that are not turned on.
        let output = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--workspace", "--locked", "--offline"])
            .args(["--prefix", "none", "--format", "{lib} {p} features={f}"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let crates: std::collections::BTreeSet<&str> = tree.lines().collect();
        let of = |name: &str| {
            let start = format!("{name} v");
            let named = |line: &&&str| {
                line.split_once(' ')
                    .is_some_and(|(_, package)| package.starts_with(&start))
            };
            crates.iter().filter(named).copied().collect::<Vec<_>>()
        };
        assert!(!of("aws-lc-rs").is_empty());
        let rustls = of("rustls");
        assert!(!rustls.is_empty());
        assert!(
            rustls.iter().all(|line| !line.contains("ring")),
            "{rustls:?}"
        );
        for foreign in [
            "ring",
            "openssl",
            "native-tls",
            "boring",
            "rustls-ring",
            "rustls-rustcrypto",
            "rustls-graviola",
            "rustls-mbedcrypto-provider",
        ] {
            let found = of(foreign);
            assert!(
                found.is_empty(),
                "{found:?}: `cargo tree -i {foreign}` says for whom"
            );
        }
    }

    #[test]
    fn the_provider_prefers_the_post_quantum_group() {
        let groups = provider()
            .kx_groups
            .iter()
            .map(|group| group.name())
            .collect::<Vec<_>>();
        use rustls::NamedGroup::{X25519, X25519MLKEM768};
        assert_eq!(groups, [X25519MLKEM768, X25519]);
        assert!(CryptoProvider::get_default().is_none());
    }
}
