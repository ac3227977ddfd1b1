//! The announcement of a subscription to other processes.

use super::field::{FieldReader, number, text};
use super::{FrameError, LONGEST_NAME};
use crate::filter::LONGEST_FILTER;
use crate::flow::FlowPolicy;
use crate::path::LONGEST_PATH;

/// The announcement of a subscription by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// The number of the subscription in that process.
    pub subscription: u32,
    /// The channels.
    pub pattern: &'a str,
    /// The filter expression; empty: all events.
    pub filter: &'a str,
    /// The policy when the subscription is full.
    pub policy: FlowPolicy,
    /// Whether the agent answers requests.
    pub answers: bool,
    /// Whether the subscription takes events. It always takes directed messages.
    pub takes_events: bool,
    /// With [`FlowPolicy::PushBack`]: the number of bytes that may be sent at the beginning. Each event counts with
    /// [`MESSAGE_OVERHEAD`](sealbus_bus::MESSAGE_OVERHEAD) added.
    pub credit: u64,
    /// Whether the subscription gets the events of persistent channels from the logs, and not from their publishers.
    pub reads_logs: bool,
    /// The queue group that the subscription belongs to; empty: none.
    pub group: &'a str,
    /// How many events it has at a time as a member of the group; 0 without a group.
    pub prefetch: u32,
}

/// The most events of one process that a member of a group has at a time.
pub const MOST_PREFETCHED: u32 = 1024;

const ANSWERS: u8 = 1;
const TAKES_EVENTS: u8 = 2;
const READS_LOGS: u8 = 4;

impl<'a> Announcement<'a> {
    pub(super) fn read(reader: &mut FieldReader<'a>) -> Result<Self, FrameError> {
        let subscription = reader.short("the subscription")?;
        let flags = reader.byte("the flags")?;
        if flags & !(ANSWERS | TAKES_EVENTS | READS_LOGS) != 0 {
            return Err(FrameError::Limit("the flags"));
        }
        let mut announcement = Self {
            subscription,
            answers: flags & ANSWERS != 0,
            takes_events: flags & TAKES_EVENTS != 0,
            reads_logs: flags & READS_LOGS != 0,
            pattern: reader.text("the pattern", LONGEST_PATH)?,
            filter: reader.text("the filter", LONGEST_FILTER)?,
            policy: FlowPolicy::from_code(reader.byte("the flow policy")?)
                .ok_or(FrameError::Limit("the flow policy"))?,
            credit: reader.number("the credit")?,
            group: reader.text("the group", LONGEST_NAME)?,
            prefetch: 0,
        };
        if !announcement.group.is_empty() {
            announcement.prefetch = reader.short("the prefetch")?;
            if !(1..=MOST_PREFETCHED).contains(&announcement.prefetch) {
                return Err(FrameError::Limit("the prefetch"));
            }
        }
        Ok(announcement)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        number(out, self.subscription.into());
        let answers = if self.answers { ANSWERS } else { 0 };
        let takes_events = if self.takes_events { TAKES_EVENTS } else { 0 };
        let reads_logs = if self.reads_logs { READS_LOGS } else { 0 };
        out.push(answers | takes_events | reads_logs);
        text(out, self.pattern, LONGEST_PATH);
        text(out, self.filter, LONGEST_FILTER);
        out.push(self.policy.code());
        number(out, self.credit);
        text(out, self.group, LONGEST_NAME);
        if !self.group.is_empty() {
            number(out, self.prefetch.into());
        }
    }
}
