//! The lines of the log that callers and neighbours can cause.

use std::sync::LazyLock;

use parking_lot::Mutex;
use sealbus_control::LogShares;

static LINES: LazyLock<Mutex<LogShares>> = LazyLock::new(Mutex::default);
/// The lines about webhooks. A caller names as many as it likes, and these lines take no room from others.
static WEBHOOKS: LazyLock<Mutex<LogShares>> = LazyLock::new(Mutex::default);

/// Whether to write a line about this caller or neighbour to the log now. If so, returns the number of lines left out since the
/// last one.
pub(crate) fn admit(source: &str) -> Option<u64> {
    LINES.lock().admit(source.to_owned())
}

/// As [`admit`], for a webhook of this caller. Each webhook has a share of its own: it is given up once, and its owner looks for the
/// reason.
pub(crate) fn admit_webhook(caller: &str, url: &str) -> Option<u64> {
    WEBHOOKS.lock().admit(format!("{caller} {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_share_of_the_log() {
        let written = (0..1000).filter(|_| admit("mallory").is_some());
        assert!(written.count() < 10);
        assert!(admit("alice").is_some());
    }

    #[test]
    fn webhooks_without_end_leave_room_for_other_lines() {
        let urls = (0..1000).map(|number| format!("https://hooks.example/{number}"));
        let written = urls.filter(|url| admit_webhook("mallory", url).is_some());
        assert!((13..100).contains(&written.count()));
        assert!(admit("bob").is_some());
    }
}
