//! The events that an agent takes. An event of a group counts as handled once the agent asks for the next one.

use sealbus_bus::Moment;

use super::{Consumer, Entry, State};
use crate::event::{Mechanism, ReceivedEvent};
use crate::exchange::aftermath::{Aftermath, note_taken};
use crate::qos::Reliability;

impl Consumer {
    /// Hands an event to its agent.
    pub(super) fn hand_out(
        &self,
        state: &mut State,
        entry: Entry,
        now: Moment,
        aftermath: &mut Aftermath,
    ) -> ReceivedEvent {
        if let Some(peer) = entry.payer() {
            state.pay(peer, entry.cost, aftermath);
        }
        state.leave(&entry, aftermath);
        let header = &entry.event.header;
        let is_shared = self.options.group.is_some()
            && header.mechanism == Mechanism::Event
            && header.qos.reliability != Reliability::BestEffort;
        if !is_shared {
            note_taken(&entry.source, true, aftermath);
        }
        let (event, source) = (entry.event, entry.source);
        if let Mechanism::Request { id } = event.header.mechanism {
            state.open.add(&event, (source.peer(), id));
            while let Some(declined) = state.open.pop_overdue(now) {
                aftermath.unanswered.push(declined);
            }
        }
        if is_shared {
            state.in_hand.push(source);
        }
        event
    }

    /// Counts the events that the agent took as handled.
    pub(crate) fn settle(&self, aftermath: &mut Aftermath) {
        if let Some(tracker) = &self.tracker {
            tracker.settle();
        }
        self.state.lock().handled(aftermath);
    }
}

impl State {
    /// Counts the events that the agent took as handled, unless it rests.
    pub(super) fn handled(&mut self, aftermath: &mut Aftermath) {
        if self.rests {
            return;
        }
        for source in self.in_hand.drain(..) {
            note_taken(&source, true, aftermath);
        }
    }
}
