//! The progress of a subscription in the logs: events read, handed to its agent, and handled.
//!
//! An agent reports that it has handled the events that it took by asking for the next one, or explicitly. An event
//! that expires before the agent gets it also counts as handled. All events before the first unhandled one are
//! *settled*: a durable subscription that returns continues there. While the agent rests, nothing more is settled,
//! because the state that it has handed over does not include the events that it takes now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bus::until;
use tokio::sync::Notify;

use super::{DamagedLog, LogCursor, LogPart, Logged, LoggedEvent};
use crate::path::ChannelPath;

/// A subscription's position in all logs.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    state: Mutex<State>,
    /// Tells that there is room again, or something to settle.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<Arc<str>, OfNode>,
    /// The number and the bytes of events that were read and not taken.
    waiting: (usize, usize),
    /// The events that the agent took last and is handling.
    in_hand: Vec<(Arc<str>, ChannelPath, u64)>,
    /// Whether the agent rests because it moves.
    rests: bool,
    /// Whether the subscription has ended. Events that it has not taken wait in the logs.
    is_over: bool,
}

#[derive(Debug, Default)]
struct OfNode {
    /// `None` until the node has said where the subscription begins.
    logs: Option<BTreeMap<ChannelPath, Log>>,
}

#[derive(Debug)]
struct Log {
    /// The number of the next event to read.
    next: u64,
    /// The events that were read and are not handled.
    open: BTreeMap<u64, usize>,
    /// The node knows that all events before this number are settled.
    noted: u64,
    /// The number of events that were removed too early, to be reported with the next event.
    missed: u64,
    /// The reason why the log cannot be read further.
    damage: Option<String>,
}

impl Log {
    /// All events before this number are handled.
    fn settled(&self) -> u64 {
        self.open
            .first_key_value()
            .map_or(self.next, |(number, _)| *number)
    }
}

/// The place of one event. It reports whether the event was taken or lost.
#[derive(Debug)]
pub(crate) struct LogNote {
    tracker: Arc<Tracker>,
    node: Arc<str>,
    channel: ChannelPath,
    number: u64,
}

impl LogNote {
    /// Reports that the agent has taken the event.
    pub(crate) fn taken(&self) {
        let this = (self.node.clone(), self.channel.clone(), self.number);
        let mut state = self.tracker.state.lock();
        if state.is_over {
            return;
        }
        state.is_taken(&self.node, &self.channel, self.number);
        state.in_hand.push(this);
        drop(state);
        self.tracker.news.notify_waiters();
    }

    /// Reports that the agent never gets the event.
    pub(crate) fn lost(&self) {
        let mut state = self.tracker.state.lock();
        if state.is_over {
            return;
        }
        state.is_taken(&self.node, &self.channel, self.number);
        state.is_done(&self.node, &self.channel, self.number);
        drop(state);
        self.tracker.news.notify_waiters();
    }
}

impl State {
    fn log(&mut self, node: &str, channel: &ChannelPath) -> Option<&mut Log> {
        self.nodes.get_mut(node)?.logs.as_mut()?.get_mut(channel)
    }

    /// Notes that the event no longer waits.
    fn is_taken(&mut self, node: &str, channel: &ChannelPath, number: u64) {
        let size = self
            .log(node, channel)
            .and_then(|log| log.open.get_mut(&number))
            .map(std::mem::take);
        if let Some(size) = size.filter(|size| *size > 0) {
            self.waiting.0 = self.waiting.0.saturating_sub(1);
            self.waiting.1 = self.waiting.1.saturating_sub(size);
        }
    }

    fn is_done(&mut self, node: &str, channel: &ChannelPath, number: u64) {
        if let Some(log) = self.log(node, channel) {
            log.open.remove(&number);
        }
    }

    /// Counts the events that the agent took as handled, unless it rests. Returns whether there were any.
    fn settle(&mut self) -> bool {
        if self.rests || self.in_hand.is_empty() {
            return false;
        }
        for (node, channel, number) in std::mem::take(&mut self.in_hand) {
            self.is_done(&node, &channel, number);
        }
        true
    }
}

impl Tracker {
    /// The positions for the next reading of a node's logs; `None` if the node must look them up.
    pub(super) fn positions(&self, node: &str) -> Option<BTreeMap<ChannelPath, u64>> {
        let state = self.state.lock();
        let logs = state.nodes.get(node)?.logs.as_ref()?;
        Some(
            logs.iter()
                .map(|(channel, log)| (channel.clone(), log.next))
                .collect(),
        )
    }

    /// The number and the bytes of events that wait for the agent.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.state.lock().waiting
    }

    /// Takes in a node's events, and returns the new ones in order, each with its notes. Repeated events, which come
    /// when a late answer caused the question to be repeated, are left out.
    pub(super) fn take_in(
        self: &Arc<Self>,
        node: &Arc<str>,
        parts: Vec<LogPart>,
    ) -> Vec<(LoggedEvent, Logged, LogNote)> {
        let mut state = self.state.lock();
        let State { nodes, waiting, .. } = &mut *state;
        let logs = nodes
            .entry(node.clone())
            .or_default()
            .logs
            .get_or_insert_default();
        let mut fresh = Vec::new();
        for part in parts {
            let first = part.events.first().map_or(part.next, |event| event.number);
            let log = logs.entry(part.channel.clone()).or_insert_with(|| Log {
                next: first,
                open: BTreeMap::new(),
                noted: 0,
                missed: 0,
                damage: None,
            });
            log.damage = part.damage;
            for event in part.events {
                if event.number < log.next {
                    continue;
                }
                log.next = event.number + 1;
                let size = event.frame.len().max(1);
                log.open.insert(event.number, size);
                waiting.0 += 1;
                waiting.1 += size;
                let logged = Logged {
                    node: node.clone(),
                    missed: event.missed + std::mem::take(&mut log.missed),
                };
                let note = LogNote {
                    tracker: self.clone(),
                    node: node.clone(),
                    channel: part.channel.clone(),
                    number: event.number,
                };
                fresh.push((event, logged, note));
            }
            if part.next > log.next {
                log.next = part.next;
                log.missed += part.missed;
            }
        }
        fresh
    }

    /// The logs that cannot be read further.
    pub(crate) fn damaged(&self) -> Vec<DamagedLog> {
        let state = self.state.lock();
        let of = |(node, of): (&Arc<str>, &OfNode)| {
            let logs = of.logs.iter().flatten();
            let damaged = logs.filter_map(|(channel, log)| {
                Some(DamagedLog {
                    node: node.clone(),
                    channel: channel.clone(),
                    damage: log.damage.clone()?,
                })
            });
            damaged.collect::<Vec<_>>()
        };
        state.nodes.iter().flat_map(of).collect()
    }

    /// Notes that the agent has handled the events that it took.
    pub(crate) fn settle(&self) {
        let has_news = self.state.lock().settle();
        if has_news {
            self.news.notify_waiters();
        }
    }

    /// Sets whether the agent rests.
    pub(crate) fn set_resting(&self, rests: bool) {
        self.state.lock().rests = rests;
    }

    /// Ends the subscription. The events that the agent took and did not handle come again in the next subscription of
    /// its name.
    pub(crate) fn finish(&self) {
        self.state.lock().is_over = true;
        self.news.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// The settled positions that a node does not know yet.
    pub(super) fn unnoted(&self, node: &str) -> Vec<LogCursor> {
        let state = self.state.lock();
        let logs = state.nodes.get(node).and_then(|of| of.logs.as_ref());
        logs.into_iter()
            .flatten()
            .filter(|(_, log)| log.settled() > log.noted)
            .map(|(channel, log)| (channel.clone(), log.settled()))
            .collect()
    }

    /// Notes that a node knows these positions.
    pub(super) fn noted(&self, node: &str, cursors: &[LogCursor]) {
        let mut state = self.state.lock();
        for (channel, position) in cursors {
            if let Some(log) = state.log(node, channel) {
                log.noted = log.noted.max(*position);
            }
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Waits until all nodes have noted which events are settled.
    pub(crate) async fn all_noted(&self) {
        let are_noted = || {
            let state = self.state.lock();
            let mut logs = state.nodes.values().flat_map(|of| of.logs.iter().flatten());
            logs.all(|(_, log)| log.settled() <= log.noted)
                .then_some(())
        };
        until(&self.news, are_noted).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;

    use super::*;

    fn part(numbers: impl IntoIterator<Item = u64>, next: u64) -> LogPart {
        let mut part = LogPart::empty(ChannelPath::new("/a").unwrap(), next);
        part.events = numbers
            .into_iter()
            .map(|number| LoggedEvent {
                number,
                kept: None,
                frame: Bytes::from_static(b"event"),
                again: false,
                missed: 0,
            })
            .collect();
        part
    }

    fn settled(tracker: &Tracker) -> Vec<u64> {
        let cursors = tracker.unnoted("node");
        cursors.into_iter().map(|(_, number)| number).collect()
    }

    #[test]
    fn an_event_is_settled_when_the_next_one_is_taken() {
        let tracker = Arc::new(Tracker::default());
        let node: Arc<str> = "node".into();
        assert_eq!(tracker.positions("node"), None);
        let events = tracker.take_in(&node, vec![part([3, 4, 6], 9)]);
        assert_eq!(events.len(), 3);
        assert_eq!(tracker.waiting(), (3, 15));
        assert_eq!(settled(&tracker), [3]);
        events[0].2.taken();
        assert_eq!(settled(&tracker), [3]);
        assert_eq!(tracker.waiting(), (2, 10));
        tracker.settle();
        events[1].2.taken();
        assert_eq!(settled(&tracker), [4]);
        tracker.settle();
        // An event is taken out of order, as may happen with one of a higher priority.
        let more = tracker.take_in(&node, vec![part([6, 9], 10)]);
        assert_eq!(more.len(), 1, "6 was there before");
        more[0].2.taken();
        assert_eq!(settled(&tracker), [6]);
        events[2].2.lost();
        assert_eq!(settled(&tracker), [9]);
        tracker.settle();
        assert_eq!(settled(&tracker), [10]);
        let rest = tracker.take_in(&node, vec![part([10, 11], 12)]);
        rest[0].2.taken();
        tracker.finish();
        // Nobody gets the event now. It waits in the log, like the event before it, which was not handled.
        rest[1].2.lost();
        assert_eq!(settled(&tracker), [10]);
        let cursors = tracker.unnoted("node");
        tracker.noted("node", &cursors);
        assert!(tracker.unnoted("node").is_empty());
        let positions: Vec<u64> = tracker.positions("node").unwrap().into_values().collect();
        assert_eq!(positions, [12]);
    }

    #[test]
    fn events_taken_together_are_settled_together_and_none_while_the_agent_rests() {
        let tracker = Arc::new(Tracker::default());
        let node: Arc<str> = "node".into();
        let events = tracker.take_in(&node, vec![part([1, 2, 3, 4], 5)]);
        events[0].2.taken();
        events[1].2.taken();
        assert_eq!(settled(&tracker), [1]);
        tracker.settle();
        events[2].2.taken();
        assert_eq!(settled(&tracker), [3]);
        tracker.set_resting(true);
        tracker.settle();
        assert_eq!(settled(&tracker), [3]);
        tracker.set_resting(false);
        tracker.settle();
        assert_eq!(settled(&tracker), [4]);
        events[3].2.taken();
        tracker.set_resting(true);
        tracker.finish();
        assert_eq!(settled(&tracker), [4]);
    }

    #[test]
    fn what_passes_no_filter_is_settled_at_once() {
        let tracker = Arc::new(Tracker::default());
        let node: Arc<str> = "node".into();
        assert!(tracker.take_in(&node, vec![part([], 50)]).is_empty());
        assert_eq!(settled(&tracker), [50]);
    }
}
