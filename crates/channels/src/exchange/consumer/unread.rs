//! The events of other processes that wait in the queue of a subscription, and, for each process, the frame up to which
//! all were read.

use std::collections::VecDeque;

use super::{Consumer, Entry, State};
use crate::exchange::aftermath::{Aftermath, PeerKey, Source};
use crate::qos::Reliability;

struct Account {
    peer: PeerKey,
    /// The first frame whose event waits, and all others, in their order.
    first: u64,
    others: VecDeque<u64>,
    /// The process must hear when more has been read.
    is_awaited: bool,
}

/// The accounts of the processes whose events wait.
#[derive(Default)]
pub(super) struct Unread {
    accounts: Vec<Account>,
}

impl Unread {
    fn place(&self, peer: PeerKey) -> Option<usize> {
        self.accounts.iter().position(|it| it.peer == peer)
    }

    /// An event of a frame goes into the queue. Returns whether nothing of its process waited before.
    pub(super) fn enter(&mut self, (peer, number): (PeerKey, u64)) -> bool {
        if let Some(place) = self.place(peer) {
            self.accounts[place].others.push_back(number);
            return false;
        }
        self.accounts.push(Account {
            peer,
            first: number,
            others: VecDeque::new(),
            is_awaited: false,
        });
        true
    }

    /// An event has left the queue. Returns whether its process must hear that more has been read.
    pub(super) fn leave(&mut self, (peer, number): (PeerKey, u64)) -> bool {
        let Some(place) = self.place(peer) else {
            return false;
        };
        let account = &mut self.accounts[place];
        if number != account.first {
            // Events leave in order, except those of other priorities and those that expire.
            if let Ok(at) = account.others.binary_search(&number) {
                account.others.remove(at);
            }
            return false;
        }
        let is_awaited = std::mem::take(&mut account.is_awaited);
        match account.others.pop_front() {
            Some(next) => account.first = next,
            None => _ = self.accounts.swap_remove(place),
        }
        is_awaited
    }

    /// The last frame of a process up to which all have been read; `None` if nothing of it waits. The process must hear when
    /// more has been read.
    pub(super) fn read_up_to(&mut self, peer: PeerKey) -> Option<u64> {
        let place = self.place(peer)?;
        let account = &mut self.accounts[place];
        account.is_awaited = true;
        Some(account.first - 1)
    }

    /// A process is gone.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        self.accounts.retain(|it| it.peer != peer);
    }
}

impl Consumer {
    /// The last frame of a process up to which all events have left the queue; `None` if no event of it waits. The process is
    /// to hear when more have left.
    pub(in crate::exchange) fn read_up_to(&self, peer: PeerKey) -> Option<u64> {
        self.state.lock().unread.read_up_to(peer)
    }
}

impl State {
    /// An event leaves the queue.
    pub(super) fn leave(&mut self, entry: &Entry, aftermath: &mut Aftermath) {
        if let Some(frame) = entry.source.frame()
            && self.unread.leave(frame)
        {
            aftermath.read.push(frame.0);
        }
    }
}

impl Entry {
    /// The agent has moved and does not take the event, so the publisher gets it back. A publisher's receipt, if there
    /// is one, says so.
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
