//! Performatives are members of `sealbus.Performative`, or plain text for user-defined acts.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use sealbus_fipa::Performative;

use crate::error;

/// The members of the enumeration by the code of the act, from 1. They are looked up once.
static MEMBERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();

pub(crate) fn to_python<'py>(
    py: Python<'py>,
    performative: &Performative,
) -> PyResult<Bound<'py, PyAny>> {
    let members = MEMBERS.get_or_try_init(py, || {
        let class = py.import("sealbus.performative")?.getattr("Performative")?;
        Performative::STANDARD
            .iter()
            .map(|act| Ok(class.call1((act.as_str(),))?.unbind()))
            .collect::<PyResult<Vec<_>>>()
    })?;
    Ok(
        match usize::from(performative.code())
            .checked_sub(1)
            .and_then(|index| members.get(index))
        {
            Some(member) => member.bind(py).clone(),
            None => PyString::new(py, performative.as_str()).into_any(),
        },
    )
}

pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Performative> {
    // A member is recognised by its address, which is quicker than by its name.
    if let Some(members) = MEMBERS.get(value.py())
        && let Some(index) = members.iter().position(|member| member.is(value))
    {
        return Ok(Performative::STANDARD[index].clone());
    }
    let Ok(name) = value.cast::<PyString>() else {
        return Err(error::acl(format!(
            "a performative is a Performative or a str, not {}",
            value.get_type().name()?
        )));
    };
    let name = name.to_str()?;
    if name.is_empty() {
        return Err(error::acl("a performative cannot be empty"));
    }
    Ok(Performative::from(name))
}
