//! The frames of the mesh: what two processes write to each other.
//!
//! A frame is a header of 12 bytes and a body. *Counted* frames carry a sequence number, survive that a connection breaks and
//! are taken once and in order; the others belong to one connection. All numbers are little-endian. A parser never
//! allocates: texts and payloads are slices of what was read.

use std::str;

use sealbus_bus::RefusalReason;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of this protocol; both sides must speak the same.
pub const PROTOCOL_VERSION: u16 = 1;
/// What a connection begins with, inside TLS if there is TLS, from both sides.
pub const PREFACE: [u8; 8] = *b"SEALBUS\x01";
/// Bytes of a header.
pub const HEADER_LENGTH: usize = size_of::<Header>();
/// The longest piece of a message in one frame; longer messages are cut, so that others can go in between.
pub const LONGEST_PIECE: usize = 64 << 10;
/// The longest body. A binding with its certificates is the longest besides messages.
pub const LONGEST_BODY: usize = LONGEST_PIECE + 64;
/// The longest body before the peer is known: the limit on what a stranger can make us keep.
pub const LONGEST_FIRST_BODY: usize = 1024;

/// The header of every frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    /// Bytes of the body.
    length: U32,
    kind: u8,
    flags: u8,
    reserved: U16,
    /// Low 32 bits of the number of a counted frame, from 0; else 0.
    sequence: U32,
}

/// Bytes that are not the protocol. The connection they came on is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A body longer than allowed.
    #[error("a frame of {length} bytes, where {limit} are allowed")]
    TooLong {
        /// Announced length.
        length: usize,
        /// Limit.
        limit: usize,
    },
    /// A kind that does not exist.
    #[error("frame kind {0} does not exist")]
    UnknownKind(u8),
    /// A body too short or too long for its kind, or a text that is not UTF-8.
    #[error("the body of a frame of kind {0:?} is malformed")]
    Malformed(Kind),
    /// The connection begins with something else.
    #[error("the connection does not begin with the preface of the Sealbus mesh")]
    NoPreface,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Hello = 1,
    Goodbye = 2,
    Bind = 3,
    Acknowledge = 4,
    Ping = 5,
    Pong = 6,
    Prove = 7,
    Message = 16,
    Begin = 17,
    Continue = 18,
    Target = 19,
    Accept = 20,
    Credit = 21,
    Leaving = 22,
    CloseTarget = 23,
    TargetClosed = 24,
    Returned = 25,
    Unbind = 26,
    Refused = 27,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Goodbye,
            3 => Self::Bind,
            4 => Self::Acknowledge,
            5 => Self::Ping,
            6 => Self::Pong,
            7 => Self::Prove,
            16 => Self::Message,
            17 => Self::Begin,
            18 => Self::Continue,
            19 => Self::Target,
            20 => Self::Accept,
            21 => Self::Credit,
            22 => Self::Leaving,
            23 => Self::CloseTarget,
            24 => Self::TargetClosed,
            25 => Self::Returned,
            26 => Self::Unbind,
            27 => Self::Refused,
            _ => return None,
        })
    }

    /// Whether frames of this kind are counted.
    pub fn is_counted(self) -> bool {
        self as u8 >= Self::Message as u8
    }
}

/// The name of the target that is the bus of the process itself, which no agent has. Its messages are bus frames.
pub const PROCESS_TARGET: &str = "";
/// The sender's handle that stands for the process itself: bound by the connection's own proof, and never by [`Frame::Bind`].
pub const PROCESS_SENDER: u32 = u32::MAX;

/// 128 random bits that name an incarnation of a process, or a session.
pub type Token = [u8; 16];

/// The first frame each side sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// The code of the security level.
    pub level: u8,
    /// Acceptor: whether the session goes on, rather than being a new one.
    pub resumed: bool,
    /// Made anew each time the process starts.
    pub incarnation: Token,
    /// Dialler: the session it is in, or zeros. Acceptor: the session that holds from now on.
    pub session: Token,
    /// The last session with this peer that was given up, or zeros.
    pub given_up: Token,
    /// Counted frames received in the session.
    pub received: u64,
    /// Of the dialler: number of this connection between the two processes; a later one replaces an earlier. Of the
    /// acceptor: the highest number it knows of, its own attempts included, which it gives up for this one.
    pub connection: u64,
    /// The largest message taken, in bytes.
    pub largest_message: u32,
    /// The process's identity, as a URI.
    pub process: &'a str,
    /// Where it listens, as `address:port`.
    pub address: &'a str,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloStart {
    version: U16,
    level: u8,
    resumed: u8,
    incarnation: Token,
    session: Token,
    given_up: Token,
    received: U64,
    connection: U64,
    largest_message: U32,
    process_length: U16,
}

/// Why a message comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The agent is on its way to another process.
    Moving,
    /// The agent is not in this process.
    NotHere,
    /// The message was refused.
    Refused(RefusalReason),
}

impl Why {
    fn code(self) -> u8 {
        match self {
            Self::Moving => 0,
            Self::NotHere => 1,
            Self::Refused(reason) => 2 + reason.code(),
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Moving),
            1 => Some(Self::NotHere),
            code => RefusalReason::from_code(code - 2).map(Self::Refused),
        }
    }
}

/// A frame. The first group is not counted, the second is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Who speaks, and where the session stands.
    Hello(Hello<'a>),
    /// The connection ends, and why.
    Goodbye {
        /// Why, for machines.
        reason: GoodbyeReason,
        /// Why, for people.
        text: &'a str,
    },
    /// The agent that is meant by a sender's handle, for this connection: its proof, or at levels without proofs its name.
    Bind {
        /// The handle.
        handle: u32,
        /// A binding's wire form, or a name.
        proof: &'a [u8],
    },
    /// Counted frames received.
    Acknowledge {
        /// How many, in this session.
        received: u64,
    },
    /// Is somebody there?
    Ping,
    /// Yes.
    Pong,
    /// The proof of the agent that is a target, bound to this connection; goes before its [`Frame::Accept`].
    Prove {
        /// The target.
        target: u32,
        /// A binding's wire form.
        proof: &'a [u8],
    },

    /// A whole message, or to [`PROCESS_TARGET`] a frame of the bus.
    Message {
        /// Its sender, as bound.
        sender: u32,
        /// Its receiver, as targeted.
        target: u32,
        /// Its bit-efficient encoding, or the frame of the bus.
        payload: &'a [u8],
    },
    /// The first piece of a long message.
    Begin {
        /// Its sender.
        sender: u32,
        /// Its receiver.
        target: u32,
        /// The length of the whole message.
        total: u32,
        /// The piece.
        piece: &'a [u8],
    },
    /// The next piece of the long message to a target.
    Continue {
        /// Its receiver.
        target: u32,
        /// The piece.
        piece: &'a [u8],
    },
    /// The agent that is meant by a target's handle.
    Target {
        /// The handle.
        handle: u32,
        /// The agent's name, or [`PROCESS_TARGET`].
        name: &'a str,
    },
    /// The target is here, and messages may be sent.
    Accept {
        /// The target.
        target: u32,
        /// Bytes that may be sent in all for now.
        limit: u64,
    },
    /// More may be sent to the target.
    Credit {
        /// The target.
        target: u32,
        /// Bytes that may be sent in all.
        limit: u64,
    },
    /// The target is not here, or no longer; what comes for it is returned.
    Leaving {
        /// The target.
        target: u32,
        /// Why.
        why: Why,
    },
    /// No more is sent to the target.
    CloseTarget {
        /// The target.
        target: u32,
    },
    /// All that was sent to the target has been delivered or returned before this frame.
    TargetClosed {
        /// The target.
        target: u32,
    },
    /// A message that was not delivered, or a piece of it.
    Returned {
        /// Its receiver.
        target: u32,
        /// Its sender.
        sender: u32,
        /// Why.
        why: Why,
        /// Whether another piece follows.
        more: bool,
        /// The message or the piece.
        piece: &'a [u8],
    },
    /// The agent of the handle sends no more.
    Unbind {
        /// The handle.
        handle: u32,
    },
    /// An agent's proof was refused, or holds no longer.
    Refused {
        /// The handle.
        handle: u32,
        /// Why, for machines.
        reason: RefusalReason,
        /// Why, for people.
        text: &'a str,
    },
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoodbyeReason {
    /// The process ends.
    ShutDown = 0,
    /// Another connection between the two is used.
    Replaced = 1,
    /// The sides are at different security levels.
    LevelMismatch = 2,
    /// The sides speak different versions.
    VersionMismatch = 3,
    /// What the peer sent is not the protocol.
    Violation = 4,
    /// The peer may not be here.
    NotPermitted = 5,
    /// Too many peers.
    OverLimit = 6,
}

impl GoodbyeReason {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::ShutDown,
            1 => Self::Replaced,
            2 => Self::LevelMismatch,
            3 => Self::VersionMismatch,
            4 => Self::Violation,
            5 => Self::NotPermitted,
            6 => Self::OverLimit,
            _ => return None,
        })
    }
}

/// Another piece of a returned message follows.
const FLAG_MORE: u8 = 1;
/// Texts for people are cut to this.
const LONGEST_TEXT: usize = 1000;

impl Frame<'_> {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Goodbye { .. } => Kind::Goodbye,
            Self::Bind { .. } => Kind::Bind,
            Self::Acknowledge { .. } => Kind::Acknowledge,
            Self::Ping => Kind::Ping,
            Self::Pong => Kind::Pong,
            Self::Prove { .. } => Kind::Prove,
            Self::Message { .. } => Kind::Message,
            Self::Begin { .. } => Kind::Begin,
            Self::Continue { .. } => Kind::Continue,
            Self::Target { .. } => Kind::Target,
            Self::Accept { .. } => Kind::Accept,
            Self::Credit { .. } => Kind::Credit,
            Self::Leaving { .. } => Kind::Leaving,
            Self::CloseTarget { .. } => Kind::CloseTarget,
            Self::TargetClosed { .. } => Kind::TargetClosed,
            Self::Returned { .. } => Kind::Returned,
            Self::Unbind { .. } => Kind::Unbind,
            Self::Refused { .. } => Kind::Refused,
        }
    }

    /// Appends the frame; `sequence` is its number if it is counted.
    pub fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        let start = begin(out);
        let mut flags = 0;
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::Goodbye { reason, text } => {
                out.push(*reason as u8);
                put_text(out, text);
            }
            Self::Bind { handle, proof } => {
                put_u32(out, *handle);
                out.extend_from_slice(proof);
            }
            Self::Acknowledge { received } => put_u64(out, *received),
            Self::Ping | Self::Pong => {}
            Self::Message {
                sender,
                target,
                payload,
            } => {
                put_u32(out, *sender);
                put_u32(out, *target);
                out.extend_from_slice(payload);
            }
            Self::Begin {
                sender,
                target,
                total,
                piece,
            } => {
                put_u32(out, *sender);
                put_u32(out, *target);
                put_u32(out, *total);
                out.extend_from_slice(piece);
            }
            Self::Continue { target, piece } => {
                put_u32(out, *target);
                out.extend_from_slice(piece);
            }
            Self::Target { handle, name } => {
                put_u32(out, *handle);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Prove { target, proof } => {
                put_u32(out, *target);
                out.extend_from_slice(proof);
            }
            Self::Accept { target, limit } | Self::Credit { target, limit } => {
                put_u32(out, *target);
                put_u64(out, *limit);
            }
            Self::Leaving { target, why } => {
                put_u32(out, *target);
                out.push(why.code());
            }
            Self::CloseTarget { target: handle }
            | Self::TargetClosed { target: handle }
            | Self::Unbind { handle } => put_u32(out, *handle),
            Self::Returned {
                target,
                sender,
                why,
                more,
                piece,
            } => {
                put_u32(out, *target);
                put_u32(out, *sender);
                out.push(why.code());
                out.extend_from_slice(piece);
                flags = if *more { FLAG_MORE } else { 0 };
            }
            Self::Refused {
                handle,
                reason,
                text,
            } => {
                put_u32(out, *handle);
                out.push(reason.code());
                put_text(out, text);
            }
        }
        finish(out, start, self.kind(), flags, sequence);
    }
}

/// Appends room for a header and a message's handles; the caller appends the payload and then calls [`finish_message`].
pub(crate) fn begin_message(out: &mut Vec<u8>, sender: u32, target: u32) -> usize {
    let start = begin(out);
    put_u32(out, sender);
    put_u32(out, target);
    start
}

/// Completes a frame begun by [`begin_message`] at `start`.
pub(crate) fn finish_message(out: &mut [u8], start: usize, sequence: u64) {
    finish(out, start, Kind::Message, 0, sequence);
}

/// Bytes before the payload in a [`Frame::Message`].
pub(crate) const MESSAGE_START: usize = HEADER_LENGTH + 8;

fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    start
}

fn finish(out: &mut [u8], start: usize, kind: Kind, flags: u8, sequence: u64) {
    let length = out.len() - start - HEADER_LENGTH;
    // Bodies are cut to LONGEST_BODY by those who make frames.
    let header = Header {
        length: U32::new(u32::try_from(length).unwrap_or(u32::MAX)),
        kind: kind as u8,
        flags,
        reserved: U16::ZERO,
        sequence: U32::new((sequence & u64::from(u32::MAX)) as u32),
    };
    out[start..start + HEADER_LENGTH].copy_from_slice(header.as_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(text.len().min(LONGEST_TEXT));
    out.extend_from_slice(&text.as_bytes()[..end]);
}

impl<'a> Hello<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
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

    fn decode(body: &'a [u8]) -> Option<Self> {
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

/// A frame as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The frame.
    pub frame: Frame<'a>,
    /// Low 32 bits of its number, if it is counted.
    pub sequence: u32,
    /// Bytes it took.
    pub length: usize,
}

/// Reads the frame at the beginning of `bytes`. `None`: more bytes are needed.
///
/// # Errors
/// [`FrameError`], as soon as it is certain.
pub fn parse(bytes: &[u8], longest_body: usize) -> Result<Option<Parsed<'_>>, FrameError> {
    let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
        return Ok(None);
    };
    let length = header.length.get() as usize;
    let kind = Kind::from_code(header.kind).ok_or(FrameError::UnknownKind(header.kind))?;
    if length > longest_body {
        return Err(FrameError::TooLong {
            length,
            limit: longest_body,
        });
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let frame = decode(kind, header.flags, body).ok_or(FrameError::Malformed(kind))?;
    Ok(Some(Parsed {
        frame,
        sequence: header.sequence.get(),
        length: HEADER_LENGTH + length,
    }))
}

/// The whole length of the frame at the beginning of bytes that this process wrote.
pub(crate) fn length_of(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    Some(HEADER_LENGTH + header.length.get() as usize)
}

#[inline]
fn decode(kind: Kind, flags: u8, body: &[u8]) -> Option<Frame<'_>> {
    Some(match kind {
        Kind::Message => {
            let (sender, body) = take_u32(body)?;
            let (target, payload) = take_u32(body)?;
            Frame::Message {
                sender,
                target,
                payload,
            }
        }
        Kind::Begin => {
            let (sender, body) = take_u32(body)?;
            let (target, body) = take_u32(body)?;
            let (total, piece) = take_u32(body)?;
            Frame::Begin {
                sender,
                target,
                total,
                piece,
            }
        }
        Kind::Continue => {
            let (target, piece) = take_u32(body)?;
            Frame::Continue { target, piece }
        }
        Kind::Credit => {
            let (target, body) = take_u32(body)?;
            Frame::Credit {
                target,
                limit: whole_u64(body)?,
            }
        }
        Kind::Acknowledge => Frame::Acknowledge {
            received: whole_u64(body)?,
        },
        Kind::Ping => body.is_empty().then_some(Frame::Ping)?,
        Kind::Pong => body.is_empty().then_some(Frame::Pong)?,
        Kind::Hello => Frame::Hello(Hello::decode(body)?),
        Kind::Goodbye => {
            let (reason, text) = body.split_first()?;
            Frame::Goodbye {
                reason: GoodbyeReason::from_code(*reason)?,
                text: str::from_utf8(text).ok()?,
            }
        }
        Kind::Bind => {
            let (handle, proof) = take_u32(body)?;
            Frame::Bind { handle, proof }
        }
        Kind::Prove => {
            let (target, proof) = take_u32(body)?;
            Frame::Prove { target, proof }
        }
        Kind::Target => {
            let (handle, name) = take_u32(body)?;
            Frame::Target {
                handle,
                name: str::from_utf8(name).ok()?,
            }
        }
        Kind::Accept => {
            let (target, body) = take_u32(body)?;
            Frame::Accept {
                target,
                limit: whole_u64(body)?,
            }
        }
        Kind::Leaving => {
            let (target, body) = take_u32(body)?;
            let [why] = body else { return None };
            Frame::Leaving {
                target,
                why: Why::from_code(*why)?,
            }
        }
        Kind::CloseTarget => Frame::CloseTarget {
            target: whole_u32(body)?,
        },
        Kind::TargetClosed => Frame::TargetClosed {
            target: whole_u32(body)?,
        },
        Kind::Returned => {
            let (target, body) = take_u32(body)?;
            let (sender, body) = take_u32(body)?;
            let (why, piece) = body.split_first()?;
            let more = flags & FLAG_MORE != 0;
            Frame::Returned {
                target,
                sender,
                why: Why::from_code(*why)?,
                more,
                piece,
            }
        }
        Kind::Unbind => Frame::Unbind {
            handle: whole_u32(body)?,
        },
        Kind::Refused => {
            let (handle, body) = take_u32(body)?;
            let (reason, text) = body.split_first()?;
            Frame::Refused {
                handle,
                reason: RefusalReason::from_code(*reason)?,
                text: str::from_utf8(text).ok()?,
            }
        }
    })
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes
        .split_first_chunk::<4>()
        .map(|(value, rest)| (u32::from_le_bytes(*value), rest))
}

fn whole_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn whole_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
