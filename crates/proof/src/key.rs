//! The key with which a process signs batches. One byte names its algorithm, and the lengths of keys and signatures
//! follow from it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sealbus_seal::{KeyError, PlatformName, SecurityLevel};

use crate::error::Malformed;

/// An algorithm of batch keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Ed25519 (RFC 8032).
    Ed25519,
}

impl Algorithm {
    /// Bytes of the longest public key.
    pub const LONGEST_KEY: usize = Self::Ed25519.key_length();
    /// Bytes of the longest signature.
    pub const LONGEST_SIGNATURE: usize = Self::Ed25519.signature_length();

    /// The byte that names it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ed25519 => 1,
        }
    }

    /// The algorithm that the byte names.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Ed25519),
            _ => None,
        }
    }

    /// Bytes of a public key.
    pub const fn key_length(self) -> usize {
        match self {
            Self::Ed25519 => 32,
        }
    }

    /// Bytes of a signature.
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Ed25519 => 64,
        }
    }
}

/// The public half of a batch key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BatchPublicKey {
    algorithm: Algorithm,
    bytes: Arc<[u8]>,
}

impl BatchPublicKey {
    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        1 + self.bytes.len()
    }

    /// Appends the wire form: the byte of the algorithm, then the key.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.algorithm.code());
        out.extend_from_slice(&self.bytes);
    }

    /// Reads a wire form at the start of `bytes`, and returns the bytes after it.
    pub(crate) fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let cut = |expected| Malformed::Length {
            expected,
            found: bytes.len(),
        };
        let (code, rest) = bytes.split_first().ok_or(cut(1))?;
        let algorithm = Algorithm::from_code(*code).ok_or(Malformed::Algorithm(*code))?;
        let length = algorithm.key_length();
        let (key, rest) = rest.split_at_checked(length).ok_or(cut(1 + length))?;
        let bytes = key.into();
        Ok((Self { algorithm, bytes }, rest))
    }

    /// Whether `signature` is this key's over `statement`.
    #[must_use]
    pub(crate) fn verifies(&self, statement: &[u8], signature: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Ed25519 => UnparsedPublicKey::new(&ED25519, &self.bytes)
                .verify(statement, signature)
                .is_ok(),
        }
    }
}

impl fmt::Debug for BatchPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}(", self.algorithm)?;
        for byte in &*self.bytes {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// The key with which a process signs the batches of all its agents. It is made when it is first needed, and is in the
/// memory of its process alone.
#[derive(Debug)]
pub struct BatchKey {
    platform: PlatformName,
    level: SecurityLevel,
    pair: OnceLock<(Ed25519KeyPair, BatchPublicKey)>,
}

impl BatchKey {
    /// A key for messages of agents of `platform` at `level`.
    pub const fn new(platform: PlatformName, level: SecurityLevel) -> Self {
        Self {
            platform,
            level,
            pair: OnceLock::new(),
        }
    }

    /// The platform.
    pub fn platform(&self) -> &PlatformName {
        &self.platform
    }

    /// The level of the messages.
    pub fn level(&self) -> SecurityLevel {
        self.level
    }

    /// The public half.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`] if the key cannot be made.
    pub fn public(&self) -> Result<&BatchPublicKey, KeyError> {
        self.pair().map(|(_, public)| public)
    }

    pub(crate) fn sign(&self, statement: &[u8]) -> Result<Box<[u8]>, KeyError> {
        let (pair, _) = self.pair()?;
        let signature = pair.try_sign(statement).map_err(|_| KeyError::Unusable)?;
        Ok(signature.as_ref().into())
    }

    fn pair(&self) -> Result<&(Ed25519KeyPair, BatchPublicKey), KeyError> {
        if let Some(pair) = self.pair.get() {
            return Ok(pair);
        }
        let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::NoRandomness)?;
        let public = BatchPublicKey {
            algorithm: Algorithm::Ed25519,
            bytes: pair.public_key().as_ref().into(),
        };
        Ok(self.pair.get_or_init(|| (pair, public)))
    }
}
