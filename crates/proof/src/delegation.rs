//! An agent's word that a batch key signs for it.

use std::sync::Arc;

use sealbus_seal::Credential;

use crate::error::{Malformed, SignError};
use crate::key::{BatchKey, BatchPublicKey, LONGEST};
use crate::statement::{Certified, delegation};

/// Bytes of the longest delegation.
pub const LONGEST_DELEGATION: usize = 1 + LONGEST.key_length() + LONGEST.signature_length();

/// An agent's word that a batch key signs for the holder of one of its certificates. The agent signs this word with the key
/// for proofs of the certificate. The delegation ends with the certificate. Both keys are of one algorithm. Clones share the
/// signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchKeyDelegation {
    pub(crate) key: BatchPublicKey,
    pub(crate) signature: Arc<[u8]>,
}

impl BatchKeyDelegation {
    /// The holder of `credential`, which has this certificate, delegates to `key`.
    pub(crate) fn make(
        credential: &Credential,
        certified: &Certified<'_>,
        key: &BatchKey,
    ) -> Result<Self, SignError> {
        let key = key.public(credential.proof_algorithm())?.clone();
        let signature = credential.sign_proof(&delegation(certified, &key))?.into();
        Ok(Self { key, signature })
    }

    /// The key that signs.
    pub fn key(&self) -> &BatchPublicKey {
        &self.key
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        self.key.length() + self.key.algorithm().signature_length()
    }

    /// Appends the wire form: the key's, then the agent's signature.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        out.extend_from_slice(&self.signature);
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
        let length = key.algorithm().signature_length();
        let cut = Malformed::Length {
            expected: key.length() + length,
            found: bytes.len(),
        };
        let (signature, rest) = rest.split_at_checked(length).ok_or(cut)?;
        let signature = signature.into();
        Ok((Self { key, signature }, rest))
    }
}
