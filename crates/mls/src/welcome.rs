//! Welcomes that also hold against a quantum computer of later years.
//!
//! MLS encrypts a Welcome by X25519. It is therefore encrypted once more, under a random secret, and the secret is sealed to
//! each new member's key for sealed messages (X25519 and ML-KEM-768 together). All secrets of a group follow from the ones
//! in its Welcomes, so that no commit shows them to somebody who breaks X25519 alone.

use std::sync::Arc;

use sealbus_seal::encryption::{
    Encapsulation, EncryptionKey, EncryptionKeyId, EncryptionPublicKey, Opening, Sealing,
};
use zeroize::Zeroizing;

use crate::error::GroupError;
use crate::limits::MOST_MEMBERS;
use crate::once::Once;

const INFO: &[u8] = b"sealbus welcome v1\0";
/// The name of a key, the encapsulation, and the sealed secret.
const ENTRY: usize =
    EncryptionKeyId::LENGTH + Encapsulation::LENGTH + Once::LENGTH + Sealing::ADDED;
/// The bytes with the number of entries.
const COUNT: usize = 2;

/// Seals a Welcome to these keys.
pub(crate) fn seal(welcome: &[u8], keys: &[&EncryptionPublicKey]) -> Result<Vec<u8>, GroupError> {
    let secret = Once::random()?;
    let count = u16::try_from(keys.len()).map_err(|_| GroupError::TooManyMembers(keys.len()))?;
    let mut out = Vec::with_capacity(COUNT + keys.len() * ENTRY + welcome.len() + Once::ADDED);
    out.extend_from_slice(&count.to_be_bytes());
    for key in keys {
        let (encapsulation, mut sealing) = Sealing::begin(key, INFO)?;
        let mut sealed = secret.as_bytes().to_vec();
        sealing.seal(&[], &mut sealed)?;
        out.extend_from_slice(key.id().as_bytes());
        out.extend_from_slice(encapsulation.as_bytes());
        out.extend_from_slice(&sealed);
    }
    let head = out.len();
    out.extend_from_slice(welcome);
    secret.seal(&mut out, head)?;
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
    let head = COUNT + count * ENTRY;
    let entries = bytes.get(COUNT..head).ok_or_else(malformed)?;
    let found = entries.chunks_exact(ENTRY).find_map(|entry| {
        let (id, rest) = entry.split_first_chunk()?;
        Some((find(EncryptionKeyId::from_bytes(*id))?, rest))
    });
    let (key, entry) = found.ok_or(GroupError::NotInvited)?;
    let (encapsulation, secret) = entry.split_at(Encapsulation::LENGTH);
    let mut opening = Opening::begin(&key, &Encapsulation::from_bytes(encapsulation)?, INFO)?;
    let mut secret = Zeroizing::new(secret.to_vec());
    let secret = opening.open(&[], &mut secret)?;
    Once::received(secret)
        .and_then(|secret| secret.open(bytes, head))
        .ok_or(GroupError::NotInvited)
}
