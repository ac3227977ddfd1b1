//! Connections of strangers, kept while the identities at their other ends are unknown.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Connections that have not been let in yet. When there are too many, the oldest one of the address with the most
/// goes, so that one address cannot keep the others out.
#[derive(Debug)]
pub(super) struct Strangers {
    most: usize,
    next: u64,
    /// The connections in the order in which they came.
    waiting: BTreeMap<u64, IpAddr>,
    by_address: HashMap<IpAddr, usize>,
}

impl Strangers {
    /// Keeps at most this many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            next: 0,
            waiting: BTreeMap::new(),
            by_address: HashMap::new(),
        }
    }

    /// Takes in another connection. Returns its number, and the number of the connection that must go for it.
    pub(super) fn came(&mut self, address: IpAddr) -> (u64, Option<u64>) {
        let gone = (self.waiting.len() >= self.most)
            .then(|| self.least_deserving())
            .flatten();
        if let Some(gone) = gone {
            self.left(gone);
        }
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, address);
        *self.by_address.entry(address).or_default() += 1;
        (number, gone)
    }

    /// Removes a connection that was let in or ended. Returns whether it was waiting.
    pub(super) fn left(&mut self, number: u64) -> bool {
        let Some(address) = self.waiting.remove(&number) else {
            return false;
        };
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        true
    }

    /// Whether the connection is still waiting.
    pub(super) fn is_waiting(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    fn least_deserving(&self) -> Option<u64> {
        let most = self.by_address.values().max()?;
        let mut oldest_first = self.waiting.iter();
        let of_most = |(_, address): &(&u64, &IpAddr)| self.by_address.get(*address) == Some(most);
        oldest_first.find(of_most).map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn an_address_with_many_makes_room_for_another() {
        let mut strangers = Strangers::new(4);
        for number in 0..4 {
            assert_eq!(strangers.came(ONE), (number, None));
        }
        assert_eq!(strangers.came(TWO), (4, Some(0)));
        // The flood displaces only its own connections.
        assert_eq!(strangers.came(ONE), (5, Some(1)));
        assert_eq!(strangers.came(ONE), (6, Some(2)));
        assert!(strangers.left(4));
        assert!(!strangers.left(4));
        assert_eq!(strangers.came(ONE), (7, None));
    }

    #[test]
    fn from_one_address_the_oldest_goes() {
        let mut strangers = Strangers::new(2);
        strangers.came(ONE);
        strangers.came(ONE);
        assert!(strangers.left(0));
        assert_eq!(strangers.came(ONE), (2, None));
        assert_eq!(strangers.came(ONE), (3, Some(1)));
        assert!(strangers.left(2) && strangers.left(3));
        assert!(strangers.waiting.is_empty() && strangers.by_address.is_empty());
    }
}
