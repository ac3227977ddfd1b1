//! The sockets of this machine that only this user can open, and the protection of this process from other processes.
//!
//! They are Unix sockets, on which the kernel identifies the other end. On Windows this program has no such sockets, so
//! listening and connecting fail with an error that says so.

use std::io;
use std::path::Path;

#[cfg(unix)]
pub use tokio::net::{UnixListener as Listener, UnixStream as Stream};

#[cfg(not(unix))]
pub use missing::{Listener, Stream};

/// The most bytes in the path of a Unix socket. The kernel keeps 108, of which the last is zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// Refuses a path that is too long for a Unix socket.
///
/// # Errors
/// If the path is too long. The error gives its length and the limit.
pub fn check_socket_path(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if length <= LONGEST_SOCKET_PATH {
        return Ok(());
    }
    let message = format!(
        "the path has {length} bytes, and that of a socket has at most {LONGEST_SOCKET_PATH}: choose a state directory with a shorter path"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Listens on a socket at `path` that only this process's user may open.
///
/// # Errors
/// If the path is too long, a file in the way cannot be removed, or the socket cannot be made.
pub fn listen(path: &Path) -> io::Result<Listener> {
    check_socket_path(path)?;
    #[cfg(unix)]
    {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Listener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }
    #[cfg(not(unix))]
    Err(missing::error())
}

/// Whether a program listens on the socket at `path`.
pub fn is_listening(path: &Path) -> bool {
    #[cfg(unix)]
    return std::os::unix::net::UnixStream::connect(path).is_ok();
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Whether this process's user or root holds the other end.
pub fn is_of_this_user(stream: &Stream) -> bool {
    #[cfg(unix)]
    {
        let ours = rustix::process::getuid().as_raw();
        let theirs = stream.peer_cred().map(|peer| peer.uid());
        theirs.is_ok_and(|uid| uid == ours || uid == 0)
    }
    #[cfg(not(unix))]
    match *stream {}
}

/// The process that holds the other end, if the system tells.
pub fn process_of(stream: &Stream) -> Option<i32> {
    #[cfg(unix)]
    {
        stream.peer_cred().ok()?.pid()
    }
    #[cfg(not(unix))]
    match *stream {}
}

/// Keeps other processes, even of this user, from reading this process's memory and environment. This also excludes
/// debuggers and core dumps. Only Linux can do this.
pub fn forbid_inspection() {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "other processes of this user may read this one's memory");
    }
}

/// Socket types for a system without such sockets. They have no values.
#[cfg(not(unix))]
mod missing {
    use std::io;
    use std::path::Path;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    pub(super) fn error() -> io::Error {
        let message =
            "this needs a Unix socket, and Sealbus has none on Windows: run it on Linux, or in WSL";
        io::Error::new(io::ErrorKind::Unsupported, message)
    }

    /// A listener that does not exist.
    #[derive(Debug)]
    pub enum Listener {}

    /// A connection that does not exist.
    #[derive(Debug)]
    pub enum Stream {}

    impl sealbus_web::Listener for Listener {
        type Connection = Stream;
        type Origin = ();

        async fn accept(&self) -> io::Result<(Stream, ())> {
            match *self {}
        }
    }

    impl Stream {
        /// Always fails.
        ///
        /// # Errors
        /// Always.
        #[expect(clippy::unused_async, reason = "as on Unix")]
        pub async fn connect(_: impl AsRef<Path>) -> io::Result<Self> {
            Err(error())
        }
    }

    impl AsyncRead for Stream {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }
}
