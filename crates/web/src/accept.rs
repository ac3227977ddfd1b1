//! Connections that others open: bounded, and ended with their server.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Pause after a connection that could not be accepted: the process may have no file handle left.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the log says so.
const LOGGED: Duration = Duration::from_secs(60);

/// A socket at which others open connections.
pub trait Listener {
    /// A connection.
    type Connection;
    /// Where a connection comes from.
    type Origin;

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The system's. Later connections may be accepted all the same.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Connection, Self::Origin)>> + Send;
}

impl Listener for TcpListener {
    type Connection = TcpStream;
    type Origin = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Connection = UnixStream;
    type Origin = tokio::net::unix::SocketAddr;

    async fn accept(&self) -> io::Result<(UnixStream, Self::Origin)> {
        self.accept().await
    }
}

/// Accepts connections for ever, each with its origin and the number of those that are open. `admit` returns what serves one,
/// or none to close it. They end with the returned future.
pub async fn accept_each<L: Listener, F>(
    listener: &L,
    admit: impl FnMut(L::Connection, L::Origin, usize) -> Option<F>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    accept_until(pending(), listener, usize::MAX, admit).await;
}

/// Like [`accept_each`], until `end`, and at most `most` connections at a time: further ones wait in the system's queue. Returns
/// those that are open in the end. They end with the returned set.
pub async fn accept_until<L: Listener, F>(
    end: impl Future<Output = ()>,
    listener: &L,
    most: usize,
    mut admit: impl FnMut(L::Connection, L::Origin, usize) -> Option<F>,
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::pin!(end);
    let mut connections = JoinSet::new();
    let mut logged: Option<Instant> = None;
    loop {
        let has_room = connections.len() < most;
        tokio::select! {
            biased;
            () = &mut end => return connections,
            // Those that have ended are not counted as open.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((connection, origin)) => {
                    if let Some(serving) = admit(connection, origin, connections.len()) {
                        connections.spawn(serving);
                    }
                    // A crowd of connections leaves other tasks their turns.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    if logged.is_none_or(|at| at.elapsed() >= LOGGED) {
                        tracing::warn!(%error, "a connection could not be accepted");
                        logged = Some(Instant::now());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::io::AsyncReadExt;
    use tokio::sync::{Notify, mpsc};

    use super::*;

    #[tokio::test]
    async fn other_tasks_have_their_turns_between_the_connections_of_a_crowd() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // The system holds them; none is accepted yet.
        let crowd = (0..100).map(|_| std::net::TcpStream::connect(address).unwrap());
        let crowd: Vec<_> = crowd.collect();
        let (turns, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (other, done) = (turns.clone(), seen.clone());
        tokio::spawn(async move {
            loop {
                other.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let (mut before, mut left) = (None, crowd.len());
        accept_until(seen.notified(), &listener, usize::MAX, |_, _, _| {
            let now = turns.load(Relaxed);
            assert!(before.replace(now) < Some(now));
            left -= 1;
            if left == 0 {
                done.notify_one();
            }
            None::<std::future::Ready<()>>
        })
        .await;
    }

    /// Counts the lines of this file in the log.
    struct Lines(Arc<AtomicUsize>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let is_ours = event.metadata().target() == "sealbus_web::accept";
            self.0.fetch_add(usize::from(is_ours), Relaxed);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Accepts nothing, and says when it has been asked five times.
    #[derive(Default)]
    struct Broken {
        asked: AtomicUsize,
        enough: Notify,
    }

    impl Listener for Broken {
        type Connection = ();
        type Origin = ();

        async fn accept(&self) -> io::Result<((), ())> {
            if self.asked.fetch_add(1, Relaxed) == 4 {
                self.enough.notify_one();
            }
            Err(io::Error::other("no file handle is left"))
        }
    }

    #[tokio::test]
    async fn connections_that_cannot_be_accepted_fill_no_log() {
        let lines = Arc::new(AtomicUsize::new(0));
        let _counting = tracing::subscriber::set_default(Lines(lines.clone()));
        let broken = Broken::default();
        accept_until(broken.enough.notified(), &broken, 1, |(), (), _| {
            None::<std::future::Ready<()>>
        })
        .await;
        assert!(broken.asked.load(Relaxed) >= 5);
        assert_eq!(lines.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn connections_wait_for_room_and_outlive_the_end_of_accepting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, mut serving) = mpsc::unbounded_channel();
        let end = Arc::new(Notify::new());
        let ending = end.clone();
        let accepting = tokio::spawn(async move {
            accept_until(ending.notified(), &listener, 2, |mut stream, from, open| {
                assert!(open < 2);
                served.send(from).unwrap();
                Some(async move {
                    let _ = stream.read(&mut [0]).await;
                })
            })
            .await
        });
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(TcpStream::connect(address).await.unwrap());
        }
        for connection in &connections[..2] {
            assert_eq!(serving.recv().await, connection.local_addr().ok());
        }
        // The third one is served when another one has ended.
        assert!(serving.try_recv().is_err());
        drop(connections.remove(0));
        assert_eq!(serving.recv().await, connections[1].local_addr().ok());
        end.notify_one();
        let mut open = accepting.await.unwrap();
        assert_eq!(open.len(), 2);
        drop(connections);
        while let Some(ended) = open.join_next().await {
            ended.unwrap();
        }
    }
}
