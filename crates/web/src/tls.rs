//! HTTPS of a gateway, with its certificate from this platform or with files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sealbus_seal::Credential;
use sealbus_seal::Trust;
use sealbus_seal::tls::CertificateSource;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clients::Clients;
use crate::trust::{
    CertificateFileError, certificates, private_key, roots, trusted, wide_provider,
};

/// HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsConfig {
    /// The certificate chain in PEM. By default the gateway's own from this platform.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key in PEM.
    pub key: Option<PathBuf>,
    /// The certificates, in PEM, of authorities whose clients are admitted. Without them clients need no certificate.
    pub clients: Option<PathBuf>,
}

/// HTTPS cannot be set up.
#[derive(Debug, Error)]
pub enum TlsSetupError {
    /// A file with certificates or a key.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// A platform that certifies nobody.
    #[error(
        "the gateway has no certificate of its own on a platform of this security level: name certificate and key"
    )]
    NoCertificate,
    /// rustls refused it.
    #[error("HTTPS cannot be set up: {0}")]
    Setup(String),
}

fn setup(error: impl std::fmt::Display) -> TlsSetupError {
    TlsSetupError::Setup(error.to_string())
}

/// The certificate that is shown.
enum Shown {
    Files(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    Own(Arc<CertificateSource>),
}

impl Shown {
    fn of(config: &TlsConfig, credential: Option<Arc<Credential>>) -> Result<Self, TlsSetupError> {
        let files = config.certificate.as_deref().zip(config.key.as_deref());
        if let Some((certificate, key)) = files {
            return Ok(Self::Files(certificates(certificate)?, private_key(key)?));
        }
        let credential = credential.ok_or(TlsSetupError::NoCertificate)?;
        Ok(Self::Own(
            CertificateSource::new(&credential).map_err(setup)?,
        ))
    }

    /// The accepting end. Its clients are those of `config`, and `members`.
    fn server(
        &self,
        config: &TlsConfig,
        members: Option<&Arc<Trust>>,
    ) -> Result<ServerConfig, TlsSetupError> {
        let builder = ServerConfig::builder_with_provider(wide_provider())
            .with_safe_default_protocol_versions()
            .map_err(setup)?;
        let others = match &config.clients {
            None => None,
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, wide_provider())
                    .build()
                    .map_err(|error| CertificateFileError::new(path, &error))?;
                Some(verifier)
            }
        };
        let builder = match (members, others) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(others)) => builder.with_client_cert_verifier(others),
            (Some(trust), others) => {
                let verifier = Clients::new(trust.clone(), others);
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        match self {
            Self::Files(chain, key) => builder
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(setup),
            Self::Own(own) => Ok(builder.with_cert_resolver(own.clone())),
        }
    }
}

/// The accepting end with a certificate from files, for these protocols, the best one first (RFC 7301). With `members`, agents of
/// that platform are clients, too; clients without a certificate are then admitted unless the configuration names authorities.
///
/// # Errors
/// [`TlsSetupError`].
pub fn server(
    config: &TlsConfig,
    members: Option<&Arc<Trust>>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsSetupError> {
    let mut server = Shown::of(config, None)?.server(config, members)?;
    server.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(server))
}

/// Both directions, and the certificate that is shown.
#[derive(Debug)]
pub struct Tls {
    /// The accepting end, if the gateway is reached over HTTPS.
    pub server: Option<Arc<ServerConfig>>,
    /// The opening end, if there are certificates against which others are checked.
    pub client: Option<Arc<ClientConfig>>,
    /// The gateway's own certificate, if it is shown. It must be renewed.
    pub own: Option<Arc<CertificateSource>>,
}

impl Tls {
    /// As a gateway's configuration says. `trust` are the certificates against which others are checked; by default the
    /// system's. `credential` is shown if the configuration names no certificate.
    ///
    /// # Errors
    /// [`TlsSetupError`].
    pub fn new(
        config: Option<&TlsConfig>,
        trust: Option<&Path>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, TlsSetupError> {
        let shown = config
            .map(|config| Shown::of(config, credential))
            .transpose()?;
        let server = match (config, &shown) {
            (Some(config), Some(shown)) => Some(Arc::new(shown.server(config, None)?)),
            _ => None,
        };
        let client = match trusted(trust) {
            None => None,
            Some(path) => {
                let builder = ClientConfig::builder_with_provider(wide_provider())
                    .with_safe_default_protocol_versions()
                    .map_err(setup)?
                    .with_root_certificates(roots(path)?);
                let client = match &shown {
                    Some(Shown::Files(chain, key)) => builder
                        .with_client_auth_cert(chain.clone(), key.clone_key())
                        .map_err(setup)?,
                    Some(Shown::Own(own)) => builder.with_client_cert_resolver(own.clone()),
                    None => builder.with_no_client_auth(),
                };
                Some(Arc::new(client))
            }
        };
        let own = match shown {
            Some(Shown::Own(own)) => Some(own),
            _ => None,
        };
        Ok(Self {
            server,
            client,
            own,
        })
    }
}
