//! The first twelve bytes of every message.

use crate::cdr::{ByteOrder, Encoder};

/// The length of the header in bytes.
pub const HEADER_LENGTH: usize = 12;
const MAGIC: [u8; 4] = *b"GIOP";
/// The flag of a message whose fragments follow.
const MORE: u8 = 2;

/// The version of GIOP, 1.0 to 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 1.0.
    V1_0,
    /// 1.1.
    V1_1,
    /// 1.2.
    V1_2,
}

impl Version {
    /// The version with these numbers, if there is one.
    pub fn of(major: u8, minor: u8) -> Option<Self> {
        match (major, minor) {
            (1, 0) => Some(Self::V1_0),
            (1, 1) => Some(Self::V1_1),
            (1, 2) => Some(Self::V1_2),
            _ => None,
        }
    }

    /// The number after the point.
    pub fn minor(self) -> u8 {
        self as u8
    }
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request,
    /// The answer to a call.
    Reply,
    /// The caller does not wait for the answer any more.
    CancelRequest,
    /// Asks whether an object is here.
    LocateRequest,
    /// The answer to a `LocateRequest`.
    LocateReply,
    /// The server ends the connection in order.
    CloseConnection,
    /// The sender got bytes that are no message.
    MessageError,
    /// A further part of a message.
    Fragment,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Request,
        Self::Reply,
        Self::CancelRequest,
        Self::LocateRequest,
        Self::LocateReply,
        Self::CloseConnection,
        Self::MessageError,
        Self::Fragment,
    ];
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the message.
    pub version: Version,
    /// The order of its bytes.
    pub order: ByteOrder,
    /// Whether fragments follow.
    pub has_more: bool,
    /// The type of the message.
    pub kind: Kind,
    /// The number of bytes after the header.
    pub size: u32,
}

impl Header {
    /// Reads a header. `None` if the bytes are no header of GIOP 1.0 to 1.2.
    pub fn read(bytes: &[u8; HEADER_LENGTH]) -> Option<Self> {
        let [g, i, o, p, major, minor, flags, kind, size @ ..] = *bytes;
        if [g, i, o, p] != MAGIC {
            return None;
        }
        let version = Version::of(major, minor)?;
        let kind = *Kind::ALL.get(usize::from(kind))?;
        let order = ByteOrder::of_flag(flags);
        let is_fragment_of_1_0 = version == Version::V1_0 && kind == Kind::Fragment;
        if is_fragment_of_1_0 {
            return None;
        }
        Some(Self {
            version,
            order,
            // In 1.0 the octet is the order alone.
            has_more: version > Version::V1_0 && flags & MORE != 0,
            kind,
            size: match order {
                ByteOrder::Big => u32::from_be_bytes(size),
                ByteOrder::Little => u32::from_le_bytes(size),
            },
        })
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let size = match self.order {
            ByteOrder::Big => self.size.to_be_bytes(),
            ByteOrder::Little => self.size.to_le_bytes(),
        };
        let mut bytes = [0; HEADER_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = 1;
        bytes[5] = self.version.minor();
        bytes[6] = self.order.flag() | if self.has_more { MORE } else { 0 };
        bytes[7] = self.kind as u8;
        bytes[8..].copy_from_slice(&size);
        bytes
    }

    /// Begins a message of a single part, whose size [`Encoder::end_message`] writes.
    pub(crate) fn begin(version: Version, order: ByteOrder, kind: Kind) -> Encoder {
        let mut encoder = Encoder::new(order);
        let header = Self {
            version,
            order,
            has_more: false,
            kind,
            size: 0,
        };
        encoder.raw(&header.to_bytes());
        encoder
    }
}
