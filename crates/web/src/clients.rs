//! The clients of a server that may show certificates of this platform, or of another authority.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use sealbus_seal::Trust;
use sealbus_seal::tls::agents_of;

use crate::trust::wide_provider;

/// Believes certificates of the platform's agents, and those that another verifier believes. Without another verifier,
/// clients need no certificate.
#[derive(Debug)]
pub(crate) struct Clients {
    agents: Arc<dyn ClientCertVerifier>,
    others: Option<Arc<dyn ClientCertVerifier>>,
    signatures: WebPkiSupportedAlgorithms,
}

impl Clients {
    pub(crate) fn new(trust: Arc<Trust>, others: Option<Arc<dyn ClientCertVerifier>>) -> Self {
        Self {
            agents: agents_of(trust),
            others,
            signatures: wide_provider().signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.others.is_some()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // With a hint, clients would keep back certificates of the authority that it leaves out.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let refused = match (self.agents).verify_client_cert(end_entity, intermediates, now) {
            Ok(verified) => return Ok(verified),
            Err(refused) => refused,
        };
        match &self.others {
            Some(others) => others.verify_client_cert(end_entity, intermediates, now),
            None => Err(refused),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.signatures)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.signatures)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes()
    }
}
