//! Changes of a stream other than new records: cursors, removals and trimming.

use crate::record::{self, CommonHeader, HEADER, Kind};

/// The most separate stretches of removed records in a stream, and in one change.
pub(crate) const MOST_STRETCHES: usize = 65_536;

/// A change of a stream's cursors, removals or trimming.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Cursor {
        name: String,
        /// `None` removes the cursor.
        position: Option<u64>,
    },
    Remove {
        stretches: Vec<(u64, u64)>,
    },
    Trim {
        before: u64,
    },
}

impl Change {
    /// Appends the change as a record of its kind.
    pub(crate) fn write(&self, out: &mut Vec<u8>, common: CommonHeader, number: u64) {
        match self {
            Self::Cursor { name, position } => {
                let position = position.map(u64::to_le_bytes);
                let position = position.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                let parts = [name.as_bytes(), &[], position];
                record::write(out, common, Kind::Cursor, number, parts);
            }
            Self::Remove { stretches } => {
                let mut body = Vec::with_capacity(stretches.len() * 16);
                for (first, end) in stretches {
                    body.extend_from_slice(&first.to_le_bytes());
                    body.extend_from_slice(&end.to_le_bytes());
                }
                record::write(out, common, Kind::Removed, number, [&[], &[], &body]);
            }
            Self::Trim { before } => {
                let before = before.to_le_bytes();
                record::write(out, common, Kind::Trimmed, number, [&[], &[], &before]);
            }
        }
    }

    /// Bytes that the change takes in a file, or a few less.
    pub(crate) fn size(&self) -> usize {
        HEADER
            + match self {
                Self::Cursor { name, .. } => name.len() + size_of::<u64>(),
                Self::Remove { stretches } => stretches.len() * 2 * size_of::<u64>(),
                Self::Trim { .. } => size_of::<u64>(),
            }
    }

    /// Reads a change back; `None` if the record is not a change.
    pub(crate) fn read(kind: Kind, key: &[u8], payload: &[u8]) -> Option<Self> {
        let long = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        match kind {
            Kind::Record => None,
            Kind::Cursor => Some(Self::Cursor {
                name: std::str::from_utf8(key).ok()?.to_owned(),
                position: match payload {
                    [] => None,
                    bytes => Some(long(bytes)?),
                },
            }),
            Kind::Removed if payload.len().is_multiple_of(16) => Some(Self::Remove {
                stretches: payload
                    .chunks_exact(16)
                    .map(|pair| Some((long(&pair[..8])?, long(&pair[8..])?)))
                    .collect::<Option<_>>()?,
            }),
            Kind::Removed => None,
            Kind::Trimmed => Some(Self::Trim {
                before: long(payload)?,
            }),
        }
    }

    /// The number that the caller gets back.
    pub(crate) fn answer(&self) -> u64 {
        match self {
            Self::Cursor { position, .. } => position.unwrap_or(0),
            Self::Remove { stretches } => stretches.iter().map(|(first, end)| end - first).sum(),
            Self::Trim { before } => *before,
        }
    }
}
