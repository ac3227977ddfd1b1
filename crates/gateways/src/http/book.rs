//! What is known of other platforms: their agents' addresses, and the encodings they use.

use std::collections::{HashMap, VecDeque};

use super::address::HttpAddress;
use super::transmission::Encoding;

/// Most entries; the oldest gives way.
const MOST: usize = 16_384;
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
            // Mostly it is one of the newest.
            let at = self.order.iter().rposition(|known| known == key);
            at.and_then(|at| self.order.remove(at));
        }
    }
}

/// What agents from outside said of themselves.
pub(crate) struct Book {
    /// By the name of the agent.
    addresses: Bounded<Vec<HttpAddress>>,
    /// By the name of the platform, in lower case.
    encodings: Bounded<Encoding>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            addresses: Bounded::new(MOST),
            encodings: Bounded::new(MOST),
        }
    }
}

impl Book {
    pub(crate) fn note(&mut self, agent: &str, addresses: &[String], encoding: Encoding) {
        let usable = usable(addresses);
        if !usable.is_empty() && self.addresses.get(agent) != Some(&usable) {
            self.addresses.insert(agent, usable);
        }
        if let Some((_, platform)) = agent.rsplit_once('@') {
            self.encodings
                .insert(&platform.to_ascii_lowercase(), encoding);
        }
    }

    pub(crate) fn addresses(&self, agent: &str) -> Option<&Vec<HttpAddress>> {
        self.addresses.get(agent)
    }

    pub(crate) fn encoding(&self, platform: &str) -> Option<Encoding> {
        self.encodings.get(&platform.to_ascii_lowercase()).copied()
    }
}

/// The addresses that can be reached, in order.
pub(crate) fn usable(addresses: &[String]) -> Vec<HttpAddress> {
    addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .take(MOST_ADDRESSES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
