//! A descriptor that a loop watches: readable while it is set.

#[cfg(target_os = "linux")]
pub(crate) use self::counter::Event;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::pair::Event;

/// The number by which Python's selectors know a descriptor.
#[cfg(unix)]
pub(crate) type Descriptor = std::os::fd::RawFd;
/// The number by which Python's selectors know a socket.
#[cfg(not(unix))]
pub(crate) type Descriptor = std::os::windows::io::RawSocket;

#[cfg(target_os = "linux")]
mod counter {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    /// A counter in the kernel (`eventfd`).
    pub(crate) struct Event(OwnedFd);

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
            )?))
        }

        pub(crate) fn set(&self) {
            // The write can only fail if the counter is full, and then the event is set.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }

        pub(crate) fn clear(&self) {
            let mut counter = [0u8; 8];
            // An error means that the event was not set.
            let _ = rustix::io::read(&self.0, &mut counter);
        }

        pub(crate) fn descriptor(&self) -> super::Descriptor {
            self.0.as_raw_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod pair {
    use std::io::{self, Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    #[cfg(unix)]
    use std::os::fd::AsRawFd;
    #[cfg(not(unix))]
    use std::os::windows::io::AsRawSocket;

    /// Both ends of a connection of this process with itself: Windows can watch only sockets.
    pub(crate) struct Event {
        watched: TcpStream,
        other: TcpStream,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let other = TcpStream::connect(listener.local_addr()?)?;
            // Another program on this machine may connect first.
            let watched = loop {
                let (watched, peer) = listener.accept()?;
                if peer == other.local_addr()? {
                    break watched;
                }
            };
            watched.set_nonblocking(true)?;
            other.set_nonblocking(true)?;
            other.set_nodelay(true)?;
            Ok(Self { watched, other })
        }

        pub(crate) fn set(&self) {
            // The write can only fail if much is unread, and then the event is set.
            let _ = (&self.other).write(&[1]);
        }

        pub(crate) fn clear(&self) {
            let mut read = [0; 64];
            // An error means that the event was not set.
            while matches!((&self.watched).read(&mut read), Ok(count) if count == read.len()) {}
        }

        pub(crate) fn descriptor(&self) -> super::Descriptor {
            #[cfg(unix)]
            return self.watched.as_raw_fd();
            #[cfg(not(unix))]
            self.watched.as_raw_socket()
        }
    }
}
