//! The deliveries of one connection, and their acknowledgements. No I/O.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::time::{Duration, Instant};

use crate::client::{BrokerFailure, Receiving};

/// The pause between acknowledgements. Each acknowledgement is a command to the queue. The members of the queue must
/// agree on it and keep it. At a high rate, one for each message costs the broker and this process more than the
/// message.
const APART: Duration = Duration::from_millis(5);
/// The number of deliveries that are acknowledged without a pause.
pub(crate) const MANY: usize = 64;

/// Finds the deliveries that can be acknowledged, in as few commands as possible.
#[derive(Default)]
pub(crate) struct Acks {
    /// Deliveries not acknowledged, in order, and whether they may be.
    open: VecDeque<(u64, bool)>,
    /// Deliveries that may be acknowledged and are not the first.
    singles: BTreeSet<u64>,
    /// When some were last acknowledged.
    sent: Option<Instant>,
}

impl Acks {
    /// The time of the next acknowledgement. If there is none, it is due at once.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.sent.map(|sent| sent + APART)
    }

    /// Whether something may be acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.singles.is_empty()
    }

    /// Whether an acknowledgement is due at `now`, counting `more` further deliveries.
    pub(crate) fn is_due(&self, more: usize, now: Instant) -> bool {
        self.singles.len() + more >= MANY || self.due().is_none_or(|due| due <= now)
    }

    /// Deliveries that are not acknowledged.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn delivered(&mut self, tag: u64) {
        self.open.push_back((tag, false));
    }

    pub(crate) fn may(&mut self, tag: u64) {
        if let Ok(index) = self.open.binary_search_by_key(&tag, |(tag, _)| *tag) {
            self.open[index].1 = true;
            self.singles.insert(tag);
        }
    }

    /// Notes that a delivery was rejected instead.
    pub(crate) fn rejected(&mut self, tag: u64) {
        if let Ok(index) = self.open.binary_search_by_key(&tag, |(tag, _)| *tag) {
            self.open.remove(index);
        }
    }

    /// Acknowledges at `now` every delivery that may be acknowledged. If the connection breaks before the broker is
    /// told, all of them come again.
    pub(crate) fn send(
        &mut self,
        receiving: &mut dyn Receiving,
        now: Instant,
    ) -> Result<(), BrokerFailure> {
        if !self.is_waiting() {
            return Ok(());
        }
        self.sent = Some(now);
        let (up_to, singles) = self.next();
        receiving.acknowledge(up_to, &singles)
    }

    /// The tag up to which all deliveries are acknowledged, and the others to acknowledge.
    fn next(&mut self) -> (Option<u64>, BTreeSet<u64>) {
        let mut up_to = None;
        while let Some((tag, true)) = self.open.front().copied() {
            self.open.pop_front();
            if self.singles.remove(&tag) {
                up_to = Some(tag);
            }
        }
        (up_to, mem::take(&mut self.singles))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{APART, Acks, MANY};

    #[test]
    fn the_first_ones_are_acknowledged_together() {
        let mut acks = Acks::default();
        for tag in 1..=6 {
            acks.delivered(tag);
        }
        for tag in [4, 1, 2] {
            acks.may(tag);
        }
        assert_eq!(acks.next(), (Some(2), [4].into()));
        acks.may(3);
        assert_eq!(acks.next(), (Some(3), [].into()));
        assert_eq!(acks.next(), (None, [].into()));
        acks.may(6);
        acks.may(5);
        assert_eq!(acks.next(), (Some(6), [].into()));
    }

    #[test]
    fn the_first_is_due_at_once_and_others_wait_unless_they_are_many() {
        let mut acks = Acks::default();
        let now = Instant::now();
        assert!(acks.is_due(1, now));
        acks.sent = Some(now);
        assert!(!acks.is_due(1, now));
        assert_eq!(acks.due(), Some(now + APART));
        assert!(acks.is_due(1, now + APART));
        for tag in 1..=3 {
            acks.delivered(tag);
            acks.may(tag);
        }
        assert!(acks.is_waiting() && !acks.is_due(MANY - 4, now));
        assert!(acks.is_due(MANY - 3, now));
    }
}
