//! The door of a Master that stands by: it hands connections on to the one that leads, so that each address of a Master is as
//! good as the others. It cannot read them: the stranger and the leader encrypt.

use std::net::SocketAddr;
use std::time::Duration;

use sealbus_web::accept_each;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Most connections that are handed on at a time. Further ones end at once.
const MOST: usize = 256;
/// How long one may be.
const LONGEST: Duration = Duration::from_secs(40);

/// Hands connections on to `leader`. While there is none, they end at once.
pub(super) async fn forward(listener: &TcpListener, leader: watch::Receiver<Option<SocketAddr>>) {
    accept_each(listener, |mut near, _, open| {
        let leader = leader.borrow().filter(|_| open < MOST)?;
        Some(async move {
            let handing = async {
                let mut far = TcpStream::connect(leader).await?;
                copy_bidirectional(&mut near, &mut far).await
            };
            // A connection that breaks is tried again from its beginning.
            let _ = tokio::time::timeout(LONGEST, handing).await;
        })
    })
    .await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_connection_reaches_the_leader_of_the_moment_and_ends_without_one() {
        let (door, at) = listener().await;
        let (leader, leads_at) = listener().await;
        let (tell, known) = watch::channel(None);
        tokio::spawn(async move { forward(&door, known).await });
        let mut refused = TcpStream::connect(at).await.unwrap();
        assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0);
        tell.send_replace(Some(leads_at));
        let mut stranger = TcpStream::connect(at).await.unwrap();
        stranger.write_all(b"hello").await.unwrap();
        let (mut served, _) = leader.accept().await.unwrap();
        let mut heard = [0; 5];
        served.read_exact(&mut heard).await.unwrap();
        served.write_all(b"there").await.unwrap();
        let mut answer = [0; 5];
        stranger.read_exact(&mut answer).await.unwrap();
        assert_eq!((&heard, &answer), (b"hello", b"there"));
    }
}
