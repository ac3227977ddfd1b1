//! Certificates.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer;

use crate::holding::{self, Holding, Renewed};
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::long_lived::{self, LongLivedIdentity};
use crate::pem::pem;
use crate::proof_key;
pub use crate::serial::{Fingerprint, NotAFingerprint, NotASerial, Serial};
use crate::timestamp::{CLOCK_SKEW, Timestamp};
use crate::verifying_key::{SignatureAlgorithm, VerifyingKey, verifying_key};

/// The largest certificate that is read, in bytes. Certificates of Sealbus have about 500; with ML-DSA-65, about 6000.
pub const LONGEST_CERTIFICATE: usize = 8192;

/// The most certificates in a chain: a leaf, an issuing CA, and room for two more above it.
pub const MOST_CERTIFICATES: usize = 4;

/// The longest proof, in bytes, that a certificate is in the issuance log.
pub const LONGEST_INCLUSION: usize = 8192;

/// The contents of a certificate. Parsing checks the form, and the statement of the [long-lived
/// identity](LongLivedIdentity), but not the signer. [`Trust::verify`](crate::Trust::verify) checks the signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    identity: Identity,
    address: Option<IpAddr>,
    serial: Serial,
    not_before: Timestamp,
    not_after: Timestamp,
    public_key: VerifyingKey,
    is_authority: bool,
    subject: String,
    holding: Option<Holding>,
    long_lived: Option<PublicKey>,
    second: Option<VerifyingKey>,
}

/// Why bytes are not a certificate, chain or credential of Sealbus.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// Longer than [`LONGEST_CERTIFICATE`].
    #[error("the certificate has {0} bytes, and the limit is {LONGEST_CERTIFICATE}")]
    TooLong(usize),
    /// The bytes are not X.509 in DER.
    #[error("not an X.509 certificate in DER: {0}")]
    Malformed(String),
    /// The algorithm of the key is not known, or not allowed: an authority has an Ed25519 or ML-DSA-65 key, all others
    /// an Ed25519 key.
    #[error("the certificate's key is of an algorithm that it must not have")]
    Algorithm,
    /// The serial number has more than 16 bytes.
    #[error("the certificate's serial number is longer than 16 bytes")]
    SerialTooLong,
    /// The subject alternative name holds no Sealbus identity, or more than one.
    #[error("the certificate names no identity: {0}")]
    NoIdentity(String),
    /// The key usages of the certificate contradict its identity.
    #[error("the certificate of {identity} is {problem}")]
    Unsuitable {
        /// The identity that it is for.
        identity: Identity,
        /// The fault.
        problem: &'static str,
    },
    /// The chain has no certificate, or more than [`MOST_CERTIFICATES`].
    #[error("the chain has {0} certificates; it must have 1 to {MOST_CERTIFICATES}")]
    ChainLength(usize),
    /// The bytes of a chain end too early or too late.
    #[error("the encoded certificate chain is cut short or followed by other bytes")]
    ChainEncoding,
    /// The proof that the leaf is in the issuance log is longer than [`LONGEST_INCLUSION`].
    #[error(
        "the proof that the certificate is in the issuance log has {0} bytes, and the limit is {LONGEST_INCLUSION}"
    )]
    InclusionLength(usize),
    /// The long-lived identity did not sign for this agent and key.
    #[error(
        "the certificate of {0} names a long-lived identity whose key did not sign for this agent and this key"
    )]
    LongLivedIdentity(Identity),
    /// The private key is not the one certified.
    #[error("the private key does not belong to the certificate of {0}")]
    KeyMismatch(Identity),
}

impl Certificate {
    /// Reads a certificate.
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > LONGEST_CERTIFICATE {
            return Err(CertificateError::TooLong(der.len()));
        }
        let malformed = |error: &dyn fmt::Display| CertificateError::Malformed(error.to_string());
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| malformed(&error))?;
        if !rest.is_empty() {
            return Err(malformed(&format_args!("{} bytes too many", rest.len())));
        }
        let public_key =
            verifying_key(certificate.public_key()).ok_or(CertificateError::Algorithm)?;
        let serial =
            Serial::from_der(certificate.raw_serial()).ok_or(CertificateError::SerialTooLong)?;
        let (identity, address) = names(&certificate)?;
        let is_authority = certificate
            .basic_constraints()
            .map_err(|error| malformed(&error))?
            .is_some_and(|constraints| constraints.value.ca);
        let unsuitable = |problem| {
            Err(CertificateError::Unsuitable {
                identity: identity.clone(),
                problem,
            })
        };
        if is_authority != matches!(identity, Identity::Authority { .. }) {
            return unsuitable(if is_authority {
                "a CA certificate, which only an authority may have"
            } else {
                "not a CA certificate"
            });
        }
        if !is_authority {
            let usages = certificate
                .extended_key_usage()
                .map_err(|error| malformed(&error))?;
            if !usages.is_some_and(|usages| usages.value.client_auth && usages.value.server_auth) {
                return unsuitable("not for both client and server authentication");
            }
        }
        let second = second(&certificate)?;
        if !matches!(identity, Identity::Agent { .. }) {
            if second.is_some() {
                return unsuitable("for a second key, which only an agent may have");
            }
            if extension(&certificate, long_lived::EXTENSION)?.is_some() {
                return Err(CertificateError::LongLivedIdentity(identity));
            }
        }
        let long_lived = match public_key.ed25519() {
            Some(key) => long_lived(&certificate, &identity, key, second.as_ref())?,
            None if is_authority => None,
            None => return Err(CertificateError::Algorithm),
        };
        let time = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_unix_seconds(u64::try_from(time.timestamp()).unwrap_or(0))
        };
        let validity = certificate.validity();
        Ok(Self {
            identity,
            address,
            serial,
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
            public_key,
            is_authority,
            subject: certificate.subject().to_string(),
            holding: holding(&certificate)?,
            long_lived,
            second,
        })
    }

    /// The certified identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The IP address it certifies; authorities have none.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The certificate's serial number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The first second at which it is valid.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// The last second at which it is valid.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Whether half of its life is over, so that its owner renews it. Also true if its life has not begun, because it
    /// was issued while a clock was wrong.
    pub fn is_renewal_due(&self, now: Timestamp) -> bool {
        self.not_before > now.plus(CLOCK_SKEW)
            || now.since(self.not_before) > self.not_after.since(now)
    }

    /// The certified key.
    pub fn public_key(&self) -> &VerifyingKey {
        &self.public_key
    }

    /// Whether it may sign other certificates.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// The subject's distinguished name in its encoded order, for display.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The process that holds the key, in certificates of agents and processes.
    pub fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// The key of the agent's long-lived identity, which signed for the agent and its certified key.
    pub fn long_lived(&self) -> Option<&PublicKey> {
        self.long_lived.as_ref()
    }

    /// The fingerprint of the long-lived identity's key.
    pub fn long_lived_identity(&self) -> Option<Fingerprint> {
        self.long_lived.as_ref().map(PublicKey::fingerprint)
    }

    /// The key that signs the agent's proofs, if the platform's signatures have this algorithm; `None` if no certified
    /// key has it.
    pub(crate) fn proof_key(&self, algorithm: SignatureAlgorithm) -> Option<&VerifyingKey> {
        let keys = [Some(&self.public_key), self.second.as_ref()];
        let mut keys = keys.into_iter().flatten();
        keys.find(|key| key.algorithm() == algorithm)
    }

    /// The earlier certificate that this one renews, if it was renewed without knowledge of the platform's state.
    pub fn renews(&self) -> Option<&Renewed> {
        self.holding.as_ref()?.renews.as_ref()
    }
}

/// The value of an extension.
fn extension<'c, const ARCS: usize>(
    certificate: &'c X509Certificate<'_>,
    oid: [u64; ARCS],
) -> Result<Option<&'c [u8]>, CertificateError> {
    let is_ours = |found: &Oid<'_>| found.iter().is_some_and(|arcs| arcs.eq(oid));
    let extensions = certificate.extensions().iter();
    let mut values = extensions.filter(|extension| is_ours(&extension.oid));
    let value = values.next().map(|extension| extension.value);
    match values.next() {
        None => Ok(value),
        Some(_) => Err(CertificateError::Malformed(
            "it has an extension twice".to_owned(),
        )),
    }
}

fn holding(certificate: &X509Certificate<'_>) -> Result<Option<Holding>, CertificateError> {
    let Some(value) = extension(certificate, holding::EXTENSION)? else {
        return Ok(None);
    };
    let malformed = || CertificateError::Malformed("its holder cannot be read".to_owned());
    Holding::decode(value).map(Some).ok_or_else(malformed)
}

fn second(certificate: &X509Certificate<'_>) -> Result<Option<VerifyingKey>, CertificateError> {
    let Some(value) = extension(certificate, proof_key::EXTENSION)? else {
        return Ok(None);
    };
    let malformed = || CertificateError::Malformed("its second key cannot be read".to_owned());
    proof_key::decode(value).map(Some).ok_or_else(malformed)
}

fn long_lived(
    certificate: &X509Certificate<'_>,
    identity: &Identity,
    public_key: &PublicKey,
    second: Option<&VerifyingKey>,
) -> Result<Option<PublicKey>, CertificateError> {
    let Some(value) = extension(certificate, long_lived::EXTENSION)? else {
        return Ok(None);
    };
    LongLivedIdentity::decode(value)
        .filter(|stated| stated.is_of(identity, public_key, second))
        .map(|stated| Some(*stated.key()))
        .ok_or_else(|| CertificateError::LongLivedIdentity(identity.clone()))
}

fn names(
    certificate: &X509Certificate<'_>,
) -> Result<(Identity, Option<IpAddr>), CertificateError> {
    let none = |why: &str| CertificateError::NoIdentity(why.to_owned());
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| CertificateError::Malformed(error.to_string()))?
        .ok_or_else(|| none("it has no subject alternative name"))?;
    let (mut identity, mut address) = (None, None);
    for name in &names.value.general_names {
        match name {
            GeneralName::URI(uri) if identity.is_none() => {
                identity = Some(
                    uri.parse::<Identity>()
                        .map_err(|error| none(&error.to_string()))?,
                );
            }
            GeneralName::IPAddress(octets) if address.is_none() => {
                let octets = *octets;
                address = <[u8; 4]>::try_from(octets)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
                    .map(Some)
                    .map_err(|_| none("an IP address of neither 4 nor 16 bytes"))?;
            }
            _ => return Err(none("more than one URI and one IP address")),
        }
    }
    let identity = identity.ok_or_else(|| none("it has no URI"))?;
    Ok((identity, address))
}

/// The label of a signing request's text (RFC 7468 section 7).
pub(crate) const REQUEST: &str = "CERTIFICATE REQUEST";

/// A certificate in DER as text (RFC 7468), for other programs.
pub fn certificate_pem(der: &[u8]) -> String {
    std::mem::take(&mut *pem("CERTIFICATE", der))
}

/// A signing request in DER as text (RFC 7468).
pub fn request_pem(der: &[u8]) -> String {
    std::mem::take(&mut *pem(REQUEST, der))
}
