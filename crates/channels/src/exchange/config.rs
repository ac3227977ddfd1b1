//! The configuration of an exchange: its behaviour and its limits.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::Tap;

use super::stream::Pace;

/// The behaviour of an exchange, and the limits on what others can make it hold.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeConfig {
    /// A number, not 0, that is higher at each start of the process, such as microseconds since 1970.
    pub(crate) epoch: u64,
    /// The most subscriptions of one other process.
    pub(crate) subscriptions_per_process: usize,
    /// The most frames kept for one process until it acknowledges them. Beyond it, publishers wait.
    pub(crate) kept_frames: usize,
    /// The most bytes of these frames. Best-effort events that wait for the transport have the same limit of their own.
    pub(crate) kept_bytes: usize,
    /// The first pause between two hellos, and the longest.
    pub(crate) greet: (Duration, Duration),
    /// How long publishers wait for the announcements of a process before they get an error that names it. A process
    /// that has announced its subscriptions has this time again when it begins anew, and may do so without end. A process
    /// that has not has it again when it begins anew after a pause of ten times as long.
    pub(crate) introduction: Duration,
    /// How long publishers wait for a subscription that pushes back and takes nothing. After that, events pass it by. It
    /// runs for all idle subscriptions at once. A subscription has it again after each event that it takes, and so has
    /// one that is made anew: an agent that takes very little, or subscribes without end, slows its publishers down.
    pub(crate) patience: Duration,
    /// How long an acknowledgement may be overdue before the process is given up.
    pub(crate) absence: Duration,
    /// How long an acknowledgement may wait for more frames to acknowledge.
    pub(crate) acknowledge_after: Duration,
    /// The number of frames after which an acknowledgement does not wait.
    pub(crate) acknowledge_frames: usize,
    /// The number of bytes after which an acknowledgement does not wait.
    pub(crate) acknowledge_bytes: usize,
    /// The most requests of this process under way.
    pub(crate) requests: usize,
    /// The most channels remembered.
    pub(crate) channels: usize,
    /// The largest encoded message, in bytes.
    pub(crate) largest_message: usize,
    /// Shows watchers the events that arrive at subscriptions of this process.
    pub(crate) tap: Arc<Tap>,
}

impl ExchangeConfig {
    /// The usual configuration.
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            epoch: epoch.max(1),
            subscriptions_per_process: 16_384,
            kept_frames: 16_384,
            kept_bytes: 8 << 20,
            greet: (Duration::from_millis(200), Duration::from_secs(5)),
            introduction: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            absence: Duration::from_secs(30),
            acknowledge_after: Duration::from_millis(20),
            acknowledge_frames: 64,
            acknowledge_bytes: 256 << 10,
            requests: 65_536,
            channels: 65_536,
            largest_message: 16 << 20,
            tap: Arc::default(),
        }
    }

    pub(super) fn pace(&self) -> Pace {
        Pace {
            after: self.acknowledge_after,
            frames: self.acknowledge_frames,
            bytes: self.acknowledge_bytes,
        }
    }
}
