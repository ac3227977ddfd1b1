//! Bundles of entries (C2SP tlog-tiles): each entry after its length in two bytes, most significant first.

use crate::error::LogError;
use crate::file::{LogFile, TILE_WIDTH};

/// Longest entry in bytes. Two bytes state its length.
pub const LONGEST_ENTRY: usize = 0xffff;
/// Longest bundle that a reader takes, in bytes. The entries of this log have about 400.
pub const LONGEST_BUNDLE: usize = 2 << 20;

/// Appends one entry to a bundle.
pub(crate) fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Result<(), LogError> {
    let length = u16::try_from(entry.len()).map_err(|_| LogError::TooLong(entry.len()))?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// The entries of a bundle, which must have as many as `file` says. The caller may take fewer of a full bundle.
///
/// # Errors
/// [`LogError::Damaged`].
pub fn read_bundle(file: LogFile, bytes: &[u8]) -> Result<Vec<&[u8]>, LogError> {
    let damaged = |why: &str| LogError::Damaged {
        file,
        why: why.to_owned(),
    };
    let LogFile::Entries { width, .. } = file else {
        return Err(damaged("it is no bundle"));
    };
    if bytes.len() > LONGEST_BUNDLE {
        return Err(damaged("it is too long"));
    }
    let mut entries = Vec::with_capacity(usize::from(TILE_WIDTH));
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, after) = after
            .split_at_checked(length)
            .ok_or_else(|| damaged("it ends within an entry"))?;
        if entries.len() == usize::from(width) {
            return Err(damaged("it has too many entries"));
        }
        entries.push(entry);
        rest = after;
    }
    if !rest.is_empty() || entries.len() != usize::from(width) {
        return Err(damaged("it has too few entries"));
    }
    Ok(entries)
}
