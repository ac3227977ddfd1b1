//! The messages of a mailbox, and the accounts of their senders.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::entry::{Entry, Hook, Wake, cost_of, may_be_in_row};
use super::general::{General, SHORTEST_ROW};
use super::table::{MailboxPlace, Table};
use super::windows::{NO_WINDOW, News, WindowNews, Windows};
use super::{Closed, MailboxLimits};
use crate::gate::Gate;
use crate::letter::{Kept, KeptOutcome};
use crate::message::ReceivedMessage;
use crate::moment::Moment;
use crate::tap::{Arrival, Tap};

/// The number of unread failure notices at which the agent's sends are refused.
pub(super) const UNREAD_NOTICES: usize = 4_096;

pub(super) struct Inner {
    /// The messages that belong to no conversation.
    pub(super) queue: General,
    /// Boxed: many agents have no conversations.
    pub(super) conversations: Option<Box<Table>>,
    /// The mailbox in which the conversations go on.
    pub(super) successor: Option<Arc<Shared>>,
    /// The number of messages that have come.
    pub(super) arrivals: u64,
    /// The bytes of all messages, including those of conversations.
    pub(super) bytes: usize,
    pub(super) notices: usize,
    pub(super) closed: Option<Closed>,
    pub(super) reader: Option<Waker>,
    pub(super) hook: Option<Hook>,
    /// Whether the reader has found the mailbox empty and wants to be told of the next message.
    pub(super) hook_armed: bool,
    /// When the first of the kept messages expires. An expired message must not be delivered.
    pub(super) first_expiry: Option<Moment>,
    /// How often somebody other than the reader changed the queue, except at its end.
    pub(super) sweeps: u64,
    /// The notices for listeners of kept messages, to be given once the lock is released.
    pub(super) settled: Vec<(Kept, KeptOutcome)>,
    /// Boxed: most agents never hear from another process.
    pub(super) windows: Option<Box<Windows>>,
    /// The tap of the agent's bus, and the agent's name.
    pub(super) tap: Option<(Arc<Tap>, Arc<str>)>,
    /// The failure notices that have come since the mailbox came to rest; `None` if it is not at rest.
    #[expect(
        clippy::box_collection,
        reason = "every agent has a mailbox, and few mailboxes come to rest"
    )]
    pub(super) at_rest: Option<Box<Vec<ReceivedMessage>>>,
}

pub(super) struct Shared {
    pub(super) limits: MailboxLimits,
    pub(super) inner: Mutex<Inner>,
    pub(super) gate: Gate,
    /// Tells the senders of this process which messages the agent never read.
    pub(super) unread: OnceLock<UnreadSink>,
    /// Whether the agent may not send: it has left, or has too many notices unread. The flag lies outside the lock
    /// because every send reads it.
    pub(super) is_barred: AtomicBool,
}

/// The callback for messages of this process that an agent will never read, oldest first.
pub(crate) type UnreadSink = Box<dyn Fn(Vec<ReceivedMessage>) + Send + Sync>;

impl Inner {
    /// Puts a message in, and notes in `wake` the readers to wake.
    #[inline]
    pub(super) fn put(
        &mut self,
        message: ReceivedMessage,
        window: u32,
        receipt: Option<u64>,
        wake: &mut Wake,
    ) {
        if let Some((tap, receiver)) = &self.tap
            && tap.is_open()
        {
            tap.show(&Arrival {
                message: &message,
                receiver,
                channel: None,
            });
        }
        let cost = cost_of(&message);
        if window != NO_WINDOW
            && let Some(windows) = &mut self.windows
        {
            windows.put(window, u64::from(cost));
        }
        self.enter(message, cost, window, receipt, wake);
    }

    /// Puts messages in, and leaves none in `messages`. Many messages in succession from one sender become one entry.
    pub(super) fn put_all(
        &mut self,
        messages: &mut Vec<ReceivedMessage>,
        senders: &[u32],
        window: u32,
        wake: &mut Wake,
    ) {
        let mut messages = messages.drain(..);
        for row in senders.chunk_by(|one, next| one == next) {
            let is_watched = self.tap.as_ref().is_some_and(|(tap, _)| tap.is_open());
            let may_be_entry = !is_watched
                && self.conversations.is_none()
                && (messages.as_slice().iter().take(row.len())).all(may_be_in_row);
            let mut row = messages.by_ref().take(row.len());
            while row.len() > 0 {
                if may_be_entry && row.len() >= SHORTEST_ROW && self.queue.takes_rows() {
                    self.put_row(row.by_ref(), window, wake);
                } else if let Some(message) = row.next() {
                    self.put(message, window, None, wake);
                }
            }
        }
        for message in messages {
            self.put(message, window, None, wake);
        }
    }

    fn put_row(
        &mut self,
        row: impl ExactSizeIterator<Item = ReceivedMessage>,
        window: u32,
        wake: &mut Wake,
    ) {
        let first = self.arrivals + 1;
        self.arrivals += row.len() as u64;
        let mut cost = 0;
        let row = row.inspect(|message| cost += u64::from(cost_of(message)));
        self.queue.push_row(row, first, window);
        if let Some(windows) = &mut self.windows {
            windows.put(window, cost);
        }
        // The messages are in memory, so their size is a `usize`.
        self.bytes += cost as usize;
        self.wake_reader(wake);
    }

    /// Takes the next message out.
    pub(super) fn take_next(&mut self, limits: &MailboxLimits) -> Option<ReceivedMessage> {
        // An entry is large, so it is settled where it lies.
        let next = self.queue.pop_front();
        if let Some(entry) = &next {
            self.settle(entry, limits);
        }
        next.map(|entry| entry.message)
    }

    /// Takes up to `most` messages out, in their order.
    pub(super) fn take_many(
        &mut self,
        limits: &MailboxLimits,
        out: &mut Vec<ReceivedMessage>,
        most: usize,
    ) -> usize {
        let before = out.len();
        out.reserve(most.min(self.queue.len()));
        loop {
            let left = most - (out.len() - before);
            if let Some((window, cost)) = self.queue.pop_row(out, left) {
                self.bytes -= cost as usize;
                if let Some(windows) = &mut self.windows {
                    windows.taken(window, cost, limits);
                }
            } else if left > 0
                && let Some(entry) = self.queue.pop_front()
            {
                self.settle(&entry, limits);
                out.push(entry.message);
            } else {
                return out.len() - before;
            }
        }
    }

    /// Puts in a message that its window has counted.
    #[inline]
    pub(super) fn enter(
        &mut self,
        message: ReceivedMessage,
        cost: u32,
        window: u32,
        receipt: Option<u64>,
        wake: &mut Wake,
    ) {
        self.bytes += cost as usize;
        self.notices += usize::from(message.is_notice());
        if let Some(expiry) = message.kept().and_then(|kept| kept.expiry) {
            self.first_expiry = Some(self.first_expiry.map_or(expiry, |first| first.min(expiry)));
        }
        self.arrivals += 1;
        let entry = Entry {
            order: self.queue.order(&message, self.arrivals),
            message,
            cost,
            window,
            receipt,
        };
        if self.conversations.is_some() {
            return self.put_sorted(entry, wake);
        }
        self.push(entry);
        self.wake_reader(wake);
    }

    /// Puts a message into the queue.
    #[inline]
    fn push(&mut self, entry: Entry) {
        self.sweeps += u64::from(!self.queue.push(entry));
    }

    /// Puts a message where its conversation is.
    fn put_sorted(&mut self, entry: Entry, wake: &mut Wake) {
        let Some(table) = &mut self.conversations else {
            return;
        };
        match table.place(&entry.message) {
            MailboxPlace::General => {
                self.push(entry);
                self.wake_reader(wake);
            }
            MailboxPlace::Conversation(number) => table.put(number, entry, wake),
            MailboxPlace::Late => {
                table.ignore(entry);
                wake.dropped = true;
            }
        }
    }

    #[inline]
    fn wake_reader(&mut self, wake: &mut Wake) {
        if let Some(reader) = self.reader.take() {
            wake.reader = Some(reader);
        }
        if self.hook_armed {
            self.hook_armed = false;
            wake.hook = self.hook.clone();
        }
    }

    /// Puts the messages of the queue that have this conversation-id where they belong.
    pub(super) fn sort_named(&mut self, id: &str, wake: &mut Wake) {
        let mut has_changed = false;
        for entry in self.queue.take_named(id) {
            has_changed = true;
            let place = self
                .conversations
                .as_mut()
                .map(|it| (it.place(&entry.message), it));
            match place {
                Some((MailboxPlace::Conversation(number), table)) => table.put(number, entry, wake),
                Some((MailboxPlace::Late, table)) => table.ignore(entry),
                Some((MailboxPlace::General, _)) | None => drop(self.queue.push(entry)),
            }
        }
        self.sweeps += u64::from(has_changed);
    }

    /// Puts messages that a conversation leaves unread into the queue, where they would be without the conversation.
    pub(super) fn put_back(&mut self, unread: VecDeque<Entry>, wake: &mut Wake) {
        if unread.is_empty() {
            return;
        }
        self.sweeps += 1;
        for entry in unread {
            self.queue.push(entry);
        }
        self.wake_reader(wake);
    }

    /// Takes all messages out, in the order in which they came.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let mut entries = self.queue.take();
        if let Some(table) = &mut self.conversations {
            entries.extend(table.take_all());
            entries.sort_by_key(|entry| entry.order);
        }
        entries
    }

    /// The number of waiting messages, including those of conversations.
    pub(super) fn waiting(&self) -> usize {
        let queued = self.conversations.as_ref().map_or(0, |it| it.queued);
        self.queue.len() + queued
    }

    /// Takes late messages out of the accounts. Their writers see them as taken.
    #[inline]
    fn settle_dropped(&mut self, limits: &MailboxLimits) {
        if let Some(table) = &mut self.conversations
            && !table.dropped.is_empty()
        {
            for entry in mem::take(&mut table.dropped) {
                self.settle(&entry, limits);
            }
        }
    }

    /// Whether there are notices for listeners.
    #[inline]
    fn has_news(&self) -> bool {
        let windows = self.windows.as_ref();
        !self.settled.is_empty() || windows.is_some_and(|it| !it.news.is_empty())
    }

    fn take_news(&mut self) -> (Vec<(Kept, KeptOutcome)>, Vec<News>) {
        let news = self.windows.as_mut().map(|it| mem::take(&mut it.news));
        (mem::take(&mut self.settled), news.unwrap_or_default())
    }

    /// The reader took an entry out.
    #[inline]
    pub(super) fn settle(&mut self, entry: &Entry, limits: &MailboxLimits) {
        if let Some(kept) = entry.message.kept() {
            self.settled.push((kept.clone(), KeptOutcome::Taken));
        }
        self.account(entry, limits);
    }

    /// Removes expired messages.
    #[inline]
    pub(super) fn sweep(&mut self, limits: &MailboxLimits) {
        if let Some(first) = self.first_expiry {
            self.remove_expired(first, limits);
        }
    }

    fn remove_expired(&mut self, first: Moment, limits: &MailboxLimits) {
        let now = Moment::now();
        if now < first {
            return;
        }
        self.first_expiry = None;
        self.sweeps += 1;
        let queued = self.conversations.as_mut();
        let mut expired = Vec::new();
        let first_expiry = &mut self.first_expiry;
        let mut stays = |entry: Entry| match entry.message.kept().and_then(|kept| kept.expiry) {
            Some(expiry) if expiry <= now => {
                expired.push(entry);
                None
            }
            Some(expiry) => {
                *first_expiry = Some(first_expiry.map_or(expiry, |first| first.min(expiry)));
                Some(entry)
            }
            None => Some(entry),
        };
        for entry in self.queue.take().into_iter().filter_map(&mut stays) {
            self.queue.push(entry);
        }
        for queue in queued.into_iter().flat_map(|it| it.queues()) {
            *queue = mem::take(queue)
                .into_iter()
                .filter_map(&mut stays)
                .collect();
        }
        for entry in expired {
            let kept = entry.message.kept().cloned();
            self.settled
                .extend(kept.map(|kept| (kept, KeptOutcome::Expired)));
            self.account(&entry, limits);
        }
        if let Some(table) = &mut self.conversations {
            table.count();
        }
    }

    /// Takes an entry that has left the queue out of the accounts.
    #[inline]
    pub(super) fn account(&mut self, entry: &Entry, limits: &MailboxLimits) {
        self.bytes -= entry.cost as usize;
        self.notices -= usize::from(entry.message.is_notice());
        if entry.window != NO_WINDOW
            && let Some(windows) = &mut self.windows
        {
            if let Some(receipt) = entry.receipt {
                windows.settled(entry.window, receipt);
            }
            windows.taken(entry.window, u64::from(entry.cost), limits);
        }
    }
}

impl Shared {
    pub(super) fn has_room(&self, inner: &Inner) -> bool {
        inner.bytes < self.limits.bytes && inner.waiting() < self.limits.messages
    }

    /// Takes messages with `take` under the lock, then tells the waiting writers that there is room.
    pub(super) fn take<T>(&self, take: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let notices = inner.notices;
        inner.sweep(&self.limits);
        let taken = take(&mut inner);
        inner.settle_dropped(&self.limits);
        if notices >= UNREAD_NOTICES && inner.notices < UNREAD_NOTICES && inner.closed.is_none() {
            self.is_barred.store(false, Ordering::Relaxed);
        }
        let news = inner.has_news().then(|| inner.take_news());
        let room = self.has_room(&inner);
        drop(inner);
        if let Some((settled, news)) = news {
            News::tell_all(settled, news);
        }
        if room {
            self.gate.open();
        }
        taken
    }

    /// Puts messages in with `put` under the lock, then wakes the readers that wait for them.
    #[inline]
    pub(super) fn put<T>(&self, put: impl FnOnce(&mut Inner, &mut Wake) -> T) -> T {
        let mut wake = Wake::default();
        let done = put(&mut self.inner.lock(), &mut wake);
        if wake.dropped {
            self.take(|_| ());
        }
        wake.wake();
        done
    }

    /// Hands messages that will never be read to those who can tell the senders: first `rested`, then the messages in
    /// the mailbox.
    pub(super) fn give_back(&self, rested: Vec<Entry>) {
        let (here, elsewhere) = {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            let mut here = Vec::new();
            let mut elsewhere: BTreeMap<u32, Vec<ReceivedMessage>> = BTreeMap::new();
            for entry in rested.into_iter().chain(inner.take_all()) {
                inner.bytes -= entry.cost as usize;
                inner.notices -= usize::from(entry.message.is_notice());
                // A notice is not answered. A kept message is on a disk.
                if entry.message.is_notice() || entry.message.kept().is_some() {
                    continue;
                }
                if entry.window == NO_WINDOW {
                    here.push(entry.message);
                } else {
                    elsewhere
                        .entry(entry.window)
                        .or_default()
                        .push(entry.message);
                }
            }
            let slots = inner.windows.as_ref().map(|windows| &windows.slots);
            let news = elsewhere.into_iter().filter_map(|(window, messages)| {
                let slot = slots?.get(window as usize)?.as_ref()?;
                Some(News {
                    listener: slot.listener.clone(),
                    what: WindowNews::Unread { messages },
                })
            });
            (here, news.collect::<Vec<_>>())
        };
        for news in elsewhere {
            news.tell();
        }
        if !here.is_empty()
            && let Some(tell) = self.unread.get()
        {
            tell(here);
        }
    }
}
