//! The findings on opening a journal.

use std::path::PathBuf;

use crate::error::Damage;

/// A tail that was cut off. It had not been acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The stream.
    pub stream: String,
    /// The file.
    pub file: PathBuf,
    /// The offset at which the tail began, in bytes.
    pub offset: u64,
    /// The tail's length in bytes.
    pub bytes: u64,
    /// The bytes that were there instead of a record.
    pub problem: String,
}

/// The findings on opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Records of all streams.
    pub records: u64,
    /// Tails that were cut off.
    pub torn: Vec<TornTail>,
    /// Records that are not as they were written. Records before and after the damage can be read. A stream whose
    /// newest file is damaged cannot be written.
    pub damaged: Vec<Damage>,
}
