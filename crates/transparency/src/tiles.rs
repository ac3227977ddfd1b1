//! The right edge of a tree, and proofs from tiles.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::LogError;
use crate::file::{LogFile, TILE_WIDTH};
use crate::tree::{Hash, MerkleLog, Subtrees};

const WIDTH: usize = TILE_WIDTH as usize;
/// A tile is a tree of this height.
const HEIGHT: u32 = TILE_WIDTH.trailing_zeros();

/// A tree and the incomplete tile at the right end of each level: at most 255 hashes a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    log: MerkleLog,
    edges: Vec<Vec<Hash>>,
}

impl Tiles {
    /// The tree.
    pub fn log(&self) -> &MerkleLog {
        &self.log
    }

    /// Appends the hash of an entry. Returns the tiles that are full now, lowest first.
    pub fn append(&mut self, hash: Hash) -> Vec<(LogFile, Vec<u8>)> {
        self.log.append_hash(hash);
        let mut full = Vec::new();
        let mut hash = hash;
        for level in 0..HEIGHT as u8 {
            let level_index = usize::from(level);
            if self.edges.len() == level_index {
                self.edges.push(Vec::new());
            }
            let edge = &mut self.edges[level_index];
            edge.push(hash);
            if edge.len() < WIDTH {
                break;
            }
            let tile = std::mem::take(edge);
            hash = MerkleLog::from_leaf_hashes(tile.iter().copied()).root();
            let index = (self.log.size() >> (HEIGHT * (u32::from(level) + 1))) - 1;
            full.push((
                LogFile::Tile {
                    level,
                    index,
                    width: TILE_WIDTH,
                },
                tile.concat(),
            ));
        }
        full
    }

    /// The partial tiles, lowest first.
    pub fn partial(&self) -> impl Iterator<Item = (LogFile, Vec<u8>)> + '_ {
        let edges = (0u8..)
            .zip(&self.edges)
            .filter(|(_, edge)| !edge.is_empty());
        edges.map(|(level, edge)| {
            let file = LogFile::Tile {
                level,
                index: self.log.size() >> (HEIGHT * (u32::from(level) + 1)),
                width: edge.len() as u16,
            };
            (file, edge.concat())
        })
    }

    /// The partial tiles of a log of this size.
    pub fn partial_of(size: u64) -> impl Iterator<Item = LogFile> {
        let counts = (0u8..).map(move |level| (level, size >> (HEIGHT * u32::from(level))));
        counts
            .take(HEIGHT as usize)
            .filter(|(_, count)| !count.is_multiple_of(TILE_WIDTH.into()))
            .map(|(level, count)| LogFile::tile(level, count - 1, count))
    }

    /// The tree of this size and frontier, with its partial tiles, which `read` reads.
    ///
    /// # Errors
    /// [`LogError`] if a tile cannot be read or does not fit the frontier.
    pub fn restore(
        log: MerkleLog,
        mut read: impl FnMut(LogFile) -> Result<Vec<u8>, LogError>,
    ) -> Result<Self, LogError> {
        let mut edges = Vec::new();
        let mut frontier = log.frontier().iter().rev();
        for file in Self::partial_of(log.size()) {
            let LogFile::Tile { level, width, .. } = file else {
                continue;
            };
            let edge = hashes_of(file, &read(file)?)?;
            let found = MerkleLog::from_leaf_hashes(edge.iter().copied());
            let is_here = found
                .frontier()
                .iter()
                .rev()
                .all(|hash| frontier.next() == Some(hash));
            if !is_here || edge.len() != usize::from(width) {
                return Err(LogError::Damaged {
                    file,
                    why: "its hashes are not those of the tree".to_owned(),
                });
            }
            edges.resize(usize::from(level), Vec::new());
            edges.push(edge);
        }
        Ok(Self { log, edges })
    }
}

/// The hashes of a tile.
fn hashes_of(file: LogFile, bytes: &[u8]) -> Result<Vec<Hash>, LogError> {
    let (hashes, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() || hashes.is_empty() || hashes.len() > WIDTH {
        let why = format!("{} bytes are no tile", bytes.len());
        return Err(LogError::Damaged { file, why });
    }
    Ok(hashes.to_vec())
}

/// Reads the roots of subtrees from the tiles of a log of one size. Tiles are read once.
pub struct TileReader<R> {
    size: u64,
    read: R,
    tiles: BTreeMap<LogFile, Vec<Hash>>,
}

impl<R: FnMut(LogFile) -> Result<Vec<u8>, LogError>> TileReader<R> {
    /// A reader of the log of `size` entries. `read` reads a file.
    pub fn new(size: u64, read: R) -> Self {
        Self {
            size,
            read,
            tiles: BTreeMap::new(),
        }
    }

    /// The root of the complete subtree of this height that begins at the leaf `start`.
    fn complete(&mut self, start: u64, height: u32) -> Result<Hash, LogError> {
        let (level, inside) = (height / HEIGHT, height % HEIGHT);
        let first = start >> (HEIGHT * level);
        let file = LogFile::tile(level as u8, first, self.size >> (HEIGHT * level));
        if !self.tiles.contains_key(&file) {
            let hashes = hashes_of(file, &(self.read)(file)?)?;
            self.tiles.insert(file, hashes);
        }
        let from = (first % u64::from(TILE_WIDTH)) as usize;
        let hashes = self.tiles[&file].get(from..from + (1 << inside));
        let hashes = hashes.ok_or_else(|| LogError::Damaged {
            file,
            why: "it has too few hashes".to_owned(),
        })?;
        Ok(MerkleLog::from_leaf_hashes(hashes.iter().copied()).root())
    }
}

impl<R: FnMut(LogFile) -> Result<Vec<u8>, LogError>> Subtrees for TileReader<R> {
    fn root_of(&mut self, range: Range<u64>) -> Result<Hash, LogError> {
        if range.is_empty() || range.end > self.size {
            return Err(LogError::Beyond {
                wanted: range.end,
                size: self.size,
            });
        }
        // The range begins at a multiple of its largest power of two, so each power in its length is one subtree.
        let length = range.end - range.start;
        let mut start = range.start;
        let mut frontier = Vec::new();
        for height in (0..u64::BITS).rev().filter(|bit| length >> bit & 1 == 1) {
            frontier.push(self.complete(start, height)?);
            start += 1 << height;
        }
        Ok(MerkleLog::from_frontier(length, frontier)?.root())
    }
}
