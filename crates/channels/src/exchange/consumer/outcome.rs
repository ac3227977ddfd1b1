//! The answers of a consumer for an event.

use std::time::Duration;

/// Whether there is room for an event.
pub(in crate::exchange) enum Room {
    /// There is room.
    Free,
    /// Others have waited for the room.
    Taken,
    /// There is no room, and publishers have found none since then.
    Full(Duration),
}

/// The outcome for an event that was put into a queue.
pub(in crate::exchange) enum PutOutcome {
    /// The event is in the queue.
    Taken,
    /// The event is lost: dropped, expired, or the subscription has ended.
    Lost,
    /// The event is lost, and has ended the subscription.
    Disconnected,
    /// The event is not taken, because its process has sent far more than it had credit for.
    Beyond,
}
