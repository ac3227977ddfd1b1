//! Connections that others open: bounded, and ended with their server.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Pause after a connection that could not be accepted: the process may have no file handle left.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections for ever, each with its origin and the number of those that are open. `admit` returns what serves one,
/// or none to close it. They end with the returned future.
pub async fn accept_each<F>(
    listener: &TcpListener,
    mut admit: impl FnMut(TcpStream, SocketAddr, usize) -> Option<F>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                if let Some(serving) = admit(stream, from, connections.len()) {
                    connections.spawn(serving);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
