//! The accounts of the windows of a mailbox. When a writer closes its window, its unread messages count against its next one.

use std::sync::Arc;

use super::{MailboxLimits, WindowListener};
use crate::credit::WindowCredit;
use crate::letter::{Kept, KeptOutcome};
use crate::message::ReceivedMessage;

/// The smallest allowance that a writer of another process gets, however many writers there are.
const SMALLEST_WINDOW: u64 = 16 << 10;
/// The largest allowance. The messages under way at a time should fit into a processor's cache. This allowance is also
/// enough to keep a connection between nearby machines busy.
const LARGEST_WINDOW: u64 = 1 << 20;
/// Marks an entry that no window pays for.
pub(super) const NO_WINDOW: u32 = u32::MAX;

pub(super) struct WindowSlot {
    /// The process that writes.
    pub(super) writer: Arc<str>,
    pub(super) listener: Arc<dyn WindowListener>,
    pub(super) tag: u64,
    credit: WindowCredit,
    /// The bytes that counted against the window when it was opened: the unread bytes of the writer's former windows.
    inherited: u64,
    /// The bytes of the window's messages that the reader has not taken.
    unread: u64,
    /// A closed window keeps its place until its messages are taken, because they count against the writer's next window.
    pub(super) is_open: bool,
}

#[derive(Default)]
pub(super) struct Windows {
    pub(super) slots: Vec<Option<WindowSlot>>,
    open: usize,
    /// The notices for listeners, to be given once the lock is released.
    pub(super) news: Vec<News>,
}

pub(super) struct News {
    pub(super) listener: Arc<dyn WindowListener>,
    pub(super) what: WindowNews,
}

pub(super) enum WindowNews {
    Widened { tag: u64, limit: u64 },
    Taken { receipt: u64 },
    Unread { messages: Vec<ReceivedMessage> },
}

impl News {
    /// Gives all notices, first those for listeners of kept messages.
    // Not inlined: notices are rare, and the code would slow down each look into a mailbox.
    #[inline(never)]
    pub(super) fn tell_all(settled: Vec<(Kept, KeptOutcome)>, news: Vec<Self>) {
        for (kept, outcome) in settled {
            kept.listener.settled(kept.number, outcome);
        }
        for news in news {
            news.tell();
        }
    }

    pub(super) fn tell(self) {
        match self.what {
            WindowNews::Widened { tag, limit } => self.listener.widened(tag, limit),
            WindowNews::Taken { receipt } => self.listener.taken(receipt),
            WindowNews::Unread { messages } => self.listener.unread(messages),
        }
    }
}

impl Windows {
    /// Opens a window. Returns its index, and the bytes that may be written at the beginning.
    pub(super) fn open(
        &mut self,
        writer: &Arc<str>,
        listener: Arc<dyn WindowListener>,
        tag: u64,
        limits: &MailboxLimits,
    ) -> (u32, u64) {
        self.open += 1;
        let size = window_size(limits, self.open);
        let former = self.slots.iter().flatten();
        let former = former.filter(|slot| !slot.is_open && slot.writer == *writer);
        let inherited = former.map(|slot| slot.unread).sum();
        let slot = Some(WindowSlot {
            writer: writer.clone(),
            listener,
            tag,
            credit: WindowCredit::new(size),
            inherited,
            unread: 0,
            is_open: true,
        });
        let index = match self.slots.iter().position(Option::is_none) {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        // A mailbox has fewer than 2^32 - 1 windows: each open one belongs to a link, and each closed one to unread messages.
        let index = u32::try_from(index).unwrap_or(NO_WINDOW);
        (index, size.saturating_sub(inherited))
    }

    pub(super) fn close(&mut self, index: u32) {
        if let Some(place) = self.slots.get_mut(index as usize)
            && let Some(slot) = place
        {
            slot.is_open = false;
            if slot.unread == 0 {
                *place = None;
            }
            self.open -= 1;
        }
    }

    /// Closes all windows: their writers will open others.
    pub(super) fn close_all(&mut self) {
        for place in &mut self.slots {
            if let Some(slot) = place {
                slot.is_open = false;
            }
            place.take_if(|slot| slot.unread == 0);
        }
        self.open = 0;
    }

    pub(super) fn put(&mut self, index: u32, cost: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.unread += cost;
        }
    }

    pub(super) fn taken(&mut self, index: u32, cost: u64, limits: &MailboxLimits) {
        let Some(place) = self.slots.get_mut(index as usize) else {
            return;
        };
        let Some(slot) = place else { return };
        slot.unread = slot.unread.saturating_sub(cost);
        if slot.is_open {
            return self.widen(index, cost, limits);
        }
        let writer = slot.writer.clone();
        if slot.unread == 0 {
            *place = None;
        }
        let is_next = |slot: &WindowSlot| slot.is_open && slot.writer == writer;
        let mut slots = (0..).zip(&self.slots);
        let next = slots.find(|(_, slot)| slot.as_ref().is_some_and(is_next));
        if let Some((next, _)) = next {
            self.widen(next, cost, limits);
        }
    }

    /// Gives room back to the writer of a window.
    pub(super) fn widen(&mut self, index: u32, cost: u64, limits: &MailboxLimits) {
        let size = window_size(limits, self.open);
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else {
            return;
        };
        let limit = slot.credit.take(cost, size);
        let limit = limit.map(|limit| limit.saturating_sub(slot.inherited));
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            self.news.push(News {
                listener: slot.listener.clone(),
                what: WindowNews::Widened {
                    tag: slot.tag,
                    limit,
                },
            });
        }
    }

    pub(super) fn settled(&mut self, index: u32, receipt: u64) {
        if let Some(Some(slot)) = self.slots.get(index as usize)
            && slot.is_open
        {
            self.news.push(News {
                listener: slot.listener.clone(),
                what: WindowNews::Taken { receipt },
            });
        }
    }
}

/// The size of one window: all windows together may hold about as much as the mailbox holds.
fn window_size(limits: &MailboxLimits, open: usize) -> u64 {
    (limits.bytes as u64 / 2 / (open.max(1) as u64)).clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
}
