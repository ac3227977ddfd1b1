//! Sockets with the platform's own TLS for the AMQP library. The library's TLS would include TLS 1.2 and the public
//! certification authorities.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd};
#[cfg(not(unix))]
use std::os::windows::io::{AsRawSocket as AsRawFd, AsSocket as AsFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_compat::Compat;
use async_rs::Tokio;

use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::Task;
use futures_util::Stream;
use futures_util::io::{AsyncRead as FuturesRead, AsyncWrite as FuturesWrite};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The protocol layer that AMQP is spoken on.
pub(crate) enum Layer {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// A connection to the broker.
pub(crate) struct Socket {
    pub(crate) layer: Layer,
    pub(crate) cut: Arc<Cut>,
}

/// Ends a connection without reading what is on its way. The library would read that into memory before the connection
/// is closed, and the broker sends all deliveries that it has begun with.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    is_cut: AtomicBool,
    reader: AtomicWaker,
}

impl Cut {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn check(&self) -> io::Result<()> {
        match self.is_cut.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Cuts the connection when the connection's owner drops it, at whatever step. The library closes a dropped connection
/// only after the answers that it awaits, and none at all while a quorum queue has no leader.
#[derive(Debug, Default)]
pub(crate) struct CutOnDrop(Arc<Cut>);

impl CutOnDrop {
    /// The part that the socket checks.
    pub(crate) fn cut(&self) -> Arc<Cut> {
        self.0.clone()
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { layer, cut } = self.get_mut();
        cut.check()?;
        let read = match layer {
            Layer::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Layer::Secure(socket) => Pin::new(socket).poll_read(context, buffer),
        };
        if read.is_pending() {
            cut.reader.register(context.waker());
            cut.check()?;
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().layer {
            Layer::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Layer::Secure(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().layer {
            Layer::Plain(socket) => Pin::new(socket).poll_flush(context),
            Layer::Secure(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().layer {
            Layer::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Layer::Secure(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}

/// Tokio, with [`Socket`] to connect.
#[derive(Clone, Debug)]
pub(crate) struct Sockets(pub(crate) Tokio);

impl RuntimeKit for Sockets {}

impl Executor for Sockets {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        work: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(work)
    }
}

impl Reactor for Sockets {
    type TcpStream = Compat<Socket>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl FuturesRead + FuturesWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    // An `async fn` would borrow `self`, and the future must not.
    #[allow(clippy::manual_async_fn)]
    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        async move {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            Ok(Compat::new(Socket {
                layer: Layer::Plain(socket),
                cut: Arc::default(),
            }))
        }
    }
}
