//! The authority of an etcd cluster. It certifies the members and the Masters that use them, and nobody else. etcd must
//! never trust a platform's root, because every agent has a certificate under that root.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sealbus_files::Private;
use time::OffsetDateTime;

use super::settings::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE};

/// The file with the authority's private key. It is needed only to certify.
const AUTHORITY_KEY: &str = "ca.key";
const MEMBER_CERTIFICATE: &str = "member.pem";
const MEMBER_KEY: &str = "member.key";
/// How long the certificates of the authority, and those that it issues, are valid.
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 86_400);
const LIFE: Duration = Duration::from_secs(5 * 365 * 86_400);
/// Certificates begin this long ago, for clocks that are slow.
const BACKDATING: Duration = Duration::from_secs(3600);

/// An authority for etcd, in a folder.
pub struct EtcdAuthority {
    folder: PathBuf,
    pub(super) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificates for etcd could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// A file or folder cannot be used.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// `read`, `make`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The authority's files are damaged.
    #[error("{} is not the authority that was made here: {problem}", path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// A name cannot be one of a member or an instance.
    #[error("{0} is not a name for a folder and a certificate: write letters, digits, `-` and `.`")]
    Name(String),
    /// The files exist already.
    #[error("{} is there already: remove it to make another", .0.display())]
    Exists(PathBuf),
    /// A certificate could not be made.
    #[error("a certificate for {name} could not be made: {problem}")]
    Failed {
        /// The bearer.
        name: String,
        /// The fault.
        problem: String,
    },
}

fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> CertifyError {
    let path = path.to_owned();
    move |error| CertifyError::File {
        action,
        path: path.clone(),
        error,
    }
}

fn failed(name: &str) -> impl Fn(rcgen::Error) -> CertifyError {
    let name = name.to_owned();
    move |error| CertifyError::Failed {
        name: name.clone(),
        problem: error.to_string(),
    }
}

impl EtcdAuthority {
    /// The authority in a folder. The first call makes both.
    ///
    /// # Errors
    /// [`CertifyError`].
    pub fn keep(folder: &Path) -> Result<Self, CertifyError> {
        make_folder(folder)?;
        let (certificate, key) = (folder.join(AUTHORITY_FILE), folder.join(AUTHORITY_KEY));
        if !key.exists() {
            return Self::make(folder, &certificate, &key);
        }
        let damaged = |problem: String| CertifyError::Damaged {
            path: folder.to_owned(),
            problem,
        };
        let pair = fs::read_to_string(&key).map_err(file("read", &key))?;
        let pair = KeyPair::from_pem(&pair).map_err(|error| damaged(error.to_string()))?;
        let text = fs::read_to_string(&certificate).map_err(file("read", &certificate))?;
        let der = CertificateDer::from_pem_slice(text.as_bytes());
        let der = der.map_err(|error| damaged(error.to_string()))?;
        // Nobody would believe the signatures of a key that belongs to another certificate.
        let public = pair.der_bytes();
        if !der.windows(public.len()).any(|part| part == public) {
            return Err(damaged("the key is not the certificate's".to_owned()));
        }
        let issuer = Issuer::from_ca_cert_der(&der, pair);
        Ok(Self {
            folder: folder.to_owned(),
            certificate: text,
            issuer: issuer.map_err(|error| damaged(error.to_string()))?,
        })
    }

    fn make(folder: &Path, certificate: &Path, key: &Path) -> Result<Self, CertifyError> {
        let name = "Sealbus: authority for etcd";
        let pair = KeyPair::generate().map_err(failed(name))?;
        let mut params = params(name, AUTHORITY_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&pair).map_err(failed(name))?.pem();
        write(certificate, &made)?;
        write(key, &pair.serialize_pem())?;
        Ok(Self {
            folder: folder.to_owned(),
            certificate: made,
            issuer: Issuer::new(params, pair),
        })
    }

    /// Certifies a member, which others reach at `hosts`: names and IP addresses. Returns the folder with its files.
    ///
    /// # Errors
    /// [`CertifyError`].
    pub fn certify_member(&self, name: &str, hosts: &[String]) -> Result<PathBuf, CertifyError> {
        let mut params = params(name, LIFE);
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let name = host.as_str().try_into();
                    SanType::DnsName(name.map_err(|_| CertifyError::Name(host.clone()))?)
                }
            });
        }
        // A member is a server for others, and their client.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.certify(name, params, MEMBER_CERTIFICATE, MEMBER_KEY)
    }

    /// Certifies a Master, which etcd knows as the user `name`. Returns the folder with the files.
    ///
    /// # Errors
    /// [`CertifyError`].
    pub fn certify_client(&self, name: &str) -> Result<PathBuf, CertifyError> {
        let mut params = params(name, LIFE);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.certify(name, params, CERTIFICATE_FILE, KEY_FILE)
    }

    fn certify(
        &self,
        name: &str,
        mut params: CertificateParams,
        certificate: &str,
        key: &str,
    ) -> Result<PathBuf, CertifyError> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        if name.is_empty()
            || name.len() > 64
            || name.starts_with('.')
            || !name.chars().all(is_legal)
        {
            return Err(CertifyError::Name(name.chars().take(80).collect()));
        }
        let folder = self.folder.join(name);
        if folder.join(key).exists() {
            return Err(CertifyError::Exists(folder.join(key)));
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let pair = KeyPair::generate().map_err(failed(name))?;
        let made = params
            .signed_by(&pair, &self.issuer)
            .map_err(failed(name))?;
        make_folder(&folder)?;
        write(&folder.join(AUTHORITY_FILE), &self.certificate)?;
        write(&folder.join(certificate), &made.pem())?;
        write(&folder.join(key), &pair.serialize_pem())?;
        Ok(folder)
    }
}

fn params(name: &str, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATING;
    params.not_after = now + life;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn make_folder(path: &Path) -> Result<(), CertifyError> {
    sealbus_files::make_folder(path).map_err(file("make", path))
}

/// Writes a file that only its owner reads.
fn write(path: &Path, text: &str) -> Result<(), CertifyError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).private();
    let written = options
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(file("write", path))
}
