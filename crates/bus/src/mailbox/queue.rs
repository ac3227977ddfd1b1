//! The messages of a mailbox, and the accounts of those who wrote them.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::entry::{Entry, Hook, Wake};
use super::table::{Place, Table};
use super::{Closed, MailboxLimits, WindowListener};
use crate::credit::WindowCredit;
use crate::gate::Gate;
use crate::letter::{Kept, KeptOutcome};
use crate::message::ReceivedMessage;
use crate::moment::Moment;

/// The smallest allowance a writer from another process gets, however many there are.
const SMALLEST_WINDOW: u64 = 16 << 10;
/// The largest allowance. The messages under way at a time should fit into a processor's cache. This much is also
/// enough to keep a connection between machines near each other busy.
const LARGEST_WINDOW: u64 = 1 << 20;
/// The failure notices that are kept for an agent that does not read them, before its sends are refused.
pub(super) const UNREAD_NOTICES: usize = 4_096;

/// Marks an entry that no window pays for.
pub(super) const NO_WINDOW: u32 = u32::MAX;

pub(super) struct WindowSlot {
    pub(super) listener: Arc<dyn WindowListener>,
    pub(super) tag: u64,
    pub(super) credit: WindowCredit,
}

#[derive(Default)]
pub(super) struct Windows {
    pub(super) slots: Vec<Option<WindowSlot>>,
    pub(super) open: usize,
    /// The notices for listeners, to be given once the lock is released.
    pub(super) news: Vec<News>,
}

pub(super) struct News {
    pub(super) listener: Arc<dyn WindowListener>,
    pub(super) what: What,
}

pub(super) enum What {
    Widened { tag: u64, limit: u64 },
    Taken { receipt: u64 },
    Unread { messages: Vec<ReceivedMessage> },
}

impl News {
    pub(super) fn tell(self) {
        match self.what {
            What::Widened { tag, limit } => self.listener.widened(tag, limit),
            What::Taken { receipt } => self.listener.taken(receipt),
            What::Unread { messages } => self.listener.unread(messages),
        }
    }
}

impl Windows {
    pub(super) fn taken(&mut self, index: u32, cost: u32, limits: &MailboxLimits) {
        let size = window_size(limits, self.open);
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else {
            return;
        };
        if let Some(limit) = slot.credit.take(u64::from(cost), size) {
            self.news.push(News {
                listener: slot.listener.clone(),
                what: What::Widened {
                    tag: slot.tag,
                    limit,
                },
            });
        }
    }

    pub(super) fn settled(&mut self, index: u32, receipt: u64) {
        if let Some(Some(slot)) = self.slots.get(index as usize) {
            self.news.push(News {
                listener: slot.listener.clone(),
                what: What::Taken { receipt },
            });
        }
    }
}

pub(super) struct Inner {
    /// The messages that belong to no conversation.
    pub(super) queue: VecDeque<Entry>,
    /// Boxed: many agents have no conversations.
    pub(super) conversations: Option<Box<Table>>,
    /// The mailbox in which the conversations go on.
    pub(super) successor: Option<Arc<Shared>>,
    /// How many messages have come.
    pub(super) arrivals: u64,
    /// The bytes of all messages, those of conversations included.
    pub(super) bytes: usize,
    pub(super) notices: usize,
    pub(super) closed: Option<Closed>,
    pub(super) reader: Option<Waker>,
    pub(super) hook: Option<Hook>,
    /// The reader has found the mailbox empty and wants to be told of the next message.
    pub(super) hook_armed: bool,
    /// When the first of the kept messages expires. An expired message must not be delivered.
    pub(super) first_expiry: Option<Moment>,
    /// How often the queue was changed by others than the reader, except at its end.
    pub(super) sweeps: u64,
    /// The notices for listeners of kept messages, to be given once the lock is released.
    pub(super) settled: Vec<(Kept, KeptOutcome)>,
    /// Boxed: most agents never hear from another process.
    pub(super) windows: Option<Box<Windows>>,
}

pub(super) struct Shared {
    pub(super) limits: MailboxLimits,
    pub(super) inner: Mutex<Inner>,
    pub(super) gate: Gate,
    /// Tells the senders of this process which messages the agent never read.
    pub(super) unread: OnceLock<UnreadSink>,
    /// Whether the agent may not send: it has left, or has too many notices unread. The flag lies beside the lock
    /// because every send reads it.
    pub(super) is_barred: AtomicBool,
}

/// The callback for messages of this process that an agent has left unread for good, oldest first.
pub(crate) type UnreadSink = Box<dyn Fn(Vec<ReceivedMessage>) + Send + Sync>;

impl Inner {
    pub(super) fn put(&mut self, message: ReceivedMessage, cost: usize, window: u32) -> Wake {
        self.put_with_receipt(message, cost, window, None)
    }

    pub(super) fn put_with_receipt(
        &mut self,
        message: ReceivedMessage,
        cost: usize,
        window: u32,
        receipt: Option<u64>,
    ) -> Wake {
        self.bytes += cost;
        self.notices += usize::from(message.is_notice());
        if let Some(expiry) = message.kept().and_then(|kept| kept.expiry) {
            self.first_expiry = Some(self.first_expiry.map_or(expiry, |first| first.min(expiry)));
        }
        // A cost above 4 GiB cannot occur: messages are limited far below.
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        self.arrivals += 1;
        let entry = Entry {
            message,
            order: self.arrivals,
            cost,
            window,
            receipt,
        };
        if let Some(table) = &mut self.conversations {
            match table.place(&entry.message) {
                Place::General => {}
                Place::Conversation(number) => return table.put(number, entry),
                Place::Late => {
                    table.ignore(entry);
                    return Wake {
                        dropped: true,
                        ..Wake::default()
                    };
                }
            }
        }
        self.queue.push_back(entry);
        self.wake_reader()
    }

    fn wake_reader(&mut self) -> Wake {
        let hook = if self.hook_armed {
            self.hook_armed = false;
            self.hook.clone()
        } else {
            None
        };
        Wake {
            reader: self.reader.take(),
            hook,
            ..Wake::default()
        }
    }

    /// Puts the messages of the queue that belong to conversations where they belong.
    pub(super) fn sort(&mut self) -> Wake {
        let mut wake = Wake::default();
        let Some(table) = &mut self.conversations else {
            return wake;
        };
        if self.queue.is_empty() {
            return wake;
        }
        self.sweeps += 1;
        for entry in mem::take(&mut self.queue) {
            match table.place(&entry.message) {
                Place::General => self.queue.push_back(entry),
                Place::Conversation(number) => wake.join(table.put(number, entry)),
                Place::Late => table.ignore(entry),
            }
        }
        wake
    }

    /// Puts messages that a conversation leaves into the queue, each where it would be if there had been no conversation.
    pub(super) fn put_back(&mut self, unread: VecDeque<Entry>) -> Wake {
        if unread.is_empty() {
            return Wake::default();
        }
        self.sweeps += 1;
        for entry in unread {
            let place = self.queue.partition_point(|it| it.order < entry.order);
            self.queue.insert(place, entry);
        }
        self.wake_reader()
    }

    pub(super) fn for_each(&mut self, act: impl Fn(&mut Entry)) {
        let table = self.conversations.as_mut();
        let queued = table.into_iter().flat_map(|it| it.queues()).flatten();
        self.queue.iter_mut().chain(queued).for_each(act);
    }

    /// Takes all messages out, in the order in which they came.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let mut entries: Vec<_> = mem::take(&mut self.queue).into();
        if let Some(table) = &mut self.conversations {
            entries.extend(table.take_all());
            entries.sort_by_key(|entry| entry.order);
        }
        entries
    }

    /// The number of waiting messages, those of conversations included.
    pub(super) fn waiting(&self) -> usize {
        let queued = self.conversations.as_ref().map_or(0, |it| it.queued);
        self.queue.len() + queued
    }

    /// Takes late messages out of the accounts. For their writers they count as taken.
    fn settle_dropped(&mut self, limits: &MailboxLimits) {
        if let Some(table) = &mut self.conversations
            && !table.dropped.is_empty()
        {
            for entry in mem::take(&mut table.dropped) {
                self.settle(&entry, limits);
            }
        }
    }

    /// The reader took an entry out.
    pub(super) fn settle(&mut self, entry: &Entry, limits: &MailboxLimits) {
        if let Some(kept) = entry.message.kept() {
            self.settled.push((kept.clone(), KeptOutcome::Taken));
        }
        self.account(entry, limits);
    }

    /// Removes expired messages.
    pub(super) fn sweep(&mut self, limits: &MailboxLimits) {
        let Some(first) = self.first_expiry else {
            return;
        };
        let now = Moment::from(SystemTime::now());
        if now < first {
            return;
        }
        self.first_expiry = None;
        self.sweeps += 1;
        let queued = self.conversations.as_mut();
        let mut expired = Vec::new();
        for queue in
            iter::once(&mut self.queue).chain(queued.into_iter().flat_map(|it| it.queues()))
        {
            for entry in mem::take(queue) {
                match entry.message.kept().and_then(|kept| kept.expiry) {
                    Some(expiry) if expiry <= now => {
                        expired.push(entry);
                        continue;
                    }
                    Some(expiry) => {
                        self.first_expiry =
                            Some(self.first_expiry.map_or(expiry, |first| first.min(expiry)));
                    }
                    None => {}
                }
                queue.push_back(entry);
            }
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
    pub(super) fn account(&mut self, entry: &Entry, limits: &MailboxLimits) {
        self.bytes -= entry.cost as usize;
        self.notices -= usize::from(entry.message.is_notice());
        if entry.window != NO_WINDOW
            && let Some(windows) = &mut self.windows
        {
            windows.taken(entry.window, entry.cost, limits);
            if let Some(receipt) = entry.receipt {
                windows.settled(entry.window, receipt);
            }
        }
    }
}

/// The size of one window: all windows together may hold about as much as the mailbox holds.
pub(super) fn window_size(limits: &MailboxLimits, open: usize) -> u64 {
    (limits.bytes as u64 / 2 / (open.max(1) as u64)).clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
}

impl Shared {
    pub(super) fn has_room(&self, inner: &Inner) -> bool {
        inner.bytes < self.limits.bytes && inner.waiting() < self.limits.messages
    }

    /// Takes messages under the lock with `take`, then tells the waiting writers of the room.
    pub(super) fn take<T>(&self, take: impl FnOnce(&mut Inner) -> T) -> T {
        let (taken, news, settled, room) = {
            let mut inner = self.inner.lock();
            let notices = inner.notices;
            inner.sweep(&self.limits);
            let taken = take(&mut inner);
            inner.settle_dropped(&self.limits);
            if notices >= UNREAD_NOTICES && inner.notices < UNREAD_NOTICES && inner.closed.is_none()
            {
                self.is_barred.store(false, Ordering::Relaxed);
            }
            let news = inner
                .windows
                .as_mut()
                .map(|windows| mem::take(&mut windows.news));
            let settled = mem::take(&mut inner.settled);
            (taken, news, settled, self.has_room(&inner))
        };
        for (kept, outcome) in settled {
            kept.listener.settled(kept.number, outcome);
        }
        for news in news.into_iter().flatten() {
            news.tell();
        }
        if room {
            self.gate.open();
        }
        taken
    }

    /// Wakes whoever waits for messages that were put in.
    pub(super) fn put(&self, wake: Wake) {
        if wake.dropped {
            self.take(|_| ());
        }
        wake.wake();
    }

    /// Hands messages that will never be read to those who can tell the senders.
    pub(super) fn give_back(&self) {
        let (here, elsewhere) = {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            let mut here = Vec::new();
            let mut elsewhere: BTreeMap<u32, Vec<ReceivedMessage>> = BTreeMap::new();
            for entry in inner.take_all() {
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
            inner.bytes = 0;
            inner.notices = 0;
            let slots = inner.windows.as_ref().map(|windows| &windows.slots);
            let news = elsewhere.into_iter().filter_map(|(window, messages)| {
                let slot = slots?.get(window as usize)?.as_ref()?;
                Some(News {
                    listener: slot.listener.clone(),
                    what: What::Unread { messages },
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

    pub(super) fn close(&self, why: Closed) {
        let wake = {
            let mut inner = self.inner.lock();
            if inner.closed.is_none() {
                inner.closed = Some(why);
            }
            self.is_barred.store(true, Ordering::Relaxed);
            let table = inner.conversations.as_mut();
            Wake {
                more: table.map(|table| table.wake_all()).unwrap_or_default(),
                reader: inner.reader.take(),
                hook: inner.hook.clone(),
                dropped: false,
            }
        };
        wake.wake();
        self.gate.open_all();
    }
}
