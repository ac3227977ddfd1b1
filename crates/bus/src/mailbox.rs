//! Mailboxes: bounded, with many writers and one reader, across threads.

mod conversation;
mod ended;
mod entry;
mod general;
mod line;
mod queue;
mod resting;
mod sender;
mod table;
mod turns;
mod window;
mod windows;

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use parking_lot::Mutex;

use self::general::General;
use self::queue::{Inner, Shared};
use crate::gate::Gate;
use crate::message::ReceivedMessage;

pub use conversation::{Conversation, ConversationOpen, Conversations};
pub use resting::RestingMailbox;
pub use sender::MailboxSender;
pub use table::Late;
pub use window::MailboxWindow;

/// The bytes that a message counts as in addition to its payload: the cost of holding it.
pub const MESSAGE_OVERHEAD: usize = 64;

/// How much a mailbox holds before its writers have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxLimits {
    /// The number of messages.
    pub messages: usize,
    /// The number of bytes. Each message is counted with [`MESSAGE_OVERHEAD`].
    pub bytes: usize,
}

impl Default for MailboxLimits {
    fn default() -> Self {
        Self {
            messages: 65_536,
            bytes: 8 << 20,
        }
    }
}

/// The counters of a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxCounts {
    /// The messages that have come so far, failure notices included.
    pub received: u64,
    /// The messages that wait to be read.
    pub waiting: usize,
    /// The bytes of the waiting messages, each counted with [`MESSAGE_OVERHEAD`].
    pub bytes: usize,
}

/// Why a mailbox takes no more messages, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The agent has ended.
    Gone,
    /// The agent is moving to another process, and its messages follow it.
    Moving,
}

/// Why a mailbox did not take a message. The message comes back with the reason.
#[derive(Debug)]
pub enum PushError {
    /// There is no room now: wait at the mailbox's [`Gate`].
    Full(ReceivedMessage),
    /// The mailbox is closed.
    Closed(Closed, ReceivedMessage),
}

/// A listener that is told when the reader takes the messages of a [`MailboxWindow`] out of the mailbox.
pub trait WindowListener: Send + Sync {
    /// The window that was opened under `tag` may now be written up to `limit` bytes in all.
    fn widened(&self, tag: u64, limit: u64);

    /// The reader took out the message that was put in with this [receipt](MailboxWindow::push_with_receipt).
    fn taken(&self, receipt: u64) {
        let _ = receipt;
    }

    /// The agent has ended and will never read these messages, oldest first. Their senders must be told. A writer that
    /// keeps its messages until they are [taken](Self::taken) need not do anything.
    fn unread(&self, messages: Vec<ReceivedMessage>) {
        let _ = messages;
    }

    /// The mailbox was closed. The reader may still take what it holds.
    fn closed(&self) {}
}

/// Makes a mailbox: the end that the agent reads, and the end that the bus writes.
///
/// An empty mailbox holds no buffer; it costs a few hundred bytes.
pub fn mailbox(limits: MailboxLimits) -> (MailboxSender, Mailbox) {
    let shared = Arc::new(Shared {
        limits,
        inner: Mutex::new(Inner {
            queue: General::default(),
            conversations: None,
            successor: None,
            arrivals: 0,
            bytes: 0,
            notices: 0,
            closed: None,
            reader: None,
            hook: None,
            hook_armed: false,
            first_expiry: None,
            sweeps: 0,
            settled: Vec::new(),
            windows: None,
            tap: None,
            at_rest: None,
        }),
        gate: Gate::default(),
        unread: OnceLock::new(),
        is_barred: AtomicBool::new(false),
    });
    (
        MailboxSender {
            shared: shared.clone(),
        },
        Mailbox { shared },
    )
}

/// The reading end of a mailbox. Each mailbox has one.
///
/// A message that belongs to an open [`Conversation`] goes to the conversation's own queue, and is not received here.
///
/// Dropping this value closes the mailbox. The messages in the mailbox and later messages go back to their senders,
/// except messages that were [kept](ReceivedMessage::kept), which their node delivers again.
pub struct Mailbox {
    shared: Arc<Shared>,
}

impl Mailbox {
    /// Waits for the next message. `None`: the mailbox was closed and is empty.
    ///
    /// Safe to cancel.
    pub async fn recv(&mut self) -> Option<ReceivedMessage> {
        poll_fn(|context| {
            self.shared.take(|inner| {
                let next = inner.take_next(&self.shared.limits);
                if next.is_some() || inner.closed.is_some() {
                    return Poll::Ready(next);
                }
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// The next message, if one is there.
    pub fn try_recv(&mut self) -> Option<ReceivedMessage> {
        self.shared.take(|inner| {
            let next = inner.take_next(&self.shared.limits);
            inner.hook_armed |= next.is_none();
            next
        })
    }

    /// Waits for the first message that `matches`. The other messages stay, in order. `None`: the mailbox was closed
    /// and holds no such message. Safe to cancel.
    ///
    /// A message that no call asks for stays and takes up room. A mailbox full of such messages lets no other message
    /// in.
    pub async fn receive_matching(
        &mut self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<ReceivedMessage> {
        // Apart from expiry, only this reader removes messages, so it looks at no message twice.
        let mut seen = 0;
        let mut sweeps = 0;
        let limits = &self.shared.limits;
        poll_fn(|context| {
            self.shared.take(|inner| {
                if mem::replace(&mut sweeps, inner.sweeps) != inner.sweeps {
                    seen = 0;
                }
                let found = inner
                    .queue
                    .iter()
                    .skip(seen)
                    .position(|entry| matches(&entry.message));
                if let Some(entry) = found.and_then(|index| inner.queue.remove(seen + index)) {
                    inner.settle(&entry, limits);
                    return Poll::Ready(Some(entry.message));
                }
                seen = inner.queue.len();
                if inner.closed.is_some() {
                    return Poll::Ready(None);
                }
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// The first message that `matches`, if one is there.
    pub fn try_receive_matching(
        &mut self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<ReceivedMessage> {
        let limits = &self.shared.limits;
        self.shared.take(|inner| {
            let Some(index) = inner.queue.iter().position(|entry| matches(&entry.message)) else {
                inner.hook_armed = true;
                return None;
            };
            let entry = inner.queue.remove(index)?;
            inner.settle(&entry, limits);
            Some(entry.message)
        })
    }

    /// The first message with this conversation-id that `matches`, if there is one. Only the first 64 messages with
    /// this id are searched.
    pub fn try_receive_named(
        &mut self,
        id: &str,
        matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<ReceivedMessage> {
        let limits = &self.shared.limits;
        self.shared.take(|inner| {
            let entry = inner.queue.remove_named(id, matches)?;
            inner.settle(&entry, limits);
            Some(entry.message)
        })
    }

    /// Waits until there is a message, then appends up to `most` messages to `out`. Returns their number; 0 only if the
    /// mailbox was closed and is empty. Safe to cancel.
    pub async fn recv_many(&mut self, out: &mut Vec<ReceivedMessage>, most: usize) -> usize {
        poll_fn(|context| {
            self.shared.take(|inner| {
                let count = inner.take_many(&self.shared.limits, out, most);
                if count > 0 || inner.closed.is_some() {
                    return Poll::Ready(count);
                }
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// Appends up to `most` messages to `out` without waiting, and returns their number.
    pub fn try_recv_many(&mut self, out: &mut Vec<ReceivedMessage>, most: usize) -> usize {
        self.shared.take(|inner| {
            let count = inner.take_many(&self.shared.limits, out, most);
            if inner.queue.is_empty() {
                inner.hook_armed = true;
            }
            count
        })
    }

    /// Calls `hook` when a message arrives after an attempt to receive found the mailbox empty: once for each such
    /// attempt. The hook runs on the writer's thread and must be quick, such as a write to an eventfd.
    pub fn set_hook(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        let mut inner = self.shared.inner.lock();
        inner.hook = Some(Arc::new(hook));
        inner.hook_armed = inner.queue.is_empty();
    }

    /// The number of waiting messages, excluding those of conversations.
    pub fn len(&self) -> usize {
        self.shared.inner.lock().queue.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the mailbox was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.inner.lock().closed.is_some()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.shared.close(Closed::Gone);
        self.shared.give_back(Vec::new());
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every agent has a mailbox. At this size, allocators round up to multiples of 64 bytes.
    #[test]
    fn a_mailbox_without_messages_fits_into_448_bytes() {
        let counts_of_the_arc = 2 * size_of::<usize>();
        assert!(counts_of_the_arc + size_of::<Shared>() <= 448);
    }
}
