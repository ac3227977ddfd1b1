//! The root and the issuing authority, which are made once and then kept in the state directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealbus_seal::{
    AuthorityError, CertificateChain, CertificateError, IssuingAuthority, KeyError, KeyPair,
    PlatformName, RootAuthority, Timestamp, Validity,
};

use sealbus_ca::Outlook;
use sealbus_files::write_private;

pub(super) const ROOT_KEY: &str = "root.key";
pub(super) const ROOT_CERTIFICATE: &str = "root.der";
pub(super) const CA_KEY: &str = "ca.key";
pub(super) const CA_CHAIN: &str = "ca.chain";

/// Name of the issuing authority.
pub(super) const CA_NAME: &str = "ca";

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The authorities of a platform. The root's key is not among them, so it can lie offline.
pub struct Authorities {
    /// The root certificate, DER.
    pub root: Vec<u8>,
    /// The CA service's authority.
    pub issuing: IssuingAuthority,
}

/// The authorities could not be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has damaged contents.
    #[error("{} is damaged: {problem}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// The issuing authority has ended, and the root key is not here to renew it.
    #[error(
        "ca-certificate-ended: the CA's own certificate ended at {ended}, so nothing can be certified, and {} is not here to renew it: put the root's key there for one start",
        path.display()
    )]
    Ended {
        /// When the certificate ended.
        ended: Timestamp,
        /// The path at which the root key is expected.
        path: PathBuf,
    },
    /// There is no issuing authority, and the root key is not here to make one.
    #[error(
        "the CA's key and certificate are not here, and neither is {} to make new ones: put the root's key there for one start",
        path.display()
    )]
    RootOffline {
        /// The path at which the root key is expected.
        path: PathBuf,
    },
    /// The state directory belongs to another platform.
    #[error("{} belongs to the platform {found}, not {wanted}: choose another state directory", path.display())]
    AnotherPlatform {
        /// The root certificate.
        path: PathBuf,
        /// The owner.
        found: PlatformName,
        /// The expected owner.
        wanted: PlatformName,
    },
    /// An authority could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate is not readable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl Authorities {
    /// New authorities in memory, for a platform that ends with its process.
    ///
    /// # Errors
    /// If keys cannot be made.
    pub fn fresh(platform: &PlatformName, now: Timestamp) -> Result<Self, AuthoritiesError> {
        let root = RootAuthority::create(platform, Validity::starting(now, YEAR))?;
        let issuing = root.create_authority(CA_NAME, Validity::starting(now, YEAR))?;
        Ok(Self {
            root: root.certificate().to_vec(),
            issuing,
        })
    }

    /// The authorities in `directory`. The first call makes them.
    ///
    /// # Errors
    /// [`AuthoritiesError`].
    pub fn keep(
        directory: &Path,
        platform: &PlatformName,
        now: Timestamp,
    ) -> Result<Self, AuthoritiesError> {
        let path = |name: &str| directory.join(name);
        let Some(root) = read(&path(ROOT_CERTIFICATE))? else {
            let root = RootAuthority::create(platform, Validity::starting(now, YEAR * 10))?;
            let issuing = root.create_authority(CA_NAME, Validity::starting(now, YEAR))?;
            write(&path(ROOT_KEY), root.key().to_pkcs8_pem().as_bytes())?;
            keep_issuing(directory, &issuing)?;
            // This file comes last. With it the set is complete.
            write(&path(ROOT_CERTIFICATE), root.certificate())?;
            return Ok(Self {
                root: root.certificate().to_vec(),
                issuing,
            });
        };
        let found = sealbus_seal::Certificate::parse(&root)?
            .identity()
            .platform()
            .clone();
        if found != *platform {
            let (path, wanted) = (path(ROOT_CERTIFICATE), platform.clone());
            return Err(AuthoritiesError::AnotherPlatform {
                path,
                found,
                wanted,
            });
        }
        let missing = || AuthoritiesError::RootOffline {
            path: path(ROOT_KEY),
        };
        let issuing = match load_issuing(directory)? {
            None => {
                let root = offline_root(directory)?.ok_or_else(missing)?;
                let issuing = root.create_authority(CA_NAME, Validity::starting(now, YEAR))?;
                keep_issuing(directory, &issuing)?;
                issuing
            }
            Some(issuing) => match Self::renew(directory, &issuing, now)? {
                Some(renewed) => renewed,
                None if issuing.certificate().not_after() < now => {
                    return Err(AuthoritiesError::Ended {
                        ended: issuing.certificate().not_after(),
                        path: path(ROOT_KEY),
                    });
                }
                None => issuing,
            },
        };
        Ok(Self { root, issuing })
    }

    /// Renews the issuing authority's certificate, for the same key, if it [ends soon](Outlook::EndsSoon) and the root's
    /// key is in `directory`. Returns the authority with its new certificate, which is kept there.
    ///
    /// # Errors
    /// [`AuthoritiesError`].
    pub(super) fn renew(
        directory: &Path,
        issuing: &IssuingAuthority,
        now: Timestamp,
    ) -> Result<Option<IssuingAuthority>, AuthoritiesError> {
        if Outlook::of(issuing.certificate().not_after(), now) == Outlook::Good {
            return Ok(None);
        }
        let Some(root) = offline_root(directory)? else {
            return Ok(None);
        };
        let renewed = root.renew_authority(issuing, Validity::starting(now, YEAR))?;
        if renewed.certificate().not_after() <= issuing.certificate().not_after() {
            // The root itself ends soon.
            return Ok(None);
        }
        keep_issuing(directory, &renewed)?;
        Ok(Some(renewed))
    }
}

/// The root, if its key is in the directory.
fn offline_root(directory: &Path) -> Result<Option<RootAuthority>, AuthoritiesError> {
    let file = directory.join(ROOT_KEY);
    let certificate = read(&directory.join(ROOT_CERTIFICATE))?;
    let (Some(pem), Some(certificate)) = (read(&file)?, certificate) else {
        return Ok(None);
    };
    let key = parse_key(&file, &pem)?;
    Ok(Some(RootAuthority::load(key, certificate.into())?))
}

fn keep_issuing(directory: &Path, issuing: &IssuingAuthority) -> Result<(), AuthoritiesError> {
    write(
        &directory.join(CA_KEY),
        issuing.key().to_pkcs8_pem().as_bytes(),
    )?;
    let mut chain = Vec::new();
    issuing.chain().encode(&mut chain);
    write(&directory.join(CA_CHAIN), &chain)
}

fn load_issuing(directory: &Path) -> Result<Option<IssuingAuthority>, AuthoritiesError> {
    let (key, chain) = (directory.join(CA_KEY), directory.join(CA_CHAIN));
    match (read(&key)?, read(&chain)?) {
        (Some(pem), Some(bytes)) => check_issuing(&key, &pem, &chain, &bytes).map(Some),
        _ => Ok(None),
    }
}

/// The issuing authority with this key (PEM) and chain, which come from these files.
///
/// # Errors
/// [`AuthoritiesError::Damaged`], for example if they do not belong together.
pub(super) fn check_issuing(
    key: &Path,
    pem: &[u8],
    chain: &Path,
    bytes: &[u8],
) -> Result<IssuingAuthority, AuthoritiesError> {
    let pair = parse_key(key, pem)?;
    let problem = |problem: String| AuthoritiesError::Damaged {
        path: chain.to_owned(),
        problem,
    };
    let chain = CertificateChain::decode(bytes).map_err(|error| problem(error.to_string()))?;
    IssuingAuthority::load(pair, chain).map_err(|error| problem(error.to_string()))
}

fn parse_key(path: &Path, pem: &[u8]) -> Result<KeyPair, AuthoritiesError> {
    KeyPair::from_pkcs8_pem(&String::from_utf8_lossy(pem)).map_err(|error| {
        AuthoritiesError::Damaged {
            path: path.to_owned(),
            problem: error.to_string(),
        }
    })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, AuthoritiesError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AuthoritiesError::File {
            action: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), AuthoritiesError> {
    write_private(path, bytes).map_err(|source| AuthoritiesError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}
