//! The certificates that servers of others must show.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::{RootCertStore, crypto::CryptoProvider};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sealbus_seal::tls::provider;

/// The file in which Debian and its kin keep the system's certificates.
const SYSTEM_TRUST: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A file with certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used: {problem}", path.display())]
pub struct CertificateFileError {
    /// The file.
    pub path: PathBuf,
    /// The mistake.
    pub problem: String,
}

impl CertificateFileError {
    /// This mistake in this file.
    pub fn new(path: &Path, problem: &dyn std::fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// TLS 1.3, including the key exchanges of others.
pub fn wide_provider() -> Arc<CryptoProvider> {
    let ours = provider();
    let usual = rustls::crypto::aws_lc_rs::default_provider();
    Arc::new(CryptoProvider {
        kx_groups: ours
            .kx_groups
            .iter()
            .chain(&usual.kx_groups)
            .copied()
            .collect(),
        ..usual
    })
}

/// The file with the certificates that count: the named one, or else the system's, if it has one.
pub(crate) fn trusted(named: Option<&Path>) -> Option<&Path> {
    let system = Path::new(SYSTEM_TRUST);
    named.or_else(|| system.exists().then_some(system))
}

/// The certificates in a file in PEM.
///
/// # Errors
/// If it cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let failed = |error: &dyn std::fmt::Display| CertificateFileError::new(path, error);
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))?;
    if found.is_empty() {
        return Err(failed(&"it holds no certificate in PEM"));
    }
    Ok(found)
}

/// The private key in a file in PEM.
///
/// # Errors
/// If it cannot be read, or holds none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| CertificateFileError::new(path, &error))
}

/// The authorities in a file in PEM.
///
/// # Errors
/// As [`certificates`].
pub fn roots(path: &Path) -> Result<RootCertStore, CertificateFileError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(CertificateFileError::new(
            path,
            &"none of its certificates can be read",
        ));
    }
    Ok(roots)
}

/// HTTPS to servers whose certificates the authorities in `named` issued, or else the system's. None if there is neither
/// file.
///
/// # Errors
/// If the file cannot be used.
pub fn client(named: Option<&Path>) -> Result<Option<Arc<ClientConfig>>, CertificateFileError> {
    let Some(path) = trusted(named) else {
        return Ok(None);
    };
    let config = ClientConfig::builder_with_provider(wide_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateFileError::new(path, &error))?
        .with_root_certificates(roots(path)?)
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}
