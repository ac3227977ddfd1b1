//! Chains of certificates, and a key with its chain.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use crate::certificate::{
    Certificate, CertificateError, LONGEST_CERTIFICATE, LONGEST_INCLUSION, MOST_CERTIFICATES,
};
use crate::key::{KeyError, KeyPair};
use crate::ml_dsa::MlDsaKeyPair;
use crate::verifying_key::SignatureAlgorithm;

/// The longest chain in its wire form, in bytes.
pub const LONGEST_CHAIN: usize =
    1 + MOST_CERTIFICATES * (2 + LONGEST_CERTIFICATE) + 2 + LONGEST_INCLUSION;

/// This bit in the first byte of the wire form says that a proof of inclusion follows the certificates.
const WITH_INCLUSION: u8 = 0x80;

/// A leaf certificate followed by the issuing certificates above it, without the root.
///
/// The CA adds a proof that the leaf is in its issuance log. The proof stays with the chain. This crate does not
/// interpret it; `sealbus_transparency::Inclusion` reads and checks it.
///
/// All chains made from the same chain share its issuers, so that a hundred thousand agents keep one copy of them.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateChain {
    leaf: Box<[u8]>,
    issuers: Arc<[CertificateDer<'static>]>,
    inclusion: Option<Box<[u8]>>,
}

/// A private key and the chain that certifies it, as an agent, process or node shows it.
#[derive(Debug)]
pub struct Credential {
    key: KeyPair,
    second: Option<MlDsaKeyPair>,
    chain: CertificateChain,
}

impl CertificateChain {
    /// A chain from its certificates, leaf first, without the root.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, CertificateError> {
        let count = certificates.len();
        let mut certificates = certificates.into_iter();
        match certificates.next() {
            Some(leaf) if count <= MOST_CERTIFICATES => Ok(Self {
                leaf: leaf.to_vec().into(),
                issuers: certificates.collect(),
                inclusion: None,
            }),
            _ => Err(CertificateError::ChainLength(count)),
        }
    }

    pub(crate) fn from_parts(leaf: &[u8], issuers: Arc<[CertificateDer<'static>]>) -> Self {
        Self {
            leaf: leaf.into(),
            issuers,
            inclusion: None,
        }
    }

    /// The same chain, with the proof that its leaf is in the issuance log.
    ///
    /// # Errors
    /// [`CertificateError::InclusionLength`].
    pub fn with_inclusion(self, inclusion: Vec<u8>) -> Result<Self, CertificateError> {
        if inclusion.len() > LONGEST_INCLUSION {
            return Err(CertificateError::InclusionLength(inclusion.len()));
        }
        Ok(Self {
            inclusion: Some(inclusion.into()),
            ..self
        })
    }

    /// The same chain, without the proof of inclusion.
    #[must_use]
    pub fn without_inclusion(self) -> Self {
        Self {
            inclusion: None,
            ..self
        }
    }

    /// The proof that the leaf is in the issuance log, if the chain came with one. It is not checked.
    pub fn inclusion(&self) -> Option<&[u8]> {
        self.inclusion.as_deref()
    }

    /// The certificate of the key's owner, in DER.
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// The issuing certificates above the leaf, in DER, without the root.
    pub fn issuers(&self) -> &[CertificateDer<'static>] {
        &self.issuers
    }

    /// All certificates, leaf first, in the form that rustls needs.
    pub fn to_certificates(&self) -> Vec<CertificateDer<'static>> {
        std::iter::once(CertificateDer::from(self.leaf.to_vec()))
            .chain(self.issuers.iter().cloned())
            .collect()
    }

    /// The contents of the leaf.
    pub fn certificate(&self) -> Result<Certificate, CertificateError> {
        Certificate::parse(&self.leaf)
    }

    /// Shares one copy of the issuers with `other` if they are the same.
    pub fn share_issuers(&mut self, other: &Self) {
        if self.issuers == other.issuers {
            self.issuers = Arc::clone(&other.issuers);
        }
    }

    /// Appends the chain's wire form: one byte with the number of certificates; then, for each certificate, its length
    /// in two bytes, most significant first, and its DER. If the chain has a proof of inclusion, 128 is added to the
    /// number, and the length of the proof in two bytes and the proof follow at the end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = 1 + self.issuers.len() as u8;
        out.push(count | self.inclusion.as_ref().map_or(0, |_| WITH_INCLUSION));
        let issuers = self.issuers.iter().map(|issuer| issuer.as_ref());
        let certificates = std::iter::once(&*self.leaf).chain(issuers);
        for bytes in certificates.chain(self.inclusion.as_deref()) {
            out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            out.extend_from_slice(bytes);
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
        let (&head, mut rest) = bytes.split_first().ok_or(CertificateError::ChainEncoding)?;
        let count = usize::from(head & !WITH_INCLUSION);
        if !(1..=MOST_CERTIFICATES).contains(&count) {
            return Err(CertificateError::ChainLength(count));
        }
        let mut certificates = Vec::with_capacity(count);
        for _ in 0..count {
            let der;
            (der, rest) = field(rest, LONGEST_CERTIFICATE, CertificateError::TooLong)?;
            certificates.push(CertificateDer::from(der.to_vec()));
        }
        let mut chain = Self::new(certificates)?;
        if head & WITH_INCLUSION != 0 {
            let inclusion;
            (inclusion, rest) = field(rest, LONGEST_INCLUSION, CertificateError::InclusionLength)?;
            chain.inclusion = Some(inclusion.into());
        }
        Ok((chain, rest))
    }
}

/// The field at the start of `bytes`, which follows its length, and the bytes after it.
fn field(
    bytes: &[u8],
    most: usize,
    too_long: fn(usize) -> CertificateError,
) -> Result<(&[u8], &[u8]), CertificateError> {
    let (length, rest) = bytes
        .split_first_chunk::<2>()
        .ok_or(CertificateError::ChainEncoding)?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length > most {
        return Err(too_long(length));
    }
    rest.split_at_checked(length)
        .ok_or(CertificateError::ChainEncoding)
}

impl fmt::Debug for CertificateChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.certificate() {
            Ok(leaf) => write!(
                f,
                "CertificateChain({}, {})",
                leaf.identity(),
                leaf.serial()
            ),
            Err(error) => write!(f, "CertificateChain({error})"),
        }
    }
}

impl Credential {
    /// Joins a key with the chain that certifies it.
    pub fn new(key: KeyPair, chain: CertificateChain) -> Result<Self, CertificateError> {
        let certificate = chain.certificate()?;
        if certificate.public_key() != key.public_key() {
            return Err(CertificateError::KeyMismatch(
                certificate.identity().clone(),
            ));
        }
        Ok(Self {
            key,
            second: None,
            chain,
        })
    }

    /// The same credential, with the second key of the certificate, for proofs.
    ///
    /// # Errors
    /// [`CertificateError::KeyMismatch`].
    pub fn with_second(self, second: MlDsaKeyPair) -> Result<Self, CertificateError> {
        let certificate = self.certificate()?;
        if certificate.proof_key(SignatureAlgorithm::MlDsa65) != Some(second.public_key()) {
            let identity = certificate.identity().clone();
            return Err(CertificateError::KeyMismatch(identity));
        }
        Ok(Self {
            second: Some(second),
            ..self
        })
    }

    /// Signs a proof, with the second key if there is one.
    ///
    /// # Errors
    /// [`KeyError`] if the key does not sign.
    pub fn sign_proof(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.second {
            Some(second) => second.sign(message),
            None => Ok(self.key.sign(message)?.as_bytes().to_vec()),
        }
    }

    /// The algorithm with which [`sign_proof`](Self::sign_proof) signs.
    pub fn proof_algorithm(&self) -> SignatureAlgorithm {
        match &self.second {
            Some(_) => SignatureAlgorithm::MlDsa65,
            None => SignatureAlgorithm::Ed25519,
        }
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
