//! Python values as JSON.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use sealbus::body::LIMITS;

use crate::error;

/// The fields of a dataclass to write: the attributes, and their names in JSON.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Fields")]
pub(crate) struct PyFields(Vec<(Py<PyString>, Vec<u8>)>);

#[pymethods]
impl PyFields {
    #[new]
    fn new(fields: Vec<(Py<PyString>, Bound<'_, PyString>)>) -> PyResult<Self> {
        let named = fields.into_iter().map(|(attribute, name)| {
            let mut text = Vec::new();
            string(&name, &mut text)?;
            text.push(b':');
            Ok((attribute, text))
        });
        named.collect::<PyResult<_>>().map(Self)
    }
}

/// A Python value as JSON.
#[pyfunction]
pub(crate) fn write_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut out = Vec::with_capacity(64);
    write(value, &mut out, LIMITS.depth * 2)?;
    String::from_utf8(out).map_err(unwritable)
}

fn unwritable(problem: impl ToString) -> PyErr {
    error::unwritable("content", problem)
}

fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    if depth == 0 {
        return Err(unwritable(
            "the body is nested too deep for JSON, or contains itself",
        ));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        string(text, out)?;
    } else if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        out.extend_from_slice(if truth.is_true() { b"true" } else { b"false" });
    } else if value.is_exact_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Err(_) => {
                let number: u64 = value
                    .extract()
                    .map_err(|_| unwritable("an integer of a body has more than 64 bits"))?;
                out.extend_from_slice(number.to_string().as_bytes());
            }
        }
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        let number = number.value();
        if !number.is_finite() {
            return Err(unwritable(format!("JSON cannot write {number}")));
        }
        serde_json::to_writer(&mut *out, &number).map_err(unwritable)?;
    } else if let Ok(items) = value.cast_exact::<PyList>() {
        sequence(items.iter(), out, depth)?;
    } else if let Ok(items) = value.cast_exact::<PyTuple>() {
        sequence(items.iter(), out, depth)?;
    } else if let Ok(members) = value.cast_exact::<PyDict>() {
        out.push(b'{');
        // Iterates over a copy: code of a member, or another thread, may change the dictionary, and the iteration would
        // panic.
        for (index, (name, member)) in members.copy()?.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match name.cast::<PyString>() {
                Ok(name) => string(name, out)?,
                Err(_) if name.is_exact_instance_of::<PyInt>() => string(&name.str()?, out)?,
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "a name in JSON is a str, not {}",
                        name.get_type().name()?
                    )));
                }
            }
            out.push(b':');
            write(&member, out, depth - 1)?;
        }
        out.push(b'}');
    } else if let Ok(fields) = FIELDS
        .import(py, "sealbus.plain_json", "fields")?
        .call1((value.get_type(),))?
        .cast::<PyFields>()
    {
        out.push(b'{');
        for (index, (attribute, name)) in fields.get().0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name);
            // An object counts twice, like an object without a type.
            write(
                &value.getattr(attribute.bind(py))?,
                out,
                depth.saturating_sub(2),
            )?;
        }
        out.push(b'}');
    } else {
        let plain = PLAIN.import(py, "sealbus.plain_json", "plain")?;
        write(&plain.call1((value,))?, out, depth - 1)?;
    }
    Ok(())
}

fn sequence<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> PyResult<()> {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&item, out, depth - 1)?;
    }
    out.push(b']');
    Ok(())
}

fn string(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> PyResult<()> {
    let text = text.to_cow().map_err(unwritable)?;
    serde_json::to_writer(out, &*text).map_err(unwritable)
}
