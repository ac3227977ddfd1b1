//! The time, as the conversations and certificates tell it.

use std::time::{SystemTime, UNIX_EPOCH};

use sealbus_seal::Timestamp;

use crate::UnixMillis;

/// Now, in milliseconds.
pub fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis::try_from(since.as_millis()).unwrap_or(UnixMillis::MAX)
}

/// In whole seconds, as certificates know time.
pub fn timestamp(millis: UnixMillis) -> Timestamp {
    Timestamp::from_unix_seconds(millis / 1000)
}
