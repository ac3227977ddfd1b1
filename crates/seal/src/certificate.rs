//! Certificates, chains of them, and a key with its chain.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_SIG_ED25519, Oid};
use x509_parser::prelude::FromDer;

use crate::holding::{EXTENSION, Holding, Renewed};
use crate::identity::Identity;
use crate::key::{KeyPair, PublicKey};
pub use crate::serial::{Fingerprint, NotAFingerprint, NotASerial, Serial};
use crate::timestamp::Timestamp;

/// The largest certificate that is read, in bytes. Certificates of Sealbus take about 500.
pub const MAX_CERTIFICATE_LENGTH: usize = 4096;

/// The most certificates in a chain: a leaf, an issuing CA, and room for two more above it.
pub const MAX_CHAIN_LENGTH: usize = 4;

/// The contents of a certificate. Parsing checks the form and not the signer. [`Trust::verify`](crate::Trust::verify)
/// checks the signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    identity: Identity,
    address: Option<IpAddr>,
    serial: Serial,
    not_before: Timestamp,
    not_after: Timestamp,
    public_key: PublicKey,
    is_authority: bool,
    subject: String,
    holding: Option<Holding>,
}

/// A leaf certificate followed by the issuing certificates above it, without the root.
///
/// All chains made from the same chain share its issuers, so that a hundred thousand agents keep one copy of them.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateChain {
    leaf: Box<[u8]>,
    issuers: Arc<[CertificateDer<'static>]>,
}

/// A private key and the chain that certifies it. An agent, process or node shows it.
#[derive(Debug)]
pub struct Credential {
    key: KeyPair,
    chain: CertificateChain,
}

/// Why bytes are not a certificate, chain or credential of Sealbus.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// Longer than [`MAX_CERTIFICATE_LENGTH`].
    #[error("the certificate has {0} bytes, and the limit is {MAX_CERTIFICATE_LENGTH}")]
    TooLong(usize),
    /// The bytes are not X.509 in DER.
    #[error("not an X.509 certificate in DER: {0}")]
    Malformed(String),
    /// The key is of another algorithm than Ed25519.
    #[error("the certificate's key is not an Ed25519 key")]
    NotEd25519,
    /// The serial number has more than 16 bytes.
    #[error("the certificate's serial number is longer than 16 bytes")]
    SerialTooLong,
    /// The subject alternative name holds no Sealbus identity, or more than one.
    #[error("the certificate names no identity: {0}")]
    NoIdentity(String),
    /// The certificate's uses contradict its identity.
    #[error("the certificate of {identity} is {problem}")]
    Unsuitable {
        /// The identity that it is for.
        identity: Identity,
        /// The fault.
        problem: &'static str,
    },
    /// The chain has no certificate, or more than [`MAX_CHAIN_LENGTH`].
    #[error("the chain has {0} certificates; it must have 1 to {MAX_CHAIN_LENGTH}")]
    ChainLength(usize),
    /// The bytes of a chain end too early or too late.
    #[error("the encoded certificate chain is cut short or followed by other bytes")]
    ChainEncoding,
    /// The private key is not the one certified.
    #[error("the private key does not belong to the certificate of {0}")]
    KeyMismatch(Identity),
}

impl Certificate {
    /// Reads a certificate.
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > MAX_CERTIFICATE_LENGTH {
            return Err(CertificateError::TooLong(der.len()));
        }
        let malformed = |error: &dyn fmt::Display| CertificateError::Malformed(error.to_string());
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| malformed(&error))?;
        if !rest.is_empty() {
            return Err(malformed(&format_args!("{} bytes too many", rest.len())));
        }
        let info = certificate.public_key();
        if info.algorithm.algorithm != OID_SIG_ED25519 {
            return Err(CertificateError::NotEd25519);
        }
        let public_key = info
            .subject_public_key
            .as_ref()
            .try_into()
            .map(PublicKey::from_bytes)
            .map_err(|_| CertificateError::NotEd25519)?;
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

    /// The certified key.
    pub fn public_key(&self) -> &PublicKey {
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

    /// The process that holds its key, in certificates of agents and processes.
    pub fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// The earlier certificate that this one renews, if that was done without knowledge of the platform's state.
    pub fn renews(&self) -> Option<&Renewed> {
        self.holding.as_ref()?.renews.as_ref()
    }
}

fn holding(certificate: &X509Certificate<'_>) -> Result<Option<Holding>, CertificateError> {
    let is_ours = |oid: &Oid<'_>| oid.iter().is_some_and(|arcs| arcs.eq(EXTENSION));
    let mut values = certificate.extensions().iter();
    let Some(extension) = values.find(|extension| is_ours(&extension.oid)) else {
        return Ok(None);
    };
    let holding = Holding::decode(extension.value);
    let malformed = || CertificateError::Malformed("its holder cannot be read".to_owned());
    holding.map(Some).ok_or_else(malformed)
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

impl CertificateChain {
    /// A chain from its certificates, leaf first, without the root.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, CertificateError> {
        let count = certificates.len();
        let mut certificates = certificates.into_iter();
        match certificates.next() {
            Some(leaf) if count <= MAX_CHAIN_LENGTH => Ok(Self {
                leaf: leaf.to_vec().into(),
                issuers: certificates.collect(),
            }),
            _ => Err(CertificateError::ChainLength(count)),
        }
    }

    pub(crate) fn from_parts(leaf: &[u8], issuers: Arc<[CertificateDer<'static>]>) -> Self {
        Self {
            leaf: leaf.into(),
            issuers,
        }
    }

    /// The certificate of the key's owner, in DER.
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// The issuing certificates above the leaf, in DER, without the root.
    pub fn issuers(&self) -> &[CertificateDer<'static>] {
        &self.issuers
    }

    /// All certificates, leaf first, as rustls wants them.
    pub fn to_certificates(&self) -> Vec<CertificateDer<'static>> {
        std::iter::once(CertificateDer::from(self.leaf.to_vec()))
            .chain(self.issuers.iter().cloned())
            .collect()
    }

    /// The contents of the leaf.
    pub fn certificate(&self) -> Result<Certificate, CertificateError> {
        Certificate::parse(&self.leaf)
    }

    /// Shares one copy of the issuers with `other`, if they are the same.
    pub fn share_issuers(&mut self, other: &Self) {
        if self.issuers == other.issuers {
            self.issuers = Arc::clone(&other.issuers);
        }
    }

    /// Appends the chain's wire form: one byte with the number of certificates, then for each certificate its length in
    /// two bytes, most significant first, and its DER.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(1 + self.issuers.len() as u8);
        let issuers = self.issuers.iter().map(|issuer| issuer.as_ref());
        for der in std::iter::once(&*self.leaf).chain(issuers) {
            out.extend_from_slice(&(der.len() as u16).to_be_bytes());
            out.extend_from_slice(der);
        }
    }

    /// Reads a wire form that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Self, CertificateError> {
        match Self::decode_prefix(bytes)? {
            (chain, []) => Ok(chain),
            _ => Err(CertificateError::ChainEncoding),
        }
    }

    /// Reads a wire form at the start of `bytes`, and returns the bytes after it.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), CertificateError> {
        let (&count, mut rest) = bytes.split_first().ok_or(CertificateError::ChainEncoding)?;
        let count = usize::from(count);
        if !(1..=MAX_CHAIN_LENGTH).contains(&count) {
            return Err(CertificateError::ChainLength(count));
        }
        let mut certificates = Vec::with_capacity(count);
        for _ in 0..count {
            let (length, after) = rest
                .split_first_chunk::<2>()
                .ok_or(CertificateError::ChainEncoding)?;
            let length = usize::from(u16::from_be_bytes(*length));
            if length > MAX_CERTIFICATE_LENGTH {
                return Err(CertificateError::TooLong(length));
            }
            let (der, after) = after
                .split_at_checked(length)
                .ok_or(CertificateError::ChainEncoding)?;
            certificates.push(CertificateDer::from(der.to_vec()));
            rest = after;
        }
        Ok((Self::new(certificates)?, rest))
    }
}

impl fmt::Debug for CertificateChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.certificate() {
            Ok(leaf) => write!(f, "CertificateChain({}, {})", leaf.identity, leaf.serial),
            Err(error) => write!(f, "CertificateChain({error})"),
        }
    }
}

impl Credential {
    /// Joins a key with the chain that certifies it.
    pub fn new(key: KeyPair, chain: CertificateChain) -> Result<Self, CertificateError> {
        let certificate = chain.certificate()?;
        if certificate.public_key() != key.public_key() {
            return Err(CertificateError::KeyMismatch(certificate.identity));
        }
        Ok(Self { key, chain })
    }

    /// The private key.
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The chain that certifies it.
    pub fn chain(&self) -> &CertificateChain {
        &self.chain
    }

    /// The contents of the certificate.
    pub fn certificate(&self) -> Result<Certificate, CertificateError> {
        self.chain.certificate()
    }
}

/// A certificate in DER as text (RFC 7468), for other programs.
pub fn certificate_pem(der: &[u8]) -> String {
    pem("CERTIFICATE", der)
}

/// A signing request in DER as text (RFC 7468).
pub fn request_pem(der: &[u8]) -> String {
    pem("CERTIFICATE REQUEST", der)
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
