//! Encryption under a secret that is used once: AES-256-GCM (NIST SP 800-38D) with the nonce zero.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, UnboundKey};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

use crate::error::GroupError;

const NONCE: [u8; 12] = [0; 12];

/// A secret that encrypts one text, and is then gone.
pub(crate) struct Once(Zeroizing<[u8; Once::LENGTH]>);

impl Once {
    /// The length of a secret in bytes.
    pub(crate) const LENGTH: usize = 32;
    /// The bytes that encryption adds.
    pub(crate) const ADDED: usize = MAX_TAG_LEN;

    pub(crate) fn random() -> Result<Self, GroupError> {
        let mut secret = Zeroizing::new([0; Self::LENGTH]);
        rand::fill(secret.as_mut_slice()).map_err(|_| GroupError::NoSecret)?;
        Ok(Self(secret))
    }

    /// The secret that the sender has used; `None` if it has another length.
    pub(crate) fn received(bytes: &[u8]) -> Option<Self> {
        let secret: [u8; Self::LENGTH] = bytes.try_into().ok()?;
        Some(Self(Zeroizing::new(secret)))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn key(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(&AES_256_GCM, self.as_bytes()).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// Encrypts, in place, what stands in `whole` from this place on. It is bound to what stands before.
    pub(crate) fn seal(self, whole: &mut Vec<u8>, from: usize) -> Result<(), GroupError> {
        let (before, text) = whole.split_at_mut(from);
        let key = self.key().ok_or(GroupError::NoSecret)?;
        let tag = key
            .seal_in_place_separate_tag((&NONCE).into(), Aad::from(before), text)
            .map_err(|_| GroupError::NoSecret)?;
        whole.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Decrypts what stands in `whole` from this place on; `None` if anything was changed, or the secret is another.
    pub(crate) fn open(self, whole: &[u8], from: usize) -> Option<Vec<u8>> {
        let (before, sealed) = whole.split_at_checked(from)?;
        let mut opened = sealed.to_vec();
        let length = self
            .key()?
            .open_in_place((&NONCE).into(), Aad::from(before), &mut opened)
            .ok()?
            .len();
        opened.truncate(length);
        Some(opened)
    }
}
