//! An agent's work beside its hooks: behaviours, tools and handlers, in tasks that end with the agent.

use std::any::Any;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use sealbus_bus::ReceivedMessage;
use sealbus_fipa::{AclMessageRef, Performative};
use tokio::sync::{
    Notify, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore,
};
use tokio::task::AbortHandle;

use crate::supervision::AgentResult;
use crate::supervision::HandlerError;

/// The most errors that wait for their agent. Further errors are logged at once.
const ERRORS: usize = 64;

/// The tasks of an agent, and their errors.
#[derive(Clone, Default)]
pub(crate) struct Labour(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Locked for reading while a task works, and for writing while the agent is at rest.
    rest: Arc<RwLock<()>>,
    tasks: Mutex<Vec<AbortHandle>>,
    errors: Mutex<VecDeque<HandlerError>>,
    failed: Notify,
    /// The conversations of the messages whose handlers have not begun.
    beginning: Mutex<Vec<(String, String)>>,
    /// Notified when a task gives its place back or a handler begins.
    freed: Notify,
}

/// A place among the tasks of one kind that may run at a time. While it lives, the agent does not come to rest.
pub(crate) struct LabourPermit {
    place: Option<OwnedSemaphorePermit>,
    labour: Labour,
    _at_work: OwnedRwLockReadGuard<()>,
}

impl Drop for LabourPermit {
    fn drop(&mut self) {
        self.place = None;
        self.labour.0.freed.notify_one();
    }
}

/// Until this is dropped, a `cancel` of this conversation waits in the mailbox, because the handler may take part in
/// the conversation.
pub(crate) struct Beginning(Labour, (String, String));

impl Drop for Beginning {
    fn drop(&mut self) {
        let mut beginning = self.0.0.beginning.lock();
        if let Some(index) = beginning.iter().position(|it| *it == self.1) {
            beginning.swap_remove(index);
        }
        self.0.0.freed.notify_one();
    }
}

/// The sender and the conversation-id of a message.
fn conversation(message: &AclMessageRef<'_>) -> Option<(String, String)> {
    let id = message.conversation_id()?.text()?.into_owned();
    Some((message.sender()?.name().to_owned(), id))
}

impl Labour {
    /// Waits until the agent may do something. While the guard lives, the agent does not come to rest.
    pub(crate) async fn work(&self) -> RwLockReadGuard<'_, ()> {
        self.0.rest.read().await
    }

    /// Waits until no task works. No task begins to work while this waits or while the guard lives.
    pub(crate) async fn rest(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.rest.write().await
    }

    /// A place for a further task, if one is free.
    pub(crate) fn place(&self, places: &Arc<Semaphore>) -> Option<LabourPermit> {
        let place = places.clone().try_acquire_owned().ok()?;
        // An agent at rest takes up no messages, so nobody waits for the write lock.
        let at_work = self.0.rest.clone().try_read_owned().ok()?;
        Some(LabourPermit {
            place: Some(place),
            labour: self.clone(),
            _at_work: at_work,
        })
    }

    /// Notes that a handler is about to begin with a message.
    pub(crate) fn begin(&self, received: &ReceivedMessage) -> Option<Beginning> {
        let conversation = conversation(&received.message())?;
        self.0.beginning.lock().push(conversation.clone());
        Some(Beginning(self.clone(), conversation))
    }

    /// Whether a message cancels a conversation whose handler has not begun.
    pub(crate) fn is_beginning(&self, received: &ReceivedMessage) -> bool {
        let message = received.message();
        if message.performative() != Performative::Cancel {
            return false;
        }
        let beginning = self.0.beginning.lock();
        !beginning.is_empty()
            && conversation(&message).is_some_and(|conversation| beginning.contains(&conversation))
    }

    /// Waits until a place is free again, or a handler has begun.
    pub(crate) async fn room(&self) {
        self.0.freed.notified().await;
    }

    /// Runs a task until it is done, or [`dismiss`](Self::dismiss) ends it.
    pub(crate) fn employ(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        let mut tasks = self.0.tasks.lock();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(handle);
    }

    /// Runs the work of a task. A panic is an error.
    pub(crate) async fn guard<T>(
        &self,
        work: impl Future<Output = AgentResult<T>>,
    ) -> AgentResult<T> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(done) => done,
            Err(panic) => Err(format!("panicked: {}", panic_text(&*panic)).into()),
        }
    }

    /// Tells the agent of an error.
    pub(crate) fn report(&self, handled: String, error: Box<dyn Error + Send + Sync>) {
        let failed = HandlerError { handled, error };
        let mut errors = self.0.errors.lock();
        if errors.len() == ERRORS {
            tracing::error!("a handler failed {failed}");
        } else {
            errors.push_back(failed);
            self.0.failed.notify_one();
        }
    }

    /// The next waiting error, if there is one.
    pub(crate) fn waiting_error(&self) -> Option<HandlerError> {
        self.0.errors.lock().pop_front()
    }

    /// Waits for the next error. Safe to cancel.
    pub(crate) async fn next_error(&self) -> HandlerError {
        loop {
            if let Some(failed) = self.waiting_error() {
                return failed;
            }
            self.0.failed.notified().await;
        }
    }

    /// Waits until no task works, but at most for this time. Then ends all tasks.
    pub(crate) async fn end(&self, grace: Duration) {
        let rests = tokio::time::timeout(grace, self.rest()).await.is_ok();
        self.dismiss();
        if !rests {
            // Tasks that are cut off tell their requesters.
            let _ = tokio::time::timeout(grace, self.rest()).await;
        }
    }

    /// Ends all tasks.
    pub(crate) fn dismiss(&self) {
        for task in self.0.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

impl fmt::Debug for Labour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labour")
            .field("tasks", &self.0.tasks.lock().len())
            .finish_non_exhaustive()
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is not text".to_owned())
}
