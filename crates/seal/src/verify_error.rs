//! Why a peer is not trusted.

use thiserror::Error;

use crate::certificate::{CertificateError, Fingerprint, Serial};
use crate::denial::Denial;
use crate::identity::{Identity, IdentityKind, PlatformName};
use crate::timestamp::Timestamp;

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
    /// The certificate is no longer valid.
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
        /// How many seconds remain until then.
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
    /// The identity is proved, but its kind is not allowed here.
    #[error("{identity} is not {}", expected_kinds(expected))]
    WrongKind {
        /// The proved identity.
        identity: Identity,
        /// The expected kinds.
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
    /// None of the peer's certificates is the root whose fingerprint the token contains.
    #[error(
        "unknown issuer: the server did not show the root certificate {expected} that the token names; the token belongs to another platform, or somebody intercepts the connection"
    )]
    WrongRoot {
        /// The fingerprint in the token.
        expected: Fingerprint,
    },
    /// The chain breaks some other rule.
    #[error("the certificate of {identity} is not acceptable: {why}")]
    Unacceptable {
        /// The identity in the certificate.
        identity: Identity,
        /// The rule that it breaks.
        why: String,
    },
}

impl VerifyError {
    /// Checks that a proved identity is of one of these kinds.
    pub(crate) fn unless_of_kind(
        identity: &Identity,
        expected: &'static [IdentityKind],
    ) -> Result<(), Self> {
        match expected.contains(&identity.kind()) {
            true => Ok(()),
            false => Err(Self::WrongKind {
                identity: identity.clone(),
                expected,
            }),
        }
    }
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
