//! Encryption and derivation of secrets by aws-lc-rs, as the cipher suite of the groups wants them.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use mls_rs::error::IntoAnyError;
use sealbus_seal::KeyError;
use sealbus_seal::encryption::EncryptionError;
use thiserror::Error;
use zeroize::Zeroizing;

/// The length of a hash, and of a secret.
pub(crate) const HASH: usize = 32;

/// The reason why an operation failed.
#[derive(Debug, Error)]
pub(crate) enum CryptoError {
    #[error("a key, a nonce, or what was encrypted is not as it should be")]
    Unspecified,
    #[error("only the owner of a certificate signs here")]
    NoSigner,
    #[error("it is not used by sealed channels")]
    NotUsed,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
}

impl From<Unspecified> for CryptoError {
    fn from(_: Unspecified) -> Self {
        Self::Unspecified
    }
}

impl IntoAnyError for CryptoError {
    fn into_dyn_error(self) -> Result<Box<dyn std::error::Error + Send + Sync>, Self> {
        Ok(Box::new(self))
    }
}

pub(crate) type Answer<T> = Result<T, CryptoError>;

fn sealing_key(key: &[u8], nonce: &[u8]) -> Answer<(LessSafeKey, Nonce)> {
    let key = UnboundKey::new(&AES_128_GCM, key)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce)?;
    Ok((LessSafeKey::new(key), nonce))
}

pub(crate) fn seal(key: &[u8], nonce: &[u8], associated: &[u8], message: &[u8]) -> Answer<Vec<u8>> {
    let (key, nonce) = sealing_key(key, nonce)?;
    let mut sealed = Vec::with_capacity(message.len() + AES_128_GCM.tag_len());
    sealed.extend_from_slice(message);
    key.seal_in_place_append_tag(nonce, Aad::from(associated), &mut sealed)?;
    Ok(sealed)
}

pub(crate) fn open(
    key: &[u8],
    nonce: &[u8],
    associated: &[u8],
    sealed: &[u8],
) -> Answer<Zeroizing<Vec<u8>>> {
    let (key, nonce) = sealing_key(key, nonce)?;
    let mut opened = Zeroizing::new(sealed.to_vec());
    let length = key
        .open_in_place(nonce, Aad::from(associated), &mut opened)?
        .len();
    opened.truncate(length);
    Ok(opened)
}

/// HKDF-SHA256: extract (RFC 5869).
pub(crate) fn extract(salt: &[u8], secret: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, salt);
    let mut hash = hmac::Context::with_key(&key);
    for part in secret {
        hash.update(part);
    }
    Zeroizing::new(hash.sign().as_ref().to_vec())
}

/// HKDF-SHA256: expand (RFC 5869).
pub(crate) fn expand(secret: &[u8], info: &[&[u8]], length: usize) -> Answer<Zeroizing<Vec<u8>>> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut out = Zeroizing::new(Vec::with_capacity(length.next_multiple_of(HASH)));
    let mut block = Zeroizing::new(Vec::new());
    for number in 1..=length.div_ceil(HASH) {
        let mut hash = hmac::Context::with_key(&key);
        hash.update(&block);
        for part in info {
            hash.update(part);
        }
        hash.update(&[u8::try_from(number).map_err(|_| CryptoError::Unspecified)?]);
        block = Zeroizing::new(hash.sign().as_ref().to_vec());
        out.extend_from_slice(&block);
    }
    out.truncate(length);
    Ok(out)
}
