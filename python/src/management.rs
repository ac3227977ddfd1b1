//! The objects of `fipa-agent-management` for agents: entries of the DF and of the AMS, and their templates.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};
use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, DfAgentDescription, Property, ServiceDescription,
};
use sealbus_fipa::sl::{Float, Term};

use crate::acl::aid::{self, PyAid};
use crate::acl::expression;
use crate::error;

/// Something that an agent offers, or the template of a search for it.
#[pyclass(frozen, eq, module = "sealbus", name = "ServiceDescription")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyServiceDescription(pub(crate) ServiceDescription);

#[pymethods]
impl PyServiceDescription {
    #[new]
    #[pyo3(signature = (
        name = None, r#type = None, *, protocols = Vec::new(), ontologies = Vec::new(), languages = Vec::new(),
        ownership = None, properties = None,
    ))]
    fn new(
        name: Option<String>,
        r#type: Option<String>,
        protocols: Vec<String>,
        ontologies: Vec<String>,
        languages: Vec<String>,
        ownership: Option<String>,
        properties: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut service = ServiceDescription {
            name,
            service_type: r#type,
            protocols,
            ontologies,
            languages,
            ownership,
            properties: Vec::new(),
        };
        for (name, value) in properties.into_iter().flatten() {
            let value = if value.is_none() {
                None
            } else {
                Some(term_from_python(&value)?)
            };
            service.properties.push(Property {
                name: name.extract()?,
                value,
            });
        }
        Ok(Self(service))
    }

    /// A template for services of a type.
    #[staticmethod]
    fn of_type(r#type: String) -> Self {
        Self(ServiceDescription::of_type(r#type))
    }

    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    #[getter]
    fn r#type(&self) -> Option<&str> {
        self.0.service_type.as_deref()
    }

    #[getter]
    fn protocols<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.protocols)
    }

    #[getter]
    fn ontologies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.ontologies)
    }

    #[getter]
    fn languages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.languages)
    }

    #[getter]
    fn ownership(&self) -> Option<&str> {
        self.0.ownership.as_deref()
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for property in &self.0.properties {
            let value = property
                .value
                .as_ref()
                .map(|value| term_to_python(py, value))
                .transpose()?;
            properties.set_item(&property.name, value)?;
        }
        Ok(properties)
    }

    fn __repr__(&self) -> String {
        format!("<ServiceDescription {}>", self.0.to_term())
    }
}

/// An entry of the DF, an agent and its services, or the template of a search for entries.
#[pyclass(frozen, eq, module = "sealbus", name = "DfAgentDescription")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyDfAgentDescription(pub(crate) DfAgentDescription);

#[pymethods]
impl PyDfAgentDescription {
    #[new]
    #[pyo3(signature = (
        name = None, services = Vec::new(), *, protocols = Vec::new(), ontologies = Vec::new(), languages = Vec::new(),
        lease_time = None,
    ))]
    fn new(
        name: Option<&Bound<'_, PyAny>>,
        services: Vec<Bound<'_, PyServiceDescription>>,
        protocols: Vec<String>,
        ontologies: Vec<String>,
        languages: Vec<String>,
        lease_time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self(DfAgentDescription {
            name: name.map(aid::from_python).transpose()?,
            services: services
                .into_iter()
                .map(|service| service.get().0.clone())
                .collect(),
            protocols,
            ontologies,
            languages,
            lease_time: lease_time
                .map(expression::date_time_from_python)
                .transpose()?,
            scope: Vec::new(),
        }))
    }

    #[getter]
    fn name(&self) -> Option<PyAid> {
        self.0.name.clone().map(PyAid)
    }

    #[getter]
    fn services<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            py,
            self.0.services.iter().cloned().map(PyServiceDescription),
        )
    }

    #[getter]
    fn protocols<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.protocols)
    }

    #[getter]
    fn ontologies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.ontologies)
    }

    #[getter]
    fn languages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.languages)
    }

    #[getter]
    fn lease_time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0
            .lease_time
            .as_ref()
            .map(|time| expression::date_time_to_python(py, time))
            .transpose()
    }

    fn __repr__(&self) -> String {
        format!("<DfAgentDescription {}>", self.0.to_term())
    }
}

/// An entry of the AMS, an agent and its state, or the template of a search for entries.
#[pyclass(frozen, eq, module = "sealbus", name = "AmsAgentDescription")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyAmsAgentDescription(pub(crate) AmsAgentDescription);

#[pymethods]
impl PyAmsAgentDescription {
    #[new]
    #[pyo3(signature = (name = None, *, ownership = None, state = None))]
    fn new(
        name: Option<&Bound<'_, PyAny>>,
        ownership: Option<String>,
        state: Option<&str>,
    ) -> PyResult<Self> {
        let state = state
            .map(|state| {
                AgentState::from_name(state)
                    .ok_or_else(|| error::acl(format!("there is no agent state '{state}'")))
            })
            .transpose()?;
        let name = name.map(aid::from_python).transpose()?;
        Ok(Self(AmsAgentDescription {
            name,
            ownership,
            state,
        }))
    }

    #[getter]
    fn name(&self) -> Option<PyAid> {
        self.0.name.clone().map(PyAid)
    }

    #[getter]
    fn ownership(&self) -> Option<&str> {
        self.0.ownership.as_deref()
    }

    #[getter]
    fn state(&self) -> Option<&'static str> {
        self.0.state.map(AgentState::as_str)
    }

    fn __repr__(&self) -> String {
        format!("<AmsAgentDescription {}>", self.0.to_term())
    }
}

/// Texts, numbers and bytes become Python values. Any other term becomes its text in SL.
fn term_to_python<'py>(py: Python<'py>, term: &Term<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match term {
        Term::Integer(value) => PyInt::new(py, *value).into_any(),
        Term::Float(value) => PyFloat::new(py, value.get()).into_any(),
        Term::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        term => match term.as_text() {
            Some(text) => PyString::new(py, text).into_any(),
            None => PyString::new(py, &term.to_string()).into_any(),
        },
    })
}

fn term_from_python(value: &Bound<'_, PyAny>) -> PyResult<Term<'static>> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(Term::text(text));
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return Ok(Term::Integer(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>()
        && let Some(real) = Float::new(value.extract()?)
    {
        return Ok(Term::Float(real));
    }
    Err(error::acl(format!(
        "a service's property is a str, an int or a finite float, not {}",
        value.get_type().name()?
    )))
}
