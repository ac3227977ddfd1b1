//! The point from which a subscription reads persistent channels.

use crate::filter::EventKey;
use sealbus_bus::Moment;

/// The point from which a subscription reads a persistent channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// All events from now on.
    #[default]
    Now,
    /// All events published since this moment.
    Since(Moment),
    /// This many last events of each channel on each node. Each node counts its own events.
    Last(u64),
    /// All events from this number on, of each channel on each node.
    From(u64),
    /// All events from the point where the durable subscription of that name stopped. If there is no such point, all
    /// events from now on.
    Resume,
    /// The last kept event of each value of the key on each channel, over all nodes; then all events from now on.
    /// Events without the key do not count.
    LastPerKey(EventKey),
}
