//! Requests under way: who has not answered yet, who will not, and when no more answers are wanted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Exchange;
use super::collector::Collector;
use crate::path::ChannelPath;

/// A request under way.
pub(super) struct Asking {
    /// Who is asked and has not answered, by process and subscription; `None` is this process.
    pub(super) awaiting: HashMap<(Option<u32>, u32), Arc<str>>,
    /// Those of them that will not answer.
    pub(super) declined: Vec<Arc<str>>,
    pub(super) collector: Arc<Collector>,
    pub(super) channel: ChannelPath,
    /// Answers that are wanted still.
    pub(super) wanted: usize,
    pub(super) deadline: Duration,
}

impl Exchange {
    /// A subscription will not answer a request.
    pub(super) fn decline(&mut self, who: (Option<u32>, u32), request: u64) {
        if request == self.next_request && who.0.is_none() {
            self.declined_at_once.push(who.1);
        }
        if let Some(asking) = self.asking.get_mut(&request)
            && let Some(agent) = asking.awaiting.remove(&who)
        {
            asking.declined.push(agent);
            if asking.awaiting.is_empty() {
                self.end_request(request);
            }
        }
    }

    /// A process, or one of its subscriptions, answers nothing any more.
    pub(super) fn stop_awaiting(&mut self, process: Option<u32>, subscription: Option<u32>) {
        let concerned: Vec<(u64, u32)> = self
            .asking
            .iter()
            .flat_map(|(request, asking)| asking.awaiting.keys().map(|key| (*request, *key)))
            .filter(|(_, key)| key.0 == process && subscription.is_none_or(|id| id == key.1))
            .map(|(request, key)| (request, key.1))
            .collect();
        for (request, id) in concerned {
            self.decline((process, id), request);
        }
    }

    /// No more answers to a request are wanted, or can come.
    pub(crate) fn end_request(&mut self, request: u64) {
        if let Some(asking) = self.asking.remove(&request) {
            let mut unanswered: Vec<_> = asking.declined;
            unanswered.extend(asking.awaiting.into_values());
            unanswered.sort();
            asking.collector.close(unanswered);
        }
    }
}
