//! The check of the other end's certificate in a handshake.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError as TlsCertificateError, DigitallySignedStruct, DistinguishedName,
    Error as RustlsError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};

use crate::certificate::Fingerprint;
use crate::identity::{Identity, IdentityKind, PlatformName};
use crate::timestamp::Timestamp;
use crate::trust::Trust;
use crate::verify_error::VerifyError;

/// The identity that the other end of a connection must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// Exactly this identity.
    Exactly(Identity),
    /// Any identity of these kinds.
    AnyOf(&'static [IdentityKind]),
}

impl ExpectedPeer {
    /// Any process or node of the platform, as at a mesh endpoint.
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
            Self::AnyOf(expected) => VerifyError::unless_of_kind(found, expected),
        }
    }
}

/// Why this end refused the other end's certificate in one handshake.
///
/// TLS itself tells the peer only a word such as `unknown_ca` or `certificate_expired`. This value holds the full
/// reason, for the log and for the error of this end.
#[derive(Clone, Debug, Default)]
pub struct HandshakeRefusal(Arc<OnceLock<VerifyError>>);

impl HandshakeRefusal {
    /// The reason; `None` if the certificate was not refused.
    pub fn get(&self) -> Option<&VerifyError> {
        self.0.get()
    }
}

/// The trust that a verifier relies on.
#[derive(Clone, Debug)]
pub(super) enum Believed {
    Known(Arc<Trust>),
    Pinned {
        platform: PlatformName,
        root: Fingerprint,
        clock_skew: Duration,
    },
}

/// Checks the other end's certificate by its identity.
#[derive(Clone, Debug)]
pub(super) struct PeerVerifier {
    believed: Believed,
    expected: ExpectedPeer,
    refusal: HandshakeRefusal,
}

impl PeerVerifier {
    pub(super) fn new(believed: Believed, expected: ExpectedPeer) -> Self {
        Self {
            believed,
            expected,
            refusal: HandshakeRefusal::default(),
        }
    }

    /// The same check, for another identity.
    pub(super) fn expecting(&self, expected: ExpectedPeer) -> Self {
        Self {
            expected,
            ..self.clone()
        }
    }

    pub(super) fn recording(&self, refusal: &HandshakeRefusal) -> Arc<Self> {
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
            // TLS turns this into the alert for the peer.
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

/// The only signatures that are accepted in a handshake.
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
