//! The issuance log: an append-only Merkle tree over every certificate issued (RFC 9162).
//!
//! The log keeps no leaves, only the tree's frontier, O(log n) hashes. The caller stores the leaves. Proofs are
//! computed from the hashes of the leaves. The verifying functions need only their arguments.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::authority::IssuingAuthority;
use crate::certificate::{Certificate, Fingerprint, Serial};
use crate::identity::{Identity, PlatformName};
use crate::key::{KeyError, PublicKey, Signature};
use crate::timestamp::Timestamp;

/// A node of the tree: SHA-256.
pub type Hash = [u8; 32];

/// One entry of the log: the certificate, its owner, its requester and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuanceRecord {
    /// The certified identity.
    pub identity: Identity,
    /// The certified address, as text.
    pub address: String,
    /// The node that asked; `None` for the operator.
    pub on_behalf_of: Option<Identity>,
    /// The authority that signed.
    pub authority: Identity,
    /// The certificate's serial number.
    pub serial: Serial,
    /// The first valid second.
    pub not_before: Timestamp,
    /// The last valid second.
    pub not_after: Timestamp,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// SHA-256 of the certificate.
    pub certificate: Fingerprint,
}

/// The frontier of a tree: enough to append leaves and to compute the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MerkleLog {
    size: u64,
    /// The roots of the complete subtrees that make up the tree, largest first.
    frontier: Vec<Hash>,
}

/// A signed statement of a tree's size and root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The authority of the log.
    pub authority: Identity,
    /// The number of entries.
    pub size: u64,
    /// The root hash.
    pub root: Hash,
}

/// Why a log, a proof or a checkpoint is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// A frontier does not fit its size.
    #[error("a log of {size} entries has {expected} subtrees, but {found} were stored")]
    Frontier {
        /// Entries.
        size: u64,
        /// Complete subtrees of a tree of that size.
        expected: u32,
        /// Hashes given.
        found: usize,
    },
    /// The entry or tree asked for lies beyond the log.
    #[error("there is no entry or tree {wanted} in a log of {size} entries")]
    Beyond {
        /// The index or size asked for.
        wanted: u64,
        /// The size of the log.
        size: u64,
    },
    /// The entry is not in the tree, or the proof is wrong.
    #[error(
        "the entry {index} is not in the log of {size} entries: the proof does not lead to its root"
    )]
    NotIncluded {
        /// The entry's index.
        index: u64,
        /// The size of the log.
        size: u64,
    },
    /// The older tree is not the beginning of the newer, or the proof is wrong.
    #[error(
        "the log of {old} entries is not the beginning of the log of {new} entries: history was rewritten"
    )]
    NotConsistent {
        /// The older size.
        old: u64,
        /// The newer size.
        new: u64,
    },
    /// The text is not a checkpoint.
    #[error("not a checkpoint: {0}")]
    Malformed(&'static str),
    /// The checkpoint is not signed by its authority.
    #[error("the checkpoint of {0} is not signed by it")]
    NotSigned(Identity),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The record could not be encoded.
    #[error("the record could not be encoded: {0}")]
    Encoding(String),
}

impl IssuanceRecord {
    /// The record of a certificate just issued.
    pub fn of(
        certificate: &Certificate,
        der: &[u8],
        on_behalf_of: Option<&Identity>,
        authority: &Identity,
        issued_at: Timestamp,
    ) -> Self {
        Self {
            identity: certificate.identity().clone(),
            address: certificate
                .address()
                .map(|address| address.to_string())
                .unwrap_or_default(),
            on_behalf_of: on_behalf_of.cloned(),
            authority: authority.clone(),
            serial: certificate.serial(),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
            issued_at,
            certificate: Fingerprint::of(der),
        }
    }

    /// The leaf: the record as JSON, its fields in the order above, without white space. Store these bytes, for the
    /// tree is built over them.
    pub fn to_leaf(&self) -> Result<Vec<u8>, LogError> {
        serde_json::to_vec(self).map_err(|error| LogError::Encoding(error.to_string()))
    }
}

/// The hash of a leaf: SHA-256 of a zero byte and the leaf (RFC 9162 section 2.1.1).
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    crate::sha256(&[&[0], leaf])
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    crate::sha256(&[&[1], left, right])
}

/// The root of a tree without leaves: SHA-256 of no bytes.
fn empty_root() -> Hash {
    crate::sha256(&[])
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
    pub fn append_hash(&mut self, mut hash: Hash) -> u64 {
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

    /// A signed checkpoint of the log as it is.
    pub fn checkpoint(&self, authority: &IssuingAuthority) -> Result<String, LogError> {
        Checkpoint {
            authority: authority.identity().clone(),
            size: self.size,
            root: self.root(),
        }
        .sign(authority)
    }
}

/// The largest power of two smaller than `n`, for `n` of at least 2.
fn split(n: usize) -> usize {
    1 << (usize::BITS - 1 - (n - 1).leading_zeros())
}

fn subtree_root(hashes: &[Hash]) -> Hash {
    MerkleLog::from_leaf_hashes(hashes.iter().copied()).root()
}

/// The proof that the leaf `index` is in the tree over all `hashes` (RFC 9162 section 2.1.3.1).
pub fn inclusion_proof(hashes: &[Hash], index: u64) -> Result<Vec<Hash>, LogError> {
    let beyond = LogError::Beyond {
        wanted: index,
        size: hashes.len() as u64,
    };
    let mut index = usize::try_from(index).map_err(|_| beyond.clone())?;
    if index >= hashes.len() {
        return Err(beyond);
    }
    let mut proof = Vec::new();
    let mut rest = hashes;
    while rest.len() > 1 {
        let (left, right) = rest.split_at(split(rest.len()));
        if index < left.len() {
            proof.push(subtree_root(right));
            rest = left;
        } else {
            proof.push(subtree_root(left));
            index -= left.len();
            rest = right;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The proof that the tree over the first `old_size` of `hashes` is the beginning of the tree over
/// all (RFC 9162 section 2.1.4.1).
pub fn consistency_proof(hashes: &[Hash], old_size: u64) -> Result<Vec<Hash>, LogError> {
    let beyond = LogError::Beyond {
        wanted: old_size,
        size: hashes.len() as u64,
    };
    let mut old = usize::try_from(old_size).map_err(|_| beyond.clone())?;
    if old > hashes.len() {
        return Err(beyond);
    }
    let mut proof = Vec::new();
    if old == 0 || old == hashes.len() {
        return Ok(proof);
    }
    let mut rest = hashes;
    let mut old_is_a_known_subtree = true;
    while old != rest.len() {
        let (left, right) = rest.split_at(split(rest.len()));
        if old <= left.len() {
            proof.push(subtree_root(right));
            rest = left;
        } else {
            proof.push(subtree_root(left));
            old -= left.len();
            rest = right;
            old_is_a_known_subtree = false;
        }
    }
    if !old_is_a_known_subtree {
        proof.push(subtree_root(rest));
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
    if last == 0 && hash == *root {
        Ok(())
    } else {
        Err(wrong)
    }
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

const SIGNATURE_MARK: &str = "\u{2014} ";

impl Checkpoint {
    fn origin(authority: &Identity) -> String {
        format!("{authority}/issuance")
    }

    fn text(&self) -> String {
        use base64::Engine as _;
        let root = base64::engine::general_purpose::STANDARD.encode(self.root);
        format!("{}\n{}\n{root}\n", Self::origin(&self.authority), self.size)
    }

    /// The checkpoint as a signed note: origin, size and root on a line each, an empty line, and the line of the
    /// signature. That line ends with the base64 of a four-byte key hint and the Ed25519 signature (the form of C2SP
    /// tlog-checkpoint and signed-note).
    pub fn sign(&self, authority: &IssuingAuthority) -> Result<String, LogError> {
        use base64::Engine as _;
        let text = self.text();
        let origin = Self::origin(&self.authority);
        let mut signature = key_hint(&origin, authority.key().public_key()).to_vec();
        signature.extend_from_slice(authority.key().sign(text.as_bytes())?.as_bytes());
        let signature = base64::engine::general_purpose::STANDARD.encode(signature);
        Ok(format!("{text}\n{SIGNATURE_MARK}{origin} {signature}\n"))
    }

    /// Reads a signed checkpoint of `authority`, whose key is `key`.
    pub fn open(note: &str, authority: &Identity, key: &PublicKey) -> Result<Self, LogError> {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD;
        let malformed = LogError::Malformed;
        let (text, signatures) = note
            .split_once("\n\n")
            .ok_or(malformed("it has no signature"))?;
        let mut lines = text.split('\n');
        let origin = Self::origin(authority);
        if lines.next() != Some(&origin) {
            return Err(malformed("it is of another log"));
        }
        let size = lines
            .next()
            .filter(|size| *size == "0" || !size.starts_with(['0', '+']))
            .and_then(|size| size.parse().ok())
            .ok_or(malformed("its second line is not a size"))?;
        let root = lines
            .next()
            .and_then(|root| base64.decode(root).ok())
            .and_then(|root| root.try_into().ok())
            .ok_or(malformed("its third line is not a hash"))?;
        if lines.next().is_some() {
            return Err(malformed("it has more than three lines"));
        }
        let checkpoint = Self {
            authority: authority.clone(),
            size,
            root,
        };
        let hint = key_hint(&origin, key);
        let signed = signatures
            .lines()
            .filter_map(|line| line.strip_prefix(SIGNATURE_MARK)?.strip_prefix(&*origin))
            .filter_map(|signature| base64.decode(signature.strip_prefix(' ')?).ok())
            .filter_map(|signature| signature.strip_prefix(&hint)?.try_into().ok())
            .any(|signature| {
                key.verifies(
                    checkpoint.text().as_bytes(),
                    &Signature::from_bytes(signature),
                )
            });
        if signed {
            Ok(checkpoint)
        } else {
            Err(LogError::NotSigned(authority.clone()))
        }
    }

    /// The platform whose certificates the log holds.
    pub fn platform(&self) -> &PlatformName {
        self.authority.platform()
    }
}

/// The first four bytes of SHA-256 of name, newline, algorithm (1 is Ed25519) and key.
fn key_hint(name: &str, key: &PublicKey) -> [u8; 4] {
    let digest = crate::sha256(&[name.as_bytes(), b"\n\x01", key.as_bytes()]);
    [digest[0], digest[1], digest[2], digest[3]]
}
