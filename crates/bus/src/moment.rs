//! Points of time as the AgentBus counts them.

use std::fmt;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealbus_fipa::DateTime;

/// A point of time: milliseconds since 1 January 1970 UTC, by the clock of its author.
///
/// Processes compare moments of each other's clocks, so the validity of a message is only as exact as the agreement
/// between the clocks of sender and receiver.
// Holds one more than the milliseconds, so that an `Option<Moment>` takes no more room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// The last moment a FIPA date-time can name: the end of the year 9999.
    pub const MAX: Self = Self(NonZeroU64::MIN.saturating_add(253_402_300_799_999));

    /// The present moment, by the clock of this machine.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// A moment from milliseconds since 1970, capped at [`Moment::MAX`].
    pub const fn from_unix_ms(milliseconds: u64) -> Self {
        if milliseconds > Self::MAX.unix_ms() {
            Self::MAX
        } else {
            Self(NonZeroU64::MIN.saturating_add(milliseconds))
        }
    }

    /// Milliseconds since 1970.
    pub const fn unix_ms(self) -> u64 {
        self.0.get() - 1
    }

    /// This moment plus `duration`, capped at [`Moment::MAX`]. Parts of a millisecond count as a whole one, so that a
    /// nonzero duration never becomes zero.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let milliseconds = duration.as_nanos().div_ceil(1_000_000);
        Self::from_unix_ms(
            self.unix_ms()
                .saturating_add(u64::try_from(milliseconds).unwrap_or(u64::MAX)),
        )
    }

    /// The time from `earlier` to this moment; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.unix_ms().saturating_sub(earlier.unix_ms()))
    }
}

/// A length of time in whole milliseconds, as others are told it.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Moment {
    /// The beginning of 1970.
    fn default() -> Self {
        Self::from_unix_ms(0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moment").field(&self.unix_ms()).finish()
    }
}

impl From<SystemTime> for Moment {
    /// Cuts the time to milliseconds. A time before 1970 counts as 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix_ms(milliseconds(since))
    }
}

impl From<Moment> for SystemTime {
    fn from(moment: Moment) -> Self {
        UNIX_EPOCH + Duration::from_millis(moment.unix_ms())
    }
}

impl fmt::Display for Moment {
    /// Writes the moment as a FIPA date-time: `20260304T050607089Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This never fails: the cap is the last moment that has a date-time.
        match i64::try_from(self.unix_ms()).map(DateTime::from_unix_ms) {
            Ok(Ok(date_time)) => date_time.fmt(f),
            _ => write!(f, "{} ms after 1970", self.unix_ms()),
        }
    }
}
