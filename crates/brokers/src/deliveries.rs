//! The broker's deliveries to one owner, over all connections: put in order, and acknowledged. No I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::acks::Acks;
use crate::client::BrokerFailure;
use crate::incoming::{Incoming, Sorted};
use crate::stamp::OrderStamp;

/// A delivery: the number of its connection and its own number there, because numbers begin again on each connection.
pub(crate) type Tag = (u64, u64);

/// The factor by which unacknowledged deliveries may exceed the usual number, while all of them wait for an earlier
/// message.
const MOST: u16 = 64;

/// Why nothing more is received on a connection.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Failed(#[from] BrokerFailure),
    /// If a dead connection holds the missing message, the message comes first on another connection. It comes later if
    /// the broker refused it at first.
    #[error("all that was delivered waits for something earlier")]
    Stuck,
}

impl Broken {
    /// The number of unacknowledged deliveries allowed on the next connection.
    pub(crate) fn next_prefetch(&self, last: u16, usual: u16) -> u16 {
        match self {
            Self::Failed(_) => usual,
            Self::Stuck => last.saturating_mul(2).min(usual.saturating_mul(MOST)),
        }
    }
}

/// The content of one delivery.
#[derive(Debug)]
pub(crate) struct Delivered<T> {
    pub(crate) tag: Tag,
    pub(crate) content: T,
}

/// The deliveries to one owner.
pub(crate) struct Deliveries<T> {
    incoming: Incoming<Delivered<T>>,
    /// The number of the present connection.
    connection: u64,
    /// The acknowledgements of the present connection.
    pub(crate) acks: Acks,
    /// The number of deliveries that the broker makes without an acknowledgement.
    prefetch: usize,
}

impl<T> Deliveries<T> {
    /// Waits for a missing delivery no longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            incoming: Incoming::new(patience),
            connection: 0,
            acks: Acks::default(),
            prefetch: 0,
        }
    }

    /// A connection is open on which the broker makes at most `prefetch` deliveries without an acknowledgement.
    pub(crate) fn connected(&mut self, prefetch: u16, now: Instant) {
        self.prefetch = prefetch.into();
        self.incoming.connected(now);
    }

    /// The connection is gone. The broker repeats the deliveries that were not acknowledged on it.
    pub(crate) fn disconnected(&mut self) {
        self.acks = Acks::default();
        self.connection += 1;
    }

    /// A delivery has arrived on the present connection.
    ///
    /// # Errors
    /// The broker delivers no more without an acknowledgement, and everything here waits for an earlier delivery.
    pub(crate) fn arrived(
        &mut self,
        sender: &Arc<str>,
        stamp: OrderStamp,
        number: u64,
        content: T,
        now: Instant,
    ) -> Result<Sorted<Delivered<T>>, Broken> {
        self.acks.delivered(number);
        let tag = (self.connection, number);
        let delivered = Delivered { tag, content };
        let sorted = self.incoming.arrived(sender, stamp, delivered, now);
        let is_here = |kept: &&Delivered<T>| kept.tag.0 == self.connection;
        if sorted.next.is_empty()
            && self.acks.open() >= self.prefetch
            && self.incoming.kept().filter(is_here).count() >= self.prefetch
        {
            return Err(Broken::Stuck);
        }
        Ok(sorted)
    }

    /// Notes that a delivery may be acknowledged. A delivery of a former connection comes again, and is acknowledged
    /// then.
    pub(crate) fn may_acknowledge(&mut self, (connection, number): Tag) {
        if connection == self.connection {
            self.acks.may(number);
        }
    }

    /// Notes that a delivery is not taken. Returns its number on the present connection; `None`: it was delivered on a former
    /// one.
    pub(crate) fn rejected(&mut self, (connection, number): Tag) -> Option<u64> {
        (connection == self.connection).then(|| {
            self.acks.rejected(number);
            number
        })
    }

    /// The time at which to call [`overdue`](Self::overdue) next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.incoming.deadline()
    }

    /// Hands out deliveries that have waited too long for an earlier one.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Delivered<T>> {
        self.incoming.overdue(now)
    }
}
