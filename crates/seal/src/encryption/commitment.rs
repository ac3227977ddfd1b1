//! An author's commitment to a message: it shows nothing of the message, and fits no other one.

use super::EncryptionError;
use crate::key::random;

/// The first bytes of what is hashed. They set it apart from every other kind of statement.
const CONTEXT: &[u8] = b"sealbus commitment v1\0";

/// SHA-256 of a [`Salt`] and a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commitment([u8; Self::LENGTH]);

/// The random bytes of a [`Commitment`]. With them, everybody can check which message was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt([u8; Self::LENGTH]);

impl Salt {
    /// The length in bytes.
    pub const LENGTH: usize = 32;

    /// New random bytes.
    ///
    /// # Errors
    /// If the system gives none.
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
        Self(crate::sha256(&[CONTEXT, &salt.0, message]))
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
