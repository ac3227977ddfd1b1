use std::collections::VecDeque;

use sealbus_seal::{Serial, Timestamp};

use sealbus_control::admin::CertificationEvent;
use sealbus_control::text::excerpt;
use sealbus_store::{Row, Rows};

/// The number of events kept. Older ones are forgotten.
const KEPT: usize = 50_000;
/// Characters of a subject and of a node that are kept. Legal names have at most 128.
const LONGEST_NAME: usize = 256;
/// The same of the words that say what happened.
const LONGEST_WHAT: usize = 1024;

/// The events of certification, latest last. Each of the six steps is also a `tracing` event of target
/// `sealbus::certification` with the field `step`.
#[derive(Debug, Default)]
pub struct CertificationLog {
    next: u64,
    kept: VecDeque<CertificationEvent>,
    rows: Rows,
}

impl CertificationLog {
    /// Prefix of this list's rows.
    pub const ROW: &'static str = "event/";

    /// Whether a key is that of an event's row. Each is used once.
    pub fn is_row(key: &str) -> bool {
        key.starts_with(Self::ROW)
    }

    /// Loads a stored event. Events must come in order.
    pub(super) fn restore(&mut self, event: CertificationEvent) {
        self.next = event.sequence.saturating_add(1);
        self.kept.push_back(event);
    }

    /// Enters an event. Its texts are shortened and cannot steer a terminal, because nodes and operators write some of them.
    /// Step 0 lies outside the six steps.
    pub fn enter(
        &mut self,
        step: u8,
        subject: &str,
        node: Option<&str>,
        serial: Option<Serial>,
        what: String,
        now: Timestamp,
    ) {
        let subject = excerpt(subject, LONGEST_NAME);
        let node = node.map(|node| excerpt(node, LONGEST_NAME));
        let what = excerpt(&what, LONGEST_WHAT);
        if step > 0 {
            tracing::info!(
                target: "sealbus::certification",
                step, agent = subject.as_str(), node = node.as_deref(), "{what}"
            );
        }
        let event = CertificationEvent {
            sequence: self.next,
            at: now.as_unix_seconds() * 1000,
            step,
            subject,
            node,
            serial: serial.map(|serial| serial.to_string()),
            what,
        };
        self.rows.put(row(event.sequence), &event);
        self.next = self.next.saturating_add(1);
        self.kept.push_back(event);
        // The store may have had more events, because it may carry out a write whose answer is lost.
        while self.kept.len() > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.rows.delete_once_used(row(oldest.sequence));
        }
    }

    /// Up to `limit` events from sequence number `from` on.
    pub fn since(&self, from: u64, limit: usize) -> Vec<CertificationEvent> {
        let start = self.kept.partition_point(|event| event.sequence < from);
        self.kept.iter().skip(start).take(limit).cloned().collect()
    }

    /// The sequence number the next event will have.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn take_rows(&mut self) -> Vec<Row> {
        self.rows.take()
    }
}

fn row(sequence: u64) -> String {
    format!("{}{sequence:016x}", CertificationLog::ROW)
}
