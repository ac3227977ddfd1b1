//! Conversations: each has its own queue in the mailbox, and its messages never go anywhere else.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::entry::Wake;
use super::queue::{Inner, Shared};
use super::table::{Late, Table};
use super::{Closed, Mailbox, MailboxLimits};
use crate::message::ReceivedMessage;

/// Another open conversation has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the conversation {0:?} is open already: end it first, or choose another conversation-id")]
pub struct ConversationOpen(pub String);

/// Opens conversations of an agent, from any task or thread.
#[derive(Clone)]
pub struct Conversations(Arc<Shared>);

impl Conversations {
    /// Opens the conversation of this name. From now on it gets all messages with this conversation-id.
    ///
    /// # Errors
    /// [`ConversationOpen`] if the agent has a conversation of this name.
    pub fn open(&self, id: &str) -> Result<Conversation, ConversationOpen> {
        self.open_if_free(id, None)
    }

    /// Opens a conversation that `peer` has named. It gets all messages of the peer with this conversation-id,
    /// including those that are already in the mailbox.
    ///
    /// # Errors
    /// [`ConversationOpen`] if the agent has a conversation of this name with this peer.
    pub fn open_with(&self, id: &str, peer: &str) -> Result<Conversation, ConversationOpen> {
        self.open_if_free(id, Some(peer))
    }

    /// Opens a conversation for the replies to one message, which was sent in a larger conversation named `id`. The replies
    /// are the messages whose `in-reply-to` is `tag`. The conversation also gets the other messages with the conversation-id,
    /// unless another open conversation has them. When it ends, its unread messages of that kind go to the mailbox.
    pub fn open_reply(&self, id: Option<&str>, tag: &str) -> Conversation {
        self.enter(|inner| {
            let table = inner.conversations.get_or_insert_default();
            let number = table.open(id, None, true);
            table.expect_reply_to(number, tag);
            number
        })
    }

    fn open_if_free(&self, id: &str, peer: Option<&str>) -> Result<Conversation, ConversationOpen> {
        let mut is_taken = false;
        let conversation = self.enter(|inner| {
            let table = inner.conversations.get_or_insert_default();
            is_taken = table.is_taken(id, peer);
            let number = table.open(id.into(), peer, false);
            if peer.is_some() && !is_taken {
                // The conversation is new, so nobody waits for its messages yet.
                inner.sort_named(id, &mut Wake::default());
            }
            number
        });
        if is_taken {
            conversation.set_late(Late::Received);
            return Err(ConversationOpen(id.to_owned()));
        }
        Ok(conversation)
    }

    fn enter(&self, mut open: impl FnMut(&mut Inner) -> u64) -> Conversation {
        let (shared, number) = follow(&self.0, |inner, _| open(inner));
        Conversation { shared, number }
    }

    /// The number of open conversations.
    pub fn len(&self) -> usize {
        self.read(Table::open_count)
    }

    /// Whether no conversation is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of dropped messages: they came after the end of their conversation, or were unread at its end.
    pub fn ignored(&self) -> u64 {
        self.read(|table| table.ignored)
    }

    fn read<T: Default>(&self, read: impl Fn(&Table) -> T) -> T {
        let read = |inner: &mut Inner, _: &_| inner.conversations.as_deref().map(&read);
        follow(&self.0, read).1.unwrap_or_default()
    }
}

/// An open conversation: it owns the messages that belong to it, while the agent also receives others.
///
/// Dropping this value ends the conversation. [`set_late`](Self::set_late) decides about late messages.
pub struct Conversation {
    shared: Arc<Shared>,
    number: u64,
}

impl Conversation {
    /// Messages whose `in-reply-to` is this tag belong to the conversation, even without its conversation-id. A
    /// conversation keeps its latest 32 tags.
    pub fn expect_reply_to(&self, tag: &str) {
        self.with(|inner, _| {
            if let Some(table) = &mut inner.conversations {
                table.expect_reply_to(self.number, tag);
            }
        });
    }

    /// Sets the rule for late messages. It is [`Late::Ignored`] at first.
    pub fn set_late(&self, late: Late) {
        self.with(|inner, _| {
            if let Some(table) = &mut inner.conversations {
                table.set_late(self.number, late);
            }
        });
    }

    /// Waits for the next message. `None`: the agent has left, or its mailbox was closed and the queue is empty.
    ///
    /// Safe to cancel. While the agent is being moved, this call waits for the outcome.
    pub async fn recv(&self) -> Option<ReceivedMessage> {
        self.receive_matching(|_| true).await
    }

    /// Waits for the first message that `matches`. The other messages stay, in order. Safe to cancel.
    pub async fn receive_matching(
        &self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<ReceivedMessage> {
        poll_fn(|context| {
            self.with(|inner, limits| {
                if let Some(received) = take(inner, limits, self.number, &mut matches) {
                    return Poll::Ready(Some(received));
                }
                match &mut inner.conversations {
                    Some(table) if inner.closed != Some(Closed::Gone) && !table.is_over => {
                        table.wait(self.number, context.waker());
                        Poll::Pending
                    }
                    _ => Poll::Ready(None),
                }
            })
        })
        .await
    }

    /// The next message, if one is there.
    pub fn try_recv(&self) -> Option<ReceivedMessage> {
        self.try_receive_matching(|_| true)
    }

    /// The first message that `matches`, if one is there.
    pub fn try_receive_matching(
        &self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Option<ReceivedMessage> {
        self.with(|inner, limits| take(inner, limits, self.number, &mut matches))
    }

    /// Calls `hook` when a message arrives after an attempt to receive found none, and when the mailbox is closed. The
    /// hook runs on the writer's thread and must be quick, such as a write to an eventfd.
    pub fn set_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let hook: Arc<dyn Fn() + Send + Sync> = Arc::new(hook);
        self.with(|inner, _| {
            if let Some(table) = &mut inner.conversations {
                table.set_hook(self.number, hook.clone());
            }
        });
    }

    /// The number of waiting messages.
    pub fn len(&self) -> usize {
        self.with(|inner, _| {
            let table = inner.conversations.as_deref();
            table.map_or(0, |table| table.len(self.number))
        })
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the agent has left for good. Messages in the queue can still be received.
    pub fn is_closed(&self) -> bool {
        self.with(|inner, _| {
            let is_over = inner.conversations.as_ref().is_none_or(|it| it.is_over);
            is_over || inner.closed == Some(Closed::Gone)
        })
    }

    fn with<T>(&self, act: impl FnMut(&mut Inner, &MailboxLimits) -> T) -> T {
        follow(&self.shared, act).1
    }
}

fn take(
    inner: &mut Inner,
    limits: &MailboxLimits,
    number: u64,
    matches: &mut dyn FnMut(&ReceivedMessage) -> bool,
) -> Option<ReceivedMessage> {
    let entry = inner.conversations.as_mut()?.take(number, matches)?;
    inner.settle(&entry, limits);
    Some(entry.message)
}

/// Acts on the mailbox that has taken the place of `shared`, or on `shared` itself.
fn follow<T>(
    shared: &Arc<Shared>,
    mut act: impl FnMut(&mut Inner, &MailboxLimits) -> T,
) -> (Arc<Shared>, T) {
    let mut shared = shared.clone();
    loop {
        let done = shared.take(|inner| match &inner.successor {
            None => Ok(act(inner, &shared.limits)),
            Some(successor) => Err(successor.clone()),
        });
        match done {
            Ok(done) => return (shared, done),
            Err(successor) => shared = successor,
        }
    }
}

impl Mailbox {
    /// Opens the agent's conversations.
    pub fn conversations(&self) -> Conversations {
        Conversations(self.shared.clone())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let mut wake = Wake::default();
        self.with(|inner, _| {
            if let Some(table) = &mut inner.conversations {
                let unread = table.end(self.number);
                inner.put_back(unread, &mut wake);
            }
        });
        wake.wake();
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations")
            .field("open", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}
