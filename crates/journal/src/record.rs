//! A record: in the form to append, in the form that is read, and in the form in a file.
//!
//! In a file, all numbers are little-endian, and each record begins at a multiple of 8:
//!
//! | bytes | |
//! |---|---|
//! | 2 | `SJ` |
//! | 1 | kind: 1 a record, 2 a cursor, 3 removals, 4 the first record not trimmed |
//! | 1 | 0 |
//! | 4 | bytes of this file that were on disk, here or in the redo log, when this was written |
//! | 8 | number of the record; for the other kinds, of the next record |
//! | 8 | time, in microseconds since 1970 |
//! | 2, 2, 4 | length of key, attributes, payload |
//! | 4 | CRC-32C of the body |
//! | 4 | CRC-32C of the 36 bytes before, begun with the salt of the segment |
//! | | body: key, attributes, payload, zeros up to a multiple of 8 |

use std::time::{Duration, SystemTime};

use bytes::Bytes;

/// The appended parts. Empty parts cost nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// The record's subject; up to 64 KiB less one byte.
    pub key: Bytes,
    /// The facts that are known without reading the payload; up to 64 KiB less one byte.
    pub attributes: Bytes,
    /// The content itself; up to the stream's limit.
    pub payload: Bytes,
}

impl NewRecord {
    pub(crate) fn size(&self) -> usize {
        HEADER + self.key.len() + self.attributes.len() + self.payload.len()
    }
}

/// A record as it is read. Its parts are slices of the buffer, not copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's number in its stream. The first is 1.
    pub number: u64,
    /// The time at which the record was written. It is never before that of the previous record.
    pub time: SystemTime,
    /// The key, as appended.
    pub key: Bytes,
    /// The attributes, as appended.
    pub attributes: Bytes,
    /// The payload, as appended.
    pub payload: Bytes,
}

/// Length of a header.
pub(crate) const HEADER: usize = 40;
const MAGIC: [u8; 2] = *b"SJ";
/// Longest key and attributes.
pub(crate) const LONGEST_PART: usize = u16::MAX as usize;
/// Longest payload of all streams.
pub(crate) const LONGEST_PAYLOAD: usize = 64 << 20;

/// The kind of a stretch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Record = 1,
    Cursor = 2,
    Removed = 3,
    Trimmed = 4,
}

/// The part before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) synced: u32,
    pub(crate) number: u64,
    pub(crate) micros: u64,
    pub(crate) key: u16,
    pub(crate) attributes: u16,
    pub(crate) payload: u32,
    pub(crate) body_checksum: u32,
}

/// The whole length of a record with a body of that length.
fn padded(body: usize) -> usize {
    (HEADER + body).next_multiple_of(8)
}

impl Header {
    /// A header out of its 40 bytes.
    pub(crate) fn read(bytes: &[u8], salt: u32) -> Result<Self, &'static str> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else {
            return Err("less than a record's header is left");
        };
        if bytes[..2] != MAGIC {
            return Err("no record begins here");
        }
        if word(bytes, 36) != crc32c::crc32c_append(salt, &bytes[..36]) {
            return Err("the checksum of the record's header does not fit");
        }
        let kind = match bytes[2] {
            1 => Kind::Record,
            2 => Kind::Cursor,
            3 => Kind::Removed,
            4 => Kind::Trimmed,
            _ => {
                return Err(
                    "the record is of an unknown kind; a newer version may have written it",
                );
            }
        };
        let header = Self {
            kind,
            synced: word(bytes, 4),
            number: long(bytes, 8),
            micros: long(bytes, 16),
            key: half(bytes, 24),
            attributes: half(bytes, 26),
            payload: word(bytes, 28),
            body_checksum: word(bytes, 32),
        };
        if header.payload as usize > LONGEST_PAYLOAD {
            return Err("the record is longer than any may be");
        }
        Ok(header)
    }

    pub(crate) fn body(&self) -> usize {
        usize::from(self.key) + usize::from(self.attributes) + self.payload as usize
    }

    /// Length with header, body and padding.
    pub(crate) fn length(&self) -> usize {
        padded(self.body())
    }

    /// The parts of a checked body.
    pub(crate) fn split<'a>(&self, body: &'a [u8]) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let (key, rest) = body.split_at(usize::from(self.key));
        let (attributes, rest) = rest.split_at(usize::from(self.attributes));
        (key, attributes, &rest[..self.payload as usize])
    }

    /// Checks that `bytes`, which begin with this header, hold its body as it was written.
    pub(crate) fn check_body(&self, bytes: &[u8]) -> Result<(), &'static str> {
        match bytes.get(HEADER..HEADER + self.body()) {
            None => Err("the record ends beyond the file"),
            Some(body) if crc32c::crc32c(body) == self.body_checksum => Ok(()),
            Some(_) => Err("the checksum of the record's body does not fit"),
        }
    }
}

fn half(bytes: &[u8; HEADER], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The common part of all records that are written into a segment at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonHeader {
    pub(crate) salt: u32,
    pub(crate) synced: u32,
    pub(crate) micros: u64,
}

/// Appends the bytes to write to `out`. The parts were checked to be within their limits.
pub(crate) fn write(
    out: &mut Vec<u8>,
    common: CommonHeader,
    kind: Kind,
    number: u64,
    [key, attributes, payload]: [&[u8]; 3],
) {
    let start = out.len();
    let mut checksum = crc32c::crc32c(key);
    checksum = crc32c::crc32c_append(checksum, attributes);
    checksum = crc32c::crc32c_append(checksum, payload);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind as u8, 0]);
    out.extend_from_slice(&common.synced.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&common.micros.to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(attributes.len() as u16).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum.to_le_bytes());
    let header = crc32c::crc32c_append(common.salt, &out[start..]);
    out.extend_from_slice(&header.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(attributes);
    out.extend_from_slice(payload);
    out.resize(start + padded(out.len() - start - HEADER), 0);
}

pub(crate) fn micros_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
}

pub(crate) fn time_of(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_micros(micros))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

impl Record {
    /// A record out of the buffer `bytes`, which begins with `header` and was checked.
    pub(crate) fn slice(header: &Header, bytes: &Bytes) -> Self {
        let key = HEADER + usize::from(header.key);
        let attributes = key + usize::from(header.attributes);
        Self {
            number: header.number,
            time: time_of(header.micros),
            key: bytes.slice(HEADER..key),
            attributes: bytes.slice(key..attributes),
            payload: bytes.slice(attributes..attributes + header.payload as usize),
        }
    }
}
