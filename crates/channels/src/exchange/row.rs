//! Rows: events of one process that come together for the same subscriptions. Each subscription gets them in one go,
//! because a lock and a wake-up for each event and subscription would cost more than the events.
//!
//! The row ends before anything that looks at the queues or adds to them. For example, an acknowledgement names the
//! events in them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use sealbus_bus::{ExplainedRefusal, RefusalReason};

use super::aftermath::{Aftermath, PeerKey, Source, TakenNote};
use super::arrival::Objection;
use super::consumer::{Consumer, PutOutcome};
use super::{Exchange, Now, Outcome};
use crate::event::ReceivedEvent;
use crate::qos::{Priority, Reliability};
use crate::queue::QueueTerms;

/// The most events in a row.
const LONGEST: usize = 128;

/// The fewest events that subscriptions share. Fewer events are put into each queue, which costs less than a row.
const SHORTEST_SHARED: usize = 4;

/// An event in a row.
pub(super) struct RowEvent {
    pub(super) event: ReceivedEvent,
    /// The number of its frame.
    pub(super) number: u64,
    /// The notice that tells its publisher when the event was taken.
    pub(super) note: Option<Arc<TakenNote>>,
}

/// A row that its subscriptions share. Its events have the same priority, and no time of their own.
pub(super) struct SharedRow {
    pub(super) from: PeerKey,
    pub(super) priority: Priority,
    /// The bytes that all its events count as.
    pub(super) cost: usize,
    pub(super) events: Vec<RowEvent>,
}

impl SharedRow {
    /// Makes a row of these events, if they can be shared.
    fn take(from: PeerKey, events: &mut Vec<RowEvent>) -> Option<Arc<Self>> {
        let priority = events.first()?.event.header.qos.priority;
        let is_plain = |it: &RowEvent| {
            let header = &it.event.header;
            header.qos.priority == priority
                && header.qos.reliability != Reliability::BestEffort
                && header.valid_from.is_none()
                && header.expiry.is_none()
        };
        if events.len() < SHORTEST_SHARED || !events.iter().all(is_plain) {
            return None;
        }
        let cost = events.iter().map(|it| QueueTerms::from(&it.event).cost);
        Some(Arc::new(Self {
            from,
            priority,
            cost: cost.sum(),
            events: mem::replace(events, Vec::with_capacity(events.len())),
        }))
    }
}

/// Events that were taken here and that their subscriptions do not have yet.
#[derive(Default)]
pub(super) struct EventRow {
    /// The process of the events.
    from: Option<PeerKey>,
    consumers: Vec<Arc<Consumer>>,
    events: Vec<RowEvent>,
}

/// Whether these subscriptions may get events in rows. All push back, so that no queue is ever full and no subscription
/// gets an event twice.
pub(super) fn take_rows(consumers: &[&Arc<Consumer>]) -> bool {
    consumers.iter().all(|it| it.pushes_back())
        && consumers.is_sorted_by(|one, next| one.id < next.id)
}

/// The reason why an event is refused for which its process had no credit.
pub(super) fn beyond_credit(agent: &str) -> ExplainedRefusal {
    ExplainedRefusal {
        reason: RefusalReason::OverLimit,
        explanation: format!("more was sent to {agent} than its subscription has given credit for"),
    }
}

impl Exchange {
    /// Adds an event to the row. Its subscriptions must [take rows](take_rows).
    pub(super) fn join_row(
        &mut self,
        from: PeerKey,
        consumers: &[&Arc<Consumer>],
        event: RowEvent,
        now: Now,
    ) {
        let row = &self.row;
        let is_next = row.from == Some(from)
            && row.events.len() < LONGEST
            && row.consumers.len() == consumers.len()
            && (row.consumers.iter().zip(consumers)).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_next {
            self.end_row(now);
            self.row.from = Some(from);
            self.row
                .consumers
                .extend(consumers.iter().copied().cloned());
        }
        self.await_moments(&event.event.header, now);
        self.row.events.push(event);
    }

    /// Gives the events of the row to their subscriptions.
    pub(super) fn end_row(&mut self, now: Now) {
        let Some(from) = self.row.from else {
            return;
        };
        let EventRow {
            mut consumers,
            mut events,
            ..
        } = mem::take(&mut self.row);
        let shared = SharedRow::take(from, &mut events);
        let single = shared.as_ref().map_or(&events, |shared| &shared.events);
        // The events that an agent does not take, by place, each with the last such agent.
        let mut beyond = BTreeMap::new();
        for consumer in consumers.drain(..) {
            let mut aftermath = Aftermath::default();
            if (shared.as_ref()).is_some_and(|shared| consumer.put_row(shared, &mut aftermath)) {
                self.have_put(consumer.id, Some(from), aftermath, now);
                continue;
            }
            let copies = single.iter().map(|it| {
                let source = Source::There(from, it.number, it.note.clone());
                (it.event.clone(), source)
            });
            let mut is_any_lost = false;
            consumer.put_all(copies, now.moment, &mut aftermath, |place, put| match put {
                PutOutcome::Beyond => drop(beyond.insert(place, consumer.agent.clone())),
                PutOutcome::Lost | PutOutcome::Disconnected => is_any_lost = true,
                PutOutcome::Taken => {}
            });
            self.have_put(consumer.id, Some(from), aftermath, now);
            if is_any_lost {
                self.report_flow(&consumer, now);
            }
        }
        for (place, agent) in beyond {
            if let Some(event) = single.get(place) {
                self.refuse_beyond(from, event, &agent, now);
            }
        }
        events.clear();
        self.row = EventRow {
            from: None,
            consumers,
            events,
        };
    }

    /// Refuses an event for which its process had no credit.
    fn refuse_beyond(&mut self, from: PeerKey, event: &RowEvent, agent: &str, now: Now) {
        let refused = beyond_credit(agent);
        let RowEvent { event, number, .. } = event;
        let message = event.message.message();
        let author = message.sender().map(|sender| sender.name().to_owned());
        let process = self.peers.get(from.index);
        let process = process.map(|peer| peer.identity.to_string());
        let certified = event.provenance().certified();
        let certified = certified.map(|verified| verified.identity().to_string());
        self.outcomes.push(Outcome::Refused {
            tried_by: author.unwrap_or_default(),
            proved: certified.or(process),
            channel: Some(event.header.channel.to_string()),
            reason: refused.reason,
            explanation: refused.explanation.clone(),
        });
        self.tell_objection(from.index, *number, &Objection::Refused(refused), now);
    }
}
