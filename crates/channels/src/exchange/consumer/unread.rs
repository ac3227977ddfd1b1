//! The events of other processes that wait in the queue of a subscription; and, for each process, the frame up to which
//! all events were read.

use std::collections::VecDeque;

use super::{Consumer, Entry, State};
use crate::exchange::aftermath::{Aftermath, PeerKey, Source};
use crate::qos::Reliability;

struct Account {
    peer: PeerKey,
    /// The first frame whose event waits, and all others, in order.
    first: u64,
    others: VecDeque<u64>,
}

/// The accounts of the processes whose events wait. Events in [rows](super::rows) are in no account.
#[derive(Default)]
pub(super) struct Unread {
    accounts: Vec<Account>,
    /// The processes that must be told when more has been read.
    awaiting: Vec<PeerKey>,
}

impl Unread {
    fn place(&self, peer: PeerKey) -> Option<usize> {
        self.accounts.iter().position(|it| it.peer == peer)
    }

    /// Whether a process has an account.
    pub(super) fn has(&self, peer: PeerKey) -> bool {
        self.place(peer).is_some()
    }

    /// Notes that the event of a frame enters the queue. Returns whether it is the only one of its process.
    pub(super) fn enter(&mut self, (peer, number): (PeerKey, u64)) -> bool {
        if let Some(place) = self.place(peer) {
            self.accounts[place].others.push_back(number);
            return false;
        }
        self.accounts.push(Account {
            peer,
            first: number,
            others: VecDeque::new(),
        });
        true
    }

    /// Notes that an event has left the queue. Returns whether its process must be told that more has been read.
    pub(super) fn leave(&mut self, (peer, number): (PeerKey, u64)) -> bool {
        let Some(place) = self.place(peer) else {
            return self.stop_awaiting(peer);
        };
        let account = &mut self.accounts[place];
        if number != account.first {
            // Events leave in order, except those of other priorities and those that expire.
            if let Ok(at) = account.others.binary_search(&number) {
                account.others.remove(at);
            }
            return false;
        }
        match account.others.pop_front() {
            Some(next) => account.first = next,
            None => _ = self.accounts.swap_remove(place),
        }
        self.stop_awaiting(peer)
    }

    /// Whether a process must be told that more has been read. It is told once.
    fn stop_awaiting(&mut self, peer: PeerKey) -> bool {
        let place = self.awaiting.iter().position(|it| *it == peer);
        place.is_some_and(|place| self.awaiting.swap_remove(place) == peer)
    }

    /// The first frame of a process whose event waits, by its account.
    fn first_frame_of(&self, peer: PeerKey) -> Option<u64> {
        self.place(peer).map(|place| self.accounts[place].first)
    }

    /// Has a process told when more has been read.
    fn await_more(&mut self, peer: PeerKey) {
        if !self.awaiting.contains(&peer) {
            self.awaiting.push(peer);
        }
    }

    /// Forgets a process that is gone.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        self.accounts.retain(|it| it.peer != peer);
        self.stop_awaiting(peer);
    }
}

impl Consumer {
    /// The last frame of a process up to which all events have left the queue; `None` if none of its events waits. The
    /// process will be told when more have left.
    pub(in crate::exchange) fn read_up_to(&self, peer: PeerKey) -> Option<u64> {
        let mut state = self.state.lock();
        let first = state.unread.first_frame_of(peer);
        let first = first.or_else(|| state.rows.first_frame_of(peer))?;
        state.unread.await_more(peer);
        Some(first - 1)
    }
}

impl State {
    /// Notes that an event leaves the queue.
    pub(super) fn leave(&mut self, entry: &Entry, aftermath: &mut Aftermath) {
        if let Some(frame) = entry.source.frame()
            && self.unread.leave(frame)
        {
            aftermath.read.push(frame.0);
        }
    }
}

impl Entry {
    /// Gives an event back to its publisher, because the agent has moved and does not take it. If the publisher has a
    /// receipt, that says so.
    pub(super) fn go_back(self, aftermath: &mut Aftermath) {
        match self.source {
            Source::There(peer, number, None) if number > 0 => {
                aftermath.taken.push((peer, number, false));
            }
            Source::Here(None) if self.event.header.qos.reliability != Reliability::BestEffort => {
                aftermath.returned.push(self.event);
            }
            _ => {}
        }
    }
}
