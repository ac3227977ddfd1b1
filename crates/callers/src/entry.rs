//! Places for connections. A connection on which no caller has asked yet makes room for others; one of a caller stays.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_control::network_of;
use sealbus_mesh::{Stranger, Strangers};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Open connections of all callers.
const CONNECTIONS: usize = 1_024;
/// Open connections of one caller.
const OF_CALLER: usize = 256;
/// Answers for everybody on one connection that are not written yet.
const PUBLIC: usize = 4;
/// Open connections on which no caller has asked yet. When there are more, the oldest one of the address with the most ends.
const STRANGERS: usize = 512;

/// The places of a door.
pub(crate) struct Entries {
    strangers: Strangers<IpAddr>,
    known: Arc<Semaphore>,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            strangers: Strangers::new(STRANGERS),
            known: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }
}

impl Entries {
    /// Takes in a connection from this address.
    pub(crate) fn came(&self, from: IpAddr) -> Arc<Entry> {
        Arc::new(Entry {
            from: from.to_canonical(),
            stranger: self.strangers.came(network_of(from)),
            known: self.known.clone(),
            held: Mutex::default(),
            public: Arc::new(Semaphore::new(PUBLIC)),
        })
    }

    /// The places of one caller.
    pub(crate) fn of_caller() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(OF_CALLER))
    }
}

/// The place of one connection.
pub(crate) struct Entry {
    /// Where the connection comes from.
    pub(crate) from: IpAddr,
    stranger: Stranger<IpAddr>,
    known: Arc<Semaphore>,
    /// A place among all callers' connections, and one among those of the caller that asked first.
    held: Mutex<Option<[OwnedSemaphorePermit; 2]>>,
    public: Arc<Semaphore>,
}

impl Entry {
    /// Waits until the connection must end, to make room for another.
    pub(crate) async fn must_go(&self) {
        self.stranger.must_go().await;
    }

    /// Whether there is a place for another answer for everybody.
    pub(crate) fn has_public_place(&self) -> bool {
        self.public.available_permits() > 0
    }

    /// A place for an answer for everybody, if there is one.
    pub(crate) fn public_place(&self) -> Option<OwnedSemaphorePermit> {
        self.public.clone().try_acquire_owned().ok()
    }

    /// Keeps the connection for a caller with these places. Returns whether there is one for it.
    pub(crate) fn let_in(&self, places: &Arc<Semaphore>) -> bool {
        // Requests of HTTP/2 may come at once: the first one's places are those of all.
        let mut held = self.held.lock();
        if held.is_some() {
            return true;
        }
        let own = places.clone().try_acquire_owned();
        let shared = self.known.clone().try_acquire_owned();
        let (Ok(own), Ok(shared)) = (own, shared) else {
            return false;
        };
        *held = Some([own, shared]);
        self.stranger.let_in();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hyper::StatusCode;

    use super::*;
    use crate::connection::{holding, text_answer};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_callers_connections_stay_and_have_an_end() {
        let (door, caller) = (Entries::default(), Entries::of_caller());
        let own: Vec<_> = (0..OF_CALLER).map(|_| door.came(HERE)).collect();
        assert!(own.iter().all(|it| it.let_in(&caller)));
        let further = door.came(HERE);
        assert!(!further.let_in(&caller) && further.let_in(&Entries::of_caller()));
        let crowd: Vec<_> = (0..2 * STRANGERS).map(|_| door.came(HERE)).collect();
        let waiting = crowd.iter().filter(|it| it.stranger.is_waiting());
        assert_eq!(waiting.count(), STRANGERS);
        // A second request needs no further place.
        assert!(own.iter().all(|it| it.let_in(&caller)));
        drop(own);
        assert_eq!(caller.available_permits(), OF_CALLER);
    }

    #[test]
    fn answers_for_everybody_hold_places_of_their_connection_until_they_are_written() {
        let entry = Entries::default().came(HERE);
        let place = || entry.public_place();
        let answer =
            |place: OwnedSemaphorePermit| holding(text_answer(StatusCode::OK, "a card"), place);
        let mut unread: Vec<_> = (0..PUBLIC).map(|_| answer(place().unwrap())).collect();
        assert!(!entry.has_public_place() && place().is_none());
        unread.pop();
        assert!(entry.has_public_place() && place().is_some());
    }

    #[test]
    fn a_stranger_with_many_addresses_of_one_network_keeps_nobody_out() {
        let door = Entries::default();
        let address =
            |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        let other = door.came(address(1, 1));
        let hosts = 0..STRANGERS as u16;
        let crowd: Vec<_> = hosts.map(|host| door.came(address(2, host))).collect();
        assert!(other.stranger.is_waiting() && !crowd[0].stranger.is_waiting());
        assert_eq!(crowd[1].from, address(2, 1));
    }

    #[test]
    fn callers_together_have_an_end() {
        let (door, mut kept) = (Entries::default(), Vec::new());
        for _ in 0..CONNECTIONS / OF_CALLER {
            let caller = Entries::of_caller();
            kept.extend((0..OF_CALLER).map(|_| (door.came(HERE), caller.clone())));
        }
        assert!(kept.iter().all(|(entry, caller)| entry.let_in(caller)));
        let other = Entries::of_caller();
        assert!(!door.came(HERE).let_in(&other));
        kept.pop();
        assert!(door.came(HERE).let_in(&other));
    }
}
