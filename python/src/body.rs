//! Bodies of messages, whose types `sealbus/body.py` knows.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};
use sealbus::body::WrittenBody;
use sealbus_fipa::{AclMessage, Content};

use crate::write_json::write_json;

/// Makes `body` the content of the message.
pub(crate) fn put(message: &mut AclMessage, body: &Bound<'_, PyAny>) -> PyResult<()> {
    static IS_JSON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let is_json = IS_JSON.import(body.py(), "sealbus.body", "is_json")?;
    if is_json.call1((body.get_type(),))?.is_truthy()? {
        let written = WrittenBody {
            content: Content::Text(write_json(body)?),
            language: Some("application/json".to_owned()),
            ontology: None,
        };
        written.put_into(message);
        return Ok(());
    }
    let write = WRITE.import(body.py(), "sealbus.body", "encode")?;
    let (content, language, ontology): (Bound<'_, PyAny>, Option<String>, Option<String>) =
        write.call1((body,))?.extract()?;
    let content = match content.cast::<PyString>() {
        Ok(text) => Content::Text(text.extract()?),
        Err(_) => Content::Bytes(content.cast::<PyBytes>()?.as_bytes().to_vec()),
    };
    let written = WrittenBody {
        content,
        language,
        ontology,
    };
    written.put_into(message);
    Ok(())
}

/// The body of a message: as `kind`, or as the plain value of its language.
pub(crate) fn read<'py>(
    message: &Bound<'py, PyAny>,
    kind: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let read = READ.import(message.py(), "sealbus.body", "decode")?;
    read.call1((message, kind))
}
