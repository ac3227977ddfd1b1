//! Proofs for successive leaves: one proof shows where all of them stand in a tree. For one leaf it has the hashes of
//! the [inclusion proof](crate::inclusion_proof), for all leaves none.

use std::ops::Range;

use crate::error::LogError;
use crate::tree::{Hash, MerkleLog, Subtrees, node_hash, split};

/// Every node of a tree whose leaves are all known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeTree {
    /// The hashes of the leaves, then of each level above. The last one of a level may stand for fewer leaves.
    levels: Vec<Vec<Hash>>,
}

/// Successive leaves of a tree, and a proof: enough to compute the tree's root, and the proofs of fewer of the leaves.
#[derive(Clone, Debug)]
pub struct TreeRange<'a> {
    size: u64,
    range: Range<u64>,
    leaves: &'a [Hash],
    outside: Vec<(Range<u64>, Hash)>,
}

/// The largest subtrees beside `range` in a tree of `size` leaves, from left to right.
fn outside(size: u64, range: &Range<u64>) -> Vec<Range<u64>> {
    fn visit(tree: Range<u64>, range: &Range<u64>, found: &mut Vec<Range<u64>>) {
        if tree.end <= range.start || range.end <= tree.start {
            found.push(tree);
        } else if tree.start < range.start || range.end < tree.end {
            // It is partly in the range, so it has two leaves or more.
            let middle = tree.start + split(tree.end - tree.start);
            visit(tree.start..middle, range, found);
            visit(middle..tree.end, range, found);
        }
    }
    let mut found = Vec::new();
    visit(0..size, range, &mut found);
    found
}

/// Refuses ranges that are empty or not in the tree.
fn check(size: u64, range: &Range<u64>) -> Result<(), LogError> {
    match range.start < range.end && range.end <= size {
        true => Ok(()),
        false => Err(LogError::Beyond {
            wanted: range.end,
            size,
        }),
    }
}

/// The number of hashes in the proof for the leaves `range` of a tree of `size` leaves.
///
/// # Errors
/// [`LogError::Beyond`] for an empty range and one that is not in the tree.
pub fn range_proof_length(size: u64, range: &Range<u64>) -> Result<usize, LogError> {
    check(size, range)?;
    Ok(outside(size, range).len())
}

/// The proof for the leaves `range` of a tree of `size` leaves: the roots of the largest subtrees that contain none of
/// them, from left to right.
///
/// # Errors
/// [`LogError::Beyond`] for an empty range and one that is not in the tree; or the error of `subtrees`.
pub fn range_proof(
    mut subtrees: impl Subtrees,
    size: u64,
    range: &Range<u64>,
) -> Result<Vec<Hash>, LogError> {
    check(size, range)?;
    outside(size, range)
        .into_iter()
        .map(|subtree| subtrees.root_of(subtree))
        .collect()
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
        check(self.size(), &range)?;
        let level = (range.end - range.start)
            .next_power_of_two()
            .trailing_zeros();
        let index = range.start >> level;
        let subtree = (index << level)..((index + 1) << level).min(self.size());
        let levels = self.levels.get(level as usize);
        let node = levels.and_then(|it| it.get(usize::try_from(index).ok()?));
        match node {
            Some(node) if subtree == range => Ok(*node),
            _ => Err(LogError::Beyond {
                wanted: range.end,
                size: self.size(),
            }),
        }
    }
}

impl<'a> TreeRange<'a> {
    /// The leaves from `start` on, by their [hashes](crate::leaf_hash), of a tree of `size` leaves, and their
    /// [proof](range_proof). Nothing here is trusted: compare the [root](Self::root). Trees of different sizes may lead
    /// to one root, so the size must come from the same source as the root.
    ///
    /// # Errors
    /// [`LogError::Beyond`] for no leaves, leaves that are not in the tree, and a proof of the wrong length.
    pub fn new(
        size: u64,
        start: u64,
        leaves: &'a [Hash],
        proof: &[Hash],
    ) -> Result<Self, LogError> {
        let beyond = LogError::Beyond {
            wanted: start,
            size,
        };
        let end = start
            .checked_add(leaves.len() as u64)
            .ok_or(beyond.clone())?;
        let range = start..end;
        check(size, &range)?;
        let outside = outside(size, &range);
        if outside.len() != proof.len() {
            return Err(beyond);
        }
        Ok(Self {
            size,
            range,
            leaves,
            outside: outside.into_iter().zip(proof.iter().copied()).collect(),
        })
    }

    /// The root hash of the tree.
    ///
    /// # Errors
    /// None, as long as [`new`](Self::new) made the value.
    pub fn root(&self) -> Result<Hash, LogError> {
        let mut this = self;
        this.root_of(0..self.size)
    }
}

impl Subtrees for &TreeRange<'_> {
    fn root_of(&mut self, range: Range<u64>) -> Result<Hash, LogError> {
        check(self.size, &range)?;
        let known = &self.range;
        if known.start <= range.start && range.end <= known.end {
            let within = range.start - known.start..range.end - known.start;
            let mut leaves = self.leaves;
            return leaves.root_of(within);
        }
        if let Some((_, hash)) = self.outside.iter().find(|(subtree, _)| *subtree == range) {
            return Ok(*hash);
        }
        if range.end <= known.start || known.end <= range.start {
            // It is a part of a subtree of which only the root is known.
            return Err(LogError::Beyond {
                wanted: range.start,
                size: self.size,
            });
        }
        let middle = range.start + split(range.end - range.start);
        let left = self.root_of(range.start..middle)?;
        let right = self.root_of(middle..range.end)?;
        Ok(node_hash(&left, &right))
    }
}
