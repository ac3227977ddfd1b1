//! The answers of a consumer for an event.

use std::time::Duration;

/// Whether there is room for an event.
pub(in crate::exchange) enum Room {
    /// There is room.
    Free,
    /// Other publishers wait for the room.
    Taken,
    /// There is no room. The value is the time since which publishers have found none.
    Full(Duration),
}

/// The outcome for an event that was put into a queue.
pub(in crate::exchange) enum PutOutcome {
    /// The event is in the queue.
    Taken,
    /// The event is lost: dropped, expired, or the subscription has ended.
    Lost,
    /// The event is lost, and the subscription has ended because of it.
    Disconnected,
    /// The event is refused, because its process has sent far more than its credit.
    Beyond,
}
