//! The trust of a process: its roots, its deny lists, and its clock tolerance.

mod cache;
mod deny_lists;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage};

use crate::certificate::{Certificate, CertificateError, Fingerprint, MOST_CERTIFICATES, Serial};
use crate::chain::CertificateChain;
use crate::denylist::{Denial, SignedDenyList};
use crate::holding::Renewed;
use crate::identity::{Identity, IdentityKind, PlatformName};
use crate::timestamp::Timestamp;
use crate::verified::{Verified, VerifiedIdentity};
use crate::verify_error::VerifyError;
use crate::verifying_key::SignatureAlgorithm;

use cache::{Cache, mark};

/// The state that all verifiers of a process share. Clone the [`Arc`] around it.
pub struct Trust {
    platform: PlatformName,
    roots: Vec<Root>,
    /// The algorithms of the roots. Certificates below them have no others.
    algorithms: Vec<&'static dyn SignatureVerificationAlgorithm>,
    clock_skew: Duration,
    deny_lists: ArcSwap<Vec<Arc<SignedDenyList>>>,
    /// Ensures that one list is applied at a time.
    applying: Mutex<()>,
    verified: Mutex<Cache>,
}

struct Root {
    anchor: TrustAnchor<'static>,
    certificate: Certificate,
    fingerprint: Fingerprint,
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
            .collect::<Result<Vec<_>, _>>()?;
        let is_used = |algorithm: &SignatureAlgorithm| {
            let mut roots = roots.iter();
            roots.any(|root: &Root| root.certificate.public_key().algorithm() == *algorithm)
        };
        let algorithms = SignatureAlgorithm::ALL.into_iter().filter(is_used);
        Ok(Self {
            algorithms: algorithms.map(SignatureAlgorithm::verification).collect(),
            platform,
            roots,
            clock_skew,
            deny_lists: ArcSwap::default(),
            applying: Mutex::default(),
            verified: Mutex::default(),
        })
    }

    /// The platform whose identities are accepted.
    pub fn platform(&self) -> &PlatformName {
        &self.platform
    }

    /// The algorithm of the platform's signatures: that of the first root.
    pub fn signatures(&self) -> SignatureAlgorithm {
        let root = self.roots.first();
        root.map_or(SignatureAlgorithm::Ed25519, |root| {
            root.certificate.public_key().algorithm()
        })
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

    /// Verifies a chain as of the time `then`, for statements that were signed at that time: signatures up to a trusted root,
    /// dates and platform. Deny lists are ignored, because a certificate is also denied when its owner ends in order.
    ///
    /// The whole chain is checked each time, even if its owner is known, because others may check the stored chain later.
    pub fn verify_as_of(
        &self,
        chain: &CertificateChain,
        then: Timestamp,
    ) -> Result<VerifiedIdentity, VerifyError> {
        let fingerprint = Fingerprint::of(chain.leaf());
        let verified = self.verify_path(chain.leaf(), fingerprint, chain.issuers(), then)?;
        self.check_dates(&verified, then)?;
        Ok(verified)
    }

    /// Runs a check whose outcome depends only on the bytes behind `mark`, unless it succeeded recently.
    ///
    /// # Errors
    /// The error of the check. Failures are not remembered, so that a peer cannot fill the memory with them.
    pub fn once<E>(
        &self,
        mark: Fingerprint,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.cache(|cache| cache.facts.get(&mark)).is_none() {
            check()?;
            self.cache(|cache| cache.facts.insert(mark, ()));
        }
        Ok(())
    }

    /// As [`Trust::verify`], for certificates from a TLS handshake.
    pub(crate) fn verify_certificates(
        &self,
        leaf: &[u8],
        issuers: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<VerifiedIdentity, VerifyError> {
        if issuers.len() >= MOST_CERTIFICATES {
            return Err(CertificateError::ChainLength(issuers.len() + 1).into());
        }
        let fingerprint = Fingerprint::of(leaf);
        let mark = mark(fingerprint, issuers);
        let cached = self.cache(|cache| cache.chains.get(&mark));
        let verified = match cached {
            Some(verified) => verified,
            None => {
                let verified = self.verify_path(leaf, fingerprint, issuers, now)?;
                // Only valid chains are kept, so that a peer cannot fill the cache with invalid ones.
                self.check(&verified, now)?;
                self.cache(|cache| cache.chains.insert(mark, verified.clone()));
                return Ok(verified);
            }
        };
        self.check(&verified, now)?;
        Ok(verified)
    }

    /// Checks that an identity verified earlier is still valid at `now`: dates and deny lists. O(1). If an identity is
    /// both revoked and expired, it counts as revoked: an expired one may come back with a new certificate.
    pub fn check(&self, identity: &VerifiedIdentity, now: Timestamp) -> Result<(), VerifyError> {
        let verified = &*identity.0;
        self.check_denials(&verified.leaf, &verified.issuers)?;
        self.check_dates(identity, now)
    }

    fn check_denials(
        &self,
        leaf: &Certificate,
        issuers: &[(Identity, Serial)],
    ) -> Result<(), VerifyError> {
        let lists = self.deny_lists.load();
        // Issuers come first: a thief of a CA's key can give a leaf any serial number, even one that is denied for a
        // lesser reason.
        for (issuer, serial) in issuers {
            let denial = lists.iter().find_map(|list| list.denied_serial(*serial));
            if let Some(denial) = denial {
                return Err(VerifyError::Revoked {
                    identity: issuer.clone(),
                    serial: *serial,
                    denial,
                });
            }
        }
        let denials = lists.iter().flat_map(|list| {
            let itself = list.denied(leaf.identity(), leaf.serial(), leaf.not_before());
            // A CA that does not know of a denial may renew a denied certificate.
            let earlier = leaf.renews().and_then(|renewed| {
                list.denied(leaf.identity(), renewed.serial, renewed.not_before)
            });
            itself.into_iter().chain(earlier)
        });
        match denials.reduce(Denial::or_graver) {
            None => Ok(()),
            Some(denial) => Err(VerifyError::Revoked {
                identity: leaf.identity().clone(),
                serial: leaf.serial(),
                denial,
            }),
        }
    }

    fn check_dates(&self, identity: &VerifiedIdentity, now: Timestamp) -> Result<(), VerifyError> {
        let verified = &*identity.0;
        self.check_period(&verified.leaf, verified.not_before, verified.not_after, now)
    }

    fn check_period(
        &self,
        leaf: &Certificate,
        not_before: Timestamp,
        not_after: Timestamp,
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        if now.plus(self.clock_skew) < not_before {
            return Err(VerifyError::NotYetValid {
                identity: leaf.identity().clone(),
                not_before,
                now,
                by_seconds: not_before.since(now).as_secs(),
            });
        }
        if now > not_after.plus(self.clock_skew) {
            return Err(VerifyError::Expired {
                identity: leaf.identity().clone(),
                not_after,
                now,
                by_seconds: now.since(not_after).as_secs(),
            });
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
        // Some peers also show the root. It adds nothing.
        let issuers = match issuers.split_last() {
            Some((last, below)) if self.is_root(last) => below,
            _ => issuers,
        };
        let parsed = issuers
            .iter()
            .map(|der| Certificate::parse(der))
            .collect::<Result<Vec<_>, _>>()?;
        let all = || std::iter::once(&leaf).chain(&parsed);
        let not_before = all().map(Certificate::not_before).max().unwrap_or_default();
        let not_after = all().map(Certificate::not_after).min().unwrap_or_default();

        let identity = leaf.identity();
        // The library gets a time inside the validity, so that it judges only the signatures. `check` judges the dates
        // each time, with the clock tolerance.
        let inside = now.max(not_before).min(not_after);
        let leaf_der = CertificateDer::from(leaf_der);
        let unknown = || VerifyError::UnknownIssuer {
            identity: identity.clone(),
            platform: self.platform.clone(),
        };
        // If a CA keeps renewing without knowledge of the state, nobody gets more than the day of the grant.
        let day = leaf.renews().map(Renewed::until);
        let not_after = day.map_or(not_after, |day| not_after.min(day));
        let known = match issuers {
            [authority] => self.cache(|cache| cache.authority(authority)),
            _ => None,
        };
        let is_new = known.is_none();
        // A known authority is itself the end of the path.
        let above = if is_new { issuers } else { &[] };
        let anchors: Vec<_> = match known {
            Some(authority) => vec![authority],
            None => self.roots.iter().map(|root| root.anchor.clone()).collect(),
        };
        EndEntityCert::try_from(&leaf_der)
            .and_then(|end_entity| {
                end_entity
                    .verify_for_usage(
                        &self.algorithms,
                        &anchors,
                        issuers,
                        inside.into(),
                        KeyUsage::client_auth(),
                        None,
                        None,
                    )
                    .map(|path| {
                        // The dates and denials of a certificate that is not on the path do not concern this leaf.
                        let mut used = path.intermediate_certificates();
                        let is_used = |shown: &CertificateDer<'_>| {
                            used.next().is_some_and(|it| it.der() == *shown)
                        };
                        above.iter().all(is_used) && used.next().is_none()
                    })
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
            })
            .and_then(|is_the_path| match is_the_path {
                true => Ok(()),
                false => Err(VerifyError::Unacceptable {
                    identity: identity.clone(),
                    why: "the certificates behind it are not those that lead to the root"
                        .to_owned(),
                }),
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
        let by = parsed.first().map(|issuer| issuer.public_key().algorithm());
        let proof_key = leaf.proof_key(by.unwrap_or(self.signatures())).cloned();
        let key = *leaf
            .public_key()
            .ed25519()
            .ok_or(CertificateError::Algorithm)?;
        Ok(VerifiedIdentity(Arc::new(Verified {
            leaf,
            key,
            proof_key,
            fingerprint,
            issuers,
            not_before,
            not_after,
        })))
    }

    /// Verifies the certificate of an issuing authority itself: a trusted root has signed it, and it is valid.
    ///
    /// # Errors
    /// As [`Trust::verify`].
    pub fn verify_authority(&self, der: &[u8], now: Timestamp) -> Result<Certificate, VerifyError> {
        use x509_parser::prelude::FromDer;

        let authority = Certificate::parse(der)?;
        let identity = || authority.identity().clone();
        VerifyError::unless_of_kind(authority.identity(), &[IdentityKind::Authority])?;
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
                .verifies(x509.tbs_certificate.as_ref(), x509.signature_value.as_ref())
                && root.certificate.public_key().algorithm() == authority.public_key().algorithm()
        };
        if !self.roots.iter().any(signed) {
            return Err(VerifyError::UnknownIssuer {
                identity: identity(),
                platform: self.platform.clone(),
            });
        }
        let (not_before, not_after) = (authority.not_before(), authority.not_after());
        self.check_period(&authority, not_before, not_after, now)?;
        self.check_denials(&authority, &[])?;
        Ok(authority)
    }

    fn is_root(&self, der: &CertificateDer<'_>) -> bool {
        let fingerprint = Fingerprint::of(der);
        self.roots.iter().any(|it| it.fingerprint == fingerprint)
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
