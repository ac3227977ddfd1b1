//! Which deliveries can be acknowledged, in as few words as possible. No I/O.

use std::collections::{BTreeSet, VecDeque};

/// A delivery, by the number of its connection and its own on it: numbers begin anew on each.
pub(crate) type Tag = (u64, u64);

/// The deliveries of the present connection.
#[derive(Default)]
pub(crate) struct Acks {
    /// The number of the present connection.
    connection: u64,
    /// Deliveries not acknowledged, in order, and whether they may be.
    open: VecDeque<(u64, bool)>,
    /// Those that may be and are not the first.
    singles: BTreeSet<u64>,
}

impl Acks {
    /// Deliveries that are not acknowledged.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether it came on the present connection.
    pub(crate) fn is_present(&self, (connection, _): Tag) -> bool {
        connection == self.connection
    }

    /// The connection has delivered this.
    pub(crate) fn delivered(&mut self, tag: u64) -> Tag {
        self.open.push_back((tag, false));
        (self.connection, tag)
    }

    /// It is dealt with. What came on a former connection comes again, and is acknowledged then.
    pub(crate) fn may(&mut self, (connection, tag): Tag) {
        if connection != self.connection {
            return;
        }
        if let Ok(index) = self.open.binary_search_by_key(&tag, |(tag, _)| *tag) {
            self.open[index].1 = true;
            self.singles.insert(tag);
        }
    }

    /// The connection is gone, and with it what it delivered.
    pub(crate) fn disconnected(&mut self) {
        self.connection += 1;
        self.open.clear();
        self.singles.clear();
    }

    /// The tag up to which all are acknowledged, and the others that are.
    pub(crate) fn next(&mut self) -> (Option<u64>, BTreeSet<u64>) {
        let mut up_to = None;
        while let Some((tag, true)) = self.open.front().copied() {
            self.open.pop_front();
            if self.singles.remove(&tag) {
                up_to = Some(tag);
            }
        }
        (up_to, std::mem::take(&mut self.singles))
    }
}

#[cfg(test)]
mod tests {
    use super::Acks;

    #[test]
    fn the_first_ones_are_acknowledged_together() {
        let mut acks = Acks::default();
        let tags: Vec<_> = (1..=6).map(|tag| acks.delivered(tag)).collect();
        for tag in [4, 1, 2] {
            acks.may(tags[tag - 1]);
        }
        assert_eq!(acks.next(), (Some(2), [4].into()));
        acks.may(tags[2]);
        assert_eq!(acks.next(), (Some(3), [].into()));
        assert_eq!(acks.next(), (None, [].into()));
        acks.may(tags[5]);
        acks.may(tags[4]);
        assert_eq!(acks.next(), (Some(6), [].into()));
    }

    #[test]
    fn what_came_before_the_break_is_not_acknowledged_after_it() {
        let mut acks = Acks::default();
        let before = acks.delivered(1);
        acks.disconnected();
        let after = acks.delivered(1);
        acks.may(before);
        assert_eq!(acks.next(), (None, [].into()));
        assert!(!acks.is_present(before) && acks.is_present(after));
        acks.may(after);
        assert_eq!(acks.next(), (Some(1), [].into()));
    }
}
