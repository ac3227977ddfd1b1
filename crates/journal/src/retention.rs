//! Retention: how much of a stream is kept.

use std::time::Duration;

/// How much of a stream is kept. `count` is exact to the record. `bytes` is counted on disk in whole segment files. A
/// record older than `age` is no longer read, and leaves the disk with its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Longest time since a record was written.
    pub age: Option<Duration>,
    /// Most records.
    pub count: Option<u64>,
    /// The most bytes on disk. At least one segment file is kept.
    pub bytes: Option<u64>,
}

impl Retention {
    /// The time, in microseconds since 1970, before which records are too old.
    pub(crate) fn oldest(&self, now: u64) -> u64 {
        self.age.map_or(0, |age| {
            now.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
        })
    }
}
