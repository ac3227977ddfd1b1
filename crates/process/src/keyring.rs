//! The keys with which the agents of a process open sealed messages. The process has one key at a time, and each of its
//! agents states it as its own. Old keys are forgotten, because a thief of a key can read everything that was sealed to it.

use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::Timestamp;
use sealbus_seal::encryption::{EncryptionError, EncryptionKey, EncryptionKeyId};
use zeroize::Zeroizing;

/// How long a key is kept after the end of the last certificate under which it was stated. Messages that wait on a node
/// for that long can still be opened.
pub(super) const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The least time for which the keys of a program's former run are kept, so that messages that waited for it can arrive.
const KEPT_AFTER_START: Duration = Duration::from_secs(3600);
/// The least time for which a key is stated, so that there are few keys at a time.
const SHORTEST_USE: Duration = Duration::from_secs(30 * 60);
/// The most keys.
const MOST: usize = 64;

/// The first bytes of the file.
const BEGINNING: &[u8] = b"sealbus encryption keys v1\n";
/// The bytes of a key in the file.
const LENGTH: usize = 2432;
/// The length of the times before each key, in bytes.
const TIMES: usize = 16;

/// The keys of a process.
#[derive(Default)]
pub(super) struct Keyring {
    /// The keys, latest last.
    keys: Vec<StatedKey>,
}

struct StatedKey {
    id: EncryptionKeyId,
    key: Arc<EncryptionKey>,
    made: Timestamp,
    /// The end of the last certificate under which the key was stated.
    stated_until: Timestamp,
}

/// The file does not have this form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a file of encryption keys")]
pub(super) struct NotAKeyring;

impl Keyring {
    /// The key to state under a certificate that ends at `until` and lives for `lifetime`; and whether it is new.
    pub(super) fn for_certificate(
        &mut self,
        until: Timestamp,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(Arc<EncryptionKey>, bool), EncryptionError> {
        let longest_use = (lifetime / 2).max(SHORTEST_USE);
        let is_young = |held: &StatedKey| held.made <= now && now.since(held.made) < longest_use;
        let is_new = !self.keys.last().is_some_and(is_young);
        if is_new {
            self.add(EncryptionKey::generate()?, now, until);
        }
        self.forget(now);
        let held = self.keys.last_mut().ok_or(EncryptionError::NoKey)?;
        held.stated_until = held.stated_until.max(until);
        Ok((held.key.clone(), is_new))
    }

    fn add(&mut self, key: EncryptionKey, made: Timestamp, stated_until: Timestamp) {
        if self.keys.len() >= MOST {
            self.keys.remove(0);
        }
        self.keys.push(StatedKey {
            id: key.public().id(),
            key: Arc::new(key),
            made,
            stated_until,
        });
    }

    /// The latest key.
    pub(super) fn latest(&self) -> Option<&Arc<EncryptionKey>> {
        self.keys.last().map(|held| &held.key)
    }

    /// The key with this name.
    pub(super) fn find(&self, id: EncryptionKeyId) -> Option<Arc<EncryptionKey>> {
        let held = self.keys.iter().rev().find(|held| held.id == id)?;
        Some(held.key.clone())
    }

    /// Forgets keys that have expired. Returns whether there were any.
    pub(super) fn forget(&mut self, now: Timestamp) -> bool {
        let before = self.keys.len();
        self.keys.retain(|held| now <= held.stated_until.plus(KEPT));
        self.keys.len() < before
    }

    /// Takes over the keys of a former run, which are older than its own.
    pub(super) fn take_over(&mut self, former: Self, now: Timestamp) {
        let own = std::mem::take(&mut self.keys);
        let least = now.plus(KEPT_AFTER_START).minus(KEPT);
        for held in former.keys {
            if !own.iter().any(|known| known.id == held.id) {
                self.keys.push(StatedKey {
                    stated_until: held.stated_until.max(least),
                    ..held
                });
            }
        }
        self.keys.extend(own);
        let excess = self.keys.len().saturating_sub(MOST);
        self.keys.drain(..excess);
    }

    /// The keys as bytes, for a file that only this user can read.
    pub(super) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, EncryptionError> {
        let length = BEGINNING.len() + self.keys.len() * (TIMES + LENGTH);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length));
        bytes.extend_from_slice(BEGINNING);
        for held in &self.keys {
            for time in [held.made, held.stated_until] {
                bytes.extend_from_slice(&time.as_unix_seconds().to_be_bytes());
            }
            bytes.extend_from_slice(&held.key.to_bytes()?);
        }
        Ok(bytes)
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) wrote.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, NotAKeyring> {
        let mut rest = bytes.strip_prefix(BEGINNING).ok_or(NotAKeyring)?;
        let mut keyring = Self::default();
        while !rest.is_empty() {
            let mut time = || {
                let (time, after) = rest.split_first_chunk().ok_or(NotAKeyring)?;
                rest = after;
                Ok(Timestamp::from_unix_seconds(u64::from_be_bytes(*time)))
            };
            let (made, stated_until) = (time()?, time()?);
            let (key, after) = rest.split_at_checked(LENGTH).ok_or(NotAKeyring)?;
            rest = after;
            let key = EncryptionKey::from_bytes(key).map_err(|_| NotAKeyring)?;
            keyring.add(key, made, stated_until);
        }
        Ok(keyring)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_seconds(1_000_000 + seconds)
    }

    fn stated(keyring: &mut Keyring, seconds: u64) -> (EncryptionKeyId, bool) {
        let now = at(seconds);
        let (key, is_new) = keyring.for_certificate(now.plus(HOUR), HOUR, now).unwrap();
        (key.public().id(), is_new)
    }

    #[test]
    fn agents_share_a_key_for_half_an_hour_and_it_opens_for_a_day_longer_than_it_is_stated() {
        let mut keyring = Keyring::default();
        let (first, is_new) = stated(&mut keyring, 0);
        assert!(is_new);
        assert_eq!(stated(&mut keyring, 1799), (first, false));
        let (second, is_new) = stated(&mut keyring, 1800);
        assert!(is_new && second != first);
        let over = 1799 + 3600 + 24 * 3600;
        keyring.forget(at(over));
        assert!(keyring.find(first).is_some());
        assert!(keyring.forget(at(over + 1)));
        assert!(keyring.find(first).is_none() && keyring.find(second).is_some());
    }

    #[test]
    fn the_keys_of_a_former_life_open_what_waited() {
        let mut former = Keyring::default();
        let (old, _) = stated(&mut former, 0);
        let file = former.to_bytes().unwrap();
        // A month later.
        let now = 30 * 24 * 3600;
        let mut keyring = Keyring::default();
        let (new, _) = stated(&mut keyring, now);
        keyring.take_over(Keyring::from_bytes(&file).unwrap(), at(now));
        assert!(keyring.find(old).is_some());
        assert_eq!(stated(&mut keyring, now + 1), (new, false));
        keyring.forget(at(now + 3600));
        assert!(keyring.find(old).is_some());
        assert!(keyring.forget(at(now + 3601)));
        assert!(keyring.find(old).is_none() && keyring.find(new).is_some());
    }

    #[test]
    fn a_clock_that_was_wrong_ends_with_a_new_key() {
        let mut keyring = Keyring::default();
        let (ahead, _) = stated(&mut keyring, 1_000_000);
        let (present, is_new) = stated(&mut keyring, 0);
        assert!(is_new && present != ahead);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn there_are_few_keys_and_the_stated_one_is_among_them(
            steps in proptest::collection::vec(0..4000_u64, 1..100),
        ) {
            let (mut keyring, mut now) = (Keyring::default(), 0);
            for step in steps {
                now += step;
                let (id, _) = stated(&mut keyring, now);
                prop_assert!(keyring.find(id).is_some());
                prop_assert_eq!(keyring.latest().unwrap().public().id(), id);
                prop_assert!(keyring.keys.len() <= MOST);
            }
        }

        #[test]
        fn any_file_is_an_error_at_worst(bytes in proptest::collection::vec(any::<u8>(), 0..3000), cut in 0..2500_usize) {
            let _ = Keyring::from_bytes(&bytes);
            let mut keyring = Keyring::default();
            stated(&mut keyring, 0);
            let file = keyring.to_bytes().unwrap();
            let cut = BEGINNING.len() + 1 + cut.min(file.len() - BEGINNING.len() - 2);
            prop_assert!(Keyring::from_bytes(&file[..cut]).is_err());
            let longer = [&file[..], &bytes[..bytes.len().min(2000)], &[0]].concat();
            prop_assert!(Keyring::from_bytes(&longer).is_err());
        }
    }
}
