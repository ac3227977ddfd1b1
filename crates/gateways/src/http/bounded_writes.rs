//! A connection whose other end must read its answers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Fails once the other end has not taken the written bytes for a time. hyper limits only how long a head may take.
pub(crate) struct BoundedWrites<S> {
    stream: S,
    time: Duration,
    /// Until when the other end must take the bytes; `None` while none wait for it.
    until: Option<Pin<Box<Sleep>>>,
    is_late: bool,
}

impl<S> BoundedWrites<S> {
    pub(crate) fn new(stream: S, time: Duration) -> Self {
        Self {
            stream,
            time,
            until: None,
            is_late: false,
        }
    }

    /// Whether the time has run out.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    fn bounded<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let time = self.time;
            let until = self.until.get_or_insert_with(|| Box::pin(sleep(time)));
            if self.is_late || until.as_mut().poll(context).is_ready() {
                self.is_late = true;
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // A part that is taken does not restart the time. Otherwise a client that takes a few bytes at a time would
        // hold the connection.
        if let Poll::Ready(Ok(())) = flushed {
            self.until = None;
        }
        self.bounded(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(ended, context)
    }
}
