use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bus::{Outbox, TrySendError};
use sealbus_fipa::AclMessage;

/// Most messages that wait for one receiver. Messages beyond this number are dropped.
const MOST_WAITING: usize = 256;

/// Sends messages so that a receiver that does not read makes no other receiver wait. Messages to one receiver stay in
/// order.
#[derive(Clone)]
pub(super) struct Deliveries {
    outbox: Arc<Outbox>,
    /// Receivers without room. Each has the messages that wait behind the one its task is sending.
    waiting: Arc<Mutex<HashMap<String, VecDeque<AclMessage>>>>,
}

impl Deliveries {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            outbox,
            waiting: Arc::default(),
        }
    }

    /// Sends a message to its one receiver, now or when there is room. A directory writes no messages with several
    /// receivers.
    pub(super) fn send(&self, message: AclMessage) {
        let Some(receiver) = message
            .receivers
            .first()
            .map(|receiver| receiver.name.clone())
        else {
            return;
        };
        let mut waiting = self.waiting.lock();
        if let Some(queue) = waiting.get_mut(&receiver) {
            if queue.len() < MOST_WAITING {
                queue.push_back(message);
            } else {
                tracing::warn!(
                    %receiver,
                    "an agent does not read its mailbox: an answer or notification of the directory is dropped"
                );
            }
            return;
        }
        match self.outbox.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(unsent)) => {
                waiting.insert(receiver.clone(), VecDeque::new());
                drop(waiting);
                let this = self.clone();
                tokio::spawn(async move {
                    this.note(&receiver, this.outbox.finish(unsent).await);
                    while let Some(message) = this.next(&receiver) {
                        this.note(&receiver, this.outbox.send(message).await);
                    }
                });
            }
            Err(TrySendError::Failed(error)) => self.note(&receiver, Err(error)),
        }
    }

    /// The next message that waits for a receiver. Without one the receiver leaves the list.
    fn next(&self, receiver: &str) -> Option<AclMessage> {
        let mut waiting = self.waiting.lock();
        let next = waiting.get_mut(receiver)?.pop_front();
        if next.is_none() {
            waiting.remove(receiver);
        }
        next
    }

    fn note(&self, receiver: &str, result: Result<(), sealbus_bus::SendError>) {
        if let Err(error) = result {
            tracing::debug!(receiver, %error, "an answer of the directory cannot be sent");
        }
    }
}
