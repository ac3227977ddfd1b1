//! The incidents that a watcher sees.

use sealbus_control::RefusalRecord;
use sealbus_control::traffic::MessageHead;
use serde::{Deserialize, Serialize};

/// An incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "kebab-case")]
pub enum Seen {
    /// A message that arrived.
    Message(MessageHead),
    /// A refused attempt.
    Refused(RefusalRecord),
    /// Messages that passed and were not looked at, because there were too many.
    Skipped {
        /// Their number.
        count: u64,
    },
}

impl Seen {
    /// When it happened. An incident without a time of its own comes last.
    pub fn at(&self) -> u64 {
        match self {
            Self::Message(head) => head.at,
            Self::Refused(record) => record.at,
            Self::Skipped { .. } => u64::MAX,
        }
    }
}

/// The refusals in `latest` that came after the last of those `known`.
pub fn fresh<'a>(known: &[RefusalRecord], latest: &'a [RefusalRecord]) -> &'a [RefusalRecord] {
    let last = known.last();
    let seen = last.and_then(|last| latest.iter().rposition(|record| record == last));
    &latest[seen.map_or(0, |seen| seen + 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(at: u64) -> RefusalRecord {
        RefusalRecord {
            at,
            who: "mallory@factory".to_owned(),
            proved: None,
            receiver: Some("seller-1@factory".to_owned()),
            reason: "forged-sender: no".to_owned(),
            count: 1,
            by: None,
        }
    }

    #[test]
    fn only_new_refusals_are_shown() {
        let all: Vec<_> = (0..5).map(refusal).collect();
        assert_eq!(fresh(&[], &all), all);
        assert_eq!(fresh(&all[..2], &all), &all[2..]);
        assert!(fresh(&all, &all).is_empty());
        // The Master was started again, or has forgotten the known refusals.
        assert_eq!(fresh(&[refusal(9)], &all), all);
    }
}
