//! The end of a connection from outside, for every transport of a gateway.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long the last bytes, and the client's answer to the end, may take.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// The number of bytes that are still read.
const LINGER_BYTES: usize = 256 << 10;

/// Writes the last bytes and reads on for a moment. Closing a connection with unread bytes would destroy the last ones on
/// their way, and the client would not learn the reason.
pub(crate) async fn farewell(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) {
    let ending = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut rest).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // The client may not read it, which does no harm.
    let _ = tokio::time::timeout(FAREWELL_TIME, ending).await;
}
