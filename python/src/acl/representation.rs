//! The functions of `sealbus.acl`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sealbus_fipa::{Expectations, Limits, Performative, Representation, Severity};

use crate::acl::message::PyAclMessage;
use crate::error;

#[pyfunction]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAclMessage>,
    representation: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    let message = message.get().to_message();
    named(representation)?
        .encode(&message, &mut out)
        .map_err(|problem| error::encode(&problem))?;
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
pub(crate) fn decode(data: &[u8], representation: &str) -> PyResult<PyAclMessage> {
    let limits = Limits {
        message_length: usize::MAX,
        ..Limits::DEFAULT
    };
    let message = named(representation)?
        .decode(data, &limits)
        .map_err(|problem| error::decode(&problem))?;
    Ok(PyAclMessage::new(message))
}

/// A run of bytes: start, end, depth, meaning, reference.
type Piece = (usize, usize, usize, String, &'static str);

/// Explains a message. Returns its encoding, its pieces, the error that ended the explanation early, if any, and the
/// explanation as text.
#[pyfunction]
pub(crate) fn explain(
    data: &[u8],
    representation: Option<&str>,
) -> PyResult<(&'static str, Vec<Piece>, Option<PyErr>, String)> {
    let representation = match representation {
        Some(name) => named(name)?,
        None => sealbus_fipa::detect(data).ok_or_else(|| {
            error::acl("these bytes begin like no encoding of a message; name the one they are in")
        })?,
    };
    let explanation = representation.explain(data, &Limits::DEFAULT);
    let text = explanation.to_string();
    let problem = explanation.error.as_ref().map(error::decode);
    let pieces = explanation.pieces.into_iter();
    let pieces = pieces.map(|piece| {
        let (from, to) = (piece.range.start, piece.range.end);
        (from, to, piece.depth, piece.meaning, piece.reference)
    });
    Ok((explanation.encoding, pieces.collect(), problem, text))
}

/// The objections of a strict receiver, each with severity, field, message and reference.
#[pyfunction]
pub(crate) fn validate(
    message: &Bound<'_, PyAclMessage>,
) -> Vec<(&'static str, String, String, &'static str)> {
    let findings = sealbus_fipa::validate(&message.get().to_message(), &Expectations::default());
    let findings = findings.into_iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        (
            severity,
            finding.field.into_owned(),
            finding.message,
            finding.reference,
        )
    });
    findings.collect()
}

/// Short names of all encodings.
#[pyfunction]
pub(crate) fn representations() -> Vec<&'static str> {
    sealbus_fipa::representations()
        .iter()
        .map(|known| known.short_name())
        .collect()
}

/// FIPA's name of an encoding, such as `fipa.acl.rep.string.std`.
#[pyfunction]
pub(crate) fn representation_name(representation: &str) -> PyResult<&'static str> {
    Ok(named(representation)?.name())
}

/// The encoding of these bytes, recognised by the first ones; None if they do not show it.
#[pyfunction]
pub(crate) fn detect(data: &[u8]) -> Option<&'static str> {
    sealbus_fipa::detect(data).map(Representation::short_name)
}

/// Names of FIPA's communicative acts, in the order of their codes.
#[pyfunction]
pub(crate) fn performatives() -> Vec<String> {
    Performative::STANDARD
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn named(representation: &str) -> PyResult<&'static dyn Representation> {
    sealbus_fipa::representation(representation).ok_or_else(|| {
        error::acl(format!(
            "there is no representation '{representation}'; there are {}",
            representations().join(", ")
        ))
    })
}
