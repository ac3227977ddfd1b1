//! The counters of a gateway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The reasons why a message from outside was refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The request or its body does not follow the protocol.
    Malformed,
    /// Larger than allowed.
    TooLarge,
    /// Sent too slowly.
    TooSlow,
    /// Too many connections.
    TooMany,
    /// The sender claims to be of this platform, or the envelope contradicts the sender.
    ForgedSender,
    /// The policy does not allow it.
    NotPermitted,
    /// A receiver that is not of this platform.
    Relay,
    /// A message that has been here before on its way.
    Loop,
    /// The receiver's mailbox had no room in time.
    Busy,
}

impl Turned {
    const ALL: [Self; 9] = [
        Self::Malformed,
        Self::TooLarge,
        Self::TooSlow,
        Self::TooMany,
        Self::ForgedSender,
        Self::NotPermitted,
        Self::Relay,
        Self::Loop,
        Self::Busy,
    ];

    /// The word for it in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::TooSlow => "too-slow",
            Self::TooMany => "too-many",
            Self::ForgedSender => "forged-sender",
            Self::NotPermitted => "not-permitted",
            Self::Relay => "relay",
            Self::Loop => "loop",
            Self::Busy => "busy",
        }
    }
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) failed: AtomicU64,
    turned: [AtomicU64; Turned::ALL.len()],
}

/// The counters in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayCounters {
    /// The messages from outside that were accepted, counted once for each receiver.
    pub received: u64,
    /// The messages from outside that had come before and were not delivered again.
    pub repeated: u64,
    /// Messages that other platforms took.
    pub sent: u64,
    /// The number of times a connection to another platform had to be tried again.
    pub retried: u64,
    /// The messages that other platforms did not take. Their senders were told.
    pub failed: u64,
    /// The number of refusals by reason. Reasons that did not occur are omitted.
    pub refused: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn turned(&self, what: Turned) {
        Self::add(&self.turned[what as usize], 1);
    }

    pub(crate) fn snapshot(&self) -> GatewayCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GatewayCounters {
            received: read(&self.received),
            repeated: read(&self.repeated),
            sent: read(&self.sent),
            retried: read(&self.retried),
            failed: read(&self.failed),
            refused: Turned::ALL
                .into_iter()
                .map(|what| (what.as_str().to_owned(), read(&self.turned[what as usize])))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}
