//! An agent's word that a batch key signs for it.

use sealbus_seal::{Credential, Signature};

use crate::error::{Malformed, SignError};
use crate::key::{Algorithm, BatchKey, BatchPublicKey};
use crate::statement::{Certified, delegation};

/// Bytes of the longest delegation.
pub const MAX_DELEGATION_LENGTH: usize = 1 + Algorithm::LONGEST_KEY + SIGNATURE;

const SIGNATURE: usize = 64;

/// An agent's word, signed with the key of one of its certificates, that a batch key signs for the holder of this
/// certificate. It ends with the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    pub(crate) key: BatchPublicKey,
    pub(crate) signature: Signature,
}

impl Delegation {
    /// The holder of `credential`, which has this certificate, delegates to `key`.
    pub(crate) fn make(
        credential: &Credential,
        certified: &Certified<'_>,
        key: &BatchKey,
    ) -> Result<Self, SignError> {
        let key = key.public()?.clone();
        let signature = credential.key().sign(&delegation(certified, &key))?;
        Ok(Self { key, signature })
    }

    /// The key that signs.
    pub fn key(&self) -> &BatchPublicKey {
        &self.key
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        self.key.length() + SIGNATURE
    }

    /// Appends the wire form: the key's, then the agent's signature.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        out.extend_from_slice(self.signature.as_bytes());
    }

    /// Reads a wire form that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match Self::decode_prefix(bytes)? {
            (delegation, []) => Ok(delegation),
            (delegation, _) => Err(Malformed::Length {
                expected: delegation.length(),
                found: bytes.len(),
            }),
        }
    }

    /// Reads a wire form at the start of `bytes`, and returns the bytes after it.
    pub(crate) fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (key, rest) = BatchPublicKey::decode_prefix(bytes)?;
        let cut = Malformed::Length {
            expected: key.length() + SIGNATURE,
            found: bytes.len(),
        };
        let (signature, rest) = rest.split_first_chunk::<SIGNATURE>().ok_or(cut)?;
        let signature = Signature::from_bytes(*signature);
        Ok((Self { key, signature }, rest))
    }
}
