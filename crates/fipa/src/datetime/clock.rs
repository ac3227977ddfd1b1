//! Date-times and the system's clock.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{DateTime, DateTimeError};

impl DateTime {
    /// A moment of the system's clock in UTC, cut to milliseconds.
    pub fn from_system_time(moment: SystemTime) -> Result<Self, DateTimeError> {
        Self::from_unix_ms(system_time_ms(moment)?)
    }

    /// The moment on the system's clock; see [`DateTime::unix_ms`].
    pub fn system_time(&self, received: SystemTime) -> Result<SystemTime, DateTimeError> {
        let milliseconds = self.unix_ms(system_time_ms(received)?)?;
        let amount = Duration::from_millis(milliseconds.unsigned_abs());
        let moment = if milliseconds < 0 {
            UNIX_EPOCH.checked_sub(amount)
        } else {
            UNIX_EPOCH.checked_add(amount)
        };
        moment.ok_or(DateTimeError::OutOfRange)
    }
}

fn system_time_ms(moment: SystemTime) -> Result<i64, DateTimeError> {
    let (amount, sign) = match moment.duration_since(UNIX_EPOCH) {
        Ok(amount) => (amount, 1),
        Err(earlier) => (earlier.duration(), -1),
    };
    let amount = i64::try_from(amount.as_millis()).map_err(|_| DateTimeError::OutOfRange)?;
    Ok(amount * sign)
}
