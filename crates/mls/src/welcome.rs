//! Welcomes that also hold against a quantum computer of later years.
//!
//! MLS encrypts a Welcome by X25519. It is therefore encrypted once more, under a random secret, and the secret is sealed to
//! each new member's key for sealed messages (X25519 and ML-KEM-768 together). All secrets of a group follow from the ones
//! in its Welcomes, so that no commit shows them to somebody who breaks X25519 alone.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand;
use sealbus_seal::encryption::{
    Encapsulation, EncryptionKey, EncryptionKeyId, EncryptionPublicKey, Opening, Sealing,
};
use zeroize::Zeroizing;

use crate::error::GroupError;
use crate::limits::MOST_MEMBERS;

const INFO: &[u8] = b"sealbus welcome v1\0";
const SECRET: usize = 32;
/// A secret is used once.
const NONCE: [u8; 12] = [0; 12];
/// The name of a key, the encapsulation, and the sealed secret.
const ENTRY: usize = EncryptionKeyId::LENGTH + Encapsulation::LENGTH + SECRET + Sealing::ADDED;
/// The bytes with the number of entries.
const COUNT: usize = 2;

fn key_of(secret: &[u8]) -> Result<LessSafeKey, GroupError> {
    let key = UnboundKey::new(&AES_256_GCM, secret).map_err(|_| GroupError::NoSecret)?;
    Ok(LessSafeKey::new(key))
}

/// Seals a Welcome to these keys.
pub(crate) fn seal(welcome: &[u8], keys: &[&EncryptionPublicKey]) -> Result<Vec<u8>, GroupError> {
    let mut secret = Zeroizing::new([0; SECRET]);
    rand::fill(secret.as_mut_slice()).map_err(|_| GroupError::NoSecret)?;
    let count = u16::try_from(keys.len()).map_err(|_| GroupError::TooManyMembers(keys.len()))?;
    let mut out = Vec::with_capacity(COUNT + keys.len() * ENTRY + welcome.len() + 16);
    out.extend_from_slice(&count.to_be_bytes());
    for key in keys {
        let (encapsulation, mut sealing) = Sealing::begin(key, INFO)?;
        let mut sealed = secret.to_vec();
        sealing.seal(&[], &mut sealed)?;
        out.extend_from_slice(key.id().as_bytes());
        out.extend_from_slice(encapsulation.as_bytes());
        out.extend_from_slice(&sealed);
    }
    let mut sealed = welcome.to_vec();
    let nonce = Nonce::assume_unique_for_key(NONCE);
    key_of(secret.as_slice())?
        .seal_in_place_append_tag(nonce, Aad::from(&out), &mut sealed)
        .map_err(|_| GroupError::NoSecret)?;
    out.extend_from_slice(&sealed);
    Ok(out)
}

/// Opens a Welcome with the first key that `find` has.
pub(crate) fn open(
    bytes: &[u8],
    find: impl Fn(EncryptionKeyId) -> Option<Arc<EncryptionKey>>,
) -> Result<Vec<u8>, GroupError> {
    let malformed = || GroupError::Malformed("a Welcome");
    let (count, _) = bytes.split_first_chunk::<COUNT>().ok_or_else(malformed)?;
    let count = usize::from(u16::from_be_bytes(*count));
    if count > MOST_MEMBERS {
        return Err(GroupError::TooManyMembers(count));
    }
    let (head, sealed) = bytes
        .split_at_checked(COUNT + count * ENTRY)
        .ok_or_else(malformed)?;
    let found = head[COUNT..].chunks_exact(ENTRY).find_map(|entry| {
        let (id, rest) = entry.split_first_chunk()?;
        Some((find(EncryptionKeyId::from_bytes(*id))?, rest))
    });
    let (key, entry) = found.ok_or(GroupError::NotInvited)?;
    let (encapsulation, secret) = entry.split_at(Encapsulation::LENGTH);
    let mut opening = Opening::begin(&key, &Encapsulation::from_bytes(encapsulation)?, INFO)?;
    let mut secret = Zeroizing::new(secret.to_vec());
    let secret = opening.open(&[], &mut secret)?;
    let mut opened = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(NONCE);
    let length = key_of(secret)?
        .open_in_place(nonce, Aad::from(head), &mut opened)
        .map_err(|_| GroupError::NotInvited)?
        .len();
    opened.truncate(length);
    Ok(opened)
}
