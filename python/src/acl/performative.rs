//! Performatives are members of `sealbus.Performative`, or of its class `OwnPerformative` for user-defined acts.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use sealbus_fipa::Performative;

use crate::error;

/// The members of the enumeration by the code of the act, from 1. They are looked up once.
static MEMBERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();

/// The class of user-defined acts.
static OWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The beginning of the names of user-defined acts, in any letter case. Names of the class `OwnPerformative` need no
/// prefix.
const PREFIX: &str = "x-";

fn own(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let module = || py.import("sealbus.performative");
    let class = OWN.get_or_try_init(py, || {
        Ok::<_, PyErr>(module()?.getattr("OwnPerformative")?.unbind())
    })?;
    Ok(class.bind(py))
}

fn members(py: Python<'_>) -> PyResult<&[Py<PyAny>]> {
    let members = MEMBERS.get_or_try_init(py, || {
        let class = py.import("sealbus.performative")?.getattr("Performative")?;
        Performative::STANDARD
            .iter()
            .map(|act| Ok(class.call1((act.as_str(),))?.unbind()))
            .collect::<PyResult<Vec<_>>>()
    })?;
    Ok(members)
}

pub(crate) fn to_python<'py>(
    py: Python<'py>,
    performative: &Performative,
) -> PyResult<Bound<'py, PyAny>> {
    let members = members(py)?;
    match usize::from(performative.code())
        .checked_sub(1)
        .and_then(|index| members.get(index))
    {
        Some(member) => Ok(member.bind(py).clone()),
        None => own(py)?.call1((performative.as_str(),)),
    }
}

pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Performative> {
    // A member is recognised by its address, which is quicker than by its name.
    let mut members = members(value.py())?.iter();
    if let Some(index) = members.position(|member| member.is(value)) {
        return Ok(Performative::STANDARD[index].clone());
    }
    let Ok(text) = value.cast::<PyString>() else {
        return Err(error::acl(format!(
            "a performative is a Performative or a str, not {}",
            value.get_type().name()?
        )));
    };
    let name = text.to_str()?;
    if name.is_empty() {
        return Err(error::acl("a performative cannot be empty"));
    }
    let performative = Performative::from(name);
    let has_prefix = name
        .get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
    if performative.code() != 0 || has_prefix || value.is_instance(own(value.py())?)? {
        return Ok(performative);
    }
    Err(unknown(text))
}

/// The error for a name that is probably misspelt.
fn unknown(name: &Bound<'_, PyString>) -> PyErr {
    let guess = || -> PyResult<Option<String>> {
        let names: Vec<_> = Performative::STANDARD
            .iter()
            .map(Performative::as_str)
            .collect();
        let close = name
            .py()
            .import("difflib")?
            .call_method1("get_close_matches", (name, names, 1))?;
        Ok(close.extract::<Vec<String>>()?.pop())
    };
    let hint = match guess() {
        Ok(Some(close)) => format!(": did you mean '{close}'?"),
        _ => ".".to_owned(),
    };
    error::acl(format!(
        "'{name}' is not one of FIPA's performatives{hint} One of your own is Performative.own('{name}'), or begins \
         with '{PREFIX}'"
    ))
}
