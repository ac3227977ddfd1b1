//! Counts open connections from outside and the bytes of their bodies, and keeps both within limits. Free of I/O.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bus::network_of;

use crate::config::GatewayLimits;

/// The answer to a connection for which there is no place.
pub(crate) const TOO_MANY: &str =
    "more connections are open than the limits connections and connections-per-address allow";

/// All connections.
#[derive(Debug)]
pub(crate) struct Places {
    limits: GatewayLimits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    bytes: usize,
    addresses: HashMap<IpAddr, Here>,
}

/// The share of one [network address](network_of).
#[derive(Debug, Default)]
struct Here {
    connections: usize,
    bytes: usize,
}

/// One open connection, counted.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    address: IpAddr,
    all: Arc<Places>,
}

/// The bytes of one body, counted from the reading until the request is answered.
#[derive(Debug)]
pub(crate) struct BodyRoom<'a> {
    place: &'a ConnectionPlace,
    bytes: usize,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom(pub(crate) &'static str);

impl Places {
    pub(crate) fn new(limits: &GatewayLimits) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            open: Mutex::default(),
        })
    }

    /// A place for one more connection; `None` if all are taken.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPlace> {
        let address = network_of(address);
        let mut open = self.open.lock();
        let here = open.addresses.get(&address).map_or(0, |it| it.connections);
        if open.connections >= self.limits.connections
            || here >= self.limits.connections_per_address
        {
            return None;
        }
        open.connections += 1;
        open.addresses.entry(address).or_default().connections += 1;
        Some(ConnectionPlace {
            address,
            all: self.clone(),
        })
    }
}

impl ConnectionPlace {
    /// Room for a body that is about to be read.
    pub(crate) fn body(&self) -> BodyRoom<'_> {
        BodyRoom {
            place: self,
            bytes: 0,
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        open.connections -= 1;
        if let Some(here) = open.addresses.get_mut(&self.address) {
            here.connections -= 1;
            if here.connections == 0 {
                open.addresses.remove(&self.address);
            }
        }
    }
}

impl BodyRoom<'_> {
    /// Takes room for more bytes of the body.
    ///
    /// # Errors
    /// [`NoRoom`] with the name of the exhausted limit.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let limits = &self.place.all.limits;
        let mut open = self.place.all.open.lock();
        if open.bytes.saturating_add(bytes) > limits.bodies {
            return Err(NoRoom("bodies"));
        }
        if let Some(here) = open.addresses.get_mut(&self.place.address) {
            if here.bytes.saturating_add(bytes) > limits.bodies_per_address {
                return Err(NoRoom("bodies-per-address"));
            }
            here.bytes += bytes;
        }
        open.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for BodyRoom<'_> {
    fn drop(&mut self) {
        let mut open = self.place.all.open.lock();
        open.bytes -= self.bytes;
        // The connection is still open, so its address is still there.
        if let Some(here) = open.addresses.get_mut(&self.place.address) {
            here.bytes -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_one_stranger_chooses_among_have_one_share() {
        let places = Places::new(&GatewayLimits {
            connections_per_address: 2,
            ..GatewayLimits::default()
        });
        let enter = |network: u16, host: u16| {
            let address = [0x2001, 0xdb8, 0, network, 0, 0, 0, host];
            places.enter(IpAddr::from(address))
        };
        let own = [enter(1, 1), enter(1, 2), enter(1, 3)];
        assert_eq!(own.each_ref().map(Option::is_some), [true, true, false]);
        assert!(enter(2, 1).is_some());
        drop(own);
        assert!(places.open.lock().addresses.is_empty());
    }

    #[test]
    fn connections_and_bodies_are_bounded_for_each_address_and_together() {
        let places = Places::new(&GatewayLimits {
            connections: 3,
            connections_per_address: 2,
            bodies: 100,
            bodies_per_address: 60,
            ..GatewayLimits::default()
        });
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let first = places.enter(address(1)).unwrap();
        let second = places.enter(address(1)).unwrap();
        assert!(places.enter(address(1)).is_none());
        let other = places.enter(address(2)).unwrap();
        assert!(places.enter(address(3)).is_none());

        let mut body = first.body();
        body.take(40).unwrap();
        let mut beside = second.body();
        assert_eq!(beside.take(21), Err(NoRoom("bodies-per-address")));
        beside.take(20).unwrap();
        let mut elsewhere = other.body();
        assert_eq!(elsewhere.take(41), Err(NoRoom("bodies")));
        elsewhere.take(40).unwrap();
        drop(body);
        elsewhere.take(20).unwrap();
        assert_eq!(elsewhere.take(1), Err(NoRoom("bodies-per-address")));
        drop((beside, elsewhere));
        drop((first, second, other));
        assert!(places.enter(address(3)).is_some());
        assert!(places.open.lock().addresses.is_empty() && places.open.lock().bytes == 0);
    }
}
