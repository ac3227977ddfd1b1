//! The clock of a conversation: the machines of the protocols count in milliseconds since 1970, the runtime in instants.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealbus_fipa::{AclMessage, DateTime};
use tokio::time::Instant;

/// The longest wait at once.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A clock that no change of the system's time disturbs. It follows the runtime's, so a test may set that forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    unix_ms: i64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            began: Instant::now(),
            unix_ms: milliseconds(unix.unwrap_or_default()),
        }
    }

    pub(super) fn now(&self) -> i64 {
        self.unix_ms
            .saturating_add(milliseconds(self.began.elapsed()))
    }

    pub(super) fn after(&self, time: Duration) -> i64 {
        self.now().saturating_add(milliseconds(time))
    }

    /// The instant of a moment, or an earlier one if that is far away.
    pub(super) fn instant(&self, moment: i64) -> Instant {
        let left = u64::try_from(moment.saturating_sub(self.now())).unwrap_or(0);
        Instant::now() + Duration::from_millis(left).min(LONGEST)
    }

    /// Asks for the answer to a message within this time, unless the message has a deadline.
    pub(super) fn with_deadline(&self, message: AclMessage, within: Duration) -> AclMessage {
        match DateTime::from_unix_ms(self.after(within)) {
            Ok(moment) if message.reply_by.is_none() => message.with_reply_by(moment),
            _ => message,
        }
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
