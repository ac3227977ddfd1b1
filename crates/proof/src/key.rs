//! The key with which a process signs batches. One byte names its algorithm, and the lengths of keys and signatures
//! follow from it.

use std::sync::OnceLock;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use sealbus_seal::{
    KeyError, MlDsaKeyPair, PlatformName, SecurityLevel, SignatureAlgorithm, VerifyingKey,
};

use crate::error::{Malformed, SignError};

/// The algorithm whose keys and signatures are the longest.
pub(crate) const LONGEST: SignatureAlgorithm = SignatureAlgorithm::MlDsa65;

/// The byte that names an algorithm.
const fn code(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::Ed25519 => 1,
        SignatureAlgorithm::MlDsa65 => 2,
    }
}

/// The public half of a batch key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchPublicKey(VerifyingKey);

impl BatchPublicKey {
    /// The algorithm.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        1 + self.0.as_bytes().len()
    }

    /// Appends the wire form: the byte of the algorithm, then the key.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(code(self.algorithm()));
        out.extend_from_slice(self.0.as_bytes());
    }

    /// Reads a wire form at the start of `bytes`, and returns the bytes after it.
    pub(crate) fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let cut = |expected| Malformed::Length {
            expected,
            found: bytes.len(),
        };
        let (found, rest) = bytes.split_first().ok_or(cut(1))?;
        let mut algorithms = SignatureAlgorithm::ALL.into_iter();
        let algorithm = algorithms.find(|algorithm| code(*algorithm) == *found);
        let algorithm = algorithm.ok_or(Malformed::Algorithm(*found))?;
        let length = algorithm.key_length();
        let (key, rest) = rest.split_at_checked(length).ok_or(cut(1 + length))?;
        let key = VerifyingKey::from_bytes(algorithm, key).ok_or(cut(1 + length))?;
        Ok((Self(key), rest))
    }

    /// Whether this key made `signature` over `statement`.
    #[must_use]
    pub(crate) fn verifies(&self, statement: &[u8], signature: &[u8]) -> bool {
        self.0.verifies(statement, signature)
    }
}

/// The key with which a process signs the batches of all its agents. It is made when it is first needed, and is in the
/// memory of its process alone. It has the algorithm of the agents' own proofs.
#[derive(Debug)]
pub struct BatchKey {
    platform: PlatformName,
    level: SecurityLevel,
    pair: OnceLock<(Pair, BatchPublicKey)>,
}

#[derive(Debug)]
enum Pair {
    Ed25519(Ed25519KeyPair),
    MlDsa65(MlDsaKeyPair),
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

    /// The public half, of this algorithm.
    ///
    /// # Errors
    /// [`SignError::Key`] if the key cannot be made; [`SignError::Algorithm`] if it has another algorithm already.
    pub fn public(&self, algorithm: SignatureAlgorithm) -> Result<&BatchPublicKey, SignError> {
        let (_, public) = match self.pair.get() {
            Some(pair) => pair,
            None => {
                let pair = Pair::generate(algorithm)?;
                self.pair.get_or_init(|| pair)
            }
        };
        match public.algorithm() {
            found if found == algorithm => Ok(public),
            found => Err(SignError::Algorithm {
                wanted: algorithm,
                found,
            }),
        }
    }

    /// Signs the statement that `statement` makes for the public half.
    pub(crate) fn sign(
        &self,
        statement: impl FnOnce(&BatchPublicKey) -> Vec<u8>,
    ) -> Result<(BatchPublicKey, Box<[u8]>), SignError> {
        // Every author that added messages to the batch has delegated to the key, so the key is there.
        let (pair, public) = self.pair.get().ok_or(SignError::NoAuthor)?;
        let signature = pair.sign(&statement(public))?;
        Ok((public.clone(), signature))
    }
}

impl Pair {
    fn generate(algorithm: SignatureAlgorithm) -> Result<(Self, BatchPublicKey), KeyError> {
        match algorithm {
            SignatureAlgorithm::Ed25519 => {
                let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::NoRandomness)?;
                let bytes = pair.public_key().as_ref();
                let public = VerifyingKey::from_bytes(algorithm, bytes);
                let public = public.ok_or(KeyError::Unusable)?;
                Ok((Self::Ed25519(pair), BatchPublicKey(public)))
            }
            SignatureAlgorithm::MlDsa65 => {
                let pair = MlDsaKeyPair::generate()?;
                let public = BatchPublicKey(pair.public_key().clone());
                Ok((Self::MlDsa65(pair), public))
            }
        }
    }

    fn sign(&self, statement: &[u8]) -> Result<Box<[u8]>, KeyError> {
        match self {
            Self::Ed25519(pair) => {
                let signature = pair.try_sign(statement).map_err(|_| KeyError::Unusable)?;
                Ok(signature.as_ref().into())
            }
            Self::MlDsa65(pair) => Ok(pair.sign(statement)?.into()),
        }
    }
}
