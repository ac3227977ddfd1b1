//! The class `AID`.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use sealbus_fipa::{Aid, AidRef, Expression};

use crate::acl::expression;
use crate::error;

/// An agent's identifier: its globally unique name, and its addresses.
#[pyclass(frozen, module = "sealbus", name = "AID")]
pub(crate) struct PyAid(pub(crate) Aid);

#[pymethods]
impl PyAid {
    #[new]
    #[pyo3(signature = (name, *, addresses = Vec::new(), resolvers = Vec::new(), user_defined = None))]
    fn new(
        name: &str,
        addresses: Vec<String>,
        resolvers: Vec<Bound<'_, PyAny>>,
        user_defined: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut aid = Aid::new(name).map_err(|problem| error::aid(&problem))?;
        aid.addresses = addresses;
        aid.resolvers = resolvers.iter().map(from_python).collect::<PyResult<_>>()?;
        aid.user_defined = user_defined_from_python(user_defined.as_ref())?;
        Ok(Self(aid))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn local_name(&self) -> &str {
        self.0.local_name()
    }

    #[getter]
    fn platform(&self) -> Option<&str> {
        self.0.platform()
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.addresses)
    }

    #[getter]
    fn resolvers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        list_to_python(py, self.0.resolvers.iter().map(AidRef::from))
    }

    #[getter]
    fn user_defined<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        user_defined_to_python(
            py,
            self.0
                .user_defined
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<PyAid>()
            .is_ok_and(|other| other.get().0.names_same_agent(&self.0))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.name.hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> &str {
        &self.0.name
    }

    fn __repr__(&self) -> String {
        format!("AID({:?})", self.0.name)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let aid = slf.get();
        let keywords = PyDict::new(py);
        keywords.set_item("addresses", aid.addresses(py)?)?;
        keywords.set_item("resolvers", aid.resolvers(py)?)?;
        keywords.set_item("user_defined", aid.user_defined(py)?)?;
        let partial = py.import("functools")?.getattr("partial")?;
        let make = partial.call((slf.get_type(),), Some(&keywords))?;
        PyTuple::new(py, [make, PyTuple::new(py, [aid.name()])?.into_any()])
    }
}

/// Reads an `AID`, or the name of an agent.
pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Aid> {
    if let Ok(aid) = value.cast::<PyAid>() {
        return Ok(aid.get().0.clone());
    }
    if let Ok(name) = value.cast::<PyString>() {
        return Aid::new(name.extract::<String>()?).map_err(|problem| error::aid(&problem));
    }
    Err(error::acl(format!(
        "an agent is an AID or its name, not {}",
        value.get_type().name()?
    )))
}

/// Reads None, one agent, or a list or tuple of agents.
pub(crate) fn list_from_python(value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Aid>> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    if value.is_instance_of::<PyAid>() || value.is_instance_of::<PyString>() {
        return Ok(vec![from_python(value)?]);
    }
    value.try_iter()?.map(|item| from_python(&item?)).collect()
}

pub(crate) fn list_to_python<'py, 'a>(
    py: Python<'py>,
    aids: impl Iterator<Item = AidRef<'a>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let aids: PyResult<Vec<_>> = aids
        .map(|aid| Bound::new(py, PyAid(aid.to_owned())))
        .collect();
    PyTuple::new(py, aids?)
}

pub(crate) fn user_defined_from_python(
    parameters: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<(String, Expression)>> {
    let Some(parameters) = parameters else {
        return Ok(Vec::new());
    };
    // Iterates over a copy: code of a value may change the dictionary, and the iteration would panic.
    let parameters = parameters.copy()?;
    parameters
        .iter()
        .map(|(name, value)| Ok((name.extract()?, expression::from_python(&value)?)))
        .collect()
}

pub(crate) fn user_defined_to_python<'py, 'a>(
    py: Python<'py>,
    parameters: impl Iterator<Item = (&'a str, Expression)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    for (name, value) in parameters {
        dictionary.set_item(name, expression::to_python(py, &value)?)?;
    }
    Ok(dictionary)
}
