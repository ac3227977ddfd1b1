//! Receipts: a publisher waits at one for acknowledgements.

use parking_lot::Mutex;
use tokio::sync::Notify;

use sealbus_bus::{UndeliverableReason, until};

/// The acknowledgements of one event, from each process that it went to.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of missing acknowledgements.
    missing: usize,
    failed: Option<UndeliverableReason>,
}

impl Receipt {
    /// Expects the acknowledgement of one more process.
    pub(super) fn expect(&self) {
        self.state.lock().missing += 1;
    }

    /// Notes that a process has acknowledged the event.
    pub(super) fn acknowledge(&self) {
        let mut state = self.state.lock();
        state.missing = state.missing.saturating_sub(1);
        let is_complete = state.missing == 0;
        drop(state);
        if is_complete {
            self.news.notify_waiters();
        }
    }

    /// Notes that a process will not acknowledge the event.
    pub(super) fn fail(&self, reason: &UndeliverableReason) {
        self.state
            .lock()
            .failed
            .get_or_insert_with(|| reason.clone());
        self.acknowledge();
    }

    /// The outcome; `None` while acknowledgements are missing.
    pub(crate) fn outcome(&self) -> Option<Result<(), UndeliverableReason>> {
        let state = self.state.lock();
        (state.missing == 0).then(|| state.failed.clone().map_or(Ok(()), Err))
    }

    /// Waits for all acknowledgements.
    ///
    /// # Errors
    /// The reason of the first process that did not take the event.
    pub(crate) async fn wait(&self) -> Result<(), UndeliverableReason> {
        until(&self.news, || self.outcome()).await
    }
}
