//! The cryptography of MLS by aws-lc-rs: the cipher suite `MLS_128_DHKEMX25519_AES128GCM_SHA256_Ed25519`, which RFC 9420
//! demands of everyone. The private key for signatures never leaves its [`Credential`].

use std::sync::Arc;

use aws_lc_rs::aead::AES_128_GCM;
use aws_lc_rs::{digest, hmac, rand};
use mls_rs::crypto::{
    HpkeCiphertext, HpkeContextR, HpkeContextS, HpkePsk, HpkePublicKey, HpkeSecretKey,
    SignaturePublicKey, SignatureSecretKey,
};
use mls_rs::{CipherSuite, CipherSuiteProvider, CryptoProvider};
use sealbus_seal::{Credential, PublicKey, Signature};
use zeroize::Zeroizing;

use crate::hpke;
use crate::primitives::{Answer, CryptoError, HASH, expand, extract, open, seal};

/// The cipher suite of all groups.
pub(crate) const SUITE: CipherSuite = CipherSuite::CURVE25519_AES128;

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
