//! The class `Message`: a message as an agent gets it.

use pyo3::prelude::*;
use sealbus::{Message, Undelivered};
use sealbus_bus::{Provenance, ReceivedMessage};

use crate::acl::message::PyAclMessage;
use crate::error;

/// A message that an agent received: an `AclMessage` to read, and the facts known about its sender.
#[pyclass(frozen, subclass, extends = PyAclMessage, module = "sealbus", name = "Message")]
pub(crate) struct PyMessage {
    pub(crate) provenance: Provenance,
    /// The message's number among those kept for this agent, and whether the agent may have had it before.
    pub(crate) kept: Option<(u64, bool)>,
}

impl PyMessage {
    pub(crate) fn make(py: Python<'_>, received: ReceivedMessage) -> PyResult<Py<Self>> {
        let provenance = received.provenance().clone();
        let kept = received.kept().map(|kept| (kept.number, kept.again));
        let message = PyClassInitializer::from(PyAclMessage::received(received));
        Py::new(py, message.add_subclass(Self { provenance, kept }))
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
    fn sender_name(slf: &Bound<'_, Self>) -> String {
        let message: &Bound<'_, PyAclMessage> = slf.as_super();
        let sender = message.get().view().sender();
        sender.map_or_else(|| "nobody".to_owned(), |sender| sender.name().to_owned())
    }

    #[getter]
    fn kept_number(&self) -> Option<u64> {
        self.kept.map(|(number, _)| number)
    }

    #[getter]
    fn may_be_again(&self) -> bool {
        self.kept.is_some_and(|(_, again)| again)
    }

    #[getter]
    fn is_trusted(&self) -> bool {
        self.provenance.is_trusted()
    }

    /// If the message is the platform's notice of a failed delivery: the receiver, the message and the reason.
    #[getter]
    fn undelivered(slf: &Bound<'_, Self>) -> PyResult<Option<(String, String)>> {
        if !matches!(slf.get().provenance, Provenance::Platform) {
            return Ok(None);
        }
        let notice = Undelivered::read(&Self::to_facade(slf));
        Ok(notice.map(|notice| (notice.receiver, notice.reason)))
    }
}
