//! Mailboxes: bounded, with many writers and one reader, across threads.

mod sender;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::credit::WindowCredit;
use crate::gate::Gate;
use crate::letter::{Kept, KeptOutcome};
use crate::message::ReceivedMessage;
use crate::moment::Moment;

pub use sender::MailboxSender;
pub use window::Window;

/// The bytes that a message is counted as beyond its payload: the cost of holding it.
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

/// The smallest allowance a writer from another process gets, however many there are.
const SMALLEST_WINDOW: u64 = 16 << 10;
/// The largest allowance. The messages under way at a time should fit into a processor's cache. This much is also
/// enough to keep a connection between machines near each other busy.
const LARGEST_WINDOW: u64 = 1 << 20;
/// The failure notices that are kept for an agent that does not read them, before its sends are refused.
const UNREAD_NOTICES: usize = 4_096;

/// Why a mailbox takes no more messages, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The agent has ended.
    Gone,
    /// The agent is moving to another process, and its messages follow it.
    Moving,
}

/// The answer of a mailbox that cannot take a message. The message comes back with it.
#[derive(Debug)]
pub enum PushError {
    /// There is no room now: wait at the mailbox's [`Gate`].
    Full(ReceivedMessage),
    /// The mailbox is closed.
    Closed(Closed, ReceivedMessage),
}

/// A listener that is told as the reader takes the messages of a [`Window`] out of the mailbox.
pub trait WindowListener: Send + Sync {
    /// The window that was opened under `tag` may now be written up to `limit` bytes in all.
    fn widened(&self, tag: u64, limit: u64);

    /// The reader took out the message that was put in with this [receipt](Window::push_with_receipt).
    fn taken(&self, receipt: u64) {
        let _ = receipt;
    }

    /// The agent has ended and will never read these messages, oldest first. Their senders must be told. A writer that
    /// keeps its messages until they are [taken](Self::taken) need not do anything.
    fn unread(&self, messages: Vec<ReceivedMessage>) {
        let _ = messages;
    }
}

struct Entry {
    message: ReceivedMessage,
    cost: u32,
    window: u32,
    receipt: Option<u64>,
}

/// Marks an entry that no window pays for.
const NO_WINDOW: u32 = u32::MAX;

struct WindowSlot {
    listener: Arc<dyn WindowListener>,
    tag: u64,
    credit: WindowCredit,
}

#[derive(Default)]
struct Windows {
    slots: Vec<Option<WindowSlot>>,
    open: usize,
    /// The notices for listeners, to be given once the lock is released.
    news: Vec<News>,
}

struct News {
    listener: Arc<dyn WindowListener>,
    what: What,
}

enum What {
    Widened { tag: u64, limit: u64 },
    Taken { receipt: u64 },
    Unread { messages: Vec<ReceivedMessage> },
}

impl News {
    fn tell(self) {
        match self.what {
            What::Widened { tag, limit } => self.listener.widened(tag, limit),
            What::Taken { receipt } => self.listener.taken(receipt),
            What::Unread { messages } => self.listener.unread(messages),
        }
    }
}

impl Windows {
    fn taken(&mut self, index: u32, cost: u32, limits: &MailboxLimits) {
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

    fn settled(&mut self, index: u32, receipt: u64) {
        if let Some(Some(slot)) = self.slots.get(index as usize) {
            self.news.push(News {
                listener: slot.listener.clone(),
                what: What::Taken { receipt },
            });
        }
    }
}

struct Inner {
    queue: VecDeque<Entry>,
    bytes: usize,
    notices: usize,
    closed: Option<Closed>,
    reader: Option<Waker>,
    hook: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The reader has found the mailbox empty and wants to be told of the next message.
    hook_armed: bool,
    /// When the first of the kept messages expires. An expired message must not be delivered.
    first_expiry: Option<Moment>,
    /// How often messages were removed that the reader had not taken.
    sweeps: u64,
    /// The notices for listeners of kept messages, to be given once the lock is released.
    settled: Vec<(Kept, KeptOutcome)>,
    /// Boxed: most agents never hear from another process.
    windows: Option<Box<Windows>>,
}

struct Shared {
    limits: MailboxLimits,
    inner: Mutex<Inner>,
    gate: Gate,
    /// Tells the senders of this process which messages the agent never read.
    unread: OnceLock<UnreadSink>,
    /// Whether the agent may not send: it has left, or has too many notices unread. The flag lies beside the lock
    /// because every send reads it.
    is_barred: AtomicBool,
}

/// The callback for messages of this process that an agent has left unread for good, oldest first.
pub(crate) type UnreadSink = Box<dyn Fn(Vec<ReceivedMessage>) + Send + Sync>;

/// The tasks to wake after the lock is released.
#[derive(Default)]
struct Wake {
    reader: Option<Waker>,
    hook: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Wake {
    fn join(&mut self, other: Self) {
        if other.reader.is_some() {
            self.reader = other.reader;
        }
        if other.hook.is_some() {
            self.hook = other.hook;
        }
    }

    fn wake(self) {
        if let Some(reader) = self.reader {
            reader.wake();
        }
        if let Some(hook) = self.hook {
            hook();
        }
    }
}

impl Inner {
    fn put(&mut self, message: ReceivedMessage, cost: usize, window: u32) -> Wake {
        self.put_with_receipt(message, cost, window, None)
    }

    fn put_with_receipt(
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
        self.queue.push_back(Entry {
            message,
            cost,
            window,
            receipt,
        });
        let hook = if self.hook_armed {
            self.hook_armed = false;
            self.hook.clone()
        } else {
            None
        };
        Wake {
            reader: self.reader.take(),
            hook,
        }
    }

    /// The reader took an entry out.
    fn settle(&mut self, entry: &Entry, limits: &MailboxLimits) {
        if let Some(kept) = entry.message.kept() {
            self.settled.push((kept.clone(), KeptOutcome::Taken));
        }
        self.account(entry, limits);
    }

    /// Removes expired messages.
    fn sweep(&mut self, limits: &MailboxLimits) {
        let Some(first) = self.first_expiry else {
            return;
        };
        let now = Moment::from(SystemTime::now());
        if now < first {
            return;
        }
        self.first_expiry = None;
        self.sweeps += 1;
        for entry in mem::take(&mut self.queue) {
            let kept = entry.message.kept();
            match kept.and_then(|kept| kept.expiry) {
                Some(expiry) if expiry <= now => {
                    let expired = kept.map(|kept| (kept.clone(), KeptOutcome::Expired));
                    self.settled.extend(expired);
                    self.account(&entry, limits);
                    continue;
                }
                Some(expiry) => {
                    self.first_expiry =
                        Some(self.first_expiry.map_or(expiry, |first| first.min(expiry)));
                }
                None => {}
            }
            self.queue.push_back(entry);
        }
    }

    /// Takes an entry that has left the queue out of the accounts.
    fn account(&mut self, entry: &Entry, limits: &MailboxLimits) {
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
fn window_size(limits: &MailboxLimits, open: usize) -> u64 {
    (limits.bytes as u64 / 2 / (open.max(1) as u64)).clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
}

impl Shared {
    fn has_room(&self, inner: &Inner) -> bool {
        inner.bytes < self.limits.bytes && inner.queue.len() < self.limits.messages
    }

    /// Takes messages under the lock with `take`, then tells the waiting writers of the room.
    fn take<T>(&self, take: impl FnOnce(&mut Inner) -> T) -> T {
        let (taken, news, settled, room) = {
            let mut inner = self.inner.lock();
            let notices = inner.notices;
            inner.sweep(&self.limits);
            let taken = take(&mut inner);
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
}

/// Makes a mailbox: the end that the agent reads, and the end that the bus writes.
///
/// An empty mailbox holds no buffer; it costs a few hundred bytes.
pub fn mailbox(limits: MailboxLimits) -> (MailboxSender, Mailbox) {
    let shared = Arc::new(Shared {
        limits,
        inner: Mutex::new(Inner {
            queue: VecDeque::new(),
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
/// Dropping it closes the mailbox. The messages in the mailbox and later messages go back to their senders, except
/// messages that were [kept](ReceivedMessage::kept), which their node delivers again.
pub struct Mailbox {
    shared: Arc<Shared>,
}

impl Mailbox {
    /// Waits for the next message. `None`: the mailbox was closed and is empty.
    ///
    /// Safe to cancel.
    pub async fn recv(&mut self) -> Option<ReceivedMessage> {
        self.receive_matching(|_| true).await
    }

    /// The next message, if one is there.
    pub fn try_recv(&mut self) -> Option<ReceivedMessage> {
        self.try_receive_matching(|_| true)
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
        // Besides expiry, only this reader removes messages, so it need not look at a message twice.
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

    /// Waits until there is a message, then appends up to `most` messages to `out`. Returns their number; 0 only if the
    /// mailbox was closed and is empty. Safe to cancel.
    pub async fn recv_many(&mut self, out: &mut Vec<ReceivedMessage>, most: usize) -> usize {
        poll_fn(|context| {
            self.shared.take(|inner| {
                let count = take_many(inner, &self.shared.limits, out, most);
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
            let count = take_many(inner, &self.shared.limits, out, most);
            if inner.queue.is_empty() {
                inner.hook_armed = true;
            }
            count
        })
    }

    /// Calls `hook` when a message arrives after an attempt to receive found the mailbox empty. `hook` is called once,
    /// until the next such attempt. It runs on the writer's thread and must be quick, such as a write to an eventfd.
    pub fn set_hook(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        let mut inner = self.shared.inner.lock();
        inner.hook = Some(Arc::new(hook));
        inner.hook_armed = inner.queue.is_empty();
    }

    /// The number of waiting messages.
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

    /// Closes the mailbox and returns the messages in it, in order, to be carried with the agent to another process.
    /// The senders' buses send later messages after the agent.
    pub fn drain(self) -> Vec<ReceivedMessage> {
        self.shared.close(Closed::Moving);
        self.shared.take(|inner| {
            let mut out = Vec::with_capacity(inner.queue.len());
            while let Some(entry) = inner.queue.pop_front() {
                inner.account(&entry, &self.shared.limits);
                // Kept messages are on disk, and find the agent in its new place.
                if entry.message.kept().is_none() {
                    out.push(entry.message);
                }
            }
            out
        })
    }
}

fn take_many(
    inner: &mut Inner,
    limits: &MailboxLimits,
    out: &mut Vec<ReceivedMessage>,
    most: usize,
) -> usize {
    let count = most.min(inner.queue.len());
    out.reserve(count);
    for _ in 0..count {
        let Some(entry) = inner.queue.pop_front() else {
            break;
        };
        inner.settle(&entry, limits);
        out.push(entry.message);
    }
    count
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.shared.close(Closed::Gone);
        self.shared.give_back();
    }
}

impl Shared {
    /// Hands messages that will never be read to those who can tell the senders.
    fn give_back(&self) {
        let (here, elsewhere) = {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            let mut here = Vec::new();
            let mut elsewhere: BTreeMap<u32, Vec<ReceivedMessage>> = BTreeMap::new();
            for entry in mem::take(&mut inner.queue) {
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

    fn close(&self, why: Closed) {
        let wake = {
            let mut inner = self.inner.lock();
            if inner.closed.is_none() {
                inner.closed = Some(why);
            }
            self.is_barred.store(true, Ordering::Relaxed);
            Wake {
                reader: inner.reader.take(),
                hook: inner.hook.clone(),
            }
        };
        wake.wake();
        self.gate.open_all();
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
