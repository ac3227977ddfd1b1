//! The rest of an agent that moves: until the agent goes on, here or elsewhere, its subscriptions hand out nothing and
//! settle nothing.

use std::task::{Poll, Waker};

use sealbus_bus::Moment;

use super::Consumer;
use crate::exchange::aftermath::Aftermath;

impl Consumer {
    /// Lets the agent rest or go on. Its reader is woken when it goes on.
    pub(in crate::exchange) fn set_resting(&self, rests: bool) {
        if let Some(tracker) = &self.tracker {
            tracker.set_resting(rests);
        }
        let waker = {
            let mut state = self.state.lock();
            state.rests = rests;
            if rests { None } else { state.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether there is an event to take; `Ready(false)` if the subscription has ended and is empty. The event stays in
    /// the queue.
    pub(crate) fn poll_ready(
        &self,
        now: Moment,
        waker: &Waker,
        aftermath: &mut Aftermath,
    ) -> Poll<bool> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.queue.advance(now, &mut state.lost);
        aftermath.has_room |= !state.lost.is_empty() && self.pushes_back();
        state.settle_lost(aftermath);
        if state.is_ready() && !state.rests {
            return Poll::Ready(true);
        }
        if state.ended.is_some() {
            return Poll::Ready(false);
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }
}
