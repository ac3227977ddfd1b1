//! The last event of each key, for `sealbus/channel.py`.

use pyo3::prelude::*;
use sealbus::channel::{ChannelEvent, EventKey, LastError, LastEvents};

use crate::error;

/// Reads a key. The error names the place of the mistake.
pub(crate) fn key(name: &str) -> PyResult<EventKey> {
    EventKey::new(name).map_err(|problem| error::filter(&problem))
}

/// The events; the nodes that did not answer, each with the reason; and the number of events that have no key, or for
/// which the filter could not be evaluated.
pub(crate) fn outcome(
    py: Python<'_>,
    last: Result<LastEvents, LastError>,
    make: impl Fn(ChannelEvent) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let last = last.map_err(|problem| match &problem {
        LastError::Filter(problem) => error::filter(problem),
        _ => error::channel(problem),
    })?;
    let events: Vec<_> = last.events.into_iter().map(make).collect::<PyResult<_>>()?;
    let missing = last.missing.into_iter();
    let missing: Vec<_> = missing.map(|(node, why)| (node.to_string(), why)).collect();
    let outcome = (events, missing, last.filter_errors);
    Ok(outcome.into_pyobject(py)?.into_any().unbind())
}
