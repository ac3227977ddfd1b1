//! Keys of callers: made here, kept as hashes.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_manifest::callers::KeyHash;

/// The beginning of each key, by which programs that look for lost secrets recognise one.
const PREFIX: &str = "sbk_";
/// Longest key that is looked at.
const LONGEST: usize = 512;

/// A new key, and its hash for the manifest. The key is 256 random bits, and is not kept.
///
/// # Errors
/// If there is no randomness.
pub fn new_key() -> Result<(String, KeyHash), NoRandomness> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| NoRandomness)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{PREFIX}{digits}");
    let hash = hash(key.as_bytes());
    Ok((key, hash))
}

/// The system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes")]
pub struct NoRandomness;

/// A key is random, so its hash needs neither salt nor many rounds; the time of a search among the hashes tells an
/// attacker nothing about a key.
fn hash(key: &[u8]) -> KeyHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, key).as_ref());
    KeyHash(hash)
}

/// The callers by their keys.
pub(crate) struct Keys<T> {
    pub(crate) callers: HashMap<KeyHash, T>,
    pub(crate) anonymous: Option<T>,
}

/// The reason why the headers of a request name no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// There is no key.
    NoKey,
    /// There is not exactly one key, or the key is unknown.
    WrongKey,
}

impl<T> Keys<T> {
    /// The caller with the `Authorization` headers of a request.
    pub(crate) fn caller<'h>(
        &self,
        mut headers: impl Iterator<Item = &'h [u8]>,
    ) -> Result<&T, Unknown> {
        let Some(header) = headers.next() else {
            return self.anonymous.as_ref().ok_or(Unknown::NoKey);
        };
        let scheme = b"Bearer ";
        let key = match header.split_at_checked(scheme.len()) {
            Some((word, key)) if word.eq_ignore_ascii_case(scheme) && key.len() <= LONGEST => key,
            _ => return Err(Unknown::WrongKey),
        };
        // Two keys mean two callers, and nobody can say which one is meant.
        if headers.next().is_some() {
            return Err(Unknown::WrongKey);
        }
        self.callers.get(&hash(key)).ok_or(Unknown::WrongKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_what_its_hash_is_kept_for() {
        let (key, hash) = new_key().unwrap();
        let (other, _) = new_key().unwrap();
        let mut keys = Keys {
            callers: HashMap::from([(hash, "assistant")]),
            anonymous: None,
        };
        let bearer = format!("Bearer {key}").into_bytes();
        let ask = |keys: &Keys<&'static str>, headers: &[&[u8]]| {
            keys.caller(headers.iter().copied()).copied()
        };
        assert_eq!(ask(&keys, &[&bearer]), Ok("assistant"));
        assert_eq!(
            ask(&keys, &[format!("bearer {key}").as_bytes()]),
            Ok("assistant")
        );
        assert_eq!(ask(&keys, &[]), Err(Unknown::NoKey));
        for wrong in [
            &[format!("Bearer {other}").as_bytes()][..],
            &[format!("Bearer {hash}").as_bytes()],
            &[format!("Basic {key}").as_bytes()],
            &[key.as_bytes()],
            &[b""],
            &[&bearer, &bearer],
            &[&[b'x'; 1 << 20]],
        ] {
            assert_eq!(ask(&keys, wrong), Err(Unknown::WrongKey));
            // A caller with a wrong key never counts as anonymous.
            keys.anonymous = Some("guest");
            assert_eq!(ask(&keys, wrong), Err(Unknown::WrongKey));
            keys.anonymous = None;
        }
        keys.anonymous = Some("guest");
        assert_eq!(ask(&keys, &[]), Ok("guest"));
        assert_eq!(KeyHash::try_from(hash.to_string()), Ok(hash));
    }
}
