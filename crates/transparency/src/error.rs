//! The faults of a log.

use sealbus_seal::KeyError;
use thiserror::Error;

use crate::file::LogFile;

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
    /// The log is shorter than a checkpoint of it.
    #[error("a checkpoint of {seen} entries was signed, and the log has {size}: it was cut off")]
    Truncated {
        /// The size that was signed.
        seen: u64,
        /// The size of the log.
        size: u64,
    },
    /// The text is not a signed note, or not a checkpoint.
    #[error("not a checkpoint: {0}")]
    Malformed(&'static str),
    /// The note is not signed with this key.
    #[error("the checkpoint is not signed by {0}")]
    NotSigned(String),
    /// The contents of a file contradict the tree.
    #[error("the log's file {file} is damaged: {why}")]
    Damaged {
        /// The file.
        file: LogFile,
        /// The fault.
        why: String,
    },
    /// A file is missing, or cannot be read.
    #[error("the log's file {file} cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: LogFile,
        /// The error.
        why: String,
    },
    /// The entries do not have the root of the checkpoint.
    #[error("the entries do not have the root that the checkpoint of {size} entries states")]
    WrongRoot {
        /// The size.
        size: u64,
    },
    /// An entry is longer than a bundle can hold.
    #[error("an entry of {0} bytes is too long for the log")]
    TooLong(usize),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The record could not be encoded.
    #[error("the record could not be encoded: {0}")]
    Encoding(String),
}
