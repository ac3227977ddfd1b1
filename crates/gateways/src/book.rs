//! Knowledge of other platforms: their network addresses, their agents' addresses, and their encodings.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::address::Address;
use crate::policy::MessageOrigin;
use crate::transmission::Encoding;

/// Most entries; the oldest gives way.
const MOST: usize = 16_384;
/// Most texts of addresses that are remembered with their meaning. All agents of a platform have the same ones.
const MOST_READ: usize = 256;
/// Most addresses of one agent.
pub(crate) const MOST_ADDRESSES: usize = 8;

/// A map that forgets its oldest entries.
pub(crate) struct Bounded<V> {
    entries: HashMap<String, V>,
    order: VecDeque<String>,
    most: usize,
}

impl<V> Bounded<V> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            most,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn insert(&mut self, key: &str, value: V) {
        if let Some(entry) = self.entries.get_mut(key) {
            *entry = value;
            return;
        }
        if self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(key.to_owned());
        self.entries.insert(key.to_owned(), value);
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if self.entries.remove(key).is_some() {
            // Mostly the key is one of the newest.
            let at = self.order.iter().rposition(|known| known == key);
            at.and_then(|at| self.order.remove(at));
        }
    }
}

/// The most network addresses remembered for one platform. The oldest is replaced.
const MOST_SEEN: usize = 8;

/// The addresses at which an agent claims to be reached, and the origin of that claim.
struct Claim {
    addresses: Vec<Address>,
    origin: MessageOrigin,
}

/// The statements of agents from outside about themselves.
pub(crate) struct Book {
    /// The claims, by the name of the agent.
    addresses: Bounded<Claim>,
    /// The network addresses that messages came from, by the name of the platform, in lower case.
    seen: Bounded<Vec<IpAddr>>,
    /// The encodings, by the name of the platform, in lower case.
    encodings: Bounded<Encoding>,
    /// The meaning of addresses, by their texts.
    read: Bounded<Vec<Address>>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            addresses: Bounded::new(MOST),
            seen: Bounded::new(MOST),
            encodings: Bounded::new(MOST),
            read: Bounded::new(MOST_READ),
        }
    }
}

impl Book {
    /// Notes the sender of an admitted message. A message of another origin than the first may come from anybody. It
    /// does not change the agent's address, unless its rule `is_located`.
    pub(crate) fn note(
        &mut self,
        agent: &str,
        addresses: &[String],
        encoding: Encoding,
        origin: &MessageOrigin,
        is_located: bool,
    ) {
        let usable = self.usable(addresses);
        let known = self.addresses.get(agent);
        let is_new = known.is_none_or(|known| known.addresses != usable);
        let may_tell = is_located || known.is_none_or(|known| known.origin == *origin);
        if !usable.is_empty() && is_new && may_tell {
            let claim = Claim {
                addresses: usable,
                origin: origin.clone(),
            };
            self.addresses.insert(agent, claim);
        }
        let Some((_, platform)) = agent.rsplit_once('@') else {
            return;
        };
        let platform = platform.to_ascii_lowercase();
        let mut seen = self.seen.get(&platform).cloned().unwrap_or_default();
        if !seen.contains(&origin.address) {
            if seen.len() >= MOST_SEEN {
                seen.remove(0);
            }
            seen.push(origin.address);
            self.seen.insert(&platform, seen);
        }
        self.encodings.insert(&platform, encoding);
    }

    /// The addresses that can be reached, in order.
    pub(crate) fn usable(&mut self, addresses: &[String]) -> Vec<Address> {
        let mut usable = Vec::new();
        for text in addresses {
            if let Some(known) = self.read.get(text) {
                usable.extend_from_slice(known);
            } else if let Ok(ways) = Address::read(text) {
                usable.extend_from_slice(&ways);
                self.read.insert(text, ways);
            }
        }
        usable.truncate(MOST_ADDRESSES);
        usable
    }

    pub(crate) fn addresses(&self, agent: &str) -> Option<&Vec<Address>> {
        self.addresses.get(agent).map(|claim| &claim.addresses)
    }

    /// The network addresses that a platform has written from.
    pub(crate) fn seen(&self, platform: &str) -> &[IpAddr] {
        let seen = self.seen.get(&platform.to_ascii_lowercase());
        seen.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn encoding(&self, platform: &str) -> Option<Encoding> {
        self.encodings.get(&platform.to_ascii_lowercase()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_redirects_what_is_for_another_agent() {
        let origin = |address: &str| MessageOrigin {
            address: address.parse().unwrap(),
            certificate: None,
        };
        let (own, other) = (origin("192.0.2.1"), origin("192.0.2.2"));
        let says = |address: &str| [address.to_owned()];
        let mut book = Book::default();
        let mut note = |address: &str, origin: &MessageOrigin, is_located| {
            book.note(
                "seller@plat1",
                &says(address),
                Encoding::default(),
                origin,
                is_located,
            );
            book.addresses("seller@plat1").unwrap()[0].to_string()
        };
        assert_eq!(note("http://a:1/acc", &own, false), "http://a:1/acc");
        assert_eq!(note("http://evil:1/acc", &other, false), "http://a:1/acc");
        assert_eq!(note("http://b:1/acc", &own, false), "http://b:1/acc");
        // A rule names the place of the platform, and the message came from there.
        assert_eq!(note("http://c:1/acc", &other, true), "http://c:1/acc");
        assert_eq!(book.seen("PLAT1"), [own.address, other.address]);
        for last in 3..20 {
            let origin = origin(&format!("192.0.2.{last}"));
            book.note("x@plat1", &[], Encoding::default(), &origin, false);
        }
        assert_eq!(book.seen("plat1").len(), MOST_SEEN);
        assert_eq!(book.seen("plat2"), [] as [IpAddr; 0]);
    }

    #[test]
    fn the_oldest_entry_gives_way() {
        let mut map = Bounded::new(2);
        for key in ["a", "b", "a", "c"] {
            map.insert(key, key.to_owned());
        }
        assert!(map.get("a").is_none());
        assert!(map.get("b").is_some() && map.get("c").is_some());
        map.remove("b");
        map.insert("d", String::new());
        assert!(map.get("c").is_some() && map.order.len() == 2);
    }
}
