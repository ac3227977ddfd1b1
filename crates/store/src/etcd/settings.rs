//! Where the members of the cluster are, and the certificates with which they and the platform know each other.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::Uri;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use sealbus_web::trust::{CertificateFileError, certificates, private_key, roots};

/// The file with the certificates (PEM) of the authorities that certify members.
pub const AUTHORITY_FILE: &str = "ca.pem";
/// The file with the Master's certificate (PEM) for etcd.
pub const CERTIFICATE_FILE: &str = "client.pem";
/// The file with the private key (PEM) of that certificate.
pub const KEY_FILE: &str = "client.key";

/// The etcd cluster that holds a platform's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The addresses of the members: `https://HOST:PORT`.
    pub members: Vec<String>,
    /// The folder with [`AUTHORITY_FILE`], [`CERTIFICATE_FILE`] and [`KEY_FILE`].
    pub credentials: PathBuf,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdSettingsError {
    /// An address is not one of a member.
    #[error("{0} is not the address of a member of etcd: write https://HOST:PORT")]
    Address(String),
    /// A file cannot be read, or holds something else.
    #[error("{0}; `sealbus store certify` makes the files for etcd and the Master")]
    File(#[from] CertificateFileError),
}

/// A member of the cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterMember {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) name: ServerName<'static>,
    pub(super) origin: Uri,
}

impl fmt::Display for ClusterMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.origin.to_string();
        f.write_str(text.trim_end_matches('/'))
    }
}

impl EtcdSettings {
    pub(super) fn read(
        &self,
    ) -> Result<(Vec<ClusterMember>, Arc<ClientConfig>), EtcdSettingsError> {
        let members = self.members.iter().map(|text| member(text));
        Ok((members.collect::<Result<_, _>>()?, self.tls()?))
    }

    /// etcd has an authority of its own, and never the platform's root, because every agent has a certificate under
    /// that root.
    fn tls(&self) -> Result<Arc<ClientConfig>, EtcdSettingsError> {
        let at = |name: &str| self.credentials.join(name);
        let (authority, certificate, key) =
            (at(AUTHORITY_FILE), at(CERTIFICATE_FILE), at(KEY_FILE));
        let roots = roots(&authority)?;
        let (chain, private) = (certificates(&certificate)?, private_key(&key)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_root_certificates(roots)
                    .with_client_auth_cert(chain, private)
            })
            .map_err(|error| CertificateFileError::new(&certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

pub(super) fn member(text: &str) -> Result<ClusterMember, EtcdSettingsError> {
    let wrong = || EtcdSettingsError::Address(text.chars().take(200).collect());
    let origin: Uri = text.parse().map_err(|_| wrong())?;
    let port = origin.port_u16().ok_or_else(wrong)?;
    let host = origin.host().unwrap_or_default();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    if origin.scheme_str() != Some("https") || !matches!(origin.path(), "" | "/") {
        return Err(wrong());
    }
    let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
    Ok(ClusterMember {
        host,
        port,
        name,
        origin,
    })
}
