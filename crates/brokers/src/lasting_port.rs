//! The choice of a port that a platform keeps.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The first port that may be chosen.
const LASTING: u16 = 20_000;

/// The address at this port. For port 0 a free port is chosen that the platform can keep: it lies below those that the
/// system gives to outgoing connections, because such a connection could take the port while its owner is away. If
/// there is none, the system chooses.
pub fn lasting_address(address: IpAddr, port: u16) -> SocketAddr {
    if port != 0 {
        return SocketAddr::new(address, port);
    }
    let outgoing = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let outgoing = outgoing.unwrap_or_default();
    let first = outgoing.split_whitespace().next();
    let below = first.and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let drawn = |_| {
        let drawn = RandomState::new().build_hasher().finish();
        let port = LASTING + u16::try_from(drawn % u64::from(below - LASTING)).ok()?;
        Some(SocketAddr::new(address, port))
    };
    let is_free = |at: &SocketAddr| TcpListener::bind(at).is_ok();
    let tries = 0..if below > LASTING { 100 } else { 0 };
    let found = tries.filter_map(drawn).find(is_free);
    found.unwrap_or(SocketAddr::new(address, 0))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use super::lasting_address;

    #[test]
    fn a_free_port_is_chosen_that_no_outgoing_connection_takes() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let chosen = lasting_address(address, 0);
        assert_eq!(chosen.ip(), address);
        let taken = TcpListener::bind((address, 0)).unwrap();
        let outgoing = taken.local_addr().unwrap().port();
        assert!(chosen.port() < outgoing, "{chosen} is not below {outgoing}");
    }
}
