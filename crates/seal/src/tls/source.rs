//! The certificate that this end shows.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::TlsError;
use crate::chain::Credential;

/// The certificate that a process or node shows now. A renewal needs no restart and no new configuration: the next
/// handshake shows the new certificate.
pub struct CertificateSource {
    current: ArcSwap<Shown>,
}

struct Shown {
    certified: Arc<CertifiedKey>,
    /// The same certificate, with the root at the end, for clients that know only the root's fingerprint.
    with_root: Option<Arc<CertifiedKey>>,
}

impl CertificateSource {
    /// Shows `credential` from now on.
    pub fn new(credential: &Credential) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(Shown::new(credential, None)?),
        }))
    }

    /// As [`CertificateSource::new`], for servers at which newcomers [enrol](super::Connector::for_enrolment). Such servers
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
        // The library does not erase bytes that it is given. These are borrowed, and overwritten when dropped.
        let der = credential.key().pkcs8();
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(der.as_slice()))?;
        let certified = CertifiedKey::new(chain, key);
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
