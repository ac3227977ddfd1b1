//! The time, in the forms that conversations and certificates use.

use std::time::{SystemTime, UNIX_EPOCH};

use sealbus_seal::Timestamp;

use crate::UnixMillis;

/// The present time in milliseconds.
pub fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis::try_from(since.as_millis()).unwrap_or(UnixMillis::MAX)
}

/// A time in whole seconds, the unit of certificates.
pub fn timestamp(millis: UnixMillis) -> Timestamp {
    Timestamp::from_unix_seconds(millis / 1000)
}
