//! How fast strangers may ask.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sealbus_control::network_of;

/// Requests that an address may make at once.
const BURST: u32 = 256;
/// Requests that an address may make in a second, in the long run.
const RATE: u32 = 128;
/// Addresses that are remembered.
const ADDRESSES: usize = 4096;

/// The time that each address has used up.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the address has no debt any more. Entries whose time has passed are forgotten.
    even: HashMap<IpAddr, Instant>,
}

impl Pace {
    /// How long the next request of this address must wait. None if too many addresses ask.
    pub(crate) fn next(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        let address = network_of(address);
        if self.even.len() >= ADDRESSES && !self.even.contains_key(&address) {
            self.even.retain(|_, even| *even > now);
            if self.even.len() >= ADDRESSES {
                return None;
            }
        }
        let even = self.even.entry(address).or_insert(now);
        *even = (*even).max(now) + Duration::from_secs(1) / RATE;
        let allowed = now + Duration::from_secs(1) / RATE * BURST;
        Some(even.saturating_duration_since(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_after_its_burst_and_no_other_does() {
        let mut pace = Pace::default();
        let now = Instant::now();
        let one = IpAddr::from([10, 0, 0, 1]);
        let waits: Vec<Duration> = (0..BURST + RATE)
            .map(|_| pace.next(one, now).unwrap())
            .collect();
        assert!(waits[..BURST as usize].iter().all(Duration::is_zero));
        let last = *waits.last().unwrap();
        assert!(last > Duration::from_millis(990), "{last:?}");
        let other = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(pace.next(other, now), Some(Duration::ZERO));
        let later = now + Duration::from_secs(10);
        assert_eq!(pace.next(one, later), Some(Duration::ZERO));
        // All addresses that one stranger chooses among are one.
        let chosen = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        let waits = (0..300).map(|host| pace.next(chosen(host), now).unwrap());
        assert!(!waits.max().unwrap().is_zero());
    }

    #[test]
    fn addresses_without_end_take_no_memory() {
        let mut pace = Pace::default();
        let now = Instant::now();
        let address = |number: usize| IpAddr::from(((number as u128) << 64).to_be_bytes());
        for number in 0..ADDRESSES {
            assert!(pace.next(address(number), now).is_some());
        }
        assert_eq!(pace.next(address(ADDRESSES), now), None);
        let later = now + Duration::from_secs(1);
        assert!(pace.next(address(ADDRESSES), later).is_some());
        assert_eq!(pace.even.len(), 1);
    }
}
