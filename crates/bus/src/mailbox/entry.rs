//! A message in a mailbox, and the readers that it wakes.

use std::cmp::Ordering;
use std::sync::Arc;
use std::task::Waker;

use super::MESSAGE_OVERHEAD;
use crate::message::ReceivedMessage;

pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The number of messages that a sender may have in one round. If it were one, the reader would take each message of a
/// row alone, and put the row back behind the others.
pub(super) const IN_A_ROUND: u64 = 8;

/// The place of a message among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The number of the message among those of its sender. Each round has [`IN_A_ROUND`] of them.
    pub(super) turn: u64,
    /// How many messages had come before this one.
    pub(super) arrival: u64,
}

impl Order {
    /// The round in which the message has its turn.
    #[inline]
    pub(super) fn round(self) -> u64 {
        self.turn / IN_A_ROUND
    }

    /// The order of the message that stands `count` places behind this one in a row.
    pub(super) fn after(self, count: u64) -> Self {
        Self {
            turn: self.turn + count,
            arrival: self.arrival + count,
        }
    }
}

/// Messages of one round come in the order of their arrival.
impl Ord for Order {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.round(), self.arrival).cmp(&(other.round(), other.arrival))
    }
}

impl PartialOrd for Order {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The bytes that a message counts as.
#[inline]
pub(super) fn cost_of(message: &ReceivedMessage) -> u32 {
    // A cost above 4 GiB cannot occur: messages are limited far below.
    u32::try_from(message.size() + MESSAGE_OVERHEAD).unwrap_or(u32::MAX)
}

pub(super) struct Entry {
    pub(super) message: ReceivedMessage,
    pub(super) order: Order,
    pub(super) cost: u32,
    pub(super) window: u32,
    pub(super) receipt: Option<u64>,
}

/// Whether a message may be part of a row: nothing about it counts but its sender and its length.
#[inline]
pub(super) fn may_be_in_row(message: &ReceivedMessage) -> bool {
    message.kept().is_none() && !message.is_notice()
}

impl Entry {
    #[inline]
    pub(super) fn may_be_in_row(&self) -> bool {
        self.receipt.is_none() && may_be_in_row(&self.message)
    }
}

/// The tasks to wake after the lock is released.
#[derive(Default)]
pub(super) struct Wake {
    pub(super) reader: Option<Waker>,
    pub(super) hook: Option<Hook>,
    /// The readers that wait for messages of conversations.
    pub(super) more: Vec<Alarm>,
    /// Whether a late message was dropped. Its writer must then be told.
    pub(super) dropped: bool,
}

pub(super) enum Alarm {
    Task(Waker),
    Hook(Hook),
}

impl Wake {
    #[inline]
    pub(super) fn wake(self) {
        if let Some(reader) = self.reader {
            reader.wake();
        }
        if let Some(hook) = self.hook {
            hook();
        }
        for alarm in self.more {
            match alarm {
                Alarm::Task(task) => task.wake(),
                Alarm::Hook(hook) => hook(),
            }
        }
    }
}
