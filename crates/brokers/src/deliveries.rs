//! The broker's deliveries to one owner, over all connections: put in order, and acknowledged. No I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::acks::Acks;
use crate::client::BrokerFailure;
use crate::held::{BUDGET, Held, Load, Tag};
use crate::incoming::{IncomingOrder, Sorted};
use crate::stamp::OrderStamp;

/// The factor by which unacknowledged deliveries may exceed the usual number, while all of them wait for an earlier
/// message.
const MOST: u16 = 64;
/// The number of acknowledged deliveries that show how large deliveries are at present. Twice as many are remembered.
const SAMPLE: usize = 32;
/// Shorter times in which the owner held up its deliveries are not noted.
const BRIEF: Duration = Duration::from_millis(100);

/// Why nothing more is received on a connection.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Failed(#[from] BrokerFailure),
    /// If a dead connection holds the missing message, the message comes first on another connection. It comes later if
    /// the broker refused it at first.
    #[error("all delivered messages wait for an earlier one, and they have {held} bytes")]
    Stuck {
        /// The bytes that the owner holds.
        held: usize,
    },
    /// On another connection, the broker makes fewer deliveries and keeps the others.
    #[error("more was delivered than may be held: {held} deliveries are held at present")]
    TooMuch {
        /// The number of deliveries that are held. As many as fit, and one more.
        held: usize,
    },
    /// On another connection, the broker may make more deliveries again.
    #[error("all deliveries were taken, and the last ones had {average} bytes each")]
    Relieved {
        /// The bytes of one delivery.
        average: usize,
    },
}

impl Broken {
    /// The number of unacknowledged deliveries allowed on the next connection.
    pub(crate) fn next_prefetch(&self, last: u16, usual: u16) -> u16 {
        match self {
            Self::Failed(_) => usual,
            // Twice as many fit.
            Self::Stuck { held } if *held <= BUDGET / 2 => {
                last.saturating_mul(2).min(usual.saturating_mul(MOST))
            }
            Self::Stuck { .. } => last,
            Self::TooMuch { held } => {
                let held = u16::try_from(*held).unwrap_or(u16::MAX);
                // The broker makes all held deliveries again, so that they can be acknowledged, and no further one.
                let all = Some(held).filter(|held| last > held.saturating_add(held / 8));
                // Small deliveries were taken, and large ones follow. There must not be a connection for each.
                all.unwrap_or(held - held / 4).min(last).max(1)
            }
            Self::Relieved { average } => fitting(*average).min(usual).max(last),
        }
    }

    /// Whether this process ends the connection although the broker is there.
    pub(crate) fn is_by_choice(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// The number of deliveries of `average` bytes that are held before a further one is too much.
fn fitting(average: usize) -> u16 {
    u16::try_from(BUDGET / average.max(1) + 1).unwrap_or(u16::MAX)
}

/// The content of one delivery.
#[derive(Debug)]
pub(crate) struct Delivered<T> {
    pub(crate) tag: Tag,
    pub(crate) content: T,
}

/// A delivery that arrives on the present connection.
#[derive(Debug)]
pub(crate) struct ArrivingDelivery<T> {
    /// The number of the delivery.
    pub(crate) number: u64,
    pub(crate) bytes: usize,
    /// The owner has an earlier copy that it has not taken.
    pub(crate) is_here: bool,
    pub(crate) content: T,
}

/// The deliveries to one owner.
pub(crate) struct Deliveries<T> {
    incoming: IncomingOrder<Delivered<T>>,
    /// The number of the present connection.
    connection: u64,
    /// The number of the first connection since the broker was last away.
    first: u64,
    /// The acknowledgements of the present connection.
    pub(crate) acks: Acks,
    held: Held,
    /// The deliveries acknowledged lately on the present connection.
    acknowledged: Load,
    /// The number of deliveries that the broker makes without an acknowledgement.
    prefetch: usize,
    /// The usual number of such deliveries.
    usual: u16,
    patience: Duration,
    /// When the last connection was ended, if that was not the broker's fault.
    ended: Option<Instant>,
    /// Since when no missing delivery can come before the owner takes some of those that it has.
    held_up: Option<Instant>,
}

impl<T> Deliveries<T> {
    /// Waits for a missing delivery no longer than `patience`. The broker usually makes `usual` deliveries without an
    /// acknowledgement.
    pub(crate) fn new(patience: Duration, usual: u16) -> Self {
        Self {
            incoming: IncomingOrder::new(patience),
            connection: 0,
            first: 0,
            acks: Acks::default(),
            held: Held::default(),
            acknowledged: Load::default(),
            prefetch: 0,
            usual,
            patience,
            ended: None,
            held_up: None,
        }
    }

    /// Notes that a connection is open on which the broker makes at most `prefetch` deliveries without an
    /// acknowledgement.
    pub(crate) fn connected(&mut self, prefetch: u16, now: Instant) {
        self.prefetch = prefetch.into();
        // Otherwise, connections that are ended again and again would let nothing ever be overdue.
        let was_away = |ended| now.duration_since(ended) > self.patience / 4;
        if self.ended.take().is_none_or(was_away) {
            self.incoming.connected(now);
            self.held_up = self.held_up.map(|_| now);
        }
    }

    /// Notes that the connection is gone. The broker repeats the deliveries that were not acknowledged on it.
    /// `is_by_choice` says that the broker is there.
    pub(crate) fn disconnected(&mut self, is_by_choice: bool, now: Instant) {
        self.look(now);
        self.ended = is_by_choice.then_some(now);
        self.acks = Acks::default();
        self.acknowledged = Load::default();
        self.connection += 1;
        if !is_by_choice {
            self.first = self.connection;
        }
    }

    /// Takes a delivery that has arrived on the present connection.
    ///
    /// # Errors
    /// Everything here waits for an earlier delivery, and the broker delivers no more without an acknowledgement. Or
    /// the delivery is too much: then it is not kept, and comes again on another connection.
    pub(crate) fn arrived(
        &mut self,
        sender: &Arc<str>,
        stamp: OrderStamp,
        arrival: ArrivingDelivery<T>,
        now: Instant,
    ) -> Result<Sorted<Delivered<T>>, Broken> {
        let ArrivingDelivery {
            number,
            bytes,
            is_here,
            content,
        } = arrival;
        let place = self.incoming.place(sender, stamp);
        if !is_here && let Some(load) = self.held.too_much_for(place) {
            return Err(Broken::TooMuch { held: load.count });
        }
        self.acks.delivered(number);
        let tag = (self.connection, number);
        let delivered = Delivered { tag, content };
        let sorted = self.incoming.arrived(sender, stamp, delivered, now);
        self.held.keep(tag, bytes);
        for next in &sorted.next {
            self.held.handed_over(next.tag);
        }
        let spare = sorted.spare.as_ref().map(|spare| spare.tag);
        if spare == Some(tag) {
            self.held.handed_over(tag);
        }
        let is_of_here = |kept: &&Delivered<T>| kept.tag.0 == self.connection;
        if sorted.next.is_empty()
            && self.acks.open() >= self.prefetch
            && self.incoming.kept().filter(is_of_here).count() >= self.prefetch
        {
            if let Some(spare) = spare {
                self.held.remove(spare);
            }
            return Err(Broken::Stuck {
                held: self.held.all().bytes,
            });
        }
        Ok(sorted)
    }

    /// Whether so much is held that a further delivery may be too much.
    pub(crate) fn is_full(&self) -> bool {
        self.held.all().bytes > BUDGET
    }

    /// Notes that a delivery may be acknowledged. A delivery of a former connection comes again, and is acknowledged
    /// then.
    pub(crate) fn may_acknowledge(&mut self, tag: Tag) {
        let bytes = self.held.remove(tag);
        let (connection, number) = tag;
        if connection != self.connection {
            return;
        }
        self.acks.may(number);
        self.acknowledged.add(bytes.unwrap_or_default());
        if self.acknowledged.count >= 2 * SAMPLE {
            self.acknowledged.count /= 2;
            self.acknowledged.bytes /= 2;
        }
    }

    /// Whether the broker, which was there all the time, makes a delivery of a former connection again.
    pub(crate) fn comes_again(&self, (connection, _): Tag) -> bool {
        (self.first..self.connection).contains(&connection)
    }

    /// Notes that a delivery is not taken. Returns its number on the present connection; `None`: it was delivered on a former
    /// one.
    pub(crate) fn rejected(&mut self, tag: Tag) -> Option<u64> {
        self.held.remove(tag);
        let (connection, number) = tag;
        (connection == self.connection).then(|| {
            self.acks.rejected(number);
            number
        })
    }

    /// Whether the broker should make more deliveries again: the owner has taken everything, and at least twice as many
    /// deliveries of the present size fit, or the usual number.
    pub(crate) fn relieved(&self) -> Option<Broken> {
        let usual = usize::from(self.usual);
        if self.prefetch >= usual
            || self.acknowledged.count < SAMPLE
            || self.acks.open() > 0
            || self.held.all().count > 0
        {
            return None;
        }
        let average = self.acknowledged.average();
        let fit = usize::from(fitting(average));
        (fit >= usual.min(2 * self.prefetch)).then_some(Broken::Relieved { average })
    }

    /// Notes whether a missing delivery can come before the owner takes some of those that it has.
    pub(crate) fn look(&mut self, now: Instant) {
        let unread = self.held.unread();
        let is_reduced = self.prefetch < self.usual.into();
        let is_held_up = unread.bytes > BUDGET
            || unread.count > 0 && is_reduced && self.acks.open() >= self.prefetch;
        match self.held_up {
            None if is_held_up => self.held_up = Some(now),
            Some(since) if !is_held_up => {
                self.held_up = None;
                if now.duration_since(since) >= BRIEF {
                    self.incoming.paused(since, now);
                }
            }
            _ => {}
        }
    }

    /// The time at which to call [`overdue`](Self::overdue) next, as of the last [look](Self::look). Without such a
    /// time, nothing is overdue before the owner takes what it has.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.incoming.deadline();
        deadline.filter(|_| self.held_up.is_none())
    }

    /// Hands out deliveries that have waited too long for an earlier one.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Delivered<T>> {
        let overdue = self.incoming.overdue(now);
        for delivered in &overdue {
            self.held.handed_over(delivered.tag);
        }
        overdue
    }
}

#[cfg(test)]
mod tests;
