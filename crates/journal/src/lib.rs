//! The embedded log: streams of records in append-only files.
//!
//! A [`Journal`] is a folder with any number of [`Stream`]s. A stream is an ordered sequence of records, numbered from
//! 1 without gaps. Each record has a time, a key, attributes and a payload. Key, attributes and payload are just bytes
//! here. One thread of the journal writes all waiting records at once, with one `fdatasync` for all of them: of their
//! file or, if they belong to several streams, of a redo log. An append returns a [`Written`], which resolves once its
//! record is on disk, and not before.
//!
//! A stream also keeps *cursors* (the progress of readers, by name) and *removals* (finished records), as durably as
//! its records. A [`Reader`] begins at a number, at a time or a number of records before the end, and follows the tail.
//!
//! **After a crash.** Each record notes how much of its file was on disk when the record was written. On opening, every
//! record is checked. A torn tail is the bytes at the end that do not make whole records, and that no later record
//! shows to have been on disk. A torn tail was never acknowledged. The journal cuts it off, and the [`OpenReport`]
//! names it. Any other bytes that fail the check are damage. The journal reports damage, and reading it is an error
//! that names file and offset. The journal never skips damage.
//!
//! **Many streams.** Records of many streams go into a redo log first, with one `fdatasync`, and into the streams' files
//! later. On opening, the log is written into these files before they are checked. "On disk" means: in the file or in
//! the log.
//!
//! This crate knows nothing about agents or messages.

mod change;
#[cfg(test)]
mod disk_full;
mod error;
mod journal;
mod queue;
mod reader;
mod record;
mod recovery;
mod redo;
mod replay;
mod report;
mod retention;
mod segment;
mod span;
mod state;
mod stream;
mod tail;
mod writer;
mod written;

pub use error::{Damage, JournalError};
pub use journal::{Journal, JournalConfig};
pub use reader::{ReadFrom, Reader};
pub use record::{NewRecord, Record};
pub use report::{OpenReport, TornTail};
pub use retention::Retention;
pub use span::Spans;
pub use state::StreamConfig;
pub use stream::{Stream, StreamInfo};
pub use written::Written;

/// The readers of segment files and of the redo log, and a count, for fuzz targets, tests and benchmarks.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::replay::{Place, read_log};
    pub use crate::segment::check_segment;
    pub use crate::tail::synchronised;
}

/// The examples of the README, which are tested as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
