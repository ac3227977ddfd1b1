//! The right to look: links that work once, and the sessions that they open.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sealbus_seal::KeyError;
use sealbus_seal::token::{Secret, SecretHash};

/// How long a link may be used.
pub(crate) const LINK: Duration = Duration::from_secs(60);
/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 60 * 60);
/// Most unused links, and most sessions. The oldest end first.
const MOST: usize = 8;

/// Links and sessions, by the hashes of their secrets.
#[derive(Default)]
pub(crate) struct Sessions {
    links: VecDeque<(SecretHash, Instant)>,
    open: VecDeque<(SecretHash, Instant)>,
}

/// Adds an entry that ends later than all others.
fn add(list: &mut VecDeque<(SecretHash, Instant)>, ends: Instant) -> Result<Secret, KeyError> {
    let secret = Secret::random()?;
    if list.len() == MOST {
        list.pop_front();
    }
    list.push_back((secret.hash(), ends));
    Ok(secret)
}

impl Sessions {
    /// A secret that opens one session.
    pub(crate) fn link(&mut self, now: Instant) -> Result<Secret, KeyError> {
        add(&mut self.links, now + LINK)
    }

    /// The key of a new session, if the secret of a link is good.
    pub(crate) fn enter(
        &mut self,
        once: &Secret,
        now: Instant,
    ) -> Result<Option<Secret>, KeyError> {
        let hash = once.hash();
        let Some(at) = self.links.iter().position(|(known, _)| *known == hash) else {
            return Ok(None);
        };
        match self.links.remove(at) {
            Some((_, ends)) if now < ends => add(&mut self.open, now + SESSION).map(Some),
            _ => Ok(None),
        }
    }

    /// When the session with this key ends, if there is one.
    pub(crate) fn end(&self, key: &Secret, now: Instant) -> Option<Instant> {
        let hash = key.hash();
        let mut open = self.open.iter();
        let found = open.find(|(known, ends)| *known == hash && now < *ends);
        found.map(|(_, ends)| *ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_one_session_and_only_for_a_while() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let link = sessions.link(now).unwrap();
        assert_eq!(sessions.end(&link, now), None, "a link is no key");
        let key = sessions.enter(&link, now).unwrap().unwrap();
        assert!(sessions.enter(&link, now).unwrap().is_none(), "used twice");
        assert!(
            sessions.enter(&key, now).unwrap().is_none(),
            "a key is no link"
        );
        assert_eq!(sessions.end(&key, now), Some(now + SESSION));
        assert_eq!(sessions.end(&Secret::random().unwrap(), now), None);
        assert_eq!(sessions.end(&key, now + SESSION), None);
        let late = sessions.link(now).unwrap();
        assert!(sessions.enter(&late, now + LINK).unwrap().is_none());
    }

    #[test]
    fn there_is_an_end_to_links_and_sessions() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let links: Vec<_> = (0..=MOST).map(|_| sessions.link(now).unwrap()).collect();
        assert!(sessions.enter(&links[0], now).unwrap().is_none());
        let mut keys = Vec::new();
        for _ in 0..=MOST {
            let link = sessions.link(now).unwrap();
            keys.push(sessions.enter(&link, now).unwrap().unwrap());
        }
        assert_eq!(sessions.end(&keys[0], now), None);
        assert!(sessions.end(&keys[1], now).is_some());
    }
}
