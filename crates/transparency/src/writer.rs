//! Appending to a log whose entries go to files.

use std::ops::Range;

use base64::Engine as _;
use sealbus_seal::Identity;
use serde::{Deserialize, Serialize};

use crate::base64;
use crate::bundle::push_entry;
use crate::checkpoint::Checkpoint;
use crate::error::LogError;
use crate::file::{LogFile, TILE_WIDTH};
use crate::tiles::Tiles;
use crate::tree::{MerkleLog, leaf_hash};

/// The part of a log that is in files: full bundles, and the tiles over them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// Entries in full bundles.
    pub size: u64,
    /// The tree over these entries: its frontier, in base64.
    frontier: Vec<String>,
}

/// Appends entries. Memory holds the right edge of the tree, the entries of the incomplete bundle, and the files that
/// were not written yet.
#[derive(Clone, Debug, Default)]
pub struct LogWriter {
    tiles: Tiles,
    bundle: Vec<u8>,
    /// Full tiles and bundles that are not in files yet.
    full: Vec<(LogFile, Vec<u8>)>,
    /// The tree at the end of the last full bundle.
    bundled: MerkleLog,
    /// The part of the log that is in files.
    head: LogHead,
    /// Whether nobody ever writes files.
    has_no_files: bool,
}

/// The files that a log of one size needs besides those that are written already.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The log that the files hold. Nobody has signed it yet.
    pub checkpoint: Checkpoint,
    /// The files. Write all of them before a checkpoint.
    pub files: Vec<(LogFile, Vec<u8>)>,
    /// The part that is in files for ever, once these are written.
    pub head: LogHead,
}

impl LogHead {
    fn of(log: &MerkleLog) -> Self {
        let frontier = log.frontier().iter();
        Self {
            size: log.size(),
            frontier: frontier.map(|hash| base64().encode(hash)).collect(),
        }
    }

    fn tree(&self) -> Result<MerkleLog, LogError> {
        let malformed = LogError::Malformed("the stored frontier is no list of hashes");
        let hash = |text: &String| base64().decode(text).ok()?.try_into().ok();
        let frontier: Option<Vec<_>> = self.frontier.iter().map(hash).collect();
        MerkleLog::from_frontier(self.size, frontier.ok_or(malformed)?)
    }
}

impl LogWriter {
    /// A log whose entries nobody writes to files, for a platform that ends with its process.
    pub fn without_files() -> Self {
        Self {
            has_no_files: true,
            ..Self::default()
        }
    }

    /// Continues a log after its full bundles. `read` reads the O(log n) tiles at the right edge of the tree.
    ///
    /// # Errors
    /// [`LogError`] if a tile cannot be read or does not fit.
    pub fn resume(
        head: LogHead,
        read: impl FnMut(LogFile) -> Result<Vec<u8>, LogError>,
    ) -> Result<Self, LogError> {
        let bundled = head.tree()?;
        if !head.size.is_multiple_of(TILE_WIDTH.into()) {
            return Err(LogError::Malformed("the stored log ends within a bundle"));
        }
        Ok(Self {
            tiles: Tiles::restore(bundled.clone(), read)?,
            bundled,
            head,
            ..Self::default()
        })
    }

    /// Appends an entry. Returns its index.
    ///
    /// # Errors
    /// [`LogError::TooLong`].
    pub fn append(&mut self, leaf: &[u8]) -> Result<u64, LogError> {
        let index = self.size();
        push_entry(&mut self.bundle, leaf)?;
        let full = self.tiles.append(leaf_hash(leaf));
        if self.size().is_multiple_of(TILE_WIDTH.into()) {
            let bundle = std::mem::take(&mut self.bundle);
            self.bundled = self.tiles.log().clone();
            if !self.has_no_files {
                let file = LogFile::Entries {
                    index: index / u64::from(TILE_WIDTH),
                    width: TILE_WIDTH,
                };
                self.full.push((file, bundle));
                self.full.extend(full);
            }
        }
        Ok(index)
    }

    /// The number of entries.
    pub fn size(&self) -> u64 {
        self.tiles.log().size()
    }

    /// The tree.
    pub fn tree(&self) -> &MerkleLog {
        self.tiles.log()
    }

    /// The log as it is, with the files that it needs.
    pub fn publication(&self, authority: &Identity) -> Publication {
        let mut files = self.full.clone();
        let rest = self.size() % u64::from(TILE_WIDTH);
        if rest > 0 {
            let file = LogFile::Entries {
                index: self.size() / u64::from(TILE_WIDTH),
                width: rest as u16,
            };
            files.push((file, self.bundle.clone()));
        }
        files.extend(self.tiles.partial());
        Publication {
            checkpoint: Checkpoint::of(authority, self.tiles.log()),
            files,
            head: LogHead::of(&self.bundled),
        }
    }

    /// Notes that the files of a publication are on disk. Returns the entries that files hold from now on.
    pub fn written(&mut self, head: LogHead) -> Range<u64> {
        let end = |file: &LogFile| match file {
            LogFile::Entries { index, .. } => (index + 1) << 8,
            LogFile::Tile { level, index, .. } => (index + 1) << (8 * (u32::from(*level) + 1)),
            _ => 0,
        };
        self.full.retain(|(file, _)| end(file) > head.size);
        let entries = self.head.size..head.size;
        self.head = head;
        entries
    }

    /// The part of the log that is in files for ever.
    pub fn head(&self) -> &LogHead {
        &self.head
    }
}
