//! The frames of the mesh: the protocol between two processes.
//!
//! A frame is a header of 12 bytes and a body. *Counted* frames carry a sequence number, survive a broken connection,
//! and are taken once and in order. The other frames belong to one connection. All numbers are little-endian. A parser
//! never allocates: texts and payloads are slices of the bytes read.

mod hello;
mod reading;
mod row;
mod signed;
mod writing;

use sealbus_bus::RefusalReason;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use self::hello::Hello;
pub(crate) use self::reading::length_of;
pub use self::reading::{Parsed, parse};
pub(crate) use self::row::Joinable;
pub use self::row::RowMessages;
pub use self::signed::SignedMessages;
use self::writing::put_length;
pub(crate) use self::writing::{
    MESSAGE_START, begin_message, finish_message, finish_row, lengthen,
};

/// The version of this protocol; both sides must speak the same.
pub const PROTOCOL_VERSION: u16 = 3;
/// The first bytes of a connection, inside TLS if there is TLS, from both sides.
pub const PREFACE: [u8; 8] = *b"SEALBUS\x01";
/// The bytes of a header.
pub const HEADER_LENGTH: usize = size_of::<Header>();
/// The longest piece of a message in one frame. Longer messages are cut into pieces, so that others can go in between.
pub(crate) const LONGEST_PIECE: usize = 64 << 10;
/// The longest frame with a row of messages. A frame is read only when it is complete.
pub(crate) const LONGEST_ROW: usize = 8 << 10;
/// The longest body. The longest body without a message is a binding with its certificates.
pub const LONGEST_BODY: usize = LONGEST_PIECE + 64;
/// The longest body before the peer is known. It limits the memory that a stranger can use.
pub const LONGEST_FIRST_BODY: usize = 1024;

/// The header of every frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    /// The length of the body in bytes.
    length: U32,
    kind: u8,
    flags: u8,
    reserved: U16,
    /// The low 32 bits of the number of a counted frame, from 0; otherwise 0.
    sequence: U32,
}

/// Bytes that do not follow the protocol. Their connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A body is longer than allowed.
    #[error("a frame has {length} bytes, and the limit is {limit}")]
    TooLong {
        /// The announced length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The kind does not exist.
    #[error("frame kind {0} does not exist")]
    UnknownKind(u8),
    /// A body is too short or too long for its kind, or a text is not UTF-8.
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
    Delegate = 8,
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
    Sign = 28,
    Unread = 29,
    Row = 30,
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
            8 => Self::Delegate,
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
            28 => Self::Sign,
            29 => Self::Unread,
            30 => Self::Row,
            _ => return None,
        })
    }

    /// Whether frames of this kind are counted.
    pub fn is_counted(self) -> bool {
        self as u8 >= Self::Message as u8
    }
}

/// The name of the target that stands for the bus of the process itself. No agent has this name. Messages to this
/// target are bus frames.
pub const PROCESS_TARGET: &str = "";
/// The sender's handle that stands for the process itself. The connection's own proof binds it; [`Frame::Bind`] never
/// does.
pub const PROCESS_SENDER: u32 = u32::MAX;

/// 128 random bits that name an incarnation of a process, or a session.
pub type RandomId = [u8; 16];

/// The reason why a message comes back.
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

/// A frame. Frames of the first group are not counted, those of the second are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The identity of the speaker, and the state of the session.
    Hello(Hello<'a>),
    /// The connection ends, for this reason.
    Goodbye {
        /// The reason, for machines.
        reason: GoodbyeReason,
        /// The reason, for people.
        text: &'a str,
    },
    /// Binds an agent to a sender's handle for this connection: by its proof or, at levels without proofs, by its name.
    Bind {
        /// The handle.
        handle: u32,
        /// A binding's wire form, or a name.
        proof: &'a [u8],
    },
    /// Reports how many counted frames were received. Their messages that come back are sent before this.
    Acknowledge {
        /// The number of frames received in this session.
        received: u64,
    },
    /// Asks whether the peer is still there.
    Ping,
    /// Confirms that the peer is still there.
    Pong,
    /// The proof of the agent behind a target, bound to this connection. It is sent before the target's
    /// [`Frame::Accept`].
    Prove {
        /// The target.
        target: u32,
        /// A binding's wire form.
        proof: &'a [u8],
    },
    /// A bound agent's delegation to the key with which the process signs. It is sent before the first [`Frame::Sign`]
    /// for messages of the agent.
    Delegate {
        /// The agent's handle.
        handle: u32,
        /// The serial number of the certificate with which the agent delegated.
        serial: [u8; 16],
        /// The delegation's wire form.
        delegation: &'a [u8],
    },

    /// A whole message; or a bus frame, if the target is [`PROCESS_TARGET`].
    Message {
        /// The sender's handle, as bound.
        sender: u32,
        /// The receiver's handle, as targeted.
        target: u32,
        /// Whether the sender's proof follows.
        is_signed: bool,
        /// The message's bit-efficient encoding, or the bus frame.
        payload: &'a [u8],
    },
    /// Several whole messages, none of which is signed.
    Row {
        /// The sender's handle, as bound.
        sender: u32,
        /// The receiver's handle, as targeted.
        target: u32,
        /// The messages' bit-efficient encodings.
        messages: RowMessages<'a>,
    },
    /// The first piece of a long message.
    Begin {
        /// The sender's handle.
        sender: u32,
        /// The receiver's handle.
        target: u32,
        /// Whether the sender's proof follows the last piece.
        is_signed: bool,
        /// The length of the whole message.
        total: u32,
        /// The piece.
        piece: &'a [u8],
    },
    /// The next piece of the long message to a target.
    Continue {
        /// The receiver's handle.
        target: u32,
        /// The piece.
        piece: &'a [u8],
    },
    /// Gives a target's handle to an agent.
    Target {
        /// The handle.
        handle: u32,
        /// The agent's name, or [`PROCESS_TARGET`].
        name: &'a str,
    },
    /// The target is here, and messages may be sent to it.
    Accept {
        /// The target.
        target: u32,
        /// The number of bytes that may be sent in all for now.
        limit: u64,
    },
    /// More bytes may be sent to the target.
    Credit {
        /// The target.
        target: u32,
        /// The number of bytes that may be sent in all.
        limit: u64,
    },
    /// The target is not here, or no longer. Messages to it come back.
    Leaving {
        /// The target.
        target: u32,
        /// Why.
        why: Why,
    },
    /// Nothing more is sent to the target.
    CloseTarget {
        /// The target.
        target: u32,
    },
    /// Everything that was sent to the target has been delivered, or returned before this frame.
    TargetClosed {
        /// The target.
        target: u32,
    },
    /// A message that was not delivered, or a piece of one.
    Returned {
        /// The receiver's handle.
        target: u32,
        /// The sender's handle.
        sender: u32,
        /// Why.
        why: Why,
        /// Whether another piece follows.
        more: bool,
        /// The message or the piece.
        piece: &'a [u8],
    },
    /// A message, or a piece of one, that was delivered to a target that is closed by now. The agent has ended and
    /// never read it.
    Unread {
        /// The number of the target among those of the session, from 1, in the order of their [`Frame::Target`].
        number: u32,
        /// The sender's handle.
        sender: u32,
        /// Whether another piece follows.
        more: bool,
        /// The message or the piece.
        piece: &'a [u8],
    },
    /// The agent with this handle sends nothing more.
    Unbind {
        /// The handle.
        handle: u32,
    },
    /// An agent's proof was refused, or is no longer valid.
    Refused {
        /// The handle.
        handle: u32,
        /// The reason, for machines.
        reason: RefusalReason,
        /// The reason, for people.
        text: &'a str,
    },
    /// The signature for messages of all senders that were sent before it and have none yet: for all of them, or for
    /// the first ones. Needed at level `signed`, and below it for each message that is marked.
    Sign {
        /// When the process signed, in milliseconds since 1970.
        time: u64,
        /// The signature. Empty if the process could sign for none of the senders.
        signature: &'a [u8],
        /// The messages of each sender, in the order of their handles: 1 to [`MOST_MESSAGES`](sealbus_proof::MOST_MESSAGES).
        authors: &'a [SignedMessages],
    },
}

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoodbyeReason {
    /// The process ends.
    ShutDown = 0,
    /// Another connection between the two is used.
    Replaced = 1,
    /// The sides are at different security levels.
    LevelMismatch = 2,
    // 3 was for different versions, and nobody said it.
    /// The bytes of the peer do not follow the protocol.
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
            4 => Self::Violation,
            5 => Self::NotPermitted,
            6 => Self::OverLimit,
            _ => return None,
        })
    }
}

/// Another piece of a returned message follows.
const FLAG_MORE: u8 = 1;
/// The proof of the message follows.
const FLAG_SIGNED: u8 = 2;

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
            Self::Delegate { .. } => Kind::Delegate,
            Self::Message { .. } => Kind::Message,
            Self::Row { .. } => Kind::Row,
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
            Self::Sign { .. } => Kind::Sign,
            Self::Unread { .. } => Kind::Unread,
        }
    }
}
