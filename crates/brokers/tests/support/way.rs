//! A way to a broker over TCP that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::LOOPBACK;
use super::processes::Way;

/// A way to the broker that can be cut.
pub struct TcpWay {
    pub address: SocketAddr,
    cut: Arc<Notify>,
    is_closed: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    carried_at_cut: AtomicU64,
    cuts: AtomicUsize,
}

/// The number of bytes that pass before connections are cut again, in turn. A login at the broker takes many round
/// trips. Nothing would ever arrive if each connection, or each long message, were cut short.
const BETWEEN_CUTS: [u64; 3] = [100_000, 400_000, 3_000_000];
/// How often connections are cut. A message that finds no way to the broker for a minute is given up, as it should be.
/// After each cut the broker begins with all unacknowledged messages.
const CUTS: usize = 12;

impl TcpWay {
    pub async fn to(target: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let way = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            cut: Arc::default(),
            is_closed: Arc::default(),
            carried: Arc::default(),
            carried_at_cut: AtomicU64::new(0),
            cuts: AtomicUsize::new(0),
        });
        let (cut, is_closed, carried) =
            (way.cut.clone(), way.is_closed.clone(), way.carried.clone());
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                if is_closed.load(Ordering::Relaxed) {
                    continue;
                }
                let (cut, carried) = (cut.clone(), carried.clone());
                tokio::spawn(async move {
                    let Ok(there) = TcpStream::connect(target).await else {
                        return;
                    };
                    let _ = (here.set_nodelay(true), there.set_nodelay(true));
                    let (read_here, write_here) = here.into_split();
                    let (read_there, write_there) = there.into_split();
                    tokio::select! {
                        () = pass_on(read_here, write_there, &carried) => {}
                        () = pass_on(read_there, write_here, &carried) => {}
                        () = cut.notified() => {}
                    }
                });
            }
        });
        way
    }
}

impl Way for TcpWay {
    /// Breaks all open connections, wherever their bytes are, once enough has passed.
    fn cut(&self) {
        let carried = self.carried.load(Ordering::Relaxed);
        let cuts = self.cuts.load(Ordering::Relaxed);
        if cuts >= CUTS {
            return;
        }
        let between = BETWEEN_CUTS[cuts % BETWEEN_CUTS.len()];
        if carried - self.carried_at_cut.load(Ordering::Relaxed) >= between {
            self.cuts.fetch_add(1, Ordering::Relaxed);
            self.carried_at_cut.store(carried, Ordering::Relaxed);
            self.cut.notify_waiters();
        }
    }

    /// Breaks them, and ends new ones at once.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.cut.notify_waiters();
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, carried: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer).await {
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        carried.fetch_add(length as u64, Ordering::Relaxed);
    }
}
