//! The errors of a journal.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Bytes of a journal that differ from the written ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, or the folder of a stream that another folder has, too.
    pub file: PathBuf,
    /// The offset of the damage in the file, in bytes.
    pub offset: u64,
    /// The fault at that place.
    pub problem: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is damaged at byte {}: {}; restore it from a copy, or give up its contents: move it, and the \
             earlier files of its folder, elsewhere",
            self.file.display(),
            self.offset,
            self.problem
        )
    }
}

/// Why a journal did not carry out a request. Nothing was written, unless the variant says otherwise.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    /// Another process has it open.
    #[error("the journal {} is in use by {holder}: a journal belongs to one process", folder.display())]
    InUse {
        /// The folder of the journal.
        folder: PathBuf,
        /// The process, as far as the lock file says.
        holder: String,
    },
    /// The disk is full.
    #[error("no room on the disk of {}: free some; nothing was written, and writing goes on once there is room", .0.display())]
    NoRoom(PathBuf),
    /// A file cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `open`, `read`, `write`, `make`, `remove`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The bytes on disk are not the written ones.
    #[error("{0}")]
    Damaged(Damage),
    /// A part of a record is larger than it may be.
    #[error("the {part} has {size} bytes and the limit is {limit}")]
    TooLarge {
        /// `key`, `attributes`, `payload`, `cursor name`.
        part: &'static str,
        /// The size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Too many bytes wait to be written.
    #[error("{limit} bytes wait to be written already: wait until some are on disk")]
    Busy {
        /// The limit in bytes.
        limit: usize,
    },
    /// The stream would have more cursors or removals than it may.
    #[error("stream {stream} has {limit} {what} already")]
    TooMany {
        /// The stream.
        stream: String,
        /// `cursors` or `separate removals`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The text is not a legal name for a stream.
    #[error("a stream's name has 1 to {limit} bytes, and this has {size}")]
    IllegalName {
        /// The name's size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The stream was removed.
    #[error("the stream {0} was removed")]
    Removed(String),
    /// The journal was closed.
    #[error("the journal was closed; it is not known whether the record was written")]
    Closed,
}

impl JournalError {
    pub(crate) fn file(action: &'static str, path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::NoRoom(path.to_owned()),
            _ => Self::File {
                action,
                path: path.to_owned(),
                source: Arc::new(error),
            },
        }
    }
}
