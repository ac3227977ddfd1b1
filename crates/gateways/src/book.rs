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

/// The most network addresses known of one platform from its messages, and the most from the DF's notes. The oldest is
/// replaced.
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
    /// The network addresses in the DF's notes of its subscribers, by the name of the platform, in lower case. They are
    /// apart from `seen`, because notes may be old, and must not push out the present addresses of a platform.
    remembered: Bounded<Vec<IpAddr>>,
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
            remembered: Bounded::new(MOST),
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
        add(&mut self.seen, platform, origin.address);
        self.encodings
            .insert(&platform.to_ascii_lowercase(), encoding);
    }

    /// Notes that a platform wrote from this network address some time ago.
    pub(crate) fn remember(&mut self, platform: &str, address: IpAddr) {
        add(&mut self.remembered, platform, address);
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
    pub(crate) fn seen(&self, platform: &str) -> Vec<IpAddr> {
        let platform = platform.to_ascii_lowercase();
        let all = [&self.seen, &self.remembered].map(|known| known.get(&platform));
        all.into_iter().flatten().flatten().copied().collect()
    }

    pub(crate) fn encoding(&self, platform: &str) -> Option<Encoding> {
        self.encodings.get(&platform.to_ascii_lowercase()).copied()
    }
}

/// Adds a network address to those of a platform.
fn add(known: &mut Bounded<Vec<IpAddr>>, platform: &str, address: IpAddr) {
    let platform = platform.to_ascii_lowercase();
    let mut addresses = known.get(&platform).cloned().unwrap_or_default();
    if !addresses.contains(&address) {
        if addresses.len() >= MOST_SEEN {
            addresses.remove(0);
        }
        addresses.push(address);
        known.insert(&platform, addresses);
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
    fn old_notes_push_out_no_address_that_a_platform_writes_from() {
        let mut book = Book::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let origin = MessageOrigin {
            address: address(1),
            certificate: None,
        };
        book.note("x@plat1", &[], Encoding::default(), &origin, false);
        for last in 2..20 {
            book.remember("PLAT1", address(last));
        }
        let seen = book.seen("plat1");
        assert!(seen.contains(&address(1)));
        // The note of a subscription may be the present one, however many came before it.
        assert!(seen.contains(&address(19)));
        assert_eq!(seen.len(), 1 + MOST_SEEN);
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
