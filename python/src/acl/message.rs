//! The class `AclMessage`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};
use sealbus::body::WrittenBody;
use sealbus_bus::{Provenance, ReceivedMessage};
use sealbus_fipa::{AclMessage, AclMessageRef, Content, ContentRef, ExpressionRef};
use sealbus_fipa::{bitefficient, string};

use crate::acl::{aid, expression, performative};
use crate::{body, error};

/// A message (FIPA00061): its act, its sender, its receivers and its content.
///
/// It never changes; `replace` makes another one.
#[pyclass(frozen, subclass, module = "sealbus", name = "AclMessage")]
pub(crate) struct PyAclMessage(Body);

enum Body {
    Made(Arc<AclMessage>),
    /// A received message, which is decoded when it is first read.
    Received(ReceivedMessage),
}

impl PyAclMessage {
    pub(crate) fn new(message: AclMessage) -> Self {
        Self(Body::Made(Arc::new(message)))
    }

    pub(crate) fn received(message: ReceivedMessage) -> Self {
        // The gateway adds a note to a message from outside. The note belongs to the platform, and the provenance shows
        // it.
        if matches!(message.provenance(), Provenance::Foreign(_)) {
            return Self(Body::Made(message.into_message()));
        }
        Self(Body::Received(message))
    }

    pub(crate) fn view(&self) -> AclMessageRef<'_> {
        match &self.0 {
            Body::Made(message) => AclMessage::view(message),
            Body::Received(message) => message.message(),
        }
    }

    /// The message for sending. A message made here is shared, not copied.
    pub(crate) fn to_shared(&self) -> Arc<AclMessage> {
        match &self.0 {
            Body::Made(message) => message.clone(),
            Body::Received(message) => message.clone().into_message(),
        }
    }

    pub(crate) fn to_message(&self) -> AclMessage {
        self.view().to_owned()
    }
}

#[pymethods]
impl PyAclMessage {
    #[new]
    #[pyo3(signature = (
        performative, receivers = None, content = None, *, sender = None, reply_to = None, language = None,
        encoding = None, ontology = None, protocol = None, conversation_id = None, reply_with = None,
        in_reply_to = None, reply_by = None, user_defined = None, body = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the parameters of FIPA00061")]
    fn make(
        performative: &Bound<'_, PyAny>,
        receivers: Option<&Bound<'_, PyAny>>,
        content: Option<&Bound<'_, PyAny>>,
        sender: Option<&Bound<'_, PyAny>>,
        reply_to: Option<&Bound<'_, PyAny>>,
        language: Option<&Bound<'_, PyAny>>,
        encoding: Option<&Bound<'_, PyAny>>,
        ontology: Option<&Bound<'_, PyAny>>,
        protocol: Option<String>,
        conversation_id: Option<&Bound<'_, PyAny>>,
        reply_with: Option<&Bound<'_, PyAny>>,
        in_reply_to: Option<&Bound<'_, PyAny>>,
        reply_by: Option<&Bound<'_, PyAny>>,
        user_defined: Option<&Bound<'_, PyDict>>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let parameter =
            |value: Option<&Bound<'_, PyAny>>| value.map(expression::from_python).transpose();
        let mut message = AclMessage {
            performative: performative::from_python(performative)?,
            sender: sender.map(aid::from_python).transpose()?,
            receivers: aid::list_from_python(receivers)?,
            reply_to: aid::list_from_python(reply_to)?,
            content: content_from_python(content)?,
            language: parameter(language)?,
            encoding: parameter(encoding)?,
            ontology: parameter(ontology)?,
            protocol,
            conversation_id: parameter(conversation_id)?,
            reply_with: parameter(reply_with)?,
            in_reply_to: parameter(in_reply_to)?,
            reply_by: reply_by
                .map(expression::date_time_from_python)
                .transpose()?,
            user_defined: aid::user_defined_from_python(user_defined)?,
        };
        if let Some(body) = body {
            if content.is_some() || language.is_some() {
                return Err(error::acl(
                    "a body sets content and language itself: pass either a body, or these",
                ));
            }
            body::put(&mut message, body)?;
        }
        Ok(Self::new(message))
    }

    #[getter]
    fn performative<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        performative::to_python(py, &self.view().performative())
    }

    #[getter]
    fn sender(&self) -> Option<aid::PyAid> {
        self.view()
            .sender()
            .map(|sender| aid::PyAid(sender.to_owned()))
    }

    #[getter]
    fn receivers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        aid::list_to_python(py, self.view().receivers())
    }

    #[getter]
    fn reply_to<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        aid::list_to_python(py, self.view().reply_to())
    }

    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        Some(match self.view().content()? {
            ContentRef::Text(text) => PyString::new(py, &text).into_any(),
            ContentRef::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        })
    }

    #[getter]
    fn content_text<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.view()
            .content_text()
            .map(|text| PyString::new(py, &text))
    }

    #[getter]
    fn content_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.view()
            .content_bytes()
            .map(|bytes| PyBytes::new(py, &bytes))
    }

    #[getter]
    fn language<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().language())
    }

    #[getter]
    fn encoding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().encoding())
    }

    #[getter]
    fn ontology<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().ontology())
    }

    #[getter]
    fn protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.view()
            .protocol()
            .map(|protocol| PyString::new(py, &protocol))
    }

    #[getter]
    fn conversation_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().conversation_id())
    }

    #[getter]
    fn reply_with<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().reply_with())
    }

    #[getter]
    fn in_reply_to<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parameter(py, self.view().in_reply_to())
    }

    #[getter]
    fn reply_by<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.view()
            .reply_by()
            .map(|moment| expression::date_time_to_python(py, &moment))
            .transpose()
    }

    #[getter]
    fn user_defined<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parameters = self.view().user_defined();
        aid::user_defined_to_python(py, parameters.map(|(name, value)| (name, value.to_owned())))
    }

    /// The same message with other content.
    fn with_content(&self, content: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let content = content_from_python(content)?;
        let Body::Made(message) = &self.0 else {
            return Ok(Self::new(AclMessage {
                content,
                ..self.to_message()
            }));
        };
        // The message is built field by field, so that the replaced content is not copied.
        Ok(Self::new(AclMessage {
            performative: message.performative.clone(),
            sender: message.sender.clone(),
            receivers: message.receivers.clone(),
            reply_to: message.reply_to.clone(),
            content,
            language: message.language.clone(),
            encoding: message.encoding.clone(),
            ontology: message.ontology.clone(),
            protocol: message.protocol.clone(),
            conversation_id: message.conversation_id.clone(),
            reply_with: message.reply_with.clone(),
            in_reply_to: message.in_reply_to.clone(),
            reply_by: message.reply_by,
            user_defined: message.user_defined.clone(),
        }))
    }

    /// The same message with some parameters changed. None removes one; a body that is None removes the content with its
    /// language and ontology.
    #[pyo3(signature = (**changes))]
    fn replace(&self, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut message = self.to_message();
        for (name, value) in changes.into_iter().flatten() {
            let name: String = name.extract()?;
            let given = if value.is_none() { None } else { Some(&value) };
            let parameter = || given.map(expression::from_python).transpose();
            match name.as_str() {
                "performative" => message.performative = performative::from_python(&value)?,
                "sender" => message.sender = given.map(aid::from_python).transpose()?,
                "receivers" => message.receivers = aid::list_from_python(given)?,
                "reply_to" => message.reply_to = aid::list_from_python(given)?,
                "content" => message.content = content_from_python(given)?,
                "body" => match given {
                    Some(body) => body::put(&mut message, body)?,
                    None => {
                        message.content = None;
                        // Language and ontology belonged to the body.
                        if message.language.take().is_some() {
                            message.ontology = None;
                        }
                    }
                },
                "language" => message.language = parameter()?,
                "encoding" => message.encoding = parameter()?,
                "ontology" => message.ontology = parameter()?,
                "protocol" => message.protocol = given.map(|value| value.extract()).transpose()?,
                "conversation_id" => message.conversation_id = parameter()?,
                "reply_with" => message.reply_with = parameter()?,
                "in_reply_to" => message.in_reply_to = parameter()?,
                "reply_by" => {
                    message.reply_by = given.map(expression::date_time_from_python).transpose()?;
                }
                "user_defined" => {
                    let dictionary = given.map(|value| value.cast::<PyDict>()).transpose()?;
                    message.user_defined = aid::user_defined_from_python(dictionary)?;
                }
                _ => {
                    return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                        "an AclMessage has no parameter '{name}'"
                    )));
                }
            }
        }
        Ok(Self::new(message))
    }

    /// An answer to this message: to its `reply_to` or else its sender, in the same conversation, protocol, language and
    /// ontology, with `in_reply_to` set to its `reply_with`. Content that is neither text nor bytes is a body, whose
    /// language replaces the message's; text and bytes have no language if the message's language is that of a body, such
    /// as JSON.
    #[pyo3(signature = (performative, content = None))]
    fn create_reply(
        &self,
        performative: &Bound<'_, PyAny>,
        content: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (view, act) = (self.view(), performative::from_python(performative)?);
        let Some(said) = content else {
            return Ok(Self::new(view.create_reply(act)));
        };
        if is_content(said)
            && let Some(content) = content_from_python(content)?
        {
            return Ok(Self::new(WrittenBody::from(content).answer(&view, act)));
        }
        let mut reply = view.create_reply(act);
        body::put(&mut reply, said)?;
        Ok(Self::new(reply))
    }

    /// It never changes, so a copy is the message itself, with its class and its provenance.
    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<PyAclMessage>()
            .is_ok_and(|other| other.get().to_message() == self.to_message())
    }

    fn __hash__(&self) -> PyResult<u64> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "unhashable type: 'AclMessage'",
        ))
    }

    /// The message in the String encoding, as it is written in FIPA documents.
    fn __str__(&self) -> String {
        to_text(&self.to_message())
    }

    fn __repr__(&self) -> String {
        let view = self.view();
        let sender = view
            .sender()
            .map_or_else(|| "nobody".to_owned(), |sender| sender.to_string());
        let receivers: Vec<_> = view
            .receivers()
            .map(|receiver| receiver.to_string())
            .collect();
        format!(
            "<AclMessage {} from {sender} to {}>",
            view.performative(),
            receivers.join(", ")
        )
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let bytes = to_bytes(&slf.get().to_message())?;
        let decode = py.import("sealbus.acl")?.getattr("decode")?;
        PyTuple::new(
            py,
            [
                decode,
                PyTuple::new(py, [PyBytes::new(py, &bytes)])?.into_any(),
            ],
        )
    }
}

/// A parameter that names something is text, even if it looks like a number: JADE writes the identifier `42` without
/// quotes.
fn parameter<'py>(
    py: Python<'py>,
    value: Option<ExpressionRef<'_>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(value) = value else { return Ok(None) };
    Ok(Some(match value.text() {
        Some(text) => PyString::new(py, &text).into_any(),
        None => expression::to_python(py, &value.to_owned())?,
    }))
}

/// Whether a value is content as it stands: text or bytes.
fn is_content(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
}

fn content_from_python(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Content>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(Content::Text(text.extract()?)));
    }
    match expression::bytes_from_python(value)? {
        Some(bytes) => Ok(Some(Content::Bytes(bytes))),
        None => Err(error::acl(format!(
            "a message's content is str or bytes, not {}; other values are passed as body=",
            value.get_type().name()?
        ))),
    }
}

/// The message in the String encoding, or the reason why it cannot be written so.
fn to_text(message: &AclMessage) -> String {
    let mut out = Vec::new();
    match string::encode(message, &mut out) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(problem) => format!("({} with {problem})", message.performative),
    }
}

/// The message in the bit-efficient encoding, which carries the most.
fn to_bytes(message: &AclMessage) -> PyResult<Vec<u8>> {
    let mut out = Vec::new();
    bitefficient::encode(message, &mut out).map_err(|problem| error::encode(&problem))?;
    Ok(out)
}
