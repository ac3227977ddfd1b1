//! When the store was last written, by the Master's clock. A Master whose clock is behind that time would give out
//! certificates that have ended for everybody else, and directory revisions lower than earlier ones.

use std::time::Duration;

use sealbus_seal::{CLOCK_SKEW, Timestamp};
use serde::{Deserialize, Serialize};

use sealbus_control::UnixMillis;
use sealbus_control::clock::{now, timestamp};
use sealbus_store::{Batch, Store, StoreError};

/// The key of the row.
const WRITTEN_ROW: &str = "written";
/// How long a Master waits for its clock to be set.
const SETTING: Duration = Duration::from_secs(10);
/// The pause between two looks at the clock.
const LOOK: Duration = Duration::from_millis(200);
/// Revisions that may have been given out after the last write. The clock passes as many in a second.
const UNWRITTEN: u64 = 1000;

/// The clock is behind the last write to the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "clock-behind: the state was last written at {written}, and the clock says {clock}: set it, with NTP for instance; if it was ahead before and is right now, start once with --accept-clock"
)]
pub struct ClockBehind {
    /// The time of the last write.
    written: Timestamp,
    /// The present time by the clock.
    clock: Timestamp,
}

/// The last write of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    /// The Master's clock.
    pub(crate) at: UnixMillis,
    /// The revision of the directory.
    pub(crate) directory: u64,
}

impl Written {
    /// The last write of `store`.
    ///
    /// # Errors
    /// If the store cannot be read, or the row is damaged.
    pub(crate) async fn last(store: &dyn Store) -> Result<Self, StoreError> {
        let Some(entry) = store.get(WRITTEN_ROW).await? else {
            return Ok(Self::default());
        };
        serde_json::from_slice(&entry.value).map_err(|error| StoreError::DamagedRow {
            key: WRITTEN_ROW.to_owned(),
            detail: error.to_string(),
        })
    }

    /// Adds the row to a batch.
    pub(crate) fn note(self, batch: &mut Batch) {
        let row = format!(r#"{{"at":{},"directory":{}}}"#, self.at, self.directory);
        batch.put(WRITTEN_ROW, row);
    }

    /// A revision above every one that was given out. Revisions count up from the present time, so they are also above
    /// those that a restored store has forgotten.
    pub(crate) fn next_revision(self, now: UnixMillis) -> u64 {
        now.max(self.directory.saturating_add(UNWRITTEN))
    }

    /// Checks that the clock is not behind the last write by more than clocks may differ.
    ///
    /// # Errors
    /// [`ClockBehind`].
    pub(crate) fn check_clock(self, now: UnixMillis) -> Result<(), ClockBehind> {
        if self.at <= now.saturating_add(CLOCK_SKEW.as_millis() as UnixMillis) {
            return Ok(());
        }
        Err(ClockBehind {
            written: timestamp(self.at),
            clock: timestamp(now),
        })
    }

    /// Waits a while for a clock that is behind the last write.
    ///
    /// # Errors
    /// [`ClockBehind`] if it is not set in time.
    pub(crate) async fn await_clock(self) -> Result<(), ClockBehind> {
        let mut passed = Duration::ZERO;
        while let Err(behind) = self.check_clock(now()) {
            if passed >= SETTING {
                return Err(behind);
            }
            if passed.is_zero() {
                tracing::warn!(warning = "clock-behind", "{behind}");
            }
            tokio::time::sleep(LOOK).await;
            passed += LOOK;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_rise_whatever_the_clock_says() {
        let new = Written::default();
        assert_eq!(new.next_revision(7_000_000), 7_000_000);
        assert_eq!(new.check_clock(0), Ok(()));
        let written = Written {
            at: 5_000_000,
            directory: 5_000_100,
        };
        assert!(written.next_revision(4_000_000) > 5_000_100);
        assert_eq!(written.next_revision(9_000_000), 9_000_000);
        assert_eq!(written.check_clock(4_990_000), Ok(()));
        let behind = written.check_clock(4_989_999).unwrap_err();
        assert!(behind.to_string().starts_with("clock-behind: "));
    }
}
