//! Addresses of this machine, its network and its infrastructure. Free of I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The kind of an address outside the open internet, in words. None for an address of it.
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let octets = address.octets();
    Some(match octets {
        [127, ..] => "an address of this machine",
        [0, ..] => "an address of no machine",
        // Clouds tell machines their secrets there.
        [169, 254, ..] | [168, 63, 129, 16] | [192, 0, 0, _] => "a link-local or metadata address",
        [10, ..] | [192, 168, ..] => "a private address",
        [172, second, ..] if second & 0xf0 == 16 => "a private address",
        [100, second, ..] if second & 0xc0 == 64 => "a private address",
        [198, 18 | 19, ..] => "a private address",
        [first, ..] if first >= 224 => "an address of no single machine",
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        special_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("an address of this machine"),
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an address of no machine"),
        // Old forms of IPv4 addresses, their translation (RFC 6052) and tunnels (RFC 3056).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => Some("a private address"),
        [0x2002, high, low, ..] => embedded(high, low),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local or metadata address"),
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => {
            Some("a private address")
        }
        [first, ..] if first & 0xff00 == 0xff00 => Some("an address of no single machine"),
        _ => None,
    }
}

/// The rule for servers whose names strangers chose: the open internet alone.
///
/// # Errors
/// The kind of the address, as a reason.
pub fn open_internet(address: IpAddr) -> Result<(), String> {
    match special(address) {
        Some(kind) => Err(format!("{address} is {kind}")),
        None => Ok(()),
    }
}

/// A network: `10.0.0.7`, or `10.0.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Bits that all its addresses share.
    length: u8,
}

/// A text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a network address: write 10.0.0.7, or 10.0.0.0/24", .0.escape_debug())]
pub struct NoNetwork(String);

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let read = || {
            let address: IpAddr = address.parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let length = match length {
                Some(length) => length.parse().ok().filter(|length| *length <= longest)?,
                None => longest,
            };
            Some(Self { address, length })
        };
        read().ok_or_else(|| NoNetwork(text.to_owned()))
    }
}

impl Network {
    /// Whether it holds this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let differ = bits(self.address) ^ bits(address);
        self.address.is_ipv4() == address.is_ipv4()
            && (self.length == 0 || differ >> (128 - u32::from(self.length)) == 0)
    }
}

/// The addresses that a gateway connects to although strangers named them: those of the open internet, and those of networks
/// that an operator named.
#[derive(Clone, Debug)]
pub struct Reach(Vec<Network>);

impl Reach {
    /// With these networks of the operator.
    ///
    /// # Errors
    /// [`NoNetwork`]: one of them is none.
    pub fn new(networks: &[String]) -> Result<Self, NoNetwork> {
        let read = networks.iter().map(|network| network.parse());
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Checks an address, after names are resolved.
    ///
    /// # Errors
    /// The kind of the address, in words.
    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        if self.0.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        open_internet(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_its_network_are_not_of_the_open_internet() {
        for address in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fd00:ec2::254",
            "10.0.0.1",
            "64:ff9b::10.0.0.1",
            "0.0.0.0",
        ] {
            assert!(
                open_internet(address.parse().unwrap()).is_err(),
                "{address}"
            );
        }
        for address in ["8.8.8.8", "2001:4860::8888"] {
            assert_eq!(open_internet(address.parse().unwrap()), Ok(()));
        }
    }
}
