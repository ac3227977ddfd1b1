//! The bytes of the deliveries that one owner holds. No I/O.
//!
//! A broker knows no limit in bytes. It counts the deliveries that it makes without an acknowledgement, whatever their
//! size.

use std::collections::HashMap;

use crate::incoming::OrderPlace;

/// A delivery: the number of its connection and its own number there, because numbers begin again on each connection.
pub(crate) type Tag = (u64, u64);

/// The bytes of deliveries beyond which an owner takes no further one, and the broker keeps the others. An owner holds
/// that much and one delivery more. It holds at most twice that, if half of it waits for an earlier delivery.
pub(crate) const BUDGET: usize = 64 << 20;

/// A number of deliveries, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

impl Load {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }

    /// The bytes of one delivery, on average.
    pub(crate) fn average(self) -> usize {
        self.bytes / self.count.max(1)
    }
}

/// The deliveries that one owner holds, of all connections.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The bytes of each, and whether it waits for an earlier one.
    deliveries: HashMap<Tag, (usize, bool)>,
    /// The deliveries that wait for an earlier one.
    waiting: Load,
    /// The deliveries that were handed over, and that the owner has not taken.
    unread: Load,
}

impl Held {
    /// All deliveries.
    pub(crate) fn all(&self) -> Load {
        Load {
            count: self.waiting.count + self.unread.count,
            bytes: self.waiting.bytes + self.unread.bytes,
        }
    }

    /// The deliveries that were handed over, and that the owner has not taken.
    pub(crate) fn unread(&self) -> Load {
        self.unread
    }

    /// Notes that a delivery is here now, and waits for an earlier one.
    pub(crate) fn keep(&mut self, tag: Tag, bytes: usize) {
        self.deliveries.insert(tag, (bytes, true));
        self.waiting.add(bytes);
    }

    /// Notes that a delivery no longer waits for an earlier one.
    pub(crate) fn handed_over(&mut self, tag: Tag) {
        if let Some((bytes, waits @ true)) = self.deliveries.get_mut(&tag) {
            *waits = false;
            self.waiting.take(*bytes);
            self.unread.add(*bytes);
        }
    }

    /// Notes that a delivery is no longer here. Returns its bytes.
    pub(crate) fn remove(&mut self, tag: Tag) -> Option<usize> {
        let (bytes, waits) = self.deliveries.remove(&tag)?;
        let load = match waits {
            true => &mut self.waiting,
            false => &mut self.unread,
        };
        load.take(bytes);
        Some(bytes)
    }

    /// The deliveries that leave no room for one with this place; `None`: there is room.
    ///
    /// A delivery that is next is measured by the unread ones alone, because others may wait for it. An owner that reads
    /// gets it in any case.
    pub(crate) fn too_much_for(&self, place: OrderPlace) -> Option<Load> {
        let all = self.all();
        match place {
            OrderPlace::Next | OrderPlace::Early if self.unread.bytes > BUDGET => Some(self.unread),
            OrderPlace::Early if all.bytes > BUDGET => Some(all),
            _ => None,
        }
    }
}
