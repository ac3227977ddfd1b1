//! JSON as Python values: the bodies of messages.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString, PyType};
use sealbus::body::json_content;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::acl::message::PyAclMessage;
use crate::error;

/// The JSON value of a message's content.
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

/// The JSON text of a message's content, within the limits, for another parser.
#[pyfunction]
pub(crate) fn json_text<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAclMessage>,
) -> PyResult<Bound<'py, PyBytes>> {
    let content = json_content(&message.get().view()).map_err(|problem| error::body(&problem))?;
    Ok(PyBytes::new(py, &content))
}

/// Builds Python values directly from JSON, without a tree.
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

/// A field of a declared type.
struct Field {
    /// The name of the constructor's argument.
    argument: Py<PyString>,
    /// The name in JSON.
    name: Py<PyString>,
    /// Values of exactly this class are taken as they are.
    exact: Option<Py<PyType>>,
    /// Reads any other value.
    read: Py<PyAny>,
    /// The text of the type, if the field must be there.
    required: Option<String>,
}

type FieldParts = (
    Py<PyString>,
    Py<PyString>,
    Option<Py<PyType>>,
    Py<PyAny>,
    Option<String>,
);

/// Makes values of a type out of JSON objects.
#[pyclass(frozen, module = "sealbus._sealbus", name = "ObjectReader")]
pub(crate) struct PyObjectReader {
    name: String,
    fields: Vec<Field>,
    build: Py<PyAny>,
}

#[pymethods]
impl PyObjectReader {
    #[new]
    fn new(name: String, fields: Vec<FieldParts>, build: Py<PyAny>) -> Self {
        let fields = (fields.into_iter())
            .map(|(argument, name, exact, read, required)| Field {
                argument,
                name,
                exact,
                read,
                required,
            })
            .collect();
        Self {
            name,
            fields,
            build,
        }
    }

    /// The readers of a type that contains itself hold each other.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for field in &self.fields {
            visit.call(&field.read)?;
        }
        visit.call(&self.build)
    }

    fn __call__<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let Ok(members) = value.cast_exact::<PyDict>() else {
            let expected = misfit(py)?.call_method1("expected", (&self.name, value))?;
            return Err(PyErr::from_value(expected));
        };
        let arguments = PyDict::new(py);
        for field in &self.fields {
            let argument = match (members.get_item(&field.name)?, &field.required) {
                (Some(member), _) => {
                    let is_taken = |exact: &Py<PyType>| member.get_type().is(exact);
                    match field.exact.as_ref().is_some_and(is_taken) {
                        true => member,
                        false => (field.read.bind(py).call1((member,)))
                            .map_err(|problem| field.under(py, problem))?,
                    }
                }
                (None, Some(kind)) => {
                    let problem = format!("expected {kind}, got nothing");
                    let missing = misfit(py)?.call1((problem, &field.name))?;
                    return Err(PyErr::from_value(missing));
                }
                (None, None) => continue,
            };
            arguments.set_item(&field.argument, argument)?;
        }
        let built = self.build.bind(py).call((), Some(&arguments));
        // The class itself may refuse the values.
        built.map_err(|problem| match problem {
            problem
                if problem.is_instance_of::<PyValueError>(py)
                    || problem.is_instance_of::<PyTypeError>(py) =>
            {
                let text = format!("no {}: {}", self.name, problem.value(py));
                let misfit = misfit(py).and_then(|misfit| misfit.call1((text,)));
                misfit.map_or_else(|problem| problem, PyErr::from_value)
            }
            problem => problem,
        })
    }
}

impl Field {
    /// A problem in the field's value, with the field's name added to its place.
    fn under(&self, py: Python<'_>, problem: PyErr) -> PyErr {
        match misfit(py) {
            Ok(kind) if problem.value(py).is_instance(kind).unwrap_or(false) => {
                let under = problem.value(py).call_method1("under", (&self.name,));
                under.map_or_else(|problem| problem, |_| problem)
            }
            _ => problem,
        }
    }
}

fn misfit(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MISFIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    MISFIT.import(py, "sealbus.typed_json", "Misfit")
}
