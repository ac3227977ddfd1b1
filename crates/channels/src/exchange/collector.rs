//! The answers to one request, as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::event::ReceivedEvent;
use crate::queue::QueueTerms;

/// The most bytes of answers to one request that wait for the requester, as for the last events of a channel. Answers
/// take no credit, and each agent of a process may give one of the largest size.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// Collects the answers to a request, for the requester.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<ReceivedEvent>,
    /// The bytes of these answers.
    bytes: usize,
    unanswered: Vec<Arc<str>>,
    is_over: bool,
}

impl Collector {
    /// Adds an answer. Returns false if there is no room for it. There is always room for one answer.
    pub(super) fn add(&self, reply: ReceivedEvent) -> bool {
        let mut state = self.state.lock();
        let bytes = state.bytes.saturating_add(cost(&reply));
        if bytes > MOST_BYTES && !state.replies.is_empty() {
            return false;
        }
        state.bytes = bytes;
        state.replies.push_back(reply);
        drop(state);
        self.news.notify_one();
        true
    }

    /// Ends the answers. The agents in `unanswered` were asked and have not answered.
    pub(super) fn close(&self, unanswered: Vec<Arc<str>>) {
        let mut state = self.state.lock();
        state.unanswered = unanswered;
        state.is_over = true;
        drop(state);
        self.news.notify_one();
    }

    /// The next answer; `Ok(None)` if there is none yet, `Err` if no more will come.
    pub(crate) fn take(&self) -> Result<Option<ReceivedEvent>, ()> {
        let mut state = self.state.lock();
        match state.replies.pop_front() {
            Some(reply) => {
                state.bytes -= cost(&reply);
                Ok(Some(reply))
            }
            None if state.is_over => Err(()),
            None => Ok(None),
        }
    }

    /// The agents that were asked and have not answered. Known once no more answers will come.
    pub(crate) fn unanswered(&self) -> Vec<Arc<str>> {
        self.state.lock().unanswered.clone()
    }

    /// Waits until there may be news. One task waits at a time.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }
}

/// The bytes that an answer counts as.
fn cost(reply: &ReceivedEvent) -> usize {
    QueueTerms::from(reply).cost
}
