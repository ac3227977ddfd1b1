//! The mailbox of an agent that is being moved: only failure notices still come into it, and nobody reads it.

use std::sync::Arc;
use std::{fmt, mem};

use super::entry::Entry;
use super::queue::{Inner, Shared};
use super::windows::NO_WINDOW;
use super::{Closed, Mailbox, MailboxLimits, MailboxSender};
use crate::message::ReceivedMessage;

/// The mailbox of an agent that is being moved. The bus keeps its messages, and knows who wrote them, until the outcome
/// of the move is known: either the agent has them [elsewhere](Self::carried), or it goes on
/// [here](crate::Bus::attach_again). Meanwhile the mailbox still takes failure notices about messages of the agent.
///
/// If this value is dropped, the agent has ended: the messages go back to their senders.
#[must_use = "the messages go back to their senders if this is dropped"]
pub struct RestingMailbox {
    shared: Arc<Shared>,
    /// The unread messages, which still count in the accounts.
    entries: Vec<Entry>,
    /// The notices that the agent takes along.
    notices: Vec<ReceivedMessage>,
}

impl Mailbox {
    /// Closes the mailbox. The senders' buses send later messages after the agent. [Kept](ReceivedMessage::kept) messages
    /// are on disk, and find the agent in its new place.
    pub fn rest(self) -> RestingMailbox {
        let shared = self.shared.clone();
        shared.inner.lock().at_rest = Some(Box::default());
        shared.close(Closed::Moving);
        let entries = shared.take(|inner| {
            let (kept, mut entries): (Vec<_>, Vec<_>) = inner
                .take_all()
                .into_iter()
                .partition(|entry| entry.message.kept().is_some());
            for entry in kept {
                inner.account(&entry, &shared.limits);
            }
            for entry in &mut entries {
                inner.settle_receipt(entry, &shared.limits);
            }
            entries
        });
        RestingMailbox {
            shared,
            entries,
            notices: Vec::new(),
        }
    }

    /// Closes the mailbox and returns the messages in it and in its conversations, in order, for another process to
    /// which the agent moves. The senders' buses send later messages after the agent.
    pub fn drain(self) -> Vec<ReceivedMessage> {
        self.rest().carried()
    }
}

impl RestingMailbox {
    /// The messages that the agent has not read, in order. They include notices that came since the mailbox came to
    /// rest only after [`take_notices_along`](Self::take_notices_along).
    pub fn messages(&self) -> impl Iterator<Item = &ReceivedMessage> {
        let messages = self.entries.iter().map(|entry| &entry.message);
        messages.chain(&self.notices)
    }

    /// Adds the failure notices that have come since the mailbox came to rest to the messages that the agent takes along.
    pub fn take_notices_along(&mut self) {
        if let Some(notices) = &mut self.shared.inner.lock().at_rest {
            self.notices.append(notices);
        }
    }

    /// The agent has these messages in its new place. Its conversations here are over.
    pub fn carried(mut self) -> Vec<ReceivedMessage> {
        let entries = mem::take(&mut self.entries);
        let notices = mem::take(&mut self.notices);
        let limits = self.shared.limits;
        let (late, agent) = self.shared.take(|inner| {
            for entry in &entries {
                inner.account(entry, &limits);
            }
            let late = inner.at_rest.take().unwrap_or_default();
            (
                late.len(),
                inner.tap.as_ref().map(|(_, agent)| agent.clone()),
            )
        });
        if late > 0 {
            tracing::warn!(
                target: "sealbus::undeliverable",
                agent = agent.as_deref().unwrap_or_default(), late,
                "messages of an agent failed during its move, too late for it to take the notices along: it is not told"
            );
        }
        let messages = entries.into_iter().map(|entry| entry.message);
        messages.chain(notices).collect()
    }
}

impl Drop for RestingMailbox {
    fn drop(&mut self) {
        let was_resumed = self.shared.put(|inner, wake| {
            inner.at_rest = None;
            if inner.successor.is_some() {
                return true;
            }
            let table = inner.conversations.get_or_insert_default();
            table.is_over = true;
            table.wake_all(wake);
            false
        });
        if !was_resumed {
            self.shared.give_back(mem::take(&mut self.entries));
        }
    }
}

impl MailboxSender {
    /// The agent goes on with this mailbox, which nobody else knows yet. It takes over the messages, notices, windows
    /// and conversations of the former mailbox.
    pub fn resume(&self, mut resting: RestingMailbox) {
        let mut old = resting.shared.inner.lock();
        self.shared.put(|inner, wake| {
            inner.conversations = old.conversations.take();
            inner.windows = old.windows.take();
            old.successor = Some(self.shared.clone());
            let late = old.at_rest.take().unwrap_or_default();
            drop(old);
            if let Some(windows) = &mut inner.windows {
                windows.close_all();
            }
            for entry in mem::take(&mut resting.entries) {
                let Entry {
                    message,
                    cost,
                    window,
                    receipt,
                    ..
                } = entry;
                inner.enter(message, cost, window, receipt, wake);
            }
            for notice in mem::take(&mut resting.notices).into_iter().chain(*late) {
                inner.put(notice, NO_WINDOW, None, wake);
            }
            if let Some(table) = &mut inner.conversations {
                table.wake_all(wake);
            }
            // The late messages among them were dropped.
            wake.dropped = true;
        });
    }
}

impl Inner {
    /// Tells a writer that keeps its message that the agent has it, so that nobody else delivers or answers it.
    fn settle_receipt(&mut self, entry: &mut Entry, limits: &MailboxLimits) {
        if let Some(receipt) = entry.receipt.take()
            && let Some(windows) = &mut self.windows
        {
            windows.settled(entry.window, receipt);
            windows.taken(entry.window, u64::from(entry.cost), limits);
            entry.window = NO_WINDOW;
        }
    }
}

impl fmt::Debug for RestingMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestingMailbox")
            .field("len", &self.entries.len())
            .finish_non_exhaustive()
    }
}
