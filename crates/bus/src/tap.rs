//! The tap: watchers see the messages that arrive at the agents of this process. Without a watcher it costs one look at a
//! flag for each message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::message::ReceivedMessage;

/// A message that has just arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The message, with the known facts about its sender.
    pub message: &'a ReceivedMessage,
    /// The AID name of the agent that gets it.
    pub receiver: &'a str,
    /// The channel it came by; none for a direct message.
    pub channel: Option<&'a str>,
}

/// Sees arrivals. Calls come under the locks of mailboxes and subscriptions, so they must be quick and not use the bus.
pub trait Watcher: Send + Sync {
    /// A message has arrived.
    fn arrived(&self, arrival: &Arrival<'_>);
}

/// The tap of a bus.
#[derive(Default)]
pub struct Tap {
    is_open: AtomicBool,
    watchers: RwLock<Vec<Arc<dyn Watcher>>>,
}

impl Tap {
    /// Whether somebody watches.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Lets this watcher see the messages that arrive from now on.
    pub fn open(&self, watcher: Arc<dyn Watcher>) {
        let mut watchers = self.watchers.write();
        if !watchers.iter().any(|known| is_same(known, &watcher)) {
            watchers.push(watcher);
        }
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Stops showing messages to this watcher.
    pub fn close(&self, watcher: &Arc<dyn Watcher>) {
        let mut watchers = self.watchers.write();
        watchers.retain(|known| !is_same(known, watcher));
        self.is_open.store(!watchers.is_empty(), Ordering::Relaxed);
    }

    /// Shows an arrival to the watcher.
    #[cold]
    pub fn show(&self, arrival: &Arrival<'_>) {
        for watcher in &*self.watchers.read() {
            watcher.arrived(arrival);
        }
    }
}

fn is_same(one: &Arc<dyn Watcher>, other: &Arc<dyn Watcher>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
