//! The class `Message`: a message that an agent received.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sealbus::{Message, Undelivered};
use sealbus_bus::{Delegation, Provenance, ReceivedMessage, SealedWords};

use crate::acl::message::PyAclMessage;
use crate::delegation::PyDelegation;
use crate::{body, error};

/// A message that an agent received: an `AclMessage` to read, with the provenance of its sender.
#[pyclass(frozen, subclass, generic, extends = PyAclMessage, module = "sealbus", name = "Message")]
pub(crate) struct PyMessage {
    pub(crate) provenance: Provenance,
    /// The message's number among those kept for this agent.
    pub(crate) kept: Option<u64>,
    /// Whether the agent, or another member of its group, may have had the message before.
    pub(crate) may_be_again: bool,
    /// Whether only the message's sender and its receivers can read it.
    pub(crate) is_sealed: bool,
    /// The author's words of a sealed direct message, to disclose to others.
    words: Option<Box<SealedWords>>,
    /// The content as a value, once it was read.
    body: Mutex<Option<Py<PyAny>>>,
}

impl PyMessage {
    pub(crate) fn new(provenance: Provenance, kept: Option<u64>, may_be_again: bool) -> Self {
        Self {
            provenance,
            kept,
            may_be_again,
            is_sealed: false,
            words: None,
            body: Mutex::new(None),
        }
    }

    pub(crate) fn make(py: Python<'_>, received: ReceivedMessage) -> PyResult<Py<Self>> {
        let provenance = received.provenance().clone();
        let cover = received.kept();
        let (kept, may_be_again) = (cover.map(|it| it.number), cover.is_some_and(|it| it.again));
        let mut this = Self::new(provenance, kept, may_be_again);
        this.is_sealed = received.is_sealed();
        this.words = received.words().map(Box::new);
        let message = PyClassInitializer::from(PyAclMessage::received(received));
        Py::new(py, message.add_subclass(this))
    }

    /// The message as a value of the Rust SDK.
    pub(crate) fn to_facade(message: &Bound<'_, Self>) -> Message {
        let acl: &Bound<'_, PyAclMessage> = message.as_super();
        let received =
            ReceivedMessage::shared(acl.get().to_shared(), message.get().provenance.clone());
        Message::new(received)
    }
}

#[pymethods]
impl PyMessage {
    #[getter]
    fn provenance(&self) -> &'static str {
        self.provenance.as_str()
    }

    #[getter]
    fn on_behalf_of<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let message: &Bound<'_, PyAclMessage> = slf.as_super();
        let chain = Delegation::of(&message.get().view()).unwrap_or_default();
        PyTuple::new(slf.py(), chain.askers())
    }

    /// The chain of the work for this message, if the message asks for something.
    #[pyo3(name = "_delegation")]
    fn delegation(slf: &Bound<'_, Self>) -> Option<PyDelegation> {
        let message: &Bound<'_, PyAclMessage> = slf.as_super();
        PyDelegation::by(&message.get().view())
    }

    #[getter]
    fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    #[getter]
    fn disclosure(&self) -> Option<String> {
        self.words.as_deref().map(ToString::to_string)
    }

    #[getter]
    fn text(slf: &Bound<'_, Self>) -> PyResult<String> {
        let message: &Bound<'_, PyAclMessage> = slf.as_super();
        match message.get().view().content_text() {
            Some(text) => Ok(text.into_owned()),
            None => Self::to_facade(slf)
                .text()
                .map(str::to_owned)
                .map_err(error::content),
        }
    }

    #[getter]
    fn body<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let known = slf
            .get()
            .body
            .lock()
            .as_ref()
            .map(|body| body.clone_ref(py));
        if let Some(body) = known {
            return Ok(body.into_bound(py));
        }
        let body = body::read(slf.as_any(), None)?;
        Self::declare(slf.get(), Some(body.clone().unbind()));
        Ok(body)
    }

    fn body_as<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        body::read(slf.as_any(), Some(kind))
    }

    /// Sets the value of `body`.
    #[pyo3(name = "_declare")]
    fn declare(&self, body: Option<Py<PyAny>>) {
        // Dropping the former body may run code, so drop it without the lock.
        let before = std::mem::replace(&mut *self.body.lock(), body);
        drop(before);
    }

    #[getter]
    fn sender_name(slf: &Bound<'_, Self>) -> String {
        let message: &Bound<'_, PyAclMessage> = slf.as_super();
        let sender = message.get().view().sender();
        sender.map_or_else(|| "nobody".to_owned(), |sender| sender.name().to_owned())
    }

    #[getter]
    fn kept_number(&self) -> Option<u64> {
        self.kept
    }

    #[getter]
    fn may_be_again(&self) -> bool {
        self.may_be_again
    }

    #[getter]
    fn is_trusted(&self) -> bool {
        self.provenance.is_trusted()
    }

    /// If the platform reports here that a message of this agent was not delivered: the receiver and the reason.
    #[getter]
    fn undelivered(slf: &Bound<'_, Self>) -> PyResult<Option<(String, String)>> {
        if !matches!(slf.get().provenance, Provenance::Platform) {
            return Ok(None);
        }
        let notice = Undelivered::read(&Self::to_facade(slf));
        Ok(notice.map(|notice| (notice.receiver, notice.reason)))
    }
}
