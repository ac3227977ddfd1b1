//! The queue of orders that wait for the writer.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use crate::change::Change;
use crate::error::JournalError;
use crate::record::NewRecord;
use crate::state::StreamShared;

/// The bytes to write.
#[derive(Debug)]
pub(crate) enum Order {
    Append { record: NewRecord, done: Done },
    Change { change: Change, done: Done },
    Retain { done: Done },
    RemoveStream { done: Done },
}

impl Order {
    /// The caller that waits for it.
    pub(crate) fn done(self) -> Done {
        match self {
            Self::Append { done, .. }
            | Self::Change { done, .. }
            | Self::Retain { done }
            | Self::RemoveStream { done } => done,
        }
    }
}

pub(crate) type Done = oneshot::Sender<Result<u64, JournalError>>;

/// The work that waits for the thread.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<WaitingOrders>,
    wake: Condvar,
    room: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct WaitingOrders {
    orders: Vec<(Arc<StreamShared>, Order)>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::default(),
            wake: Condvar::new(),
            room: Notify::new(),
            limit,
        }
    }

    pub(crate) fn put(
        &self,
        stream: &Arc<StreamShared>,
        order: Order,
        size: usize,
    ) -> Result<(), JournalError> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(JournalError::Closed);
        }
        // A single record is always taken, however large.
        if inner.bytes > 0 && inner.bytes + size > self.limit {
            return Err(JournalError::Busy { limit: self.limit });
        }
        inner.bytes += size;
        inner.orders.push((stream.clone(), order));
        drop(inner);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) async fn room(&self) {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            {
                let inner = self.inner.lock();
                if inner.bytes < self.limit / 2 || inner.closed {
                    return;
                }
            }
            freed.await;
        }
    }

    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.wake.notify_one();
        self.room.notify_waiters();
    }

    /// All waiting orders; `None` once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Vec<(Arc<StreamShared>, Order)>> {
        let mut inner = self.inner.lock();
        while inner.orders.is_empty() {
            if inner.closed {
                return None;
            }
            self.wake.wait(&mut inner);
        }
        inner.bytes = 0;
        let orders = std::mem::take(&mut inner.orders);
        drop(inner);
        self.room.notify_waiters();
        Some(orders)
    }
}
