//! Ed25519 keys. A private key never leaves the process that made it.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use data_encoding::HEXLOWER;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::pem::{pem, read_pem};

/// An Ed25519 private key, 32 bytes that are overwritten when dropped, and its public key.
///
/// The key cannot be cloned or serialised. Only the keys of nodes, authorities and long-lived identities are ever
/// written to disk, with [`KeyPair::to_pkcs8_pem`].
pub struct KeyPair {
    seed: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// An Ed25519 signature (RFC 8032).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

/// Why a key could not be made, read or used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The operating system gave no random bytes.
    #[error("the operating system's random number generator failed")]
    NoRandomness,
    /// The text is not an unencrypted key of the expected algorithm in PKCS#8 PEM.
    #[error("not a private key in PKCS#8 PEM of this algorithm: {0}")]
    NotPkcs8(String),
    /// The holder of the key did not sign.
    #[error("{0}")]
    NotSigned(String),
    /// The cryptographic library refused the key.
    #[error("the cryptographic library refused the key")]
    Unusable,
}

/// The `SubjectPublicKeyInfo` of an Ed25519 key (RFC 8410 section 4), up to the key itself.
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The PKCS#8 v1 wrapping of an Ed25519 seed (RFC 8410 section 7), up to the seed itself.
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The label of its text (RFC 7468 section 10).
const LABEL: &str = "PRIVATE KEY";

impl KeyPair {
    /// Makes a new key pair.
    pub fn generate() -> Result<Self, KeyError> {
        Self::from_seed(Zeroizing::new(random()?))
    }

    fn from_seed(seed: Zeroizing<[u8; 32]>) -> Result<Self, KeyError> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).map_err(|_| KeyError::Unusable)?;
        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::Unusable)
            .map(PublicKey)?;
        Ok(Self { seed, public })
    }

    /// The public key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> Result<Signature, KeyError> {
        // The key is kept as a seed and expanded here, so that the key of an idle agent takes 32 bytes.
        Ed25519KeyPair::from_seed_and_public_key(self.seed.as_slice(), &self.public.0)
            .map_err(|_| KeyError::Unusable)?
            .try_sign(message)
            .ok()
            .and_then(|signature| signature.as_ref().try_into().ok())
            .map(Signature)
            .ok_or(KeyError::Unusable)
    }

    /// The key as PKCS#8 PEM, for the keys of nodes, authorities and long-lived identities, which outlive their
    /// process. Keep the file readable by its owner only (mode 0600).
    pub fn to_pkcs8_pem(&self) -> Zeroizing<String> {
        pem_of(&*self.pkcs8())
    }

    /// Reads the PEM text that [`KeyPair::to_pkcs8_pem`] wrote.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, KeyError> {
        let der = pkcs8_of(pem)?;
        let seed: [u8; 32] = der
            .strip_prefix(&PKCS8_PREFIX)
            .and_then(|seed| seed.try_into().ok())
            .ok_or_else(|| KeyError::NotPkcs8("another algorithm or encoding".to_owned()))?;
        Self::from_seed(Zeroizing::new(seed))
    }

    /// The key as PKCS#8.
    pub(crate) fn pkcs8(&self) -> Zeroizing<[u8; 48]> {
        let mut der = Zeroizing::new([0; 48]);
        der[..16].copy_from_slice(&PKCS8_PREFIX);
        der[16..].copy_from_slice(self.seed.as_slice());
        der
    }
}

/// The text of a private key in PKCS#8.
pub(crate) fn pem_of(der: &[u8]) -> Zeroizing<String> {
    pem(LABEL, der)
}

/// The private key in PKCS#8, from its text.
pub(crate) fn pkcs8_of(text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    read_pem(LABEL, text).map_err(KeyError::NotPkcs8)
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.public)
    }
}

impl rcgen::PublicKeyData for KeyPair {
    fn der_bytes(&self) -> &[u8] {
        &self.public.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

impl rcgen::SigningKey for KeyPair {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        KeyPair::sign(self, message)
            .map(|signature| signature.0.to_vec())
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

impl rcgen::PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

/// The y coordinates of the points of order 8, least significant byte first.
const ORDER_8: [u8; 32] = [
    0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
    0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
];
const OTHER_ORDER_8: [u8; 32] = [
    0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
    0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
];

impl PublicKey {
    /// A public key from the 32 bytes of RFC 8032.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of RFC 8032.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key in DER (`SubjectPublicKeyInfo`), as certificates and other programs use it.
    pub fn to_spki(&self) -> [u8; 44] {
        let mut der = [0; 44];
        der[..12].copy_from_slice(&SPKI_PREFIX);
        der[12..].copy_from_slice(&self.0);
        der
    }

    /// Whether this key made `signature` for `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        self.verifies_bytes(message, &signature.0)
    }

    /// Whether anybody can sign for the key: it is a point of order 1, 2, 4 or 8 (RFC 8032, section 5.1). Those have
    /// five values of y, two of which have a second form.
    fn is_weak(&self) -> bool {
        let mut y = self.0;
        y[31] &= 0x7f;
        let [low, high] = [y[0], y[31]];
        match (low, high) {
            (0 | 1, 0) => y[1..31].iter().all(|byte| *byte == 0),
            (0xec..=0xee, 0x7f) => y[1..31].iter().all(|byte| *byte == 0xff),
            _ => y == ORDER_8 || y == OTHER_ORDER_8,
        }
    }

    pub(crate) fn verifies_bytes(&self, message: &[u8], signature: &[u8]) -> bool {
        !self.is_weak()
            && UnparsedPublicKey::new(&ED25519, &self.0)
                .verify(message, signature)
                .is_ok()
    }
}

/// The key in hexadecimal.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Signature {
    /// A signature from the 64 bytes of RFC 8032.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The 64 bytes of RFC 8032.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({})", HEXLOWER.encode(&self.0))
    }
}

/// Random bytes from the cryptographic library's generator, for secrets too.
///
/// # Errors
/// [`KeyError::NoRandomness`].
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

/// As [`random`], in lower-case hexadecimal: passwords, and names that nobody can guess.
///
/// # Errors
/// As [`random`].
pub fn random_hex<const N: usize>() -> Result<String, KeyError> {
    random::<N>().map(|bytes| HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_round_trips_and_signs_alike() {
        let key = KeyPair::generate().unwrap();
        let again = KeyPair::from_pkcs8_pem(&key.to_pkcs8_pem()).unwrap();
        assert_eq!(again.public_key(), key.public_key());
        let signature = again.sign(b"hello").unwrap();
        assert!(key.public_key().verifies(b"hello", &signature));
        assert!(!key.public_key().verifies(b"hullo", &signature));
        let other = KeyPair::generate().unwrap();
        assert!(!other.public_key().verifies(b"hello", &signature));
    }

    #[test]
    fn nobody_signs_for_a_key_that_needs_no_secret() {
        let ends = |first, middle, last| {
            let mut y = [middle; 32];
            (y[0], y[31]) = (first, last);
            y
        };
        let low = [0, 1].map(|first| ends(first, 0, 0));
        let high = [0xec, 0xed, 0xee].map(|first| ends(first, 0xff, 0x7f));
        let mut points = [&low[..], &high, &[ORDER_8, OTHER_ORDER_8]].concat();
        let with_sign = points.clone().into_iter().map(|mut point| {
            point[31] |= 0x80;
            point
        });
        points.extend(with_sign.collect::<Vec<_>>());
        let mut forged = 0;
        for key in &points {
            for r in &points {
                let signature = [&r[..], &[0; 32]].concat();
                for message in 0_u8..8 {
                    let unchecked = UnparsedPublicKey::new(&ED25519, key);
                    forged += u32::from(unchecked.verify(&[message], &signature).is_ok());
                    let key = PublicKey::from_bytes(*key);
                    assert!(!key.verifies_bytes(&[message], &signature), "{key}");
                }
            }
        }
        assert!(forged > 0);
    }

    /// RFC 8032 section 7.1, test 1, as PKCS#8.
    #[test]
    fn known_answer() {
        let pem = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
            -----END PRIVATE KEY-----\n";
        let key = KeyPair::from_pkcs8_pem(pem).unwrap();
        assert_eq!(
            key.public_key().to_string(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert_eq!(&*key.to_pkcs8_pem(), pem);
        assert!(format!("{:?}", key.sign(b"").unwrap()).starts_with("Signature(e5564300c360ac72"));
    }

    #[test]
    fn foreign_pem_is_refused() {
        for pem in [
            "",
            "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\n\n-----END ENCRYPTED PRIVATE KEY-----",
        ] {
            assert!(
                matches!(KeyPair::from_pkcs8_pem(pem), Err(KeyError::NotPkcs8(_))),
                "{pem}"
            );
        }
    }

    #[test]
    fn debug_shows_no_private_key() {
        let key = KeyPair::generate().unwrap();
        let shown = format!("{key:?}");
        assert!(!shown.contains(&HEXLOWER.encode(key.seed.as_slice())));
    }
}
