//! A segment: one file of a stream. A header, then records.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `SEALJRN1` |
//! | 4 | salt: random, so that no writer of records can make a payload look like a record |
//! | 2, 2 | length of the stream's name; 0 |
//! | 8 | number of the first record |
//! | 8 | time it was begun, in microseconds since 1970; not before its predecessor's last record |
//! | 4 | CRC-32C of the fields before it and of the name |
//! | | the stream's name, zeros up to a multiple of 8 |

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use sealbus_files::Positions;
#[cfg(not(test))]
use sealbus_files::sync_folder;

use crate::change::Change;
#[cfg(test)]
use crate::disk_full::sync_folder;
use crate::error::JournalError;
use crate::record::{CommonHeader, HEADER, Header, Kind};

const MAGIC: &[u8; 8] = b"SEALJRN1";
const FIXED: usize = 36;
/// Longest name of a stream, in bytes.
pub(crate) const LONGEST_NAME: usize = 1024;
/// The distance in bytes between remembered places at which reading can begin.
const INDEXED: u32 = 64 * 1024;

/// The first bytes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) salt: u32,
    pub(crate) first: u64,
    pub(crate) micros: u64,
    pub(crate) name: String,
}

impl SegmentHeader {
    pub(crate) fn new(name: &str, first: u64, micros: u64) -> Self {
        let chance = std::collections::hash_map::RandomState::new();
        Self {
            salt: chance.build_hasher().finish() as u32,
            first,
            micros,
            name: name.to_owned(),
        }
    }

    pub(crate) fn length(&self) -> usize {
        (FIXED + self.name.len()).next_multiple_of(8)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.salt.to_le_bytes());
        // Names were checked to be shorter than LONGEST_NAME.
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.micros.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&out), self.name.as_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.resize(self.length(), 0);
        out
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(fixed) = bytes.first_chunk::<FIXED>() else {
            return Err("it is shorter than the header of a segment");
        };
        if &fixed[..8] != MAGIC {
            return Err("it is not a segment of a journal, or it has another version");
        }
        let word = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let length = (word(12) & 0xffff) as usize;
        let Some(name) = bytes.get(FIXED..FIXED + length) else {
            return Err("its header ends beyond the file");
        };
        if crc32c::crc32c_append(crc32c::crc32c(&fixed[..32]), name) != word(32) {
            return Err("the checksum of its header does not fit");
        }
        let name = std::str::from_utf8(name).map_err(|_| "the stream's name is not UTF-8")?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err("the stream's name is empty or too long");
        }
        let header = Self {
            salt: word(8),
            first: long(16),
            micros: long(24),
            name: name.to_owned(),
        };
        if bytes.len() < header.length() || header.first == 0 || header.first > u64::MAX / 2 {
            return Err("its header makes no sense");
        }
        Ok(header)
    }
}

/// A segment as it is known while the journal is open.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    /// Why its name may not be on disk. Another segment then takes its place before anything is written to it.
    pub(crate) unnamed: Option<JournalError>,
    /// The part that readers may read.
    pub(crate) readable: Mutex<Readable>,
}

/// Name of a segment's file.
pub(crate) fn file_name(first: u64) -> String {
    format!("{first:020}.segment")
}

/// Ending of a segment's file that is not complete.
pub(crate) const UNFINISHED: &str = "unfinished";

/// Makes the file of a segment, whole or not at all. Once the file has its name, it has replaced any other file of that
/// name. It is therefore no error if the name may not be on disk: the segment says so.
pub(crate) fn begin_segment(
    folder: &Path,
    header: SegmentHeader,
    changes: &[Change],
) -> Result<Segment, JournalError> {
    let mut bytes = header.write();
    let common = CommonHeader {
        salt: header.salt,
        synced: 0,
        micros: header.micros,
    };
    for change in changes {
        change.write(&mut bytes, common, header.first);
    }
    let path = folder.join(file_name(header.first));
    let unfinished = path.with_extension(UNFINISHED);
    let made = (|| {
        let file = File::create(&unfinished)?;
        file.write_all_from(&bytes, 0)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    })();
    made.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        JournalError::file("make", &path, error)
    })?;
    let mut segment = Segment::new(path, header);
    segment.unnamed = sync_folder(folder)
        .map_err(|error| JournalError::file("synchronise", folder, error))
        .err();
    segment.readable.get_mut().length = bytes.len() as u32;
    Ok(segment)
}

/// How far a segment can be read, and where to begin.
#[derive(Clone, Debug)]
pub(crate) struct Readable {
    /// Bytes that are on disk, in the file or in the redo log.
    pub(crate) length: u32,
    /// The last of these bytes, if the redo log has them and the file does not yet.
    pub(crate) deferred: Vec<u8>,
    /// Number after the last record that is on disk.
    pub(crate) next: u64,
    /// Numbers of records and their offsets, ascending.
    index: Vec<(u64, u32)>,
}

impl Segment {
    pub(crate) fn new(path: PathBuf, header: SegmentHeader) -> Self {
        let (length, next) = (header.length() as u32, header.first);
        Self {
            path,
            header,
            unnamed: None,
            readable: Mutex::new(Readable {
                length,
                deferred: Vec::new(),
                next,
                index: Vec::new(),
            }),
        }
    }
}

impl Readable {
    /// Bytes that the file has.
    pub(crate) fn written(&self) -> u32 {
        self.length - self.deferred.len() as u32
    }

    /// Notes that a record lies at `offset`.
    pub(crate) fn note(&mut self, number: u64, offset: u32) {
        let due = self.index.last().map_or(0, |(_, last)| last + INDEXED);
        if offset >= due {
            self.index.push((number, offset));
        }
    }

    /// The place at which to begin to look for a record: the number of the record there, and its offset.
    pub(crate) fn place_of(&self, number: u64) -> Option<(u64, u32)> {
        let after = self.index.partition_point(|(first, _)| *first <= number);
        after.checked_sub(1).map(|before| self.index[before])
    }
}

/// How the bytes of a segment end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a whole record.
    Whole,
    /// The file ends in bytes that were not on disk when the process or the machine stopped.
    Torn {
        /// The offset of those bytes.
        offset: usize,
        /// The bytes that are there instead of a record.
        problem: &'static str,
    },
    /// With bytes that were on disk.
    Damaged {
        /// The offset of the damage.
        offset: usize,
        /// The fault.
        problem: &'static str,
    },
}

/// Scans all records after the header of a segment. `visit` gets each header, its offset and its body. `last` says that
/// this is the segment being written, whose tail may be torn.
pub(crate) fn scan<'a>(
    bytes: &'a [u8],
    segment: &SegmentHeader,
    last: bool,
    mut visit: impl FnMut(&Header, usize, &'a [u8]),
) -> End {
    let mut offset = segment.length();
    let mut next = segment.first;
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        let header = match whole(rest, segment.salt, next) {
            Ok(header) => header,
            Err(problem) if last && !was_synced(bytes, offset, segment.salt) => {
                return End::Torn { offset, problem };
            }
            Err(problem) => return End::Damaged { offset, problem },
        };
        visit(&header, offset, &rest[HEADER..HEADER + header.body()]);
        if header.kind == Kind::Record {
            next += 1;
        }
        offset += header.length();
    }
    End::Whole
}

/// The header of the whole record at the beginning of `rest`.
fn whole(rest: &[u8], salt: u32, number: u64) -> Result<Header, &'static str> {
    let header = Header::read(rest, salt)?;
    header.check_body(rest)?;
    if header.number != number {
        return Err("the record is not the one that is to follow");
    }
    if header.length() > rest.len() {
        return Err("the record ends beyond the file");
    }
    Ok(header)
}

/// Whether a record after `offset` was written when the bytes at `offset` were on disk.
fn was_synced(bytes: &[u8], offset: usize, salt: u32) -> bool {
    let later = (offset + 8..bytes.len()).step_by(8);
    later
        .filter_map(|at| Header::read(&bytes[at..], salt).ok())
        .any(|header| header.synced as usize > offset)
}

/// Checks a whole segment. Returns the number of records and the number of whole bytes, if its header can be read.
pub fn check_segment(bytes: &[u8]) -> Option<(u64, usize)> {
    let header = SegmentHeader::read(bytes).ok()?;
    let mut records = 0;
    let mut whole = header.length();
    scan(bytes, &header, true, |record, offset, body| {
        let (key, attributes, payload) = record.split(body);
        assert_eq!(key.len() + attributes.len() + payload.len(), body.len());
        records += u64::from(record.kind == Kind::Record);
        whole = offset + record.length();
    });
    Some((records, whole))
}
