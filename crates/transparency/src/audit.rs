//! Reading a whole log without trust in it.

use std::collections::{BTreeMap, VecDeque};

use crate::bundle::read_bundle;
use crate::checkpoint::Checkpoint;
use crate::error::LogError;
use crate::file::{LogFile, TILE_WIDTH};
use crate::tiles::Tiles;
use crate::tree::{Hash, leaf_hash};

/// An entry that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub index: u64,
    /// Its bytes.
    pub leaf: Vec<u8>,
}

/// Reads a log file by file, builds the tree again, and compares it with every tile, with the checkpoint, and with the
/// checkpoints that others saw. Memory holds the right edge of the tree.
///
/// Read [`wants`](Self::wants), [`give`](Self::give) it, and so on until nothing is wanted; then [`finish`](Self::finish).
/// The result can go on to a later checkpoint of the same log ([`go_on`](Self::go_on)).
pub struct Audit {
    target: Checkpoint,
    tiles: Tiles,
    /// Tiles that must have these bytes.
    expected: VecDeque<(LogFile, Vec<u8>)>,
    /// The roots that others saw, by size.
    seen: BTreeMap<u64, Vec<Hash>>,
    /// Whether the partial tiles at the end are compared already.
    is_at_edge: bool,
}

impl Audit {
    /// Begins the audit of the log of this checkpoint, whose signature the caller has checked.
    pub fn new(target: Checkpoint) -> Self {
        Self {
            target,
            tiles: Tiles::default(),
            expected: VecDeque::new(),
            seen: BTreeMap::new(),
            is_at_edge: false,
        }
    }

    /// Goes on to a later checkpoint of the same log, after the audit of the earlier one is finished.
    ///
    /// # Errors
    /// [`LogError::Truncated`] if the checkpoint is shorter than the entries that were read.
    pub fn go_on(&mut self, target: Checkpoint) -> Result<(), LogError> {
        let size = self.tiles.log().size();
        if target.size < size {
            return Err(LogError::Truncated {
                seen: size,
                size: target.size,
            });
        }
        self.target = target;
        self.is_at_edge = false;
        Ok(())
    }

    /// Demands that the log continues a checkpoint that somebody else saw.
    ///
    /// # Errors
    /// [`LogError::Truncated`] if the log is shorter, and [`LogError::Malformed`] if the checkpoint is of another log.
    pub fn must_continue(&mut self, seen: &Checkpoint) -> Result<(), LogError> {
        if seen.origin != self.target.origin {
            return Err(LogError::Malformed("it is of another log"));
        }
        if seen.size > self.target.size {
            return Err(LogError::Truncated {
                seen: seen.size,
                size: self.target.size,
            });
        }
        self.seen.entry(seen.size).or_default().push(seen.root);
        self.compare_seen()
    }

    /// The file that is needed next.
    pub fn wants(&self) -> Option<LogFile> {
        if let Some((file, _)) = self.expected.front() {
            return Some(*file);
        }
        let (read, size) = (self.tiles.log().size(), self.target.size);
        if read < size {
            let index = read / u64::from(TILE_WIDTH);
            let rest = size - index * u64::from(TILE_WIDTH);
            let width = rest.min(u64::from(TILE_WIDTH)) as u16;
            return Some(LogFile::Entries { index, width });
        }
        None
    }

    /// Takes the wanted file, or the [full](LogFile::full) one that has taken the place of a partial one. Returns the
    /// entries that were not read before.
    ///
    /// # Errors
    /// [`LogError`] if the file contradicts the entries. The audit has then failed.
    pub fn give(&mut self, file: LogFile, bytes: &[u8]) -> Result<Vec<Entry>, LogError> {
        let wanted = self.wants();
        let damaged = |why: &str| LogError::Damaged {
            file,
            why: why.to_owned(),
        };
        if wanted != Some(file) && wanted.map(LogFile::full) != Some(file) {
            return Err(damaged("it was not asked for"));
        }
        if let Some((expected_file, expected)) = self.expected.pop_front() {
            let is_right = if expected_file == file {
                bytes == expected
            } else {
                bytes.starts_with(&expected)
            };
            if !is_right {
                return Err(damaged("its hashes are not those of the entries"));
            }
            return Ok(Vec::new());
        }
        let Some(LogFile::Entries { index, width }) = wanted else {
            return Err(damaged("it was not asked for"));
        };
        let entries = read_bundle(file, bytes)?;
        let first = index * u64::from(TILE_WIDTH);
        let known = (self.tiles.log().size() - first) as usize;
        // Entries that were read before must be the same still.
        let (old, new) = entries[..usize::from(width)].split_at(known);
        let edge = self.tiles.partial().next().filter(|_| known > 0);
        let old: Vec<Hash> = old.iter().map(|leaf| leaf_hash(leaf)).collect();
        if edge.is_some_and(|(_, hashes)| hashes != old.concat()) {
            return Err(damaged("entries that were read before have changed"));
        }
        let mut read = Vec::with_capacity(new.len());
        for leaf in new {
            let index = self.tiles.log().size();
            self.expected.extend(self.tiles.append(leaf_hash(leaf)));
            self.compare_seen()?;
            read.push(Entry {
                index,
                leaf: leaf.to_vec(),
            });
        }
        if self.tiles.log().size() == self.target.size && !self.is_at_edge {
            self.is_at_edge = true;
            self.expected.extend(self.tiles.partial());
        }
        Ok(read)
    }

    fn compare_seen(&mut self) -> Result<(), LogError> {
        let size = self.tiles.log().size();
        let Some(roots) = self.seen.remove(&size) else {
            return Ok(());
        };
        let root = self.tiles.log().root();
        if roots.iter().any(|seen| *seen != root) {
            return Err(LogError::NotConsistent {
                old: size,
                new: self.target.size,
            });
        }
        Ok(())
    }

    /// Ends the audit: the entries must have the root of the checkpoint.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn finish(&self) -> Result<&Checkpoint, LogError> {
        if let Some(file) = self.wants() {
            let why = "the audit has not read it".to_owned();
            return Err(LogError::Unreadable { file, why });
        }
        // Checkpoints below the size from which this audit went on.
        if let Some((size, _)) = self.seen.first_key_value() {
            return Err(LogError::NotConsistent {
                old: *size,
                new: self.target.size,
            });
        }
        if self.tiles.log().root() != self.target.root {
            return Err(LogError::WrongRoot {
                size: self.target.size,
            });
        }
        Ok(&self.target)
    }
}
