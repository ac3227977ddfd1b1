//! A tree whose leaves are all known, for many proofs of one tree.

use std::ops::Range;

use crate::error::LogError;
use crate::tree::{Hash, MerkleLog, Subtrees, node_hash};

/// Every node of a tree whose leaves are all known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeTree {
    /// The hashes of the leaves, then of each level above. The last one of a level may stand for fewer leaves.
    levels: Vec<Vec<Hash>>,
}

impl WholeTree {
    /// The tree over the [hashes](crate::leaf_hash) of its leaves.
    pub fn new(leaves: Vec<Hash>) -> Self {
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|below| below.len() > 1) {
            let above = below.chunks(2).map(|pair| match pair {
                [left, right] => node_hash(left, right),
                // RFC 9162 gives a single subtree to the level above as it is.
                alone => alone[0],
            });
            levels.push(above.collect());
        }
        Self { levels }
    }

    /// The number of leaves.
    pub fn size(&self) -> u64 {
        self.levels[0].len() as u64
    }

    /// The root hash.
    pub fn root(&self) -> Hash {
        let top = self.levels.last().and_then(|level| level.first());
        top.copied().unwrap_or_else(|| MerkleLog::new().root())
    }
}

impl Subtrees for &WholeTree {
    fn root_of(&mut self, range: Range<u64>) -> Result<Hash, LogError> {
        let beyond = LogError::Beyond {
            wanted: range.end,
            size: self.size(),
        };
        if range.start >= range.end || range.end > self.size() {
            return Err(beyond);
        }
        let level = (range.end - range.start)
            .next_power_of_two()
            .trailing_zeros();
        let index = range.start >> level;
        let subtree = (index << level)..((index + 1) << level).min(self.size());
        let levels = self.levels.get(level as usize);
        let node = levels.and_then(|it| it.get(usize::try_from(index).ok()?));
        match node {
            Some(node) if subtree == range => Ok(*node),
            _ => Err(beyond),
        }
    }
}
