//! The root and the issuing authority. They are made once and then kept in the state directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealbus_pkcs11::TokenKeyError;
use sealbus_seal::{
    AuthorityError, AuthorityKey, CLOCK_SKEW, Certificate, CertificateChain, CertificateError,
    IssuingAuthority, KeyError, PlatformName, RootAuthority, SignatureAlgorithm, SigningRequest,
    SigningRequestError, Timestamp, Trust, Validity,
};

use sealbus_ca::Outlook;
use sealbus_files::write_private;

mod keys;

pub(super) use keys::is_in_token;
pub use keys::place_keys;
use keys::{new_key, parse_key};

pub(super) const ROOT_KEY: &str = "root.key";
pub(super) const ROOT_CERTIFICATE: &str = "root.der";
pub(super) const CA_KEY: &str = "ca.key";
pub(super) const CA_CHAIN: &str = "ca.chain";

/// The key of an issuing authority that is not certified yet.
const NEW_KEY: &str = "ca.new.key";

/// Name of the first issuing authority of a platform. The others are named after their keys.
const FIRST: &str = "ca";

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
        /// `read`, `write`, `remove`.
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
        "this Master has no CA of its own: join it with `sealbus up --join` (docs/operations.md), or put the root's key at {} for one start",
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
    /// The root's key is of another algorithm than the platform is to have.
    #[error(
        "signatures = \"{wanted}\" is for a new platform, and the root's key in {} is of the algorithm {found}; a token holds Ed25519 keys only",
        directory.display()
    )]
    OtherSignatures {
        /// The state directory.
        directory: PathBuf,
        /// The root's algorithm.
        found: SignatureAlgorithm,
        /// The algorithm that the manifest names.
        wanted: SignatureAlgorithm,
    },
    /// The key of a new CA is to be in a token, and no token holds keys of the platform's algorithm.
    #[error(
        "{} names a key in a token, which holds Ed25519 keys only, and the CA's key must be of the algorithm {wanted}: remove this file, and the key will be in a file",
        path.display()
    )]
    OtherNewKey {
        /// The file.
        path: PathBuf,
        /// The algorithm of the platform's signatures.
        wanted: SignatureAlgorithm,
    },
    /// A key was to be in a token, and there is one already.
    #[error(
        "{} is there already: a token holds new keys only, those of a new platform or of a Master without a CA",
        .0.display()
    )]
    HasKey(PathBuf),
    /// A file names a key in a token, and the key cannot be used.
    #[error("the key that {} names: {error}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: TokenKeyError,
    },
    /// The root and the CA were to have one key.
    #[error(
        "both names are of one key: the root's key would be used all day, so give the CA another one"
    )]
    OneKey,
    /// A key was not made in a token.
    #[error(transparent)]
    NotMade(#[from] TokenKeyError),
    /// Certificates are for another key, or of another platform.
    #[error("these certificates are not for this Master: {0}")]
    NotOurs(&'static str),
    /// A signing request cannot be read.
    #[error(transparent)]
    Request(#[from] SigningRequestError),
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
        let issuing = root.create_authority(FIRST, Validity::starting(now, YEAR))?;
        Ok(Self {
            root: root.certificate().to_vec(),
            issuing,
        })
    }

    /// The authorities in `directory`. The first call makes them, with keys of the algorithm `signatures`, or Ed25519. Later the
    /// root must be of this algorithm, if one is given.
    ///
    /// # Errors
    /// [`AuthoritiesError`].
    pub fn keep(
        directory: &Path,
        platform: &PlatformName,
        signatures: Option<SignatureAlgorithm>,
        now: Timestamp,
    ) -> Result<Self, AuthoritiesError> {
        let path = |name: &str| directory.join(name);
        let check = |found| match signatures {
            Some(wanted) if wanted != found => Err(AuthoritiesError::OtherSignatures {
                directory: directory.to_owned(),
                found,
                wanted,
            }),
            _ => Ok(()),
        };
        let Some(root) = read(&path(ROOT_CERTIFICATE))? else {
            let key = match read(&path(ROOT_KEY))? {
                Some(text) => parse_key(&path(ROOT_KEY), &text)?,
                None => AuthorityKey::generate(signatures.unwrap_or_default())?,
            };
            let algorithm = key.algorithm();
            check(algorithm)?;
            let validity = Validity::starting(now, YEAR * 10);
            let root = RootAuthority::create_with(key, platform, validity)?;
            let key = new_key(directory, algorithm)?;
            let request = SigningRequest::parse(&key.signing_request()?)?;
            let validity = Validity::starting(now, YEAR);
            let chain = root.certify_authority(FIRST, &request, validity)?;
            let issuing = IssuingAuthority::load(key, chain)?;
            write(&path(ROOT_KEY), root.key().to_text()?.as_bytes())?;
            keep_issuing(directory, &issuing)?;
            // This file completes the set.
            write(&path(ROOT_CERTIFICATE), root.certificate())?;
            remove(&path(NEW_KEY))?;
            return Ok(Self {
                root: root.certificate().to_vec(),
                issuing,
            });
        };
        check_platform(&path(ROOT_CERTIFICATE), &root, platform)?;
        check(Certificate::parse(&root)?.public_key().algorithm())?;
        let missing = || AuthoritiesError::RootOffline {
            path: path(ROOT_KEY),
        };
        let issuing = match load_issuing(directory)? {
            None => {
                let root = offline_root(directory)?.ok_or_else(missing)?;
                // The platform may have other CAs, and their names are taken.
                let key = new_key(directory, root.key().algorithm())?;
                let request = SigningRequest::parse(&key.signing_request()?)?;
                let chain = certify_for_a_year(&root, &request, now)?;
                let issuing = IssuingAuthority::load(key, chain)?;
                keep_issuing(directory, &issuing)?;
                remove(&path(NEW_KEY))?;
                issuing
            }
            Some(issuing) => match Self::renew_at_start(directory, &issuing, now)? {
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

    /// As [`renew`](Self::renew), but a missing token of the root does not stop a CA that is still good.
    fn renew_at_start(
        directory: &Path,
        issuing: &IssuingAuthority,
        now: Timestamp,
    ) -> Result<Option<IssuingAuthority>, AuthoritiesError> {
        match Self::renew(directory, issuing, now) {
            Err(error @ AuthoritiesError::Token { .. })
                if issuing.certificate().not_after() >= now =>
            {
                tracing::warn!(%error, "the CA's certificate could not be renewed");
                Ok(None)
            }
            renewed => renewed,
        }
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

/// Whether `directory` has an issuing authority of its own.
///
/// # Errors
/// [`AuthoritiesError`].
pub fn has_authority(directory: &Path) -> Result<bool, AuthoritiesError> {
    Ok(own_authority(directory)?.is_some())
}

/// The certificate (DER) and the name of the issuing authority in `directory`.
pub(super) fn own_authority(
    directory: &Path,
) -> Result<Option<(String, Vec<u8>)>, AuthoritiesError> {
    let issuing = load_issuing(directory)?;
    Ok(issuing.map(|issuing| (issuing.name().to_owned(), issuing.chain().leaf().to_vec())))
}

/// Trust in the root in `directory`, without deny lists.
///
/// # Errors
/// [`AuthoritiesError`].
pub(super) fn trust(directory: &Path, platform: &PlatformName) -> Result<Trust, AuthoritiesError> {
    let root = read(&directory.join(ROOT_CERTIFICATE))?.unwrap_or_default();
    Trust::new(platform.clone(), &[root.into()], CLOCK_SKEW)
        .map_err(|_| AuthoritiesError::NotOurs("the root is none of this platform"))
}

/// Removes the key of an authority that was revoked. Nobody believes what it signs.
pub(super) fn remove_authority(directory: &Path) -> Result<(), AuthoritiesError> {
    remove(&directory.join(CA_CHAIN))?;
    remove(&directory.join(CA_KEY))
}

fn remove(path: &Path) -> Result<(), AuthoritiesError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(AuthoritiesError::File {
            action: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// The signing request (DER) of a new issuing authority in `directory`. Its key is made once for an algorithm, and kept there.
///
/// # Errors
/// [`AuthoritiesError`].
pub fn request_authority(
    directory: &Path,
    signatures: SignatureAlgorithm,
) -> Result<Vec<u8>, AuthoritiesError> {
    Ok(new_key(directory, signatures)?.signing_request()?)
}

/// Certifies the key of another Master's issuing authority, if the root's key is in `directory`. Returns the chain and the
/// root's certificate (DER).
///
/// # Errors
/// [`AuthoritiesError`].
pub fn certify_authority(
    directory: &Path,
    request: &[u8],
    now: Timestamp,
) -> Result<Option<(CertificateChain, Vec<u8>)>, AuthoritiesError> {
    let request = SigningRequest::parse(request)?;
    let Some(root) = offline_root(directory)? else {
        return Ok(None);
    };
    let chain = certify_for_a_year(&root, &request, now)?;
    Ok(Some((chain, root.certificate().to_vec())))
}

/// Keeps the issuing authority whose key was [made](request_authority) in `directory`, with the chain that the owner of
/// the root gave it, and the root. Returns its name.
///
/// # Errors
/// [`AuthoritiesError`].
pub(super) fn accept_authority(
    directory: &Path,
    platform: &PlatformName,
    chain: CertificateChain,
    root: &[u8],
    now: Timestamp,
) -> Result<String, AuthoritiesError> {
    let at = |name: &str| directory.join(name);
    check_platform(&at(ROOT_CERTIFICATE), root, platform)?;
    match read(&at(ROOT_CERTIFICATE))? {
        Some(known) if known != root => {
            return Err(AuthoritiesError::NotOurs("their root is another one"));
        }
        _ => {}
    }
    let trust = Trust::new(platform.clone(), &[root.to_vec().into()], CLOCK_SKEW)
        .map_err(|_| AuthoritiesError::NotOurs("the last one is no root of this platform"))?;
    trust
        .verify_authority(chain.leaf(), now)
        .map_err(|_| AuthoritiesError::NotOurs("no CA that is valid now is among them"))?;
    let algorithm = Certificate::parse(root)?.public_key().algorithm();
    let issuing = IssuingAuthority::load(new_key(directory, algorithm)?, chain)
        .map_err(|_| AuthoritiesError::NotOurs("they are for another key"))?;
    // The directory must never have a key and a chain that do not belong together.
    remove_authority(directory)?;
    keep_issuing(directory, &issuing)?;
    write(&at(ROOT_CERTIFICATE), root)?;
    remove(&at(NEW_KEY))?;
    Ok(issuing.name().to_owned())
}

fn certify_for_a_year(
    root: &RootAuthority,
    request: &SigningRequest,
    now: Timestamp,
) -> Result<CertificateChain, AuthorityError> {
    root.certify_authority(
        &request.authority_name(),
        request,
        Validity::starting(now, YEAR),
    )
}

fn check_platform(
    path: &Path,
    root: &[u8],
    platform: &PlatformName,
) -> Result<(), AuthoritiesError> {
    let certificate = Certificate::parse(root)?;
    let found = certificate.identity().platform();
    if found == platform {
        return Ok(());
    }
    Err(AuthoritiesError::AnotherPlatform {
        path: path.to_owned(),
        found: found.clone(),
        wanted: platform.clone(),
    })
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
    write(&directory.join(CA_KEY), issuing.key().to_text()?.as_bytes())?;
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
