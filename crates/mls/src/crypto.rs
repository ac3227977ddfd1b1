//! The cryptography of MLS by aws-lc-rs: the cipher suite `MLS_128_DHKEMX25519_AES128GCM_SHA256_Ed25519`, which RFC 9420
//! demands of everyone. The private key for signatures never leaves its [`Credential`].

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{digest, hmac, rand};
use mls_rs::crypto::{
    HpkeCiphertext, HpkeContextR, HpkeContextS, HpkePsk, HpkePublicKey, HpkeSecretKey,
    SignaturePublicKey, SignatureSecretKey,
};
use mls_rs::error::IntoAnyError;
use mls_rs::{CipherSuite, CipherSuiteProvider, CryptoProvider};
use sealbus_seal::{Credential, KeyError, PublicKey, Signature};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::hpke;

/// The cipher suite of all groups.
pub(crate) const SUITE: CipherSuite = CipherSuite::CURVE25519_AES128;

/// The length of a hash, and of a secret.
const HASH: usize = 32;

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

type Answer<T> = Result<T, CryptoError>;

/// The operations of MLS in the name of one agent, or of nobody.
#[derive(Clone, Default)]
pub(crate) struct Provider {
    signer: Option<Arc<Credential>>,
}

impl Provider {
    pub(crate) fn of(signer: Arc<Credential>) -> Self {
        Self {
            signer: Some(signer),
        }
    }
}

impl CryptoProvider for Provider {
    type CipherSuiteProvider = Self;

    fn supported_cipher_suites(&self) -> Vec<CipherSuite> {
        vec![SUITE]
    }

    fn cipher_suite_provider(&self, suite: CipherSuite) -> Option<Self> {
        (suite == SUITE).then(|| self.clone())
    }
}

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

/// Groups are joined by a Welcome alone, so nobody makes such a context.
pub(crate) enum NoContext {}

impl HpkeContextS for NoContext {
    type Error = CryptoError;

    fn seal(&mut self, _: Option<&[u8]>, _: &[u8]) -> Answer<Vec<u8>> {
        match *self {}
    }

    fn export(&self, _: &[u8], _: usize) -> Answer<Zeroizing<Vec<u8>>> {
        match *self {}
    }
}

impl HpkeContextR for NoContext {
    type Error = CryptoError;

    fn open(&mut self, _: Option<&[u8]>, _: &[u8]) -> Answer<Zeroizing<Vec<u8>>> {
        match *self {}
    }

    fn export(&self, _: &[u8], _: usize) -> Answer<Zeroizing<Vec<u8>>> {
        match *self {}
    }
}

impl CipherSuiteProvider for Provider {
    type Error = CryptoError;
    type HpkeContextS = NoContext;
    type HpkeContextR = NoContext;

    fn cipher_suite(&self) -> CipherSuite {
        SUITE
    }

    fn hash(&self, data: &[u8]) -> Answer<Vec<u8>> {
        Ok(digest::digest(&digest::SHA256, data).as_ref().to_vec())
    }

    fn mac(&self, key: &[u8], data: &[u8]) -> Answer<Vec<u8>> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        Ok(hmac::sign(&key, data).as_ref().to_vec())
    }

    fn aead_seal(
        &self,
        key: &[u8],
        data: &[u8],
        aad: Option<&[u8]>,
        nonce: &[u8],
    ) -> Answer<Vec<u8>> {
        seal(key, nonce, aad.unwrap_or_default(), data)
    }

    fn aead_open(
        &self,
        key: &[u8],
        ciphertext: &[u8],
        aad: Option<&[u8]>,
        nonce: &[u8],
    ) -> Answer<Zeroizing<Vec<u8>>> {
        open(key, nonce, aad.unwrap_or_default(), ciphertext)
    }

    fn aead_key_size(&self) -> usize {
        AES_128_GCM.key_len()
    }

    fn aead_nonce_size(&self) -> usize {
        AES_128_GCM.nonce_len()
    }

    fn kdf_extract(&self, salt: &[u8], ikm: &[u8]) -> Answer<Zeroizing<Vec<u8>>> {
        Ok(extract(salt, &[ikm]))
    }

    fn kdf_expand(&self, prk: &[u8], info: &[u8], len: usize) -> Answer<Zeroizing<Vec<u8>>> {
        expand(prk, &[info], len)
    }

    fn kdf_extract_size(&self) -> usize {
        HASH
    }

    fn hpke_seal(
        &self,
        remote_key: &HpkePublicKey,
        info: &[u8],
        aad: Option<&[u8]>,
        pt: &[u8],
    ) -> Answer<HpkeCiphertext> {
        hpke::seal(remote_key, info, aad.unwrap_or_default(), pt)
    }

    fn hpke_open(
        &self,
        ciphertext: &HpkeCiphertext,
        local_secret: &HpkeSecretKey,
        local_public: &HpkePublicKey,
        info: &[u8],
        aad: Option<&[u8]>,
    ) -> Answer<Zeroizing<Vec<u8>>> {
        let keys = (&**local_secret, &**local_public);
        hpke::open(ciphertext, keys, info, aad.unwrap_or_default())
    }

    fn hpke_seal_psk(
        &self,
        _: &HpkePublicKey,
        _: &[u8],
        _: Option<&[u8]>,
        _: &[u8],
        _: HpkePsk<'_>,
    ) -> Answer<HpkeCiphertext> {
        Err(CryptoError::NotUsed)
    }

    fn hpke_open_psk(
        &self,
        _: &HpkeCiphertext,
        _: &HpkeSecretKey,
        _: &HpkePublicKey,
        _: &[u8],
        _: Option<&[u8]>,
        _: HpkePsk<'_>,
    ) -> Answer<Zeroizing<Vec<u8>>> {
        Err(CryptoError::NotUsed)
    }

    fn hpke_setup_s(&self, _: &HpkePublicKey, _: &[u8]) -> Answer<(Vec<u8>, NoContext)> {
        Err(CryptoError::NotUsed)
    }

    fn hpke_setup_r(
        &self,
        _: &[u8],
        _: &HpkeSecretKey,
        _: &HpkePublicKey,
        _: &[u8],
    ) -> Answer<NoContext> {
        Err(CryptoError::NotUsed)
    }

    fn kem_derive(&self, ikm: &[u8]) -> Answer<(HpkeSecretKey, HpkePublicKey)> {
        hpke::derive(ikm)
    }

    fn kem_generate(&self) -> Answer<(HpkeSecretKey, HpkePublicKey)> {
        let mut seed = Zeroizing::new([0; HASH]);
        rand::fill(seed.as_mut_slice())?;
        hpke::derive(seed.as_slice())
    }

    fn kem_public_key_validate(&self, key: &HpkePublicKey) -> Answer<()> {
        // Keys of low order are refused when they are used.
        match key.len() {
            hpke::KEY => Ok(()),
            _ => Err(CryptoError::Unspecified),
        }
    }

    fn random_bytes(&self, out: &mut [u8]) -> Answer<()> {
        Ok(rand::fill(out)?)
    }

    fn signature_key_generate(&self) -> Answer<(SignatureSecretKey, SignaturePublicKey)> {
        Err(CryptoError::NotUsed)
    }

    fn signature_key_derive_public(&self, _: &SignatureSecretKey) -> Answer<SignaturePublicKey> {
        let signer = self.signer.as_ref().ok_or(CryptoError::NoSigner)?;
        let key = signer.key().public_key();
        Ok(key.as_bytes().to_vec().into())
    }

    fn sign(&self, _: &SignatureSecretKey, data: &[u8]) -> Answer<Vec<u8>> {
        let signer = self.signer.as_ref().ok_or(CryptoError::NoSigner)?;
        Ok(signer.key().sign(data)?.as_bytes().to_vec())
    }

    fn verify(&self, public_key: &SignaturePublicKey, signature: &[u8], data: &[u8]) -> Answer<()> {
        let key = public_key.as_bytes().try_into();
        let signature = signature.try_into();
        match (key, signature) {
            (Ok(key), Ok(signature)) => {
                let is_true =
                    PublicKey::from_bytes(key).verifies(data, &Signature::from_bytes(signature));
                is_true.then_some(()).ok_or(CryptoError::Unspecified)
            }
            _ => Err(CryptoError::Unspecified),
        }
    }
}
