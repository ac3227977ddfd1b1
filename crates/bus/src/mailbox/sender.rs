//! Writing into a mailbox, and closing it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::queue::{Inner, Shared, UNREAD_NOTICES, UnreadSink};
use super::windows::NO_WINDOW;
use super::{Closed, MailboxCounts, MailboxWindow, PushError, WindowListener};
use crate::gate::Gate;
use crate::message::ReceivedMessage;
use crate::tap::Tap;

/// A writing end of a mailbox.
#[derive(Clone)]
pub struct MailboxSender {
    pub(super) shared: Arc<Shared>,
}

impl MailboxSender {
    /// Puts a message into the mailbox, if there is room.
    ///
    /// # Errors
    /// [`PushError`] with the message.
    #[inline]
    pub fn try_push(&self, message: ReceivedMessage) -> Result<(), PushError> {
        self.shared.put(|inner, wake| {
            if let Some(why) = inner.closed {
                return Err(PushError::Closed(why, message));
            }
            if !self.shared.has_room(inner) {
                return Err(PushError::Full(message));
            }
            inner.put(message, NO_WINDOW, None, wake);
            Ok(())
        })
    }

    /// Puts messages into the mailbox as long as there is room, under one lock and with one wake. Returns their number.
    /// The iterator `row` runs under the lock.
    pub(crate) fn try_push_row(&self, mut row: impl Iterator<Item = ReceivedMessage>) -> usize {
        self.shared.put(|inner, wake| {
            let mut count = 0;
            while inner.closed.is_none()
                && self.shared.has_room(inner)
                && let Some(message) = row.next()
            {
                inner.put(message, NO_WINDOW, None, wake);
                count += 1;
            }
            count
        })
    }

    /// Puts a failure notice into the mailbox, even into a full one, because it answers a message that the agent sent.
    /// [`is_barred`](Self::is_barred) limits the number of notices. A mailbox [at rest](super::RestingMailbox) keeps
    /// the notice until the agent goes on. Returns false if nobody will read it.
    pub(crate) fn push_notice(&self, message: ReceivedMessage) -> bool {
        self.shared.put(|inner, wake| {
            if inner.closed.is_some() {
                let at_rest = inner.at_rest.as_mut();
                return at_rest.map(|notices| notices.push(message)).is_some();
            }
            inner.put(message, NO_WINDOW, None, wake);
            if inner.notices >= UNREAD_NOTICES {
                self.shared.is_barred.store(true, Ordering::Relaxed);
            }
            true
        })
    }

    /// Sets the callback for messages from senders of this process that the agent will never read.
    pub(crate) fn on_unread(&self, tell: UnreadSink) {
        // The callback is set once, when the agent is attached.
        let _ = self.shared.unread.set(tell);
    }

    /// From now on, shows arriving messages to the tap, under the name of this agent.
    pub(crate) fn set_tap(&self, tap: Arc<Tap>, receiver: Arc<str>) {
        self.shared.inner.lock().tap = Some((tap, receiver));
    }

    /// The counters of the mailbox.
    pub fn counts(&self) -> MailboxCounts {
        let inner = self.shared.inner.lock();
        MailboxCounts {
            received: inner.arrivals,
            waiting: inner.waiting(),
            bytes: inner.bytes,
        }
    }

    /// Whether the agent may not send: its mailbox is closed, or holds thousands of unread failure notices.
    #[inline]
    pub fn is_barred(&self) -> bool {
        self.shared.is_barred.load(Ordering::Relaxed)
    }

    /// Puts a message into the mailbox even if the mailbox is full. Only for messages that were accepted before, such
    /// as those that a moving agent brings along.
    ///
    /// # Errors
    /// The message, if the mailbox is closed.
    pub fn push_accepted(&self, message: ReceivedMessage) -> Result<(), ReceivedMessage> {
        self.shared.put(|inner, wake| {
            if inner.closed.is_some() {
                return Err(message);
            }
            inner.put(message, NO_WINDOW, None, wake);
            Ok(())
        })
    }

    /// Removes kept messages that have expired, and tells their listeners.
    pub fn sweep(&self) {
        self.shared.take(|_| ());
    }

    /// The gate at which writers wait after they found the mailbox full.
    #[inline]
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Why the mailbox is closed, if it is.
    pub fn closed(&self) -> Option<Closed> {
        self.shared.inner.lock().closed
    }

    /// Closes the mailbox from outside. The reader still gets the messages in it.
    pub fn close(&self, why: Closed) {
        self.shared.close(why);
    }

    /// Closes the mailbox if its reader has nothing to do: nothing has come so far, or the reader has taken everything
    /// and waits for more. No message comes in between. Returns whether the mailbox was closed.
    pub(crate) fn close_if_idle(&self) -> bool {
        self.shared.close_if(Closed::Gone, |inner| {
            inner.arrivals == 0 || inner.waiting() == 0 && inner.reader.is_some()
        })
    }

    /// Opens a window: an allowance for a writer in another process, which cannot ask before each message. The writer
    /// may write up to a limit. `listener` is told (with `tag`) when the limit rises.
    ///
    /// `writer` names the other process. Its unread messages of former windows count against the new one, so it gains
    /// no room by opening a new window.
    pub fn open_window(
        &self,
        writer: &Arc<str>,
        listener: Arc<dyn WindowListener>,
        tag: u64,
    ) -> MailboxWindow {
        let mut inner = self.shared.inner.lock();
        let windows = inner.windows.get_or_insert_default();
        let (index, first_limit) = windows.open(writer, listener, tag, &self.shared.limits);
        MailboxWindow {
            shared: self.shared.clone(),
            index,
            first_limit,
        }
    }
}

impl Shared {
    pub(super) fn close(&self, why: Closed) {
        self.close_if(why, |_| true);
    }

    /// Closes the mailbox if it `may` be closed, which is asked under the lock. Returns whether it was closed.
    fn close_if(&self, why: Closed, may: impl FnOnce(&Inner) -> bool) -> bool {
        let writers = self.put(|inner, wake| {
            if !may(inner) {
                return None;
            }
            inner.closed.get_or_insert(why);
            self.is_barred.store(true, Ordering::Relaxed);
            wake.reader = inner.reader.take();
            wake.hook = inner.hook.clone();
            if let Some(table) = &mut inner.conversations {
                table.wake_all(wake);
            }
            let slots = inner.windows.iter().flat_map(|windows| &windows.slots);
            let slots = slots.flatten().filter(|slot| slot.is_open);
            let writers = slots.map(|slot| slot.listener.clone());
            Some(writers.collect::<Vec<_>>())
        });
        let Some(writers) = writers else {
            return false;
        };
        self.gate.open_all();
        for writer in writers {
            writer.closed();
        }
        true
    }
}

impl fmt::Debug for MailboxSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxSender").finish_non_exhaustive()
    }
}
