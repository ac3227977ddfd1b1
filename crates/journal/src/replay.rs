//! The entries of the redo log, and how they are written into their segments again.
//!
//! The log is a stream. Each of its records is an entry: the bytes that a group wrote into one segment. Its key names the
//! place of the bytes:
//!
//! | bytes | |
//! |---|---|
//! | 8 | number of the stream in its journal |
//! | 8 | number of the first record of the segment |
//! | 4 | salt of the segment |
//! | 4 | offset of the bytes in the segment |
//!
//! An old entry never overwrites newer bytes. Acknowledged bytes of a segment stay as they are, and a segment that takes
//! the place of another has another salt. Entries that were refused, or are torn, leave the disk before anything else is
//! written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sealbus_files::Positions;

use crate::error::{Damage, JournalError};
use crate::record::{HEADER, Header, Kind};
use crate::recovery::{LONGEST_FILE, LONGEST_HEADER, entries, id_of};
use crate::segment::{SegmentHeader, file_name};

/// Most bytes of one stream in an entry. More bytes gain nothing from the log, because it writes all bytes twice.
pub(crate) const LARGEST: usize = 128 * 1024;
const KEY: usize = 24;

/// The place where the bytes of an entry belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the stream.
    pub stream: u64,
    /// First record of the segment.
    pub first: u64,
    /// Salt of the segment.
    pub salt: u32,
    /// Offset in the segment.
    pub offset: u32,
}

impl Place {
    pub(crate) fn write(self) -> [u8; KEY] {
        let mut key = [0; KEY];
        key[..8].copy_from_slice(&self.stream.to_le_bytes());
        key[8..16].copy_from_slice(&self.first.to_le_bytes());
        key[16..20].copy_from_slice(&self.salt.to_le_bytes());
        key[20..].copy_from_slice(&self.offset.to_le_bytes());
        key
    }

    fn read(key: &[u8]) -> Option<Self> {
        let key: &[u8; KEY] = key.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Self {
            stream: long(0),
            first: long(8),
            salt: word(16),
            offset: word(20),
        })
    }
}

/// The first fault of a file: its offset, and what is wrong.
type Fault = (u64, &'static str);

/// Reads a file of the log in small pieces. `visit` gets every whole entry up to a torn tail, which only the newest file
/// may have. Returns the first damage, if there is any.
pub fn read_log(
    source: impl Read + Seek,
    is_newest: bool,
    mut visit: impl FnMut(Place, &[u8]) -> io::Result<()>,
) -> io::Result<Option<Fault>> {
    let mut source = BufReader::with_capacity(2 * LARGEST, source);
    let mut head = Vec::new();
    source
        .by_ref()
        .take(LONGEST_HEADER)
        .read_to_end(&mut head)?;
    let segment = match SegmentHeader::read(&head) {
        Ok(segment) => segment,
        Err(problem) => return Ok(Some((0, problem))),
    };
    let mut offset = segment.length() as u64;
    source.seek(SeekFrom::Start(offset))?;
    let mut damage = None;
    let mut bytes = Vec::new();
    while !source.fill_buf()?.is_empty() {
        let problem = match next_record(&mut source, segment.salt, &mut bytes)? {
            Ok(header) => {
                let (key, _, content) = header.split(&bytes[HEADER..]);
                match Place::read(key) {
                    Some(place) if header.kind == Kind::Record => visit(place, content)?,
                    _ => {}
                }
                offset += bytes.len() as u64;
                continue;
            }
            Err(problem) => problem,
        };
        let here = source.stream_position()?;
        source.seek_relative(offset as i64 - here as i64)?;
        let later = later_record(&mut source, offset, segment.salt, is_newest)?;
        if later.is_some() || !is_newest {
            damage.get_or_insert((offset, problem));
        }
        let Some(later) = later else {
            break;
        };
        offset = later;
    }
    Ok(damage)
}

/// Reads a whole record into `bytes`.
fn next_record(
    source: &mut impl Read,
    salt: u32,
    bytes: &mut Vec<u8>,
) -> io::Result<Result<Header, &'static str>> {
    bytes.clear();
    source.take(HEADER as u64).read_to_end(bytes)?;
    let header = match Header::read(bytes, salt) {
        Ok(header) if header.body() <= KEY + LARGEST => header,
        Ok(_) => return Ok(Err("the entry is longer than any may be")),
        Err(problem) => return Ok(Err(problem)),
    };
    let rest = header.length() - HEADER;
    source.take(rest as u64).read_to_end(bytes)?;
    if bytes.len() < header.length() {
        return Ok(Err("the record ends beyond the file"));
    }
    Ok(header.check_body(bytes).map(|()| header))
}

/// Finds the next record behind `offset`, where `source` stands. In the newest file, the bytes at `offset` must have been
/// on disk when that record was written. `source` then stands at the record.
fn later_record<R: Read + Seek>(
    source: &mut BufReader<R>,
    offset: u64,
    salt: u32,
    is_newest: bool,
) -> io::Result<Option<u64>> {
    let mut window = [0; HEADER];
    let mut end = offset;
    loop {
        window.copy_within(8.., 0);
        match source.read_exact(&mut window[HEADER - 8..]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        end += 8;
        let at = end.saturating_sub(HEADER as u64);
        if at > offset
            && Header::read(&window, salt)
                .is_ok_and(|header| !is_newest || u64::from(header.synced) > offset)
        {
            source.seek_relative(-(HEADER as i64))?;
            return Ok(Some(at));
        }
    }
}

/// Writes the entries of the log's files, oldest first, into the segments that are still there. Returns these segments,
/// which are not synchronised. `damaged` gets the damage of each file. Only the last file may be torn, and only if
/// `is_newest_there`.
pub(crate) fn replay(
    journal: &Path,
    files: &[PathBuf],
    is_newest_there: bool,
    damaged: &mut Vec<Damage>,
) -> Result<HashSet<PathBuf>, JournalError> {
    let folders: HashMap<u64, PathBuf> = entries(journal)?
        .into_iter()
        .filter_map(|path| Some((id_of(&path)?, path)))
        .collect();
    let mut segments = HashSet::new();
    let mut absent = BTreeSet::new();
    for (index, path) in files.iter().enumerate() {
        let failed = |error| JournalError::file("read", path, error);
        let file = File::open(path).map_err(failed)?;
        let is_newest = is_newest_there && index + 1 == files.len();
        let mut unwritten = None;
        let read = read_log(file, is_newest, |place, bytes| {
            let Some(folder) = folders.get(&place.stream) else {
                absent.insert(place.stream);
                return Ok(());
            };
            let segment = folder.join(file_name(place.first));
            match write_again(&segment, place, bytes) {
                Ok(true) => {
                    segments.insert(segment);
                }
                Ok(false) => {}
                Err(error) => {
                    unwritten = Some(JournalError::file("write", &segment, error));
                    return Err(io::ErrorKind::Other.into());
                }
            }
            Ok(())
        });
        if let Some(error) = unwritten {
            return Err(error);
        }
        if let Some((offset, problem)) = read.map_err(failed)? {
            damaged.push(Damage {
                file: path.clone(),
                offset,
                problem: format!("{problem}; the ends of streams may be missing"),
            });
        }
    }
    if let Some(first) = absent.first() {
        tracing::info!(journal = %journal.display(), streams = absent.len(), first, "the redo log has records of streams that are not there: they were removed, or their folders are lost");
    }
    Ok(segments)
}

/// Returns false if the segment is no longer there, or is another one.
fn write_again(path: &Path, place: Place, bytes: &[u8]) -> io::Result<bool> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut head = Vec::new();
    (&file).take(LONGEST_HEADER).read_to_end(&mut head)?;
    let offset = u64::from(place.offset);
    let belongs = SegmentHeader::read(&head).is_ok_and(|header| {
        header.salt == place.salt
            && header.first == place.first
            && offset >= header.length() as u64
            && offset + bytes.len() as u64 <= LONGEST_FILE
    });
    if belongs {
        file.write_all_from(bytes, offset)?;
    }
    Ok(belongs)
}
