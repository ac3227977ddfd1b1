//! The alarm of a node that does not hear the Master that leads. It goes to all Masters, so that those that stand by know of
//! it. It is signed and no secret, so it needs no TLS, and a Master without a certificate for its door can take it.

use std::time::Duration;

use sealbus_control::statement::Signed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The beginning of an alarm. No TLS begins with this first byte (RFC 8446, section 5.1).
const PREFACE: &[u8; 16] = b"sealbus alarm 1\n";
/// The longest signed statement.
const LONGEST: usize = 32 * 1024;
/// How long one Master may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells the Masters at these addresses. Those that cannot be reached hear nothing.
pub async fn raise_alarm(addresses: &[String], alarm: &Signed) {
    let text = serde_json::to_vec(alarm).unwrap_or_default();
    let Ok(length) = u32::try_from(text.len()) else {
        return;
    };
    let bytes = [PREFACE.as_slice(), &length.to_be_bytes(), &text].concat();
    let mut telling = JoinSet::new();
    for address in addresses {
        let (address, bytes) = (address.clone(), bytes.clone());
        telling.spawn(tokio::time::timeout(PATIENCE, async move {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }));
    }
    while telling.join_next().await.is_some() {}
}

/// Whether a connection brings an alarm. Waits for its first byte.
pub async fn is_alarm(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0] == PREFACE[0]
}

/// The alarm that a connection brings, unless it is malformed.
pub async fn read_alarm(stream: &mut TcpStream) -> Option<Signed> {
    let reading = async {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await.ok()?;
        let length = usize::try_from(stream.read_u32().await.ok()?).ok()?;
        if preface != *PREFACE || length > LONGEST {
            return None;
        }
        let mut text = vec![0; length];
        stream.read_exact(&mut text).await.ok()?;
        serde_json::from_slice(&text).ok()
    };
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn read(bytes: &[u8]) -> (bool, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(at).await.unwrap();
        near.write_all(bytes).await.unwrap();
        near.shutdown().await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        (is_alarm(&far).await, read_alarm(&mut far).await.is_some())
    }

    #[tokio::test]
    async fn what_is_no_alarm_is_not_taken_for_one() {
        // The beginning of a handshake of TLS, nothing, a length without a text, and one beyond the limit.
        assert_eq!(read(&[22, 3, 1, 0, 5]).await, (false, false));
        assert_eq!(read(b"").await, (false, false));
        let short = [PREFACE.as_slice(), &9_u32.to_be_bytes(), b"{}"].concat();
        assert_eq!(read(&short).await, (true, false));
        let long = [PREFACE.as_slice(), &u32::MAX.to_be_bytes()].concat();
        assert_eq!(read(&long).await, (true, false));
    }
}
