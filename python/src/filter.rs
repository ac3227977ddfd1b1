//! The class `Filter`.

use pyo3::prelude::*;
use sealbus::Filter;

use crate::acl::message::PyAclMessage;
use crate::acl::{aid, performative};
use crate::error;

/// A condition on a message: its performative, its conversation, its sender.
#[pyclass(frozen, module = "sealbus", name = "Filter")]
pub(crate) struct PyFilter(pub(crate) Filter);

#[pymethods]
impl PyFilter {
    #[new]
    #[pyo3(signature = (
        performative = None, *, sender = None, conversation_id = None, in_reply_to = None, protocol = None,
        ontology = None, language = None,
    ))]
    fn new(
        performative: Option<&Bound<'_, PyAny>>,
        sender: Option<&Bound<'_, PyAny>>,
        conversation_id: Option<String>,
        in_reply_to: Option<String>,
        protocol: Option<String>,
        ontology: Option<String>,
        language: Option<String>,
    ) -> PyResult<Self> {
        let performative = performative
            .map(performative::from_python)
            .transpose()?
            .map(Filter::performative);
        let sender = sender.map(aid::from_python).transpose()?;
        if let Some(sender) = &sender
            && sender.platform().is_none()
        {
            return Err(error::acl(format!(
                "the filter's sender '{sender}' needs its platform: self.peer('{sender}') or '{sender}@PLATFORM'"
            )));
        }
        let conditions = [
            performative,
            sender.as_ref().map(Filter::sender),
            conversation_id.map(Filter::conversation),
            in_reply_to.map(Filter::in_reply_to),
            protocol.map(Filter::protocol),
            ontology.map(Filter::ontology),
            language.map(Filter::language),
        ];
        Ok(Self(
            conditions
                .into_iter()
                .flatten()
                .fold(Filter::any(), Filter::and),
        ))
    }

    /// Whether this filter takes the message.
    fn takes(&self, message: &Bound<'_, PyAclMessage>) -> bool {
        self.0.takes(&message.get().view())
    }

    fn __and__(&self, other: &Bound<'_, PyFilter>) -> Self {
        Self(self.0.clone().and(other.get().0.clone()))
    }

    fn __or__(&self, other: &Bound<'_, PyFilter>) -> Self {
        Self(self.0.clone().or(other.get().0.clone()))
    }

    fn __invert__(&self) -> Self {
        Self(!self.0.clone())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Filter {}>", self.0)
    }
}
