//! The work that remains when events have left the queue of a subscription: the notices that are due, and their receivers.

use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bus::{RefusalReason, UndeliverableReason};

use super::receipt::Receipt;
use super::share::Share;
use crate::event::{ReceivedEvent, RequestId};
use crate::log::LogNote;

/// Identifies a process among all processes that the exchange has known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerKey {
    pub(super) index: u32,
    /// The number of this session with it.
    pub(super) serial: u32,
}

/// Tells another process once all receiving agents have taken an event.
#[derive(Debug)]
pub(super) struct TakenNote {
    pub(super) peer: PeerKey,
    pub(super) number: u64,
    /// The number of agents that have yet to take the event, and whether one of them never will.
    pub(super) state: Mutex<(usize, bool)>,
}

/// The source of an event.
#[derive(Debug)]
pub(super) enum Source {
    /// An agent of this process.
    Here(Option<Arc<Receipt>>),
    /// Another process, the number of its frame or 0, and the notice for it.
    There(PeerKey, u64, Option<Arc<TakenNote>>),
    /// A log.
    Log(Box<LogNote>),
    /// An agent of this process. The event is this subscription's share of its group's events.
    Group(Share),
}

impl Source {
    pub(super) fn peer(&self) -> Option<PeerKey> {
        match self {
            Self::Here(_) | Self::Log(_) | Self::Group(_) => None,
            Self::There(peer, ..) => Some(*peer),
        }
    }

    /// The frame, of which another process wants to know that its event was read.
    pub(super) fn frame(&self) -> Option<(PeerKey, u64)> {
        match self {
            Self::There(peer, number, _) if *number > 0 => Some((*peer, *number)),
            _ => None,
        }
    }
}

/// The exchange's work after events have left a queue.
#[derive(Default)]
pub(crate) struct Aftermath {
    /// Processes that may send more, each with its new limit in bytes.
    pub(super) credit: Vec<(PeerKey, u64)>,
    /// Requests that will not be answered: their processes and numbers.
    pub(super) unanswered: Vec<(Option<PeerKey>, RequestId)>,
    /// Events that all agents have taken, or that some will not take: the process, the frame, and whether all have taken it.
    pub(super) taken: Vec<(PeerKey, u64, bool)>,
    /// Events of this process's groups, and whether the agent has handled each or does not take it.
    pub(super) shares: Vec<(Share, bool)>,
    /// Events of publishers of this process that go back to them.
    pub(super) returned: Vec<ReceivedEvent>,
    /// Processes that must be told that more of their events have been read.
    pub(super) read: Vec<PeerKey>,
    /// Whether the event is the first of its process that waits in this subscription.
    pub(super) is_unread: bool,
    /// Whether publishers of this process have room again.
    pub(super) has_room: bool,
}

impl Aftermath {
    /// Whether publishers of this process have room again.
    pub(crate) fn frees_room(&self) -> bool {
        self.has_room
    }

    /// Whether the exchange has nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.credit.is_empty()
            && self.unanswered.is_empty()
            && self.taken.is_empty()
            && self.shares.is_empty()
            && self.returned.is_empty()
            && self.read.is_empty()
    }
}

/// Notes that one agent has taken an event, or will not. An event of a group counts as taken once it is handled.
pub(super) fn note_taken(source: &Source, is_taken: bool, aftermath: &mut Aftermath) {
    match source {
        Source::Here(Some(receipt)) if is_taken => receipt.acknowledge(),
        Source::Here(Some(receipt)) => receipt.fail(&not_taken()),
        Source::Here(None) | Source::There(_, _, None) => {}
        Source::Log(note) if is_taken => note.taken(),
        Source::Log(note) => note.lost(),
        Source::Group(share) => aftermath.shares.push((*share, is_taken)),
        Source::There(_, _, Some(note)) => {
            let mut state = note.state.lock();
            state.0 = state.0.saturating_sub(1);
            state.1 |= !is_taken;
            if state.0 == 0 {
                aftermath.taken.push((note.peer, note.number, !state.1));
            }
        }
    }
}

/// The reason in a failed receipt when an agent did not take its event.
pub(super) fn not_taken() -> UndeliverableReason {
    UndeliverableReason::Refused {
        reason: RefusalReason::OverLimit,
        explanation: "an agent that subscribes to the channel did not take it: it expired, was dropped by the \
                      subscription's flow policy, or the subscription ended"
            .to_owned(),
    }
}
