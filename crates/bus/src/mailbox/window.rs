//! Windows: each writer of another process has an allowance, so that it cannot fill a mailbox alone.

use std::fmt;
use std::sync::Arc;

use super::queue::Shared;
use super::{Closed, MESSAGE_OVERHEAD};
use crate::message::ReceivedMessage;

/// The allowance of one writer from another process; see
/// [`MailboxSender::open_window`](super::MailboxSender::open_window).
pub struct MailboxWindow {
    pub(super) shared: Arc<Shared>,
    pub(super) index: u32,
    pub(super) first_limit: u64,
}

impl MailboxWindow {
    /// The number of bytes that may be written at the beginning. Each message is counted with [`MESSAGE_OVERHEAD`].
    pub fn first_limit(&self) -> u64 {
        self.first_limit
    }

    /// Puts a message that the allowance covers into the mailbox.
    ///
    /// # Errors
    /// The message and the reason, if the mailbox is closed.
    pub fn push(&self, message: ReceivedMessage) -> Result<(), (Closed, ReceivedMessage)> {
        self.put(message, None)
    }

    fn put(
        &self,
        message: ReceivedMessage,
        receipt: Option<u64>,
    ) -> Result<(), (Closed, ReceivedMessage)> {
        self.shared.put(|inner, wake| {
            if let Some(why) = inner.closed {
                return Err((why, message));
            }
            inner.put(message, self.index, receipt, wake);
            Ok(())
        })
    }

    /// As [`push`](Self::push), for a writer that must know when the agent has taken the message.
    /// [`WindowListener::taken`](super::WindowListener::taken) then hears the receipt.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_with_receipt(
        &self,
        message: ReceivedMessage,
        receipt: u64,
    ) -> Result<(), (Closed, ReceivedMessage)> {
        self.put(message, Some(receipt))
    }

    /// Puts messages that the allowance covers into the mailbox, and leaves none in `messages`. `senders` has a number
    /// for the sender of each message.
    ///
    /// # Errors
    /// The reason, if the mailbox is closed; then `messages` is unchanged.
    pub fn push_all(
        &self,
        messages: &mut Vec<ReceivedMessage>,
        senders: &[u32],
    ) -> Result<(), Closed> {
        self.shared.put(|inner, wake| {
            if let Some(why) = inner.closed {
                return Err(why);
            }
            inner.put_all(messages, senders, self.index, wake);
            Ok(())
        })
    }

    /// Gives back the room of a message of that payload length: the writer counted the message, but it was not put in.
    pub fn refund(&self, payload_length: usize) {
        let cost = (payload_length + MESSAGE_OVERHEAD) as u64;
        let limits = &self.shared.limits;
        self.shared.take(|inner| {
            if let Some(windows) = &mut inner.windows {
                windows.widen(self.index, cost, limits);
            }
        });
    }
}

impl Drop for MailboxWindow {
    fn drop(&mut self) {
        let mut inner = self.shared.inner.lock();
        if let Some(windows) = &mut inner.windows {
            windows.close(self.index);
        }
    }
}

impl fmt::Debug for MailboxWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxWindow")
            .field("first_limit", &self.first_limit)
            .finish_non_exhaustive()
    }
}
