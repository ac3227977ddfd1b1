//! The time, in the forms that conversations and certificates use.

use sealbus_bus::Moment;
use sealbus_seal::Timestamp;

use crate::UnixMillis;

/// The present time in milliseconds.
pub fn now() -> UnixMillis {
    Moment::now().unix_ms()
}

/// A time in whole seconds, the unit of certificates.
pub fn timestamp(millis: UnixMillis) -> Timestamp {
    Timestamp::from_unix_seconds(millis / 1000)
}
