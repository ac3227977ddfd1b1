//! A TCP proxy that breaks connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Passes bytes on until it is told to break all connections.
pub struct Proxy {
    pub address: SocketAddr,
    cut: Arc<Notify>,
    closed: Arc<AtomicBool>,
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Notify::new());
        let closed = Arc::new(AtomicBool::new(false));
        let proxy = Self {
            address,
            cut: cut.clone(),
            closed: closed.clone(),
        };
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                if closed.load(Ordering::Relaxed) {
                    continue;
                }
                let cut = cut.clone();
                tokio::spawn(async move {
                    let Ok(mut there) = TcpStream::connect(target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        () = cut.notified() => {}
                    }
                });
            }
        });
        proxy
    }

    /// Breaks all open connections, wherever their bytes are.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Breaks all connections, and ends new ones at once.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
    }
}
