//! The first frame of each side: its identity, and the state of the session.

use std::str;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RandomId;

/// The first frame each side sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION).
    pub version: u16,
    /// The code of the security level.
    pub level: u8,
    /// From the acceptor: whether the session continues. If not, it is new.
    pub resumed: bool,
    /// A number that is new each time the process starts.
    pub incarnation: RandomId,
    /// From the dialler: its present session, or zeros. From the acceptor: the session that holds from now on.
    pub session: RandomId,
    /// The last session with this peer that was given up, or zeros.
    pub given_up: RandomId,
    /// Counted frames received in the session.
    pub received: u64,
    /// From the dialler: the number of this connection between the two processes. A later connection replaces an
    /// earlier one. From the acceptor: the highest number that it knows, including its own attempts, which it gives up
    /// for this connection.
    pub connection: u64,
    /// The largest message that the process accepts, in bytes.
    pub largest_message: u32,
    /// The process's identity, as a URI.
    pub process: &'a str,
    /// The address at which the process listens, as `address:port`.
    pub address: &'a str,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloStart {
    version: U16,
    level: u8,
    resumed: u8,
    incarnation: RandomId,
    session: RandomId,
    given_up: RandomId,
    received: U64,
    connection: U64,
    largest_message: U32,
    process_length: U16,
}

impl<'a> Hello<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = HelloStart {
            version: U16::new(self.version),
            level: self.level,
            resumed: u8::from(self.resumed),
            incarnation: self.incarnation,
            session: self.session,
            given_up: self.given_up,
            received: U64::new(self.received),
            connection: U64::new(self.connection),
            largest_message: U32::new(self.largest_message),
            // Identities are limited to a few hundred bytes.
            process_length: U16::new(u16::try_from(self.process.len()).unwrap_or(u16::MAX)),
        };
        out.extend_from_slice(start.as_bytes());
        out.extend_from_slice(self.process.as_bytes());
        out.extend_from_slice(self.address.as_bytes());
    }

    pub(super) fn decode(body: &'a [u8]) -> Option<Self> {
        let (start, rest) = HelloStart::read_from_prefix(body).ok()?;
        let (process, address) = rest.split_at_checked(usize::from(start.process_length.get()))?;
        Some(Self {
            version: start.version.get(),
            level: start.level,
            resumed: start.resumed != 0,
            incarnation: start.incarnation,
            session: start.session,
            given_up: start.given_up,
            received: start.received.get(),
            connection: start.connection.get(),
            largest_message: start.largest_message.get(),
            process: str::from_utf8(process).ok()?,
            address: str::from_utf8(address).ok()?,
        })
    }
}
