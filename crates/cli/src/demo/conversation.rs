//! The language between the demo and its agents. The Rust and the Python agents speak the same.
//!
//! Each agent registers with the DF: type `demo-sender` or `demo-receiver`, name its own local name.
//!
//! | from | to | performative | content |
//! |---|---|---|---|
//! | demo | sender | `request` | [`Task`] as JSON |
//! | sender | receiver | `inform`, conversation-id the task's | nanoseconds since the Unix epoch, decimal |
//! | sender | demo | `inform` | [`Sent`] as JSON |
//! | demo | receiver | `query-ref` | [`Question`] as JSON |
//! | receiver | demo | `inform` | [`Received`] as JSON |
//!
//! A sender finds its receiver by searching the DF for the service that the task names. A receiver counts every
//! `inform` it gets, from any sender, under the message's conversation-id. So the demo knows which messages arrived,
//! and that no message of an attack did.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Type of the service the senders register.
pub(crate) const SENDER: &str = "demo-sender";
/// Type of the service the receivers register.
pub(crate) const RECEIVER: &str = "demo-receiver";

/// The task for a sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Task {
    /// Name of the receiver's service in the DF.
    pub(crate) service: String,
    /// Conversation-id of the messages.
    pub(crate) conversation: String,
    /// Messages to send.
    pub(crate) count: u32,
    /// Microseconds from the start of one message to the start of the next.
    pub(crate) interval_us: u64,
}

/// The report of a sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Sent {
    /// Messages that `send` accepted.
    pub(crate) sent: u32,
    /// When the first was sent, nanoseconds since the Unix epoch.
    pub(crate) began: u64,
}

/// The messages that a receiver is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Question {
    /// The messages' conversation-id.
    pub(crate) conversation: String,
}

/// The messages that a receiver got in one conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Received {
    /// Number of messages.
    pub(crate) received: u32,
    /// Messages that were not newer than the one before: duplicates, or messages out of order.
    pub(crate) disordered: u32,
    /// When the last arrived, nanoseconds since the Unix epoch.
    pub(crate) last: u64,
    /// Microseconds from the timestamp in each message to its arrival.
    pub(crate) latencies_us: Vec<u64>,
}

/// A receiver's running account of one conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    received: Received,
    newest: u64,
}

impl Account {
    /// Counts a message with this content at the time `now`.
    pub(crate) fn count(&mut self, content: &str, now: u64) {
        self.received.received = self.received.received.saturating_add(1);
        self.received.last = now;
        let Ok(sent) = content.parse::<u64>() else {
            self.received.disordered = self.received.disordered.saturating_add(1);
            return;
        };
        if sent <= self.newest {
            self.received.disordered = self.received.disordered.saturating_add(1);
        }
        self.newest = self.newest.max(sent);
        self.received
            .latencies_us
            .push(now.saturating_sub(sent) / 1_000);
    }

    /// The report to the demo.
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }
}

/// Nanoseconds since the Unix epoch, by the clock shared by all processes of a machine.
pub(crate) fn nanoseconds() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_tells_order_from_disorder() {
        let mut account = Account::default();
        account.count("1000", 4_000);
        account.count("2000", 9_000);
        account.count("2000", 9_500);
        account.count("1500", 9_600);
        account.count("not a time", 9_700);
        let received = account.received();
        assert_eq!(
            (received.received, received.disordered, received.last),
            (5, 3, 9_700)
        );
        assert_eq!(received.latencies_us, [3, 7, 7, 8]);
    }

    #[test]
    fn names_on_the_wire_are_those_the_python_agent_uses() {
        let task = Task {
            service: "a".into(),
            conversation: "c".into(),
            count: 5,
            interval_us: 1_000,
        };
        assert_eq!(
            serde_json::to_value(task).ok(),
            Some(
                serde_json::json!({"service": "a", "conversation": "c", "count": 5, "interval-us": 1000})
            )
        );
        let received = Received {
            received: 1,
            disordered: 0,
            last: 7,
            latencies_us: vec![3],
        };
        assert_eq!(
            serde_json::to_value(received).ok(),
            Some(
                serde_json::json!({"received": 1, "disordered": 0, "last": 7, "latencies-us": [3]})
            )
        );
    }
}
