//! Encryption to an agent: HPKE (RFC 9180, mode base) with a KEM that is secure as long as X25519 or ML-KEM-768 is.
//!
//! The KEM is X-Wing, `MLKEM768-X25519` (0x647a) in the registry of HPKE, the KDF HKDF-SHA256, the AEAD AES-256-GCM.
//!
//! 1. The receiver makes an [`EncryptionKey`] and publishes its public half as a [`CertifiedEncryptionKey`], which the
//!    receiver's certified key signs.
//! 2. A sender verifies the statement and begins a [`Sealing`]. The [`Encapsulation`] goes to the receiver, then every
//!    sealed message, in order.
//! 3. The receiver begins an [`Opening`] with the encapsulation. It opens each message once and in order, and nothing
//!    that anybody changed. If a message states its number, the layers below may keep the order instead
//!    ([`Opening::open_at`]).
//!
//! HPKE does not say who sealed a message; the sender proves that by other means. Anybody who gets a key later can read
//! everything sealed to it, so a key that is forgotten early protects more.

mod certified;
mod commitment;
mod context;

use certified::LONGEST_ABSENCE;
pub use certified::{CertifiedEncryptionKey, LONGEST_KEY_PACKAGE};
pub use commitment::{Commitment, Salt, Salts};
pub use context::{EncryptionContext, Opening, Sealing, Suite};
use data_encoding::HEXLOWER;

use std::fmt;

use aws_lc_rs::agreement::{self, X25519};
use aws_lc_rs::digest::{Context, SHA3_256};
use aws_lc_rs::encoding::{AsBigEndian, Curve25519SeedBin};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::certificate::CertificateError;
use crate::identity::Identity;
use crate::key::KeyError;
use crate::verify_error::VerifyError;

/// The length of an ML-KEM-768 key (FIPS 203).
const LATTICE_SECRET: usize = 2400;
/// The offset of the public half in it (FIPS 203, algorithm 16).
const LATTICE_PUBLIC_AT: usize = 1152;
/// The length of the public half of an ML-KEM-768 key (FIPS 203).
const LATTICE_KEY: usize = 1184;
/// The length of a secret that ML-KEM-768 encapsulates.
const LATTICE_ENCAPSULATION: usize = 1088;
/// The length of an X25519 key (RFC 7748), and of a shared secret.
const CURVE_KEY: usize = 32;
/// The length of a public key.
const KEY: usize = LATTICE_KEY + CURVE_KEY;
/// The length of an encapsulated secret.
const ENCAPSULATION: usize = LATTICE_ENCAPSULATION + CURVE_KEY;

/// The label of X-Wing, which is a picture of its name.
const LABEL: &[u8; 6] = br"\.//^\";

/// Why nothing was sealed, opened or believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncryptionError {
    /// The bytes do not have the length of a public key.
    #[error("a public key for encryption has {KEY} bytes, not {0}")]
    KeyLength(usize),
    /// The bytes do not have the length of an encapsulated secret.
    #[error("an encapsulated secret has {ENCAPSULATION} bytes, not {0}")]
    EncapsulationLength(usize),
    /// The bytes are not a private key.
    #[error("these bytes are not a private key for encryption")]
    NotAKey,
    /// The cryptographic library made no key.
    #[error("the cryptographic library made no key for encryption")]
    NoKey,
    /// Nothing can be encrypted to the key.
    #[error("the public key is not one that can be encrypted to: ask its owner for another")]
    UnusableKey,
    /// The secret cannot be taken from its encapsulation.
    #[error("the encapsulated secret is not one for this key: the sender must begin anew")]
    NotEncapsulated,
    /// The message was changed, is not the next one, or was sealed to another key.
    #[error(
        "message {number} does not open: it was changed, repeated or moved, one before it is missing, or it is sealed to another key"
    )]
    NotOpened {
        /// The number of the message that was due, from 0.
        number: u64,
    },
    /// No more messages fit under one secret.
    #[error("no more messages can be sealed under this secret: begin anew")]
    Exhausted,
    /// The bytes of a statement are not a chain, a key and a signature.
    #[error("not a certified key for encryption: {0}")]
    Malformed(#[from] CertificateError),
    /// The bytes of a statement do not end where the statement ends.
    #[error("not a certified key for encryption: the key and the signature have another length")]
    StatementLength,
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate ended too long ago.
    #[error(
        "{identity} has not been seen for more than {} days: its key for encryption is too old",
        LONGEST_ABSENCE.as_secs() / 86_400
    )]
    TooOld {
        /// The agent that made the statement.
        identity: Identity,
    },
    /// The certificate is not trusted.
    #[error(transparent)]
    NotVerified(#[from] VerifyError),
    /// The statement is another agent's.
    #[error("the key for encryption is that of {found}, not that of {wanted}")]
    AnotherAgent {
        /// The agent to which somebody wants to write.
        wanted: Identity,
        /// The agent that made the statement.
        found: Identity,
    },
    /// The statement was not made by the key of the certificate.
    #[error("{identity} did not sign this key for encryption: it is forged, or was changed")]
    NotSigned {
        /// The agent that is said to have made the statement.
        identity: Identity,
    },
}

/// The private key with which an agent opens what is sealed to it. It leaves its process no more than a
/// [`KeyPair`](crate::KeyPair) does.
pub struct EncryptionKey {
    lattice: DecapsulationKey,
    curve: agreement::PrivateKey,
    public: EncryptionPublicKey,
}

/// The public half of an [`EncryptionKey`].
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionPublicKey(Box<[u8; KEY]>);

/// The first bytes of the SHA-256 of a public key: its name among the keys of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncryptionKeyId([u8; Self::LENGTH]);

/// A secret for the holder of an [`EncryptionKey`].
#[derive(Clone, PartialEq, Eq)]
pub struct Encapsulation(Box<[u8; ENCAPSULATION]>);

/// A secret that a KEM gives to both sides.
pub type SharedSecret = Zeroizing<[u8; 32]>;

impl EncryptionKey {
    /// Makes a new key.
    pub fn generate() -> Result<Self, EncryptionError> {
        let make = || {
            let lattice = DecapsulationKey::generate(&ML_KEM_768)?;
            let public = lattice.encapsulation_key()?;
            Self::of(
                lattice,
                public.key_bytes()?.as_ref(),
                agreement::PrivateKey::generate(&X25519)?,
            )
        };
        make().map_err(|_: Unspecified| EncryptionError::NoKey)
    }

    fn of(
        lattice: DecapsulationKey,
        lattice_public: &[u8],
        curve: agreement::PrivateKey,
    ) -> Result<Self, Unspecified> {
        let public = joined(lattice_public, curve.compute_public_key()?.as_ref())?;
        Ok(Self {
            lattice,
            curve,
            public: EncryptionPublicKey(public),
        })
    }

    /// The bytes of the private key, for a file that only its owner can read.
    ///
    /// # Errors
    /// If the cryptographic library does not give them.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, EncryptionError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(LATTICE_SECRET + CURVE_KEY));
        let mut write = || {
            bytes.extend_from_slice(self.lattice.key_bytes()?.as_ref());
            let curve: Curve25519SeedBin<'_> = self.curve.as_be_bytes()?;
            bytes.extend_from_slice(curve.as_ref());
            Ok(())
        };
        write().map_err(|_: Unspecified| EncryptionError::NoKey)?;
        Ok(bytes)
    }

    /// A private key from the bytes that [`to_bytes`](Self::to_bytes) gave.
    ///
    /// # Errors
    /// If the bytes are not a private key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EncryptionError> {
        let make = || {
            let (lattice, curve) = bytes.split_at_checked(LATTICE_SECRET).ok_or(Unspecified)?;
            let public = &lattice[LATTICE_PUBLIC_AT..][..LATTICE_KEY];
            let lattice = DecapsulationKey::new(&ML_KEM_768, lattice).map_err(|_| Unspecified)?;
            let curve =
                agreement::PrivateKey::from_private_key(&X25519, curve).map_err(|_| Unspecified)?;
            Self::of(lattice, public, curve)
        };
        make().map_err(|_| EncryptionError::NotAKey)
    }

    /// The public half.
    pub fn public(&self) -> &EncryptionPublicKey {
        &self.public
    }

    fn decapsulate(&self, encapsulation: &Encapsulation) -> Result<SharedSecret, EncryptionError> {
        let (lattice, curve) = encapsulation.0.split_at(LATTICE_ENCAPSULATION);
        let open = || {
            let by_lattice = self.lattice.decapsulate(Ciphertext::from(lattice))?;
            let by_curve = agree(&self.curve, curve)?;
            Ok(combined(
                by_lattice.as_ref(),
                &by_curve,
                curve,
                self.public.curve(),
            ))
        };
        open().map_err(|_: Unspecified| EncryptionError::NotEncapsulated)
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionKey").finish_non_exhaustive()
    }
}

impl EncryptionPublicKey {
    /// A key from its bytes: the ML-KEM-768 key, then the X25519 key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EncryptionError> {
        boxed(bytes)
            .map(Self)
            .ok_or(EncryptionError::KeyLength(bytes.len()))
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The key's name among the keys of its owner.
    pub fn id(&self) -> EncryptionKeyId {
        let hash = crate::sha256(&[self.as_bytes()]);
        let mut id = [0; EncryptionKeyId::LENGTH];
        id.copy_from_slice(&hash[..EncryptionKeyId::LENGTH]);
        EncryptionKeyId(id)
    }

    fn curve(&self) -> &[u8] {
        &self.0[LATTICE_KEY..]
    }

    fn encapsulate(&self) -> Result<(Encapsulation, SharedSecret), EncryptionError> {
        let make = || {
            let lattice = EncapsulationKey::new(&ML_KEM_768, &self.0[..LATTICE_KEY])
                .map_err(|_| Unspecified)?;
            let (by_lattice_sent, by_lattice) = lattice.encapsulate()?;
            let curve = agreement::PrivateKey::generate(&X25519)?;
            let curve_sent = curve.compute_public_key()?;
            let by_curve = agree(&curve, self.curve())?;
            let secret = combined(
                by_lattice.as_ref(),
                &by_curve,
                curve_sent.as_ref(),
                self.curve(),
            );
            let sent = joined(by_lattice_sent.as_ref(), curve_sent.as_ref())?;
            Ok((Encapsulation(sent), secret))
        };
        make().map_err(|_: Unspecified| EncryptionError::UnusableKey)
    }
}

/// The end of the key, in hexadecimal.
impl fmt::Debug for EncryptionPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = HEXLOWER.encode(self.curve());
        write!(f, "EncryptionPublicKey(…{end})")
    }
}

impl EncryptionKeyId {
    /// The length in bytes.
    pub const LENGTH: usize = 16;

    /// A name from its bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

/// In hexadecimal.
impl fmt::Display for EncryptionKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&HEXLOWER.encode(&self.0))
    }
}

impl Encapsulation {
    /// The length in bytes.
    pub const LENGTH: usize = ENCAPSULATION;

    /// An encapsulated secret from its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EncryptionError> {
        boxed(bytes)
            .map(Self)
            .ok_or(EncryptionError::EncapsulationLength(bytes.len()))
    }

    /// The bytes for the receiver.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encapsulation").finish_non_exhaustive()
    }
}

/// The shared secret of X25519. The library refuses a key of low order, which would make the secret known to everybody.
fn agree(own: &agreement::PrivateKey, other: &[u8]) -> Result<SharedSecret, Unspecified> {
    let other = agreement::UnparsedPublicKey::new(&X25519, other);
    agreement::agree(own, other, Unspecified, |secret| {
        secret
            .try_into()
            .map(SharedSecret::new)
            .map_err(|_| Unspecified)
    })
}

/// The combiner of X-Wing.
fn combined(
    by_lattice: &[u8],
    by_curve: &SharedSecret,
    sent: &[u8],
    receiver: &[u8],
) -> SharedSecret {
    let mut hash = Context::new(&SHA3_256);
    for part in [by_lattice, by_curve.as_slice(), sent, receiver, LABEL] {
        hash.update(part);
    }
    let mut secret = SharedSecret::default();
    secret.copy_from_slice(hash.finish().as_ref());
    secret
}

fn joined<const N: usize>(first: &[u8], second: &[u8]) -> Result<Box<[u8; N]>, Unspecified> {
    boxed(&[first, second].concat()).ok_or(Unspecified)
}

fn boxed<const N: usize>(bytes: &[u8]) -> Option<Box<[u8; N]>> {
    Box::<[u8]>::from(bytes).try_into().ok()
}

#[cfg(test)]
mod tests;
