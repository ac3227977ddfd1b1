//! The trust of a process: the roots, the deny lists, and the clock's tolerance.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls_pki_types::{CertificateDer, TrustAnchor};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage};

use crate::certificate::{
    Certificate, CertificateChain, CertificateError, Fingerprint, MAX_CHAIN_LENGTH, Serial,
};
use crate::denylist::{Denial, DenyList, DenyListError, DenyListUpdate};
use crate::identity::{Identity, IdentityKind, PlatformName};
use crate::key::PublicKey;
use crate::timestamp::Timestamp;

/// The default difference between clocks up to which a certificate is not refused for its dates.
pub const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// The number of verified chains remembered in each of two generations. A repeated binding then costs one signature.
const CACHED_CHAINS: usize = 8192;

/// The number of issuing authorities remembered. Their own signatures are then not checked for each new leaf.
const CACHED_AUTHORITIES: usize = 64;

/// The shared state of all verifiers of a process. Clone the [`Arc`] around it.
pub struct Trust {
    platform: PlatformName,
    roots: Vec<Root>,
    clock_skew: Duration,
    deny_lists: ArcSwap<Vec<Arc<DenyList>>>,
    verified: Mutex<Cache>,
}

struct Root {
    anchor: TrustAnchor<'static>,
    certificate: Certificate,
    fingerprint: Fingerprint,
}

#[derive(Default)]
struct Cache {
    young: HashMap<Fingerprint, VerifiedIdentity>,
    old: HashMap<Fingerprint, VerifiedIdentity>,
    authorities: HashMap<Fingerprint, TrustAnchor<'static>>,
}

/// An identity, proved by a chain that leads to a trusted root. Only this crate can make one.
///
/// The identity was valid when the value was made. [`Trust::check`] tells whether it still is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIdentity(Arc<Verified>);

#[derive(Debug, PartialEq, Eq)]
struct Verified {
    leaf: Certificate,
    fingerprint: Fingerprint,
    issuers: Vec<(Identity, Serial)>,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Why a platform's trust could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TrustError {
    /// There is no root certificate.
    #[error("no root certificate of the platform {0} was given")]
    NoRoot(PlatformName),
    /// A root certificate is unreadable or not self-signed.
    #[error("a root certificate of the platform {platform} is unusable: {why}")]
    BadRoot {
        /// The platform.
        platform: PlatformName,
        /// The fault in it.
        why: String,
    },
}

/// Why a peer was not trusted. The text is for the person who repairs the fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// The peer showed no certificate.
    #[error("no certificate was presented: this platform's level requires one from each process")]
    NoCertificate,
    /// A certificate could not be read.
    #[error("unreadable certificate: {0}")]
    Malformed(#[from] CertificateError),
    /// No trusted root stands behind the certificate.
    #[error(
        "unknown issuer: the certificate of {identity} was not issued by a CA of the platform {platform}"
    )]
    UnknownIssuer {
        /// The identity that the certificate claims.
        identity: Identity,
        /// The platform whose CAs are trusted.
        platform: PlatformName,
    },
    /// The certificate is not valid any more.
    #[error(
        "expired: the certificate of {identity} was valid until {not_after}, {by_seconds} s ago; either it was not renewed or the clock here ({now}) is off"
    )]
    Expired {
        /// The identity in the certificate.
        identity: Identity,
        /// The last valid second.
        not_after: Timestamp,
        /// The time here.
        now: Timestamp,
        /// How long ago it expired.
        by_seconds: u64,
    },
    /// The certificate is not valid yet.
    #[error(
        "not yet valid: the certificate of {identity} is valid from {not_before}, in {by_seconds} s; the clock here ({now}) or the CA's is off by that much"
    )]
    NotYetValid {
        /// The identity in the certificate.
        identity: Identity,
        /// The first valid second.
        not_before: Timestamp,
        /// The time here.
        now: Timestamp,
        /// How far off that is.
        by_seconds: u64,
    },
    /// The certificate is on the deny list.
    #[error("revoked: the certificate {serial} of {identity} was revoked at {}: {}", denial.at, denial.reason)]
    Revoked {
        /// The identity in the certificate.
        identity: Identity,
        /// The certificate's serial number.
        serial: Serial,
        /// When and why.
        denial: Denial,
    },
    /// The certificate is for another platform.
    #[error("wrong platform: {identity} does not belong to the platform {expected}")]
    WrongPlatform {
        /// The identity in the certificate.
        identity: Identity,
        /// The platform trusted here.
        expected: PlatformName,
    },
    /// The identity is proved, but its kind is not admitted here.
    #[error("{identity} is not {}", expected_kinds(expected))]
    WrongKind {
        /// The proved identity.
        identity: Identity,
        /// The expected kind.
        expected: &'static [IdentityKind],
    },
    /// The identity is proved, but another identity was expected.
    #[error("{found} answered where {expected} was expected")]
    WrongIdentity {
        /// The expected identity.
        expected: Identity,
        /// The identity that answered.
        found: Identity,
    },
    /// None of the peer's certificates is the root whose fingerprint the token carries.
    #[error(
        "unknown issuer: the server did not show the root certificate {expected} that the token names; the token belongs to another platform, or somebody intercepts the connection"
    )]
    WrongRoot {
        /// The fingerprint in the token.
        expected: Fingerprint,
    },
    /// The chain is against the rules in some other way.
    #[error("the certificate of {identity} is not acceptable: {why}")]
    Unacceptable {
        /// The identity in the certificate.
        identity: Identity,
        /// The rule that it breaks.
        why: String,
    },
}

fn expected_kinds(kinds: &[IdentityKind]) -> String {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|kind| match kind {
            IdentityKind::Agent | IdentityKind::Authority => format!("an {kind}"),
            _ => format!("a {kind}"),
        })
        .collect();
    kinds.join(" or ")
}

impl Trust {
    /// Trusts the given roots for the given platform.
    pub fn new(
        platform: PlatformName,
        roots: &[CertificateDer<'_>],
        clock_skew: Duration,
    ) -> Result<Self, TrustError> {
        if roots.is_empty() {
            return Err(TrustError::NoRoot(platform));
        }
        let roots = roots
            .iter()
            .map(|der| Root::new(&platform, der))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            platform,
            roots,
            clock_skew,
            deny_lists: ArcSwap::default(),
            verified: Mutex::default(),
        })
    }

    /// The platform whose identities are accepted.
    pub fn platform(&self) -> &PlatformName {
        &self.platform
    }

    /// The fingerprints of the trusted root certificates.
    pub fn root_fingerprints(&self) -> impl Iterator<Item = Fingerprint> + '_ {
        self.roots.iter().map(|root| root.fingerprint)
    }

    /// Verifies a chain at the time `now`: signatures up to a trusted root, dates, deny lists and platform.
    pub fn verify(
        &self,
        chain: &CertificateChain,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, VerifyError> {
        self.verify_certificates(chain.leaf(), chain.issuers(), now)
    }

    /// As [`Trust::verify`], for certificates from a TLS handshake.
    pub(crate) fn verify_certificates(
        &self,
        leaf: &[u8],
        issuers: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<VerifiedIdentity, VerifyError> {
        if issuers.len() >= MAX_CHAIN_LENGTH {
            return Err(CertificateError::ChainLength(issuers.len() + 1).into());
        }
        let fingerprint = Fingerprint::of(leaf);
        let cached = self.cache(|cache| cache.get(&fingerprint));
        let verified = match cached {
            Some(verified) => verified,
            None => {
                let verified = self.verify_path(leaf, fingerprint, issuers, now)?;
                // Only valid chains are kept, so that a peer cannot fill the cache with rejects.
                self.check(&verified, now)?;
                self.cache(|cache| cache.insert(fingerprint, verified.clone()));
                return Ok(verified);
            }
        };
        self.check(&verified, now)?;
        Ok(verified)
    }

    /// Checks that an identity verified earlier is still valid at `now`: dates and deny lists. O(1).
    pub fn check(&self, identity: &VerifiedIdentity, now: Timestamp) -> Result<(), VerifyError> {
        let verified = &*identity.0;
        if now.plus(self.clock_skew) < verified.not_before {
            return Err(VerifyError::NotYetValid {
                identity: verified.leaf.identity().clone(),
                not_before: verified.not_before,
                now,
                by_seconds: verified.not_before.since(now).as_secs(),
            });
        }
        if now > verified.not_after.plus(self.clock_skew) {
            return Err(VerifyError::Expired {
                identity: verified.leaf.identity().clone(),
                not_after: verified.not_after,
                now,
                by_seconds: now.since(verified.not_after).as_secs(),
            });
        }
        let leaf = &verified.leaf;
        for list in self.deny_lists.load().iter() {
            if let Some(denial) = list.denied(leaf.identity(), leaf.serial(), leaf.not_before()) {
                return Err(VerifyError::Revoked {
                    identity: leaf.identity().clone(),
                    serial: leaf.serial(),
                    denial,
                });
            }
            for (issuer, serial) in &verified.issuers {
                if let Some(denial) = list.denied_serial(*serial) {
                    return Err(VerifyError::Revoked {
                        identity: issuer.clone(),
                        serial: *serial,
                        denial,
                    });
                }
            }
        }
        Ok(())
    }

    fn verify_path(
        &self,
        leaf_der: &[u8],
        fingerprint: Fingerprint,
        issuers: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<VerifiedIdentity, VerifyError> {
        let leaf = Certificate::parse(leaf_der)?;
        let parsed = issuers
            .iter()
            .map(|der| Certificate::parse(der))
            .collect::<Result<Vec<_>, _>>()?;
        let all = || std::iter::once(&leaf).chain(&parsed);
        let not_before = all().map(Certificate::not_before).max().unwrap_or_default();
        let not_after = all().map(Certificate::not_after).min().unwrap_or_default();

        let identity = leaf.identity();
        // The library is given a time inside the validity, so that it judges the signatures alone. `check` judges the
        // dates each time, with the tolerance for clocks.
        let inside = now.max(not_before).min(not_after);
        let leaf_der = CertificateDer::from(leaf_der);
        let unknown = || VerifyError::UnknownIssuer {
            identity: identity.clone(),
            platform: self.platform.clone(),
        };
        let known = match issuers {
            [authority] => self.cache(|cache| cache.authority(authority)),
            _ => None,
        };
        let is_new = known.is_none();
        let anchors: Vec<_> = match known {
            Some(authority) => vec![authority],
            None => self.roots.iter().map(|root| root.anchor.clone()).collect(),
        };
        EndEntityCert::try_from(&leaf_der)
            .and_then(|end_entity| {
                end_entity
                    .verify_for_usage(
                        &[webpki::aws_lc_rs::ED25519],
                        &anchors,
                        issuers,
                        inside.into(),
                        KeyUsage::client_auth(),
                        None,
                        None,
                    )
                    .map(|_| ())
            })
            .map_err(|error| match error {
                webpki::Error::UnknownIssuer
                | webpki::Error::InvalidSignatureForPublicKey
                | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)
                | webpki::Error::UnsupportedSignatureAlgorithmContext(_) => unknown(),
                error => VerifyError::Unacceptable {
                    identity: identity.clone(),
                    why: error.to_string(),
                },
            })?;
        for certificate in all() {
            if *certificate.identity().platform() != self.platform {
                return Err(VerifyError::WrongPlatform {
                    identity: certificate.identity().clone(),
                    expected: self.platform.clone(),
                });
            }
        }
        if let ([authority], true) = (issuers, is_new) {
            self.cache(|cache| cache.insert_authority(authority));
        }
        let issuers = parsed
            .iter()
            .map(|issuer| (issuer.identity().clone(), issuer.serial()))
            .collect();
        Ok(VerifiedIdentity(Arc::new(Verified {
            leaf,
            fingerprint,
            issuers,
            not_before,
            not_after,
        })))
    }

    /// Verifies the certificate of an issuing authority itself: a trusted root has signed it, and it is valid.
    pub(crate) fn verify_authority(
        &self,
        der: &[u8],
        now: Timestamp,
    ) -> Result<Certificate, VerifyError> {
        use x509_parser::prelude::FromDer;

        let authority = Certificate::parse(der)?;
        let identity = || authority.identity().clone();
        if !authority.is_authority() {
            return Err(VerifyError::WrongKind {
                identity: identity(),
                expected: &[IdentityKind::Authority],
            });
        }
        if *authority.identity().platform() != self.platform {
            return Err(VerifyError::WrongPlatform {
                identity: identity(),
                expected: self.platform.clone(),
            });
        }
        let (_, x509) = x509_parser::certificate::X509Certificate::from_der(der)
            .map_err(|error| CertificateError::Malformed(error.to_string()))?;
        let signed = |root: &Root| {
            root.certificate
                .public_key()
                .verifies_bytes(x509.tbs_certificate.as_ref(), x509.signature_value.as_ref())
        };
        if !self.roots.iter().any(signed) {
            return Err(VerifyError::UnknownIssuer {
                identity: identity(),
                platform: self.platform.clone(),
            });
        }
        let verified = VerifiedIdentity(Arc::new(Verified {
            fingerprint: Fingerprint::of(der),
            issuers: Vec::new(),
            not_before: authority.not_before(),
            not_after: authority.not_after(),
            leaf: authority.clone(),
        }));
        self.check(&verified, now)?;
        Ok(authority)
    }

    /// Takes a signed deny list, if it is newer than the list held from the same authority. The list is in force when
    /// this returns. The caller must then have open bindings [checked](Trust::check) again.
    pub fn apply_deny_list(
        &self,
        signed: &[u8],
        now: Timestamp,
    ) -> Result<DenyListUpdate, DenyListError> {
        let new = Arc::new(DenyList::open(signed, self, now)?);
        let mut outcome = Ok(DenyListUpdate::Applied {
            version: new.version(),
        });
        self.deny_lists.rcu(|lists| {
            let mut lists = lists.as_ref().clone();
            match lists
                .iter_mut()
                .find(|list| list.authority() == new.authority())
            {
                Some(held) if held.version() == new.version() => {
                    outcome = Ok(DenyListUpdate::AlreadyHeld {
                        version: new.version(),
                    });
                }
                Some(held) if held.version() > new.version() => {
                    outcome = Err(DenyListError::Stale {
                        authority: new.authority().clone(),
                        held: held.version(),
                        received: new.version(),
                    });
                }
                Some(held) => *held = Arc::clone(&new),
                None => lists.push(Arc::clone(&new)),
            }
            lists
        });
        outcome
    }

    /// The deny lists in force, one for each authority that sent one.
    pub fn deny_lists(&self) -> Arc<Vec<Arc<DenyList>>> {
        self.deny_lists.load_full()
    }

    /// The earliest start at which a new certificate of `identity` is not denied.
    pub fn denied_before(&self, identity: &Identity) -> Option<Timestamp> {
        self.deny_lists
            .load()
            .iter()
            .filter_map(|list| list.denied_before(identity))
            .max()
    }

    fn cache<T>(&self, work: impl FnOnce(&mut Cache) -> T) -> T {
        work(&mut self.verified.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("platform", &self.platform)
            .field("roots", &self.root_fingerprints().collect::<Vec<_>>())
            .field("clock_skew", &self.clock_skew)
            .finish_non_exhaustive()
    }
}

impl Root {
    fn new(platform: &PlatformName, der: &CertificateDer<'_>) -> Result<Self, TrustError> {
        let bad = |why: String| TrustError::BadRoot {
            platform: platform.clone(),
            why,
        };
        let certificate = Certificate::parse(der).map_err(|error| bad(error.to_string()))?;
        if !certificate.is_authority() || certificate.identity().platform() != platform {
            return Err(bad(format!(
                "it is the certificate of {}",
                certificate.identity()
            )));
        }
        let anchor =
            webpki::anchor_from_trusted_cert(der).map_err(|error| bad(error.to_string()))?;
        Ok(Self {
            anchor: anchor.to_owned(),
            certificate,
            fingerprint: Fingerprint::of(der),
        })
    }
}

impl Cache {
    /// An authority that was verified before. A leaf's chain may end with it. Its dates and denials are still checked.
    fn authority(&self, der: &CertificateDer<'_>) -> Option<TrustAnchor<'static>> {
        self.authorities.get(&Fingerprint::of(der)).cloned()
    }

    fn insert_authority(&mut self, der: &CertificateDer<'_>) {
        if self.authorities.len() >= CACHED_AUTHORITIES {
            self.authorities.clear();
        }
        if let Ok(anchor) = webpki::anchor_from_trusted_cert(der) {
            self.authorities
                .insert(Fingerprint::of(der), anchor.to_owned());
        }
    }

    fn get(&mut self, fingerprint: &Fingerprint) -> Option<VerifiedIdentity> {
        if let Some(found) = self.young.get(fingerprint) {
            return Some(found.clone());
        }
        let found = self.old.remove(fingerprint)?;
        self.insert(*fingerprint, found.clone());
        Some(found)
    }

    fn insert(&mut self, fingerprint: Fingerprint, verified: VerifiedIdentity) {
        if self.young.len() >= CACHED_CHAINS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fingerprint, verified);
    }
}

impl VerifiedIdentity {
    /// The proved identity.
    pub fn identity(&self) -> &Identity {
        self.0.leaf.identity()
    }

    /// The serial number of the certificate that proves it.
    pub fn serial(&self) -> Serial {
        self.0.leaf.serial()
    }

    /// The address it is certified at.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.leaf.address()
    }

    /// The moment from which the identity is valid.
    pub fn not_before(&self) -> Timestamp {
        self.0.not_before
    }

    /// The moment until which the identity is valid, without the tolerance for clocks.
    pub fn not_after(&self) -> Timestamp {
        self.0.not_after
    }

    /// The key it proved to hold.
    pub fn public_key(&self) -> &PublicKey {
        self.0.leaf.public_key()
    }

    /// The fingerprint of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }
}
