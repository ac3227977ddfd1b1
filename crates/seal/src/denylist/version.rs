//! The versions of deny lists, which only ever grow.

use super::{DenyList, MOST_ENTRIES};
use crate::timestamp::Timestamp;

/// The lowest version of a list that is signed at this time, if its authority derives versions from the time.
pub fn version_at(now: Timestamp) -> u64 {
    now.as_unix_seconds().saturating_mul(1000)
}

/// The highest version that such a list can have at this time: no authority is ahead by more changes than a list has entries.
pub fn latest_version(now: Timestamp) -> u64 {
    version_at(now).saturating_add(MOST_ENTRIES as u64)
}

impl DenyList {
    /// Raises the version to at least this one. An authority may continue from an older copy of its list. If it derives
    /// versions from the time, it passes the versions that it has given out since.
    pub fn raise_version(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Whether the versions of this list must follow those of another one. The authority of the other list may be
    /// revoked later, and may have stated a version that none can follow, so that nobody would accept a list of this
    /// authority any more. So a version of another authority counts only if it is plausible at this time.
    pub fn follows(&self, other: &Self, now: Timestamp) -> bool {
        other.authority == self.authority || other.version <= latest_version(now)
    }

    /// Makes the version higher than that of another list, if it [follows](Self::follows) that list.
    pub fn pass(&mut self, other: &Self, now: Timestamp) {
        if self.follows(other, now) {
            self.raise_version(other.version.saturating_add(1));
        }
    }
}
