//! JSON as Python values: the bodies of messages.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use sealbus::body::{LIMITS, json_content};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::acl::message::PyAclMessage;
use crate::error;

/// The JSON value that a message says.
#[pyfunction]
pub(crate) fn read_json<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAclMessage>,
) -> PyResult<Bound<'py, PyAny>> {
    let content = json_content(&message.get().view()).map_err(|problem| error::body(&problem))?;
    let mut reader = serde_json::Deserializer::from_slice(&content);
    let value = Value(py)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    value.map_err(|problem| error::misfit("$", &format!("no JSON: {problem}")))
}

/// The JSON text that a message says, within the limits, for a parser of its own.
#[pyfunction]
pub(crate) fn json_text<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAclMessage>,
) -> PyResult<Bound<'py, PyBytes>> {
    let content = json_content(&message.get().view()).map_err(|problem| error::body(&problem))?;
    Ok(PyBytes::new(py, &content))
}

/// A Python value as JSON. `plain` makes values that JSON knows of those that it does not.
#[pyfunction]
pub(crate) fn write_json(value: &Bound<'_, PyAny>, plain: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut out = Vec::with_capacity(64);
    write(value, plain, &mut out, LIMITS.depth * 2)?;
    String::from_utf8(out).map_err(|problem| PyValueError::new_err(problem.to_string()))
}

fn write(
    value: &Bound<'_, PyAny>,
    plain: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
    depth: usize,
) -> PyResult<()> {
    if depth == 0 {
        return Err(PyValueError::new_err(
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
                let number: u64 = value.extract().map_err(|_| {
                    PyValueError::new_err("an integer of a body has more than 64 bits")
                })?;
                out.extend_from_slice(number.to_string().as_bytes());
            }
        }
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        let number = number.value();
        if !number.is_finite() {
            return Err(PyValueError::new_err(format!("JSON cannot write {number}")));
        }
        serde_json::to_writer(&mut *out, &number).map_err(into_error)?;
    } else if let Ok(items) = value.cast_exact::<PyList>() {
        sequence(items.iter(), plain, out, depth)?;
    } else if let Ok(items) = value.cast_exact::<PyTuple>() {
        sequence(items.iter(), plain, out, depth)?;
    } else if let Ok(members) = value.cast_exact::<PyDict>() {
        out.push(b'{');
        for (index, (name, member)) in members.iter().enumerate() {
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
            write(&member, plain, out, depth - 1)?;
        }
        out.push(b'}');
    } else {
        write(&plain.call1((value,))?, plain, out, depth - 1)?;
    }
    Ok(())
}

fn sequence<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    plain: &Bound<'py, PyAny>,
    out: &mut Vec<u8>,
    depth: usize,
) -> PyResult<()> {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&item, plain, out, depth - 1)?;
    }
    out.push(b']');
    Ok(())
}

fn string(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> PyResult<()> {
    serde_json::to_writer(out, &*text.to_cow()?).map_err(into_error)
}

fn into_error(problem: serde_json::Error) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

/// Builds Python values from JSON without a tree between.
#[derive(Clone, Copy)]
struct Value<'py>(Python<'py>);

impl<'py> Value<'py> {
    fn of<E: serde::de::Error>(
        self,
        value: impl IntoPyObjectExt<'py>,
    ) -> Result<Bound<'py, PyAny>, E> {
        value.into_bound_py_any(self.0).map_err(E::custom)
    }
}

impl<'de, 'py> DeserializeSeed<'de> for Value<'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Value<'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.0.None().into_bound(self.0))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.0, value).to_owned().into_any())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        self.of(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        self.of(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(PyFloat::new(self.0, value).into_any())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.0, value).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.0);
        while let Some(item) = items.next_element_seed(self)? {
            list.append(item).map_err(A::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let dictionary = PyDict::new(self.0);
        while let Some(name) = members.next_key_seed(self)? {
            let member = members.next_value_seed(self)?;
            dictionary
                .set_item(name, member)
                .map_err(A::Error::custom)?;
        }
        Ok(dictionary.into_any())
    }
}
