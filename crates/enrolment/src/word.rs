//! Words of nodes to Masters, leading or not: alarms, and requests for renewal. They are signed and no secret, so they need no
//! TLS, and a Master without a certificate for its door can take them.

use std::io;
use std::time::Duration;

use sealbus_control::word::{Reply, Word};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The beginning of a word. No TLS begins with this first byte (RFC 8446, section 5.1).
const PREFACE: &[u8; 16] = b"sealbus word 01\n";
/// The longest word.
const LONGEST: usize = 32 * 1024;
/// The longest reply. It may have a whole deny list.
const LONGEST_REPLY: usize = 24 * 1024 * 1024;
/// How long the other end may take to send a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Says a word to the Master at this address, which may take so long to reply.
///
/// # Errors
/// If it cannot be reached, or does not reply. A Master that leads does not.
pub async fn say(address: &str, word: &Word, patience: Duration) -> io::Result<Reply> {
    let saying = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(PREFACE).await?;
        write(&mut stream, word).await?;
        read(&mut stream, LONGEST_REPLY).await
    };
    let said = tokio::time::timeout(patience, saying).await;
    said.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether a connection brings a word. Waits for its first byte.
pub async fn is_word(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0] == PREFACE[0]
}

/// The word that a connection brings, unless it is malformed.
pub async fn read_word(stream: &mut TcpStream) -> Option<Word> {
    let reading = async {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await.ok()?;
        match preface == *PREFACE {
            true => read(stream, LONGEST).await.ok(),
            false => None,
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
}

/// Replies to a word.
///
/// # Errors
/// If the other end is gone.
pub async fn reply(stream: &mut TcpStream, reply: &Reply) -> io::Result<()> {
    write(stream, reply).await
}

async fn write(stream: &mut TcpStream, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let bytes = [length.to_be_bytes().as_slice(), &text].concat();
    stream.write_all(&bytes).await
}

async fn read<T: DeserializeOwned>(stream: &mut TcpStream, longest: usize) -> io::Result<T> {
    let length = usize::try_from(stream.read_u32().await?).map_err(io::Error::other)?;
    if length > longest {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Memory grows with what has come, and not with what was announced.
    let mut text = Vec::new();
    let mut limited = stream.take(length as u64);
    limited.read_to_end(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use sealbus_control::{Fault, FaultCode};
    use tokio::net::TcpListener;

    use super::*;

    async fn door() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        (listener, at)
    }

    async fn taken(bytes: &[u8]) -> (bool, bool) {
        let (listener, at) = door().await;
        let mut near = TcpStream::connect(at).await.unwrap();
        near.write_all(bytes).await.unwrap();
        near.shutdown().await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        (is_word(&far).await, read_word(&mut far).await.is_some())
    }

    #[tokio::test]
    async fn what_is_no_word_is_not_taken_for_one() {
        // The beginning of a handshake of TLS, nothing, a length without a text, and one beyond the limit.
        assert_eq!(taken(&[22, 3, 1, 0, 5]).await, (false, false));
        assert_eq!(taken(b"").await, (false, false));
        let short = [PREFACE.as_slice(), &9_u32.to_be_bytes(), b"{}"].concat();
        assert_eq!(taken(&short).await, (true, false));
        let long = [PREFACE.as_slice(), &u32::MAX.to_be_bytes()].concat();
        assert_eq!(taken(&long).await, (true, false));
    }

    #[tokio::test]
    async fn a_word_is_heard_and_replied_to() {
        let signed = serde_json::json!({ "statement": "", "chain": "", "signature": "" });
        let word = Word::Renew {
            voucher: serde_json::from_value(signed).unwrap(),
        };
        let refused = Reply::Refused(Fault::new(FaultCode::Unavailable, "another one leads"));
        let (listener, at) = door().await;
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let heard = read_word(&mut stream).await;
            reply(&mut stream, &refused).await.unwrap();
            heard
        };
        let (heard, replied) = tokio::join!(serving, say(&at, &word, Duration::from_secs(60)));
        assert_eq!((heard, replied.unwrap()), (Some(word), refused));
    }
}
