//! The signature algorithms of a platform, and public keys that know theirs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::signature::{ML_DSA_65, UnparsedPublicKey};
use data_encoding::HEXLOWER;
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use serde::{Deserialize, Serialize};
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::key::PublicKey;

/// A signature algorithm: that of the root's key and of the keys of all CAs below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureAlgorithm {
    /// Ed25519 (RFC 8032).
    #[default]
    Ed25519,
    /// ML-DSA-65 (FIPS 204), which no quantum computer is known to break.
    #[serde(rename = "ml-dsa-65")]
    MlDsa65,
}

impl SignatureAlgorithm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ed25519, Self::MlDsa65];

    /// The length of a public key in bytes.
    pub const fn key_length(self) -> usize {
        match self {
            Self::Ed25519 => 32,
            Self::MlDsa65 => 1952,
        }
    }

    /// The length of a signature in bytes.
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Ed25519 => 64,
            Self::MlDsa65 => 3309,
        }
    }

    /// The arcs of its object identifier: RFC 8410 section 3, RFC 9881 section 2.
    const fn object_identifier(self) -> &'static [u64] {
        match self {
            Self::Ed25519 => &[1, 3, 101, 112],
            Self::MlDsa65 => &[2, 16, 840, 1, 101, 3, 4, 3, 18],
        }
    }

    /// The check of this algorithm's signatures in certificate chains.
    pub(crate) fn verification(self) -> &'static dyn SignatureVerificationAlgorithm {
        match self {
            Self::Ed25519 => webpki::aws_lc_rs::ED25519,
            Self::MlDsa65 => &MlDsa65,
        }
    }
}

/// The text does not name an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no algorithm of signatures: write ed25519 or ml-dsa-65")]
pub struct UnknownSignatureAlgorithm(String);

impl FromStr for SignatureAlgorithm {
    type Err = UnknownSignatureAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownSignatureAlgorithm> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|algorithm| algorithm.to_string() == text);
        found.ok_or_else(|| UnknownSignatureAlgorithm(text.chars().take(80).collect()))
    }
}

/// The algorithm's name in the manifest.
impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ed25519 => "ed25519",
            Self::MlDsa65 => "ml-dsa-65",
        })
    }
}

/// The `SubjectPublicKeyInfo` of an ML-DSA-65 key (RFC 9881 section 4), up to the key itself.
const ML_DSA_65_SPKI: [u8; 22] = [
    0x30, 0x82, 0x07, 0xb2, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03,
    0x12, 0x03, 0x82, 0x07, 0xa1, 0x00,
];

/// A public key of one of the [algorithms](SignatureAlgorithm).
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum VerifyingKey {
    /// Ed25519.
    Ed25519(PublicKey),
    /// ML-DSA-65: the 1952 bytes of FIPS 204.
    MlDsa65(Arc<[u8; SignatureAlgorithm::MlDsa65.key_length()]>),
}

impl VerifyingKey {
    /// The key with these bytes; `None` if they have another length.
    pub fn from_bytes(algorithm: SignatureAlgorithm, bytes: &[u8]) -> Option<Self> {
        Some(match algorithm {
            SignatureAlgorithm::Ed25519 => {
                Self::Ed25519(PublicKey::from_bytes(bytes.try_into().ok()?))
            }
            SignatureAlgorithm::MlDsa65 => Self::MlDsa65(Arc::new(bytes.try_into().ok()?)),
        })
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            Self::Ed25519(_) => SignatureAlgorithm::Ed25519,
            Self::MlDsa65(_) => SignatureAlgorithm::MlDsa65,
        }
    }

    /// The bytes of RFC 8032 or FIPS 204.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Ed25519(key) => key.as_bytes(),
            Self::MlDsa65(key) => key.as_slice(),
        }
    }

    /// The key in DER (`SubjectPublicKeyInfo`), as certificates and other programs use it.
    pub fn to_spki(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => key.to_spki().to_vec(),
            Self::MlDsa65(key) => [&ML_DSA_65_SPKI[..], &key[..]].concat(),
        }
    }

    /// The key, if it is an Ed25519 key.
    pub fn ed25519(&self) -> Option<&PublicKey> {
        match self {
            Self::Ed25519(key) => Some(key),
            Self::MlDsa65(_) => None,
        }
    }

    /// Whether this key made `signature` for `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => key.verifies_bytes(message, signature),
            Self::MlDsa65(key) => UnparsedPublicKey::new(&ML_DSA_65, key.as_slice())
                .verify(message, signature)
                .is_ok(),
        }
    }
}

/// The key in a certificate or signing request, if it has one of the algorithms.
pub(crate) fn verifying_key(info: &SubjectPublicKeyInfo<'_>) -> Option<VerifyingKey> {
    let of = |algorithm: &SignatureAlgorithm| {
        let found = info.algorithm.algorithm.iter()?;
        found
            .eq(algorithm.object_identifier().iter().copied())
            .then_some(*algorithm)
    };
    let algorithm = SignatureAlgorithm::ALL.iter().find_map(of)?;
    VerifyingKey::from_bytes(algorithm, info.subject_public_key.as_ref())
}

impl From<PublicKey> for VerifyingKey {
    fn from(key: PublicKey) -> Self {
        Self::Ed25519(key)
    }
}

impl PartialEq<PublicKey> for VerifyingKey {
    fn eq(&self, other: &PublicKey) -> bool {
        self.ed25519() == Some(other)
    }
}

/// The key in hexadecimal.
impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(self.as_bytes()))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({}, {self})", self.algorithm())
    }
}

impl rcgen::PublicKeyData for VerifyingKey {
    fn der_bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        match self {
            Self::Ed25519(_) => &rcgen::PKCS_ED25519,
            Self::MlDsa65(_) => &rcgen::PKCS_ML_DSA_65,
        }
    }
}

/// The check of ML-DSA-65 signatures in certificate chains.
#[derive(Debug)]
struct MlDsa65;

impl SignatureVerificationAlgorithm for MlDsa65 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        UnparsedPublicKey::new(&ML_DSA_65, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ML_DSA_65
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ML_DSA_65
    }
}
