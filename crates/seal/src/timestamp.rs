//! Points in time, in whole seconds, as in certificates.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::UnixTime;
use serde::{Deserialize, Deserializer, Serialize};

/// The default difference between clocks at which a certificate is still not refused for its dates.
pub const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// A point in time: whole seconds since 1970-01-01T00:00:00Z, the resolution of X.509.
///
/// This crate never reads a clock. Every function that needs the time takes a timestamp. Get one with
/// `Timestamp::from(SystemTime::now())`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(#[serde(deserialize_with = "capped")] u64);

/// Reads seconds as [`Timestamp::from_unix_seconds`] takes them.
fn capped<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(from)?;
    Ok(Timestamp::from_unix_seconds(seconds).0)
}

impl Timestamp {
    /// The last instant that X.509 can write: 9999-12-31T23:59:59Z (RFC 5280 section 4.1.2.5).
    pub const MAX: Self = Self(253_402_300_799);

    /// A timestamp from seconds since the epoch, capped at [`Timestamp::MAX`].
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        if seconds > Self::MAX.0 {
            Self::MAX
        } else {
            Self(seconds)
        }
    }

    /// Seconds since the epoch.
    pub const fn as_unix_seconds(self) -> u64 {
        self.0
    }

    /// This instant plus `duration`, capped at [`Timestamp::MAX`]. Parts of a second are dropped.
    pub const fn plus(self, duration: Duration) -> Self {
        Self::from_unix_seconds(self.0.saturating_add(duration.as_secs()))
    }

    /// This instant minus `duration`, not before the epoch. Parts of a second are dropped.
    pub const fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.as_secs()))
    }

    /// The time from `earlier` to this instant; zero if this instant is not after `earlier`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self::from_unix_seconds(
            time.duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
        )
    }
}

impl From<UnixTime> for Timestamp {
    fn from(time: UnixTime) -> Self {
        Self::from_unix_seconds(time.as_secs())
    }
}

impl From<Timestamp> for UnixTime {
    fn from(time: Timestamp) -> Self {
        UnixTime::since_unix_epoch(Duration::from_secs(time.0))
    }
}

/// RFC 3339 in UTC: `2026-11-21T07:44:02Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / 86_400);
        let second = self.0 % 86_400;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Year, month and day of the proleptic Gregorian calendar. Days are counted in eras of 400 years whose years begin in
/// March, so that the leap day comes last.
fn civil_from_days(days_since_epoch: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days_since_epoch + 719_468; // from 0000-03-01
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_247_042, "2026-11-21T07:44:02Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix_seconds(seconds).to_string(), text);
        }
    }

    #[test]
    fn no_number_is_read_as_an_instant_that_certificates_cannot_have() {
        let read: Timestamp = serde_json::from_str(&u64::MAX.to_string()).unwrap();
        assert_eq!(read, Timestamp::MAX);
        assert_eq!(serde_json::to_string(&read).unwrap(), "253402300799");
    }

    #[test]
    fn arithmetic_saturates() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Timestamp::default().minus(hour), Timestamp::default());
        assert_eq!(Timestamp::MAX.plus(hour), Timestamp::MAX);
        assert_eq!(Timestamp::default().since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(
            Timestamp::default().plus(hour).since(Timestamp::default()),
            hour
        );
    }
}
