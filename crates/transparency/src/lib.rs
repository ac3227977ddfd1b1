//! The issuance log, in the formats of C2SP: a Merkle tree over every certificate issued (RFC 9162), served as tiles
//! (tlog-tiles), with signed checkpoints (tlog-checkpoint, signed-note) that witnesses cosign (tlog-cosignature,
//! tlog-witness). docs/evidence.md describes the formats.
//!
//! - [`LogWriter`] appends entries. It holds the right edge of the tree, O(log n) hashes, and hands out files.
//! - [`Audit`] reads a whole log, file by file, and trusts no file.
//! - [`Inclusion`] proves that a certificate is in the log; it comes with the certificate.
//! - [`Witness`] decides whether a checkpoint continues the one it saw before.
//!
//! Only [`Folder`], which keeps a log's files, does I/O.

mod audit;
mod bundle;
mod checkpoint;
mod error;
mod file;
mod folder;
mod inclusion;
mod note;
mod record;
mod tiles;
mod tree;
mod whole;
mod witness;
mod writer;

use aws_lc_rs::digest::{SHA256, digest};

pub use audit::{Audit, Entry};
pub use bundle::{LONGEST_BUNDLE, LONGEST_ENTRY, read_bundle};
pub use checkpoint::{Checkpoint, LONGEST_CHECKPOINT};
pub use error::LogError;
pub use file::{LogFile, NotALogFile, TILE_WIDTH};
pub use folder::Folder;
pub use inclusion::{Inclusion, NotLogged};
pub use note::{KeyKind, MOST_SIGNATURES, Note, NoteKey, NoteSignature};
pub use record::IssuanceRecord;
pub use tiles::{TileReader, Tiles};
pub use tree::{
    Hash, MerkleLog, Subtrees, consistency_proof, inclusion_length, inclusion_proof,
    inclusion_root, leaf_hash, tree_root, verify_consistency, verify_inclusion,
};
pub use whole::WholeTree;
pub use witness::{AddCheckpoint, Witness, WitnessRefusal};
pub use writer::{LogHead, LogWriter, Publication};

/// SHA-256. To hash several pieces, copy them together: a context, which takes pieces, costs more than a short copy.
fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn base64() -> base64::engine::GeneralPurpose {
    base64::engine::general_purpose::STANDARD
}
