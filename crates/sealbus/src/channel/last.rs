//! The last events of a persistent channel.

use std::sync::Arc;

use super::ChannelEvent;

/// The last event of a channel for each value of a key; see [`Channel::last`](super::Channel::last).
#[derive(Clone, Debug)]
pub struct LastEvents {
    /// The events, in the order in which they were published.
    pub events: Vec<ChannelEvent>,
    /// The nodes whose events may be missing because they did not answer in time, and the known part of the reason.
    pub missing: Vec<(Arc<str>, String)>,
    /// The number of events without the key, or for which the filter could not be evaluated.
    pub filter_errors: u64,
}

impl From<sealbus_channels::LastEvents> for LastEvents {
    fn from(last: sealbus_channels::LastEvents) -> Self {
        Self {
            events: last.events.into_iter().map(ChannelEvent::new).collect(),
            missing: last.unanswered,
            filter_errors: last.filter_errors.0,
        }
    }
}
