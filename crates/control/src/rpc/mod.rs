//! Requests, answers and notices as framed JSON over one connection, in both directions.
//!
//! [`codec`] is the pure part. A length-limited frame is four bytes of length, most significant first, and a JSON
//! object. [`open`] puts the protocol on a byte stream. It returns a [`RpcCaller`] for requests and notices, the
//! [`Incoming`] requests and notices of the other side, and a future that drives both.
//!
//! Both directions are limited in bytes: the frames that wait for the other side to read, and the unanswered requests
//! of the other side.

pub mod codec;
mod connection;
mod incoming;
mod outgoing;

pub use codec::{CodecError, Decoder, Frame};
pub use connection::{ConnectionClosed, RpcCaller, open};
pub use incoming::{Answer, Incoming, NoticeBody};
pub use outgoing::Untold;

/// The largest frame once the other side is known, in bytes. The longest deny list fits.
pub const LONGEST_FRAME: usize = 24 * 1024 * 1024;

/// The largest frame from an unknown peer, in bytes.
pub const LONGEST_FRAME_UNKNOWN: usize = 64 * 1024;
