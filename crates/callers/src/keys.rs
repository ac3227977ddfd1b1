//! Keys of callers: made here, kept as hashes.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_manifest::callers::{CallerEntry, KeyHash};
use sealbus_seal::random_hex;

use crate::token::{LONGEST_TOKEN, TokenRights};

/// The beginning of each key, by which programs that look for lost secrets recognise one.
const PREFIX: &str = "sbk_";
/// Longest key that is looked at.
const LONGEST: usize = 512;

/// A new key, and its hash for the manifest. The key is 256 random bits, and is not kept.
///
/// # Errors
/// If there is no randomness.
pub fn new_key() -> Result<(String, KeyHash), NoRandomness> {
    let random = random_hex::<32>().map_err(|_| NoRandomness)?;
    let key = format!("{PREFIX}{random}");
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

/// The callers by what opens the door to them.
pub(crate) struct Keys<T> {
    callers: Vec<T>,
    keys: HashMap<KeyHash, usize>,
    /// By subject: the scopes that are needed, in the order of the manifest.
    subjects: HashMap<String, Vec<(Vec<String>, usize)>>,
    /// By the name in the certificate.
    certified: HashMap<String, usize>,
    anonymous: Option<T>,
}

/// The one whom the headers of a request show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'k, 'h, T> {
    /// A caller with a key, or without one.
    Caller(&'k T),
    /// Whoever this token speaks for.
    Token(&'h str),
}

/// The reason why the headers of a request name no caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// There is no key.
    NoKey,
    /// There is not exactly one key, or the key is unknown.
    WrongKey,
    /// A token that lacks scopes.
    Scopes,
}

impl<T> Keys<T> {
    /// The callers of the entries, in their order.
    pub(crate) fn new(
        entries: &[CallerEntry],
        callers: impl IntoIterator<Item = T>,
        anonymous: Option<T>,
    ) -> Self {
        let mut subjects: HashMap<String, Vec<_>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Some(subject) = &entry.subject {
                let needed = subjects.entry(subject.clone()).or_default();
                needed.push((entry.scopes.clone(), index));
            }
        }
        let certified = entries.iter().enumerate();
        let certified = certified.filter(|(_, it)| it.certificate);
        let keys = entries.iter().enumerate();
        Self {
            certified: certified
                .map(|(index, it)| (it.name.clone(), index))
                .collect(),
            keys: keys
                .filter_map(|(index, it)| Some((it.key?, index)))
                .collect(),
            callers: callers.into_iter().collect(),
            subjects,
            anonymous,
        }
    }

    /// The same, with others in place of the callers.
    pub(crate) fn map<U>(self, mut make: impl FnMut(T) -> U) -> Keys<U> {
        Keys {
            callers: self.callers.into_iter().map(&mut make).collect(),
            keys: self.keys,
            subjects: self.subjects,
            certified: self.certified,
            anonymous: self.anonymous.map(make),
        }
    }

    /// All callers; the anonymous one is told apart.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&T, bool)> {
        let known = self.callers.iter().map(|it| (it, false));
        known.chain(self.anonymous.iter().map(|it| (it, true)))
    }

    /// The caller with the `Authorization` headers of a request.
    pub(crate) fn caller<'h>(
        &self,
        mut headers: impl Iterator<Item = &'h [u8]>,
    ) -> Result<Shown<'_, 'h, T>, Unknown> {
        let Some(header) = headers.next() else {
            let anonymous = self.anonymous.as_ref().ok_or(Unknown::NoKey);
            return anonymous.map(Shown::Caller);
        };
        let scheme = b"Bearer ";
        let key = match header.split_at_checked(scheme.len()) {
            Some((word, key)) if word.eq_ignore_ascii_case(scheme) => key,
            _ => return Err(Unknown::WrongKey),
        };
        // Two keys mean two callers, and nobody can say which one is meant.
        if headers.next().is_some() {
            return Err(Unknown::WrongKey);
        }
        if key.len() <= LONGEST
            && let Some(index) = self.keys.get(&hash(key))
        {
            return self.at(*index).map(Shown::Caller);
        }
        let is_token = !self.subjects.is_empty() && key.len() <= LONGEST_TOKEN;
        let token = std::str::from_utf8(key).ok();
        let token = token.filter(|it| is_token && it.split('.').count() == 3);
        token.map(Shown::Token).ok_or(Unknown::WrongKey)
    }

    /// The caller that a checked token speaks for.
    pub(crate) fn granted(&self, grant: &TokenRights) -> Result<&T, Unknown> {
        let needed = self.subjects.get(&grant.subject);
        let needed = needed.ok_or(Unknown::WrongKey)?;
        let has_all = |scopes: &[String]| scopes.iter().all(|it| grant.scopes.contains(it));
        let (_, index) = needed
            .iter()
            .find(|(scopes, _)| has_all(scopes))
            .ok_or(Unknown::Scopes)?;
        self.at(*index)
    }

    /// The caller with a certificate for this local name.
    pub(crate) fn certified(&self, name: &str) -> Result<&T, Unknown> {
        let index = self.certified.get(name).ok_or(Unknown::WrongKey)?;
        self.at(*index)
    }

    fn at(&self, index: usize) -> Result<&T, Unknown> {
        self.callers.get(index).ok_or(Unknown::WrongKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(
        name: &str,
        key: Option<KeyHash>,
        subject: Option<&str>,
        scopes: &[&str],
    ) -> CallerEntry {
        CallerEntry {
            name: name.to_owned(),
            key,
            certificate: false,
            subject: subject.map(str::to_owned),
            scopes: scopes.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_key_opens_what_its_hash_is_kept_for() {
        let (key, hash) = new_key().unwrap();
        let (other, _) = new_key().unwrap();
        let entries = [entry("assistant", Some(hash), None, &[])];
        let mut keys = Keys::new(&entries, ["assistant"], None);
        let bearer = format!("Bearer {key}").into_bytes();
        let ask = |keys: &Keys<&'static str>, headers: &[&[u8]]| match keys
            .caller(headers.iter().copied())
        {
            Ok(Shown::Caller(caller)) => Ok(*caller),
            Ok(Shown::Token(token)) => panic!("{token} is no token"),
            Err(unknown) => Err(unknown),
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
            &[b"Bearer one.two.three"],
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

    #[test]
    fn a_certificate_is_for_the_caller_of_its_name_alone() {
        let mut entries = [
            entry("keeper", None, None, &[]),
            entry("reader", None, Some("client-1"), &[]),
        ];
        entries[0].certificate = true;
        let keys = Keys::new(&entries, ["keeper", "reader"], Some("guest"));
        assert_eq!(keys.certified("keeper"), Ok(&"keeper"));
        for other in ["reader", "guest", "Keeper", ""] {
            assert_eq!(keys.certified(other), Err(Unknown::WrongKey), "{other}");
        }
    }

    #[test]
    fn scopes_choose_among_the_callers_of_a_subject() {
        let entries = [
            entry("buyer", None, Some("client-1"), &["read", "buy"]),
            entry("reader", None, Some("client-1"), &["read"]),
            entry("all", None, Some("client-2"), &[]),
        ];
        let keys = Keys::new(&entries, ["buyer", "reader", "all"], Some("guest"));
        let granted = |subject: &str, scopes: &[&str]| {
            let grant = TokenRights {
                subject: subject.to_owned(),
                scopes: scopes.iter().map(|it| (*it).to_owned()).collect(),
                expires: 0,
            };
            keys.granted(&grant).copied()
        };
        assert_eq!(granted("client-1", &["buy", "read", "more"]), Ok("buyer"));
        assert_eq!(granted("client-1", &["read"]), Ok("reader"));
        assert_eq!(granted("client-1", &["buy"]), Err(Unknown::Scopes));
        assert_eq!(granted("client-1", &[]), Err(Unknown::Scopes));
        assert_eq!(granted("client-2", &[]), Ok("all"));
        assert_eq!(
            granted("client-3", &["read", "buy"]),
            Err(Unknown::WrongKey)
        );
        let token: &[u8] = b"Bearer one.two.three";
        let shown = keys.caller([token].into_iter());
        assert_eq!(shown, Ok(Shown::Token("one.two.three")));
        assert_eq!(
            keys.caller([token, token].into_iter()),
            Err(Unknown::WrongKey)
        );
    }
}
