//! The embedded log: streams of records in append-only files.
//!
//! A [`Journal`] is a folder with any number of [`Stream`]s. A stream is an ordered sequence of records, numbered
//! from 1 without gaps, each with a time, a key, attributes and a payload, all of which are just bytes here. What is
//! appended is written by one thread of the journal, as many records at once as there are, with one `fdatasync` for
//! each stream of the group; the [`Written`] that an append gives resolves when its record is on disk, and not before.
//!
//! A stream also keeps *cursors* (how far somebody has read, by name) and *removals* (records that are done with), as
//! durably as its records. A [`Reader`] reads from a number, from a time or the last so many, and follows the tail.
//!
//! **What a crash leaves.** Each record carries how much of its file was on disk when it was written. On opening, every
//! record is checked. Bytes at the end that do not make whole records, and that nothing written later shows to have
//! been on disk, are a torn tail: it was never acknowledged, is cut off, and is named in the [`OpenReport`]. Anything
//! else that does not check is damage: it is reported, and reading it is an error that names file and offset; it is
//! never skipped.
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
mod retention;
mod segment;
mod span;
mod stream;
mod tail;
mod writer;

pub use error::{Damage, JournalError};
pub use journal::{Journal, JournalConfig, OpenReport, TornTail};
pub use reader::{ReadFrom, Reader};
pub use record::{NewRecord, Record};
pub use retention::Retention;
pub use span::Spans;
pub use stream::{Stream, StreamConfig, StreamInfo, Written};

/// The reader of segment files, for the fuzz target.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::segment::check_segment;
}

/// The examples of the README, which are tested as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
