//! Connections at a port while the identities at their other ends are unknown.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

/// The number of connections that the system holds until they are accepted. When its queue is full, it drops the first packet
/// of further ones, which then wait for a second or longer. Linux holds at most `net.core.somaxconn`, mostly 4096.
const QUEUE: u32 = 4096;

/// Listens on an address, with room for a burst of strangers beside others.
///
/// # Errors
/// The system's error.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // On other systems it would let others take over the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// The connections that have not been let in yet, by their origin: an address, or a process of this machine. If there
/// are too many, the oldest one of the origin with the most goes, so that one origin cannot keep out the others. Clones
/// count together.
#[derive(Clone, Debug)]
pub struct Strangers<Origin> {
    crowd: Arc<Mutex<Crowd<Origin>>>,
}

#[derive(Debug)]
struct Crowd<Origin> {
    most: usize,
    next: u64,
    /// The strangers in the order of their arrival.
    waiting: BTreeMap<u64, (Origin, Arc<Notify>)>,
    by_origin: HashMap<Origin, usize>,
}

/// A stranger's place, held until it is let in or its connection ends.
#[derive(Debug)]
pub struct Stranger<Origin: Copy + Eq + Hash> {
    strangers: Strangers<Origin>,
    number: u64,
    must_go: Arc<Notify>,
}

impl<Origin: Copy + Eq + Hash> Strangers<Origin> {
    /// Keeps at most this many.
    pub fn new(most: usize) -> Self {
        let crowd = Crowd {
            most: most.max(1),
            next: 0,
            waiting: BTreeMap::new(),
            by_origin: HashMap::new(),
        };
        Self {
            crowd: Arc::new(Mutex::new(crowd)),
        }
    }

    /// Takes in another connection, and makes room for it if there are too many.
    pub fn came(&self, origin: Origin) -> Stranger<Origin> {
        let must_go = Arc::new(Notify::new());
        Stranger {
            strangers: self.clone(),
            number: self.crowd.lock().came(origin, must_go.clone()),
            must_go,
        }
    }
}

impl<Origin: Copy + Eq + Hash> Crowd<Origin> {
    fn came(&mut self, origin: Origin, must_go: Arc<Notify>) -> u64 {
        if self.waiting.len() >= self.most
            && let Some(gone) = self.least_deserving()
            && let Some(must_go) = self.left(gone)
        {
            must_go.notify_one();
        }
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (origin, must_go));
        *self.by_origin.entry(origin).or_default() += 1;
        number
    }

    fn left(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (origin, must_go) = self.waiting.remove(&number)?;
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
        Some(must_go)
    }

    fn least_deserving(&self) -> Option<u64> {
        let most = self.by_origin.values().max()?;
        let mut oldest_first = self.waiting.iter();
        oldest_first
            .find(|(_, (origin, _))| self.by_origin.get(origin) == Some(most))
            .map(|(number, _)| *number)
    }
}

impl<Origin: Copy + Eq + Hash> Stranger<Origin> {
    /// Lets in the stranger, which has proved its right. Its connection is no longer ended to make room.
    pub fn let_in(&self) {
        self.strangers.crowd.lock().left(self.number);
    }

    /// Whether the connection is still waiting.
    pub fn is_waiting(&self) -> bool {
        self.strangers
            .crowd
            .lock()
            .waiting
            .contains_key(&self.number)
    }

    /// Waits until the connection must end, to make room for another.
    pub async fn must_go(&self) {
        self.must_go.notified().await;
    }
}

impl<Origin: Copy + Eq + Hash> Drop for Stranger<Origin> {
    fn drop(&mut self) {
        self.let_in();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the waiting strangers.
    fn waiting(strangers: &Strangers<u8>) -> Vec<u64> {
        strangers.crowd.lock().waiting.keys().copied().collect()
    }

    #[test]
    fn an_origin_with_many_makes_room_for_another() {
        let strangers = Strangers::new(4);
        let crowd: Vec<_> = (0..4).map(|_| strangers.came(1)).collect();
        let other = strangers.came(2);
        assert_eq!(waiting(&strangers), [1, 2, 3, 4]);
        // The flood displaces only its own connections.
        let more: Vec<_> = (0..3).map(|_| strangers.came(1)).collect();
        assert_eq!(waiting(&strangers), [4, 5, 6, 7]);
        assert!(other.is_waiting() && !crowd[3].is_waiting());
        drop((crowd, more, other));
        assert!(strangers.crowd.lock().by_origin.is_empty());
    }

    #[tokio::test]
    async fn connections_that_are_not_accepted_yet_leave_room_for_others() {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect =
            |_| std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(60));
        // The system may be set to hold fewer connections.
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let most = most.map_or(300, |most| most.trim().parse().unwrap());
        let crowd: Result<Vec<_>, _> = (0..most.min(300)).map(connect).collect();
        assert!(!crowd.unwrap().is_empty());
    }

    #[tokio::test]
    async fn from_one_origin_the_oldest_goes_unless_it_was_let_in() {
        let strangers = Strangers::new(2);
        let first = strangers.came(1);
        first.let_in();
        let second = strangers.came(1);
        let _third = strangers.came(1);
        let _fourth = strangers.came(1);
        second.must_go().await;
        assert_eq!(waiting(&strangers), [2, 3]);
    }
}
