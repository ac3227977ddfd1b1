//! A connection whose incoming bytes are acknowledged at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// JADE leaves Nagle's algorithm on: it holds an answer back until the answer before is acknowledged. The kernel
/// acknowledges only after 40 ms if nothing is written the other way.
pub(crate) struct PromptStream(pub(crate) TcpStream);

impl PromptStream {
    /// Asks the kernel to acknowledge at once. The kernel forgets this, so it is asked after each read.
    #[cfg(target_os = "linux")]
    fn acknowledge(&self) {
        // Without it, connections are only slower.
        let _ = rustix::net::sockopt::set_tcp_quickack(&self.0, true);
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge(&self) {}
}

impl AsyncRead for PromptStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.0).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.acknowledge();
        }
        read
    }
}

impl AsyncWrite for PromptStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
