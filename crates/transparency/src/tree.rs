//! The append-only Merkle tree of RFC 9162. It keeps no leaves, only its frontier, O(log n) hashes. The verifying
//! functions need only their arguments.

use std::ops::Range;

use crate::error::LogError;

/// A node of the tree: SHA-256.
pub type Hash = [u8; 32];

/// The frontier of a tree: enough to append leaves and to compute the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MerkleLog {
    size: u64,
    /// The roots of the complete subtrees that make up the tree, largest first.
    frontier: Vec<Hash>,
}

/// The hash of a leaf: SHA-256 of a zero byte and the leaf (RFC 9162 section 2.1.1).
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    let mut short = [0; 256];
    match short.get_mut(1..=leaf.len()) {
        Some(room) => {
            room.copy_from_slice(leaf);
            crate::sha256(&short[..=leaf.len()])
        }
        None => crate::sha256(&[&[0], leaf].concat()),
    }
}

pub(crate) fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut node = [1; 65];
    node[1..33].copy_from_slice(left);
    node[33..].copy_from_slice(right);
    crate::sha256(&node)
}

/// The root of a tree without leaves: SHA-256 of no bytes.
pub(crate) fn empty_root() -> Hash {
    crate::sha256(b"")
}

impl MerkleLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// A log from its stored size and frontier.
    pub fn from_frontier(size: u64, frontier: Vec<Hash>) -> Result<Self, LogError> {
        let expected = size.count_ones();
        if frontier.len() != expected as usize {
            return Err(LogError::Frontier {
                size,
                expected,
                found: frontier.len(),
            });
        }
        Ok(Self { size, frontier })
    }

    /// A log recomputed from the hashes of all its leaves.
    pub fn from_leaf_hashes(hashes: impl IntoIterator<Item = Hash>) -> Self {
        let mut log = Self::new();
        for hash in hashes {
            log.append_hash(hash);
        }
        log
    }

    /// Appends a leaf and returns its index.
    pub fn append(&mut self, leaf: &[u8]) -> u64 {
        self.append_hash(leaf_hash(leaf))
    }

    /// Appends a leaf by its [hash](leaf_hash) and returns its index.
    pub(crate) fn append_hash(&mut self, mut hash: Hash) -> u64 {
        let index = self.size;
        // The number of subtrees that close is the number of trailing ones in the size.
        for _ in 0..index.trailing_ones() {
            if let Some(left) = self.frontier.pop() {
                hash = node_hash(&left, &hash);
            }
        }
        self.frontier.push(hash);
        self.size += 1;
        index
    }

    /// The number of entries.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The stored subtrees, largest first. The frontier and the size are all that is needed to continue.
    pub fn frontier(&self) -> &[Hash] {
        &self.frontier
    }

    /// The root hash.
    pub fn root(&self) -> Hash {
        let mut subtrees = self.frontier.iter().rev();
        match subtrees.next() {
            None => empty_root(),
            Some(last) => subtrees.fold(*last, |right, left| node_hash(left, &right)),
        }
    }
}

/// The largest power of two smaller than `n`, for `n` of at least 2.
pub(crate) fn split(n: u64) -> u64 {
    1 << (u64::BITS - 1 - (n - 1).leading_zeros())
}

/// The root of the tree over leaves with these hashes.
pub fn tree_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [alone] => *alone,
        _ => {
            // Half of the leaves at most, and their number fits.
            let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
            node_hash(&tree_root(left), &tree_root(right))
        }
    }
}

/// A source of the roots of subtrees.
pub trait Subtrees {
    /// The root of the tree over the leaves of `range`, which begins at a multiple of the largest power of two not
    /// above its length.
    ///
    /// # Errors
    /// [`LogError`] if a hash cannot be read.
    fn root_of(&mut self, range: Range<u64>) -> Result<Hash, LogError>;
}

/// The hashes of all leaves.
impl Subtrees for &[Hash] {
    fn root_of(&mut self, range: Range<u64>) -> Result<Hash, LogError> {
        let beyond = LogError::Beyond {
            wanted: range.end,
            size: self.len() as u64,
        };
        let within = usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok())
            .and_then(|(start, end)| self.get(start..end))
            .ok_or(beyond)?;
        Ok(tree_root(within))
    }
}

/// The proof that the leaf `index` is in the tree of the first `size` leaves (RFC 9162 section 2.1.3.1).
///
/// # Errors
/// [`LogError::Beyond`], or the error of `subtrees`.
pub fn inclusion_proof(
    mut subtrees: impl Subtrees,
    size: u64,
    index: u64,
) -> Result<Vec<Hash>, LogError> {
    if index >= size {
        return Err(LogError::Beyond {
            wanted: index,
            size,
        });
    }
    let mut proof = Vec::new();
    let mut rest = 0..size;
    while rest.end - rest.start > 1 {
        let middle = rest.start + split(rest.end - rest.start);
        if index < middle {
            proof.push(subtrees.root_of(middle..rest.end)?);
            rest.end = middle;
        } else {
            proof.push(subtrees.root_of(rest.start..middle)?);
            rest.start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The proof that the tree of the first `old_size` leaves is the beginning of the tree of `size` leaves (RFC 9162
/// section 2.1.4.1).
///
/// # Errors
/// [`LogError::Beyond`], or the error of `subtrees`.
pub fn consistency_proof(
    mut subtrees: impl Subtrees,
    size: u64,
    old_size: u64,
) -> Result<Vec<Hash>, LogError> {
    if old_size > size {
        return Err(LogError::Beyond {
            wanted: old_size,
            size,
        });
    }
    let mut proof = Vec::new();
    if old_size == 0 || old_size == size {
        return Ok(proof);
    }
    let mut rest = 0..size;
    let mut old_is_a_known_subtree = true;
    while old_size != rest.end {
        let middle = rest.start + split(rest.end - rest.start);
        if old_size <= middle {
            proof.push(subtrees.root_of(middle..rest.end)?);
            rest.end = middle;
        } else {
            proof.push(subtrees.root_of(rest.start..middle)?);
            rest.start = middle;
            old_is_a_known_subtree = false;
        }
    }
    if !old_is_a_known_subtree {
        proof.push(subtrees.root_of(rest)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Checks that a leaf with this hash is entry `index` of the tree (RFC 9162 section 2.1.3.2).
pub fn verify_inclusion(
    leaf_hash: &Hash,
    index: u64,
    size: u64,
    root: &Hash,
    proof: &[Hash],
) -> Result<(), LogError> {
    match inclusion_root(leaf_hash, index, size, proof) {
        Ok(found) if found == *root => Ok(()),
        _ => Err(LogError::NotIncluded { index, size }),
    }
}

/// The root of the tree of `size` leaves to which the proof leads, if a leaf with this hash is entry `index` (RFC 9162
/// section 2.1.3.2). Trees of different sizes may lead to one root, so the size must come from the same source as the root.
///
/// # Errors
/// [`LogError::NotIncluded`] for a proof of the wrong length, and an entry beyond the tree.
pub fn inclusion_root(
    leaf_hash: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
) -> Result<Hash, LogError> {
    let wrong = LogError::NotIncluded { index, size };
    if index >= size {
        return Err(wrong);
    }
    let (mut node, mut last) = (index, size - 1);
    let mut hash = *leaf_hash;
    for sibling in proof {
        if last == 0 {
            return Err(wrong);
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    match last {
        0 => Ok(hash),
        _ => Err(wrong),
    }
}

/// The number of hashes in the [inclusion proof](inclusion_proof) of the leaf `index` of a tree of `size` leaves.
///
/// # Errors
/// [`LogError::Beyond`].
pub fn inclusion_length(size: u64, index: u64) -> Result<usize, LogError> {
    if index >= size {
        return Err(LogError::Beyond {
            wanted: index,
            size,
        });
    }
    let (mut length, mut rest) = (0, 0..size);
    while rest.end - rest.start > 1 {
        let middle = rest.start + split(rest.end - rest.start);
        match index < middle {
            true => rest.end = middle,
            false => rest.start = middle,
        }
        length += 1;
    }
    Ok(length)
}

/// Checks that the older tree is the beginning of the newer (RFC 9162 section 2.1.4.2).
pub fn verify_consistency(
    old_size: u64,
    old_root: &Hash,
    new_size: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> Result<(), LogError> {
    let wrong = LogError::NotConsistent {
        old: old_size,
        new: new_size,
    };
    let holds = if old_size > new_size {
        false
    } else if old_size == new_size {
        proof.is_empty() && old_root == new_root
    } else if old_size == 0 {
        proof.is_empty() && *old_root == empty_root()
    } else {
        consistent(old_size, old_root, new_size, new_root, proof)
    };
    if holds { Ok(()) } else { Err(wrong) }
}

fn consistent(
    old_size: u64,
    old_root: &Hash,
    new_size: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> bool {
    let mut proof = proof.iter();
    let first = if old_size.is_power_of_two() {
        Some(old_root)
    } else {
        proof.next()
    };
    let Some(first) = first else { return false };
    let (mut node, mut last) = (old_size - 1, new_size - 1);
    while node & 1 == 1 {
        node >>= 1;
        last >>= 1;
    }
    let (mut old_hash, mut new_hash) = (*first, *first);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            old_hash = node_hash(sibling, &old_hash);
            new_hash = node_hash(sibling, &new_hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node_hash(&new_hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}
