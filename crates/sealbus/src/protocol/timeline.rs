//! The time of a conversation. The machines of the protocols count in milliseconds since 1970, and clocks count in instants.

use std::time::{Duration, UNIX_EPOCH};

use sealbus_fipa::{AclMessage, DateTime};
use tokio::time::Instant;

use crate::clock::{Clock, later};

/// The time since a conversation began. Changes of the system's time do not affect it.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) clock: Clock,
    began: Instant,
    unix_ms: i64,
}

impl Timeline {
    pub(super) fn new(clock: &Clock) -> Timeline {
        let unix = clock.time().duration_since(UNIX_EPOCH);
        Timeline {
            clock: clock.clone(),
            began: clock.now(),
            unix_ms: milliseconds(unix.unwrap_or_default()),
        }
    }

    pub(super) fn now(&self) -> i64 {
        let passed = self.clock.now().saturating_duration_since(self.began);
        self.unix_ms.saturating_add(milliseconds(passed))
    }

    pub(super) fn after(&self, time: Duration) -> i64 {
        self.now().saturating_add(milliseconds(time))
    }

    /// The instant of a moment, or an earlier one if that is far away.
    pub(super) fn instant(&self, moment: i64) -> Instant {
        let after = u64::try_from(moment.saturating_sub(self.unix_ms)).unwrap_or(0);
        later(self.began, Duration::from_millis(after))
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
