//! A subscription as its process announces it to the others.

use super::field::{Reader, number, text};
use super::{FrameError, LONGEST_NAME};
use crate::filter::MAX_FILTER_LENGTH;
use crate::flow::FlowPolicy;
use crate::path::MAX_PATH_LENGTH;
use sealbus_bus::Moment;

/// A subscription as its process announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// Its number in that process.
    pub subscription: u32,
    /// The channels.
    pub pattern: &'a str,
    /// The filter expression; empty: everything.
    pub filter: &'a str,
    /// Its policy when it is full.
    pub policy: FlowPolicy,
    /// Whether its agent answers requests.
    pub answers: bool,
    /// Whether the subscription takes events. It always takes directed messages.
    pub takes_events: bool,
    /// With [`FlowPolicy::PushBack`]: the number of bytes that may be sent at the beginning. Each event is counted with
    /// [`MESSAGE_OVERHEAD`](sealbus_bus::MESSAGE_OVERHEAD).
    pub credit: u64,
    /// The name under which the subscription continues after an absence; empty: none.
    pub durable: &'a str,
    /// From where on it reads persistent channels.
    pub replay: Replay,
    /// The queue group whose events it shares; empty: none.
    pub group: &'a str,
    /// How many events it has at a time as a member of the group; 0 without a group.
    pub prefetch: u32,
}

/// The point from which a subscription reads a persistent channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// The events from now on.
    #[default]
    Now,
    /// The events published since.
    Since(Moment),
    /// The last so many events of each channel on each node. Each node counts its own events.
    Last(u64),
    /// All events from this number on, of each channel on each node.
    From(u64),
    /// All events from the point where the durable subscription of that name stopped. Without such a point, from now
    /// on.
    Resume,
}

/// The most events that a member of a group has at a time, of one process.
pub const MOST_PREFETCHED: u32 = 1024;

const ANSWERS: u8 = 1;
const TAKES_EVENTS: u8 = 2;

impl<'a> Announcement<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let subscription = reader.short("the subscription")?;
        let flags = reader.byte("the flags")?;
        if flags & !(ANSWERS | TAKES_EVENTS) != 0 {
            return Err(FrameError::Limit("the flags"));
        }
        let mut announcement = Self {
            subscription,
            answers: flags & ANSWERS != 0,
            takes_events: flags & TAKES_EVENTS != 0,
            pattern: reader.text("the pattern", MAX_PATH_LENGTH)?,
            filter: reader.text("the filter", MAX_FILTER_LENGTH)?,
            policy: FlowPolicy::from_code(reader.byte("the flow policy")?)
                .ok_or(FrameError::Limit("the flow policy"))?,
            credit: reader.number("the credit")?,
            durable: reader.text("the durable name", LONGEST_NAME)?,
            replay: match reader.byte("the replay")? {
                0 => Replay::Now,
                1 => Replay::Since(reader.moment("the replay")?),
                2 => Replay::Last(reader.number("the replay")?),
                3 => Replay::From(reader.number("the replay")?),
                4 => Replay::Resume,
                _ => return Err(FrameError::Limit("the replay")),
            },
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
        out.push(answers | takes_events);
        text(out, self.pattern, MAX_PATH_LENGTH);
        text(out, self.filter, MAX_FILTER_LENGTH);
        out.push(self.policy.code());
        number(out, self.credit);
        text(out, self.durable, LONGEST_NAME);
        let (code, value) = match self.replay {
            Replay::Now => (0, None),
            Replay::Since(moment) => (1, Some(moment.unix_ms())),
            Replay::Last(count) => (2, Some(count)),
            Replay::From(number) => (3, Some(number)),
            Replay::Resume => (4, None),
        };
        out.push(code);
        if let Some(value) = value {
            number(out, value);
        }
        text(out, self.group, LONGEST_NAME);
        if !self.group.is_empty() {
            number(out, self.prefetch.into());
        }
    }
}
