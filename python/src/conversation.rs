//! Conversations, whose messages go to them alone, for `sealbus/life.py`.

use parking_lot::Mutex;
use pyo3::prelude::*;
use sealbus::process::OpenRequest;
use sealbus_bus::Conversation;

use crate::message::PyMessage;
use crate::pump::PyPump;
use crate::runtime::{self, Owned};

/// A request that waits for its reply.
#[pyclass(frozen, module = "sealbus._sealbus", name = "OpenRequest")]
pub(crate) struct PyOpenRequest(Owned<Mutex<Option<OpenRequest>>>);

impl PyOpenRequest {
    pub(crate) fn new(open: OpenRequest) -> Self {
        Self(Owned::new(Mutex::new(Some(open))))
    }

    fn with<T: Default>(&self, act: impl FnOnce(&OpenRequest) -> T) -> PyResult<T> {
        Ok(self.0.get()?.lock().as_ref().map(act).unwrap_or_default())
    }
}

#[pymethods]
impl PyOpenRequest {
    /// Makes `pump` report a reply under the number `waiter`, after a `try_next` that found none.
    fn set_hook(&self, pump: &PyPump, waiter: u64) -> PyResult<()> {
        let signal = pump.signal()?;
        self.with(|open| open.set_hook(move || signal.mail(waiter)))
    }

    /// The next reply, if it has come.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<PyMessage>>> {
        let reply = self.with(OpenRequest::try_next)?;
        reply.map(|reply| PyMessage::make(py, reply)).transpose()
    }

    /// Notes that the request has its answer. Further messages in its conversation go to the mailbox.
    fn answered(&self) -> PyResult<()> {
        if let Some(open) = self.0.get()?.lock().take() {
            open.answered();
        }
        Ok(())
    }

    /// Gives the request up, unless it has its answer. Tells an agent that has agreed to it to stop.
    fn close(&self) -> PyResult<()> {
        let Some(open) = self.0.get()?.lock().take() else {
            return Ok(());
        };
        let runtime = runtime::handle();
        // A task of the runtime sends the messages that have to wait.
        let _entered = runtime.as_ref().map(|runtime| runtime.enter());
        drop(open);
        Ok(())
    }
}

/// A conversation, which owns its messages.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Conversation")]
pub(crate) struct PyConversation(Owned<Mutex<Option<Conversation>>>);

impl PyConversation {
    pub(crate) fn new(conversation: Conversation) -> Self {
        Self(Owned::new(Mutex::new(Some(conversation))))
    }
}

#[pymethods]
impl PyConversation {
    /// Makes `pump` report a message under the number `waiter`, after a `try_next` that found none.
    fn set_hook(&self, pump: &PyPump, waiter: u64) -> PyResult<()> {
        let signal = pump.signal()?;
        if let Some(conversation) = self.0.get()?.lock().as_ref() {
            conversation.set_hook(move || signal.mail(waiter));
        }
        Ok(())
    }

    /// The next message, if it has come.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<PyMessage>>> {
        let message = self
            .0
            .get()?
            .lock()
            .as_ref()
            .and_then(Conversation::try_recv);
        message
            .map(|message| PyMessage::make(py, message))
            .transpose()
    }

    /// Ends the conversation. Its late messages are dropped and counted.
    fn close(&self) -> PyResult<()> {
        drop(self.0.get()?.lock().take());
        Ok(())
    }
}

/// A unique name for a conversation.
#[pyfunction]
pub(crate) fn new_conversation_id() -> String {
    sealbus::new_conversation_id()
}
