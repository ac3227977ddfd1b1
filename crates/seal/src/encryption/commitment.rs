//! An author's commitment to a message: it reveals nothing of the message, and fits no other one.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

use super::{EncryptionError, SharedSecret};
use crate::key::random;

/// The first bytes of the hashed data. They distinguish it from every other kind of statement.
const CONTEXT: &[u8] = b"sealbus commitment v1\0";

/// SHA-256 of a [`Salt`] and a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commitment([u8; Self::LENGTH]);

/// The random bytes of a [`Commitment`]. With them, anybody can check which message was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt([u8; Self::LENGTH]);

impl Salt {
    /// The length in bytes.
    pub const LENGTH: usize = 32;

    /// New random bytes.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn random() -> Result<Self, EncryptionError> {
        Ok(Self(random()?))
    }

    /// A salt from its bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl Commitment {
    /// The length in bytes.
    pub const LENGTH: usize = 32;

    /// The commitment to `message` with this salt.
    pub fn new(salt: &Salt, message: &[u8]) -> Self {
        Self::to_pieces(salt, &[message])
    }

    /// The commitment to the message that consists of these pieces, in order.
    pub fn to_pieces(salt: &Salt, pieces: &[&[u8]]) -> Self {
        let all = [CONTEXT, &salt.0].into_iter();
        Self(crate::sha256_of(all.chain(pieces.iter().copied())))
    }

    /// A commitment from its bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

/// The salts of messages under one secret. Each is the SHA-256 of the secret and the message's number (8 bytes). Both
/// have a fixed length, and the secret is used for nothing else, so the hash needs no key of its own. Whoever has the
/// secret knows all salts; one salt reveals nothing of another.
pub struct Salts(SharedSecret);

impl Salts {
    /// The salts under a secret that is used for nothing else.
    pub fn new(secret: SharedSecret) -> Self {
        Self(secret)
    }

    /// The salt of the message with this number.
    pub fn of(&self, number: u64) -> Salt {
        let mut bytes = Zeroizing::new([0; 40]);
        bytes[..32].copy_from_slice(self.0.as_slice());
        bytes[32..].copy_from_slice(&number.to_be_bytes());
        let hash = digest(&SHA256, bytes.as_slice());
        let mut salt = [0; Salt::LENGTH];
        salt.copy_from_slice(hash.as_ref());
        Salt(salt)
    }
}

impl fmt::Debug for Salts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salts").finish_non_exhaustive()
    }
}
