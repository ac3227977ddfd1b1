//! Events on their way into the queue of a subscription.

use sealbus_bus::{Arrival, Moment};

use super::{Consumer, Entry, PutOutcome, State};
use crate::event::ReceivedEvent;
use crate::exchange::aftermath::{Aftermath, Source};
use crate::exchange::options::Ended;
use crate::queue::{Pushed, QueueTerms};

impl Consumer {
    /// Puts an event into the queue. Adds to `aftermath` the work for events that are lost because of it.
    pub(in crate::exchange) fn put(
        &self,
        event: ReceivedEvent,
        source: Source,
        now: Moment,
        aftermath: &mut Aftermath,
    ) -> PutOutcome {
        self.show(&event);
        let mut state = self.state.lock();
        let put = state.put(event, source, now, aftermath);
        let waker = match put {
            PutOutcome::Lost | PutOutcome::Beyond => None,
            PutOutcome::Taken | PutOutcome::Disconnected => state.waker.take(),
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        put
    }

    /// As [`put`](Self::put), for many events in one go. `outcome` is called with the place of each, from 0, and its outcome.
    pub(in crate::exchange) fn put_all(
        &self,
        events: impl Iterator<Item = (ReceivedEvent, Source)>,
        now: Moment,
        aftermath: &mut Aftermath,
        mut outcome: impl FnMut(usize, PutOutcome),
    ) {
        let mut is_news = false;
        let mut state = self.state.lock();
        for (place, (event, source)) in events.enumerate() {
            self.show(&event);
            let put = state.put(event, source, now, aftermath);
            is_news |= matches!(put, PutOutcome::Taken | PutOutcome::Disconnected);
            outcome(place, put);
        }
        let waker = if is_news { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Shows an event to those who watch arrivals.
    pub(super) fn show(&self, event: &ReceivedEvent) {
        if self.tap.is_open() {
            self.tap.show(&Arrival {
                message: &event.message,
                receiver: &self.agent,
                channel: Some(event.header.channel.as_str()),
            });
        }
    }
}

impl State {
    fn put(
        &mut self,
        event: ReceivedEvent,
        source: Source,
        now: Moment,
        aftermath: &mut Aftermath,
    ) -> PutOutcome {
        self.dissolve_rows();
        let terms = QueueTerms::from(&event);
        let entry = Entry {
            event,
            source,
            cost: terms.cost,
        };
        if let Some(frame) = entry.source.frame() {
            aftermath.is_unread |= self.unread.enter(frame);
        }
        if self.ended.is_some() {
            self.give_up(&entry, aftermath);
            return PutOutcome::Lost;
        }
        let put = if let Some(peer) = entry.payer()
            && let Some(ledgers) = &mut self.ledgers
        {
            // Its publisher had credit for it. This check keeps a process that ignores its credit from filling the
            // memory.
            if !ledgers.receive(peer, entry.cost) {
                self.give_up(&entry, aftermath);
                return PutOutcome::Beyond;
            }
            self.queue.push_accepted(entry, terms, now, &mut self.lost);
            PutOutcome::Taken
        } else if matches!(entry.source, Source::Log(_)) {
            // Logs are read only as far as there is room.
            self.queue.push_accepted(entry, terms, now, &mut self.lost);
            PutOutcome::Taken
        } else {
            match self.queue.push(entry, terms, now, &mut self.lost) {
                Pushed::Taken => PutOutcome::Taken,
                Pushed::Lost => PutOutcome::Lost,
                // The frame came without credit, so its event is lost.
                Pushed::Full(entry) if entry.source.peer().is_some() => {
                    self.give_up(&entry, aftermath);
                    PutOutcome::Lost
                }
                // The caller found room before. An item without room is kept rather than lost.
                Pushed::Full(entry) => {
                    self.queue.push_accepted(entry, terms, now, &mut self.lost);
                    PutOutcome::Taken
                }
                Pushed::Disconnected(entry) => {
                    self.give_up(&entry, aftermath);
                    self.ended = Some(Ended::Disconnected);
                    PutOutcome::Disconnected
                }
            }
        };
        self.settle_lost(aftermath);
        put
    }
}
