//! When each message of a sender is due.

/// The times of one sender's messages. The senders of a process are spread evenly over the interval, so that they do
/// not all send at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    first_ns: u64,
    interval_ns: u64,
}

impl Schedule {
    /// The schedule of `sender`, one of `senders`. All start at `start_ns` and each sends every `interval_ns`; 0 means
    /// without a pause.
    pub fn new(start_ns: u64, interval_ns: u64, sender: u32, senders: u32) -> Self {
        let offset = u128::from(interval_ns) * u128::from(sender) / u128::from(senders.max(1));
        Self {
            first_ns: start_ns + u64::try_from(offset).unwrap_or(0),
            interval_ns,
        }
    }

    /// Whether messages go without a pause.
    pub fn is_flat_out(&self) -> bool {
        self.interval_ns == 0
    }

    /// When message `number` is due.
    pub fn due_ns(&self, number: u32) -> u64 {
        self.first_ns + self.interval_ns * u64::from(number)
    }
}
