//! The door of a Master that stands by. It hands connections on to the Master that leads, so that each address of a Master is
//! as good as the others. It cannot read them, because the stranger and the leader encrypt. It answers the words of nodes
//! itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::network_of;
use sealbus_enrolment::{is_word, read_word, reply};
use sealbus_mesh::Strangers;
use sealbus_web::accept_each;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::blind::BlindCa;

/// Most connections at a time. When there are more, the oldest one of the address with the most ends.
const MOST: usize = 256;
/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(40);

/// Hands connections on to `leader`. Without a leader they end at once. They also end when the leader changes, because
/// the former one may never answer.
pub(super) async fn forward(
    listener: &TcpListener,
    leader: watch::Receiver<Option<SocketAddr>>,
    ca: Option<Arc<BlindCa>>,
) {
    let strangers = Strangers::new(MOST);
    accept_each(listener, |near, from, _| {
        let (leaders, ca) = (leader.clone(), ca.clone());
        let stranger = strangers.came(network_of(from.ip()));
        Some(async move {
            // A connection that breaks is tried again from its beginning.
            tokio::select! {
                () = serve(near, leaders, ca.as_deref()) => {}
                () = stranger.must_go() => {}
                () = tokio::time::sleep(LONGEST) => {}
            }
        })
    })
    .await;
}

async fn serve(
    mut near: TcpStream,
    mut leaders: watch::Receiver<Option<SocketAddr>>,
    ca: Option<&BlindCa>,
) {
    if is_word(&near).await {
        // A Master of a platform that begins has no CA yet.
        if let (Some(ca), Some(word)) = (ca, read_word(&mut near).await) {
            let _ = reply(&mut near, &ca.reply(word).await).await;
        }
        return;
    }
    let Some(leader) = *leaders.borrow_and_update() else {
        return;
    };
    let handing = async {
        let mut far = TcpStream::connect(leader).await?;
        copy_bidirectional(&mut near, &mut far).await
    };
    tokio::select! {
        _ = handing => {}
        _ = leaders.wait_for(|now| *now != Some(leader)) => {}
    }
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
        tokio::spawn(async move { forward(&door, known, None).await });
        let mut refused = TcpStream::connect(at).await.unwrap();
        refused.write_all(b"hello").await.unwrap();
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
        // Another Master leads, and the former one never answers.
        tell.send_replace(None);
        assert_eq!(stranger.read(&mut [0; 8]).await.unwrap_or(0), 0);
    }

    #[tokio::test]
    async fn silent_connections_make_room() {
        let (door, at) = listener().await;
        let (leader, leads_at) = listener().await;
        let (_tell, known) = watch::channel(Some(leads_at));
        tokio::spawn(async move { forward(&door, known, None).await });
        let mut silent = Vec::new();
        for _ in 0..2 * MOST {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        assert_eq!(silent[0].read(&mut [0; 8]).await.unwrap_or(0), 0);
        let mut newcomer = TcpStream::connect(at).await.unwrap();
        newcomer.write_all(b"hello").await.unwrap();
        let (mut served, _) = leader.accept().await.unwrap();
        let mut heard = [0; 5];
        served.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}
