//! One connection as bytes: plain TCP, or TLS over it. Nothing here waits. Reading and writing go as far as the socket
//! allows now, so that any thread may push out pending bytes.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::Connection;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The bytes read from the socket at a time: the least, and the most when much arrives.
const READ: (usize, usize) = (8 << 10, 128 << 10);

/// At least this many bytes are written at once if nothing waits before them.
const DIRECT: usize = 16 << 10;

/// A connection.
pub(crate) struct Wire {
    pub(crate) tcp: Arc<TcpStream>,
    tls: Option<Connection>,
    /// The connection's number between the two processes.
    pub(crate) number: u64,
    /// Plain bytes that are not yet written. Unused with TLS, which has its own buffer.
    plain: Vec<u8>,
    plain_written: usize,
    /// The approximate number of bytes handed over and not yet written.
    pending: usize,
    /// Bytes that were read from the socket and must be decrypted.
    raw: Vec<u8>,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes came, and there may be more.
    More,
    /// All bytes came that were there.
    Drained,
    /// The other side ended the connection.
    Ended,
}

impl Wire {
    pub(crate) fn plain(tcp: TcpStream) -> Self {
        Self::new(tcp, None)
    }

    /// A connection whose handshake is complete.
    pub(crate) fn tls(tcp: TcpStream, mut tls: Connection) -> Self {
        // The writers limit the number of pending bytes.
        tls.set_buffer_limit(None);
        Self::new(tcp, Some(tls))
    }

    fn new(tcp: TcpStream, tls: Option<Connection>) -> Self {
        Self {
            tcp: Arc::new(tcp),
            tls,
            number: 0,
            plain: Vec::new(),
            plain_written: 0,
            pending: 0,
            raw: vec![0; READ.0],
        }
    }

    /// The number of bytes handed over and not yet written.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Whether the socket must become writable before the rest can go.
    pub(crate) fn wants_write(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.wants_write(),
            None => !self.plain.is_empty(),
        }
    }

    /// Hands over bytes for sending.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put_all(&[IoSlice::new(bytes)], bytes.len());
        }
    }

    /// Hands over slices for sending, of `length` bytes together.
    pub(crate) fn put_all(&mut self, slices: &[IoSlice<'_>], length: usize) {
        match &mut self.tls {
            // Without a buffer limit TLS takes everything and does not fail. All slices go in at once, so that the TLS
            // records are full.
            Some(tls) => {
                self.pending += length;
                match tls.writer().write_vectored(slices) {
                    Ok(taken) if taken == length => {}
                    Ok(taken) => tracing::error!(taken, length, "TLS did not take all bytes"),
                    Err(error) => tracing::error!(%error, "TLS did not take bytes to send"),
                }
            }
            None => {
                // A large amount is written at once, without another copy. If the system does not take all of it, the
                // rest waits. A fault of the connection shows when the rest is written.
                let mut skip = 0;
                if length >= DIRECT && self.plain.is_empty() {
                    skip = self.tcp.try_write_vectored(slices).unwrap_or(0);
                }
                self.pending += length - skip;
                for slice in slices {
                    let skipped = skip.min(slice.len());
                    skip -= skipped;
                    self.plain.extend_from_slice(&slice[skipped..]);
                }
            }
        }
    }

    /// Writes as much as the socket takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let result = match &mut self.tls {
            Some(tls) => {
                let mut socket = Socket(&self.tcp);
                loop {
                    if !tls.wants_write() {
                        break Ok(());
                    }
                    match tls.write_tls(&mut socket) {
                        Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                        Ok(_) => {}
                        Err(error) => break Err(error),
                    }
                }
            }
            None => loop {
                if self.plain_written == self.plain.len() {
                    self.plain.clear();
                    self.plain_written = 0;
                    break Ok(());
                }
                match self.tcp.try_write(&self.plain[self.plain_written..]) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => self.plain_written += count,
                    Err(error) => break Err(error),
                }
            },
        };
        match result {
            Ok(()) => {
                self.pending = 0;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the pending bytes of the socket once, and appends the plain bytes to `into`.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<Progress> {
        let Some(tls) = &mut self.tls else {
            into.reserve(self.raw.len());
            let room = into.capacity() - into.len();
            return match read_once(&self.tcp, room, |tcp| tcp.try_read_buf(into)) {
                Ok(0) => Ok(Progress::Ended),
                Ok(count) if count < room => Ok(Progress::Drained),
                Ok(_) => {
                    if self.raw.len() < READ.1 {
                        self.raw = vec![0; self.raw.len() * 2];
                    }
                    Ok(Progress::More)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::Drained),
                Err(error) => Err(error),
            };
        };
        let room = self.raw.len();
        let count = match read_once(&self.tcp, room, |tcp| tcp.try_read(&mut self.raw)) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Drained);
            }
            Err(error) => return Err(error),
        };
        let ended = decrypt(tls, &self.raw[..count], into)? || count == 0;
        let was_full = count == room;
        if was_full && count < READ.1 {
            self.raw = vec![0; count * 2];
        }
        Ok(if ended {
            Progress::Ended
        } else if was_full {
            Progress::More
        } else {
            Progress::Drained
        })
    }

    /// Appends to `into` the bytes that were read from the socket along with the end of the handshake, before this
    /// value took over the connection.
    pub(crate) fn read_early(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            decrypt(tls, &[], into)?;
        }
        Ok(())
    }

    /// Tells TLS that nothing more comes, and writes as much as can be written.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // The connection ends in any case.
        let _ = self.flush();
    }
}

/// Reads at most `room` bytes. A shorter read has emptied the socket, which is readable again only after new bytes have
/// come; noting that saves a system call that would only confirm it. The note refers to the moment before the read:
/// bytes that come later, on a runtime of several threads, still make the socket readable.
fn read_once(
    tcp: &TcpStream,
    room: usize,
    read: impl FnOnce(&TcpStream) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut outcome = Err(io::ErrorKind::WouldBlock.into());
    let noted: io::Result<()> = tcp.try_io(Interest::READABLE, || {
        outcome = read(tcp);
        match outcome {
            Ok(count) if (1..room).contains(&count) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    drop(noted);
    outcome
}

/// Decrypts `raw` and appends the result to `into`. Returns whether the other side has ended the connection.
fn decrypt(tls: &mut Connection, mut raw: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if !raw.is_empty() {
            tls.read_tls(&mut raw)?;
        }
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut left = state.plaintext_bytes_to_read();
        into.reserve(left);
        let mut reader = tls.reader();
        while left > 0 {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            let length = bytes.len();
            into.extend_from_slice(bytes);
            reader.consume(length);
            left = left.saturating_sub(length);
        }
        if raw.is_empty() {
            return Ok(state.peer_has_closed());
        }
    }
}

/// The socket, for rustls to write to.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
