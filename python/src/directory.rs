//! The requests to the DF and the AMS, and the reading of their answers. `sealbus/directory.py` sends and waits.

use pyo3::prelude::*;
use sealbus::directory::{self, DirectoryError, Template};
use sealbus_fipa::management::{
    AmsAgentDescription, AmsFunction, DfAgentDescription, DfFunction, SearchConstraints,
};
use sealbus_management::client;

use crate::acl::aid::PyAid;
use crate::acl::message::PyAclMessage;
use crate::error;
use crate::management::{PyAmsAgentDescription, PyDfAgentDescription};
use crate::message::PyMessage;

fn df_request(df: &PyAid, function: &DfFunction) -> PyAclMessage {
    PyAclMessage::new(directory::df_request(&df.0, function))
}

fn constraints(most: Option<u32>) -> SearchConstraints {
    most.map_or_else(SearchConstraints::all, SearchConstraints::at_most)
}

#[pyfunction]
pub(crate) fn df_register(df: &PyAid, description: &PyDfAgentDescription) -> PyAclMessage {
    df_request(df, &DfFunction::Register(description.0.clone()))
}

#[pyfunction]
pub(crate) fn df_modify(df: &PyAid, description: &PyDfAgentDescription) -> PyAclMessage {
    df_request(df, &DfFunction::Modify(description.0.clone()))
}

#[pyfunction]
pub(crate) fn df_deregister(df: &PyAid, agent: &PyAid) -> PyAclMessage {
    df_request(
        df,
        &DfFunction::Deregister(DfAgentDescription::of(agent.0.clone())),
    )
}

#[pyfunction]
pub(crate) fn df_search(
    df: &PyAid,
    template: &PyDfAgentDescription,
    most: Option<u32>,
) -> PyAclMessage {
    df_request(
        df,
        &DfFunction::Search(template.0.clone(), constraints(most)),
    )
}

#[pyfunction]
pub(crate) fn df_subscribe(df: &PyAid, template: &PyDfAgentDescription) -> PyAclMessage {
    PyAclMessage::new(directory::df_subscription(
        &df.0,
        &Template(template.0.clone()),
    ))
}

/// The causes that end a subscription.
#[pyfunction]
pub(crate) fn df_cancel(subscribe: &Bound<'_, PyAclMessage>) -> PyAclMessage {
    PyAclMessage::new(client::cancel(&subscribe.get().to_shared()))
}

#[pyfunction]
pub(crate) fn ams_search(
    ams: &PyAid,
    template: &PyAmsAgentDescription,
    most: Option<u32>,
) -> PyAclMessage {
    let function = AmsFunction::Search(template.0.clone(), constraints(most));
    PyAclMessage::new(directory::ams_request(&ams.0, &function))
}

#[pyfunction]
pub(crate) fn ams_subscribe(ams: &PyAid, template: &PyAmsAgentDescription) -> PyAclMessage {
    PyAclMessage::new(directory::ams_subscription(&ams.0, &template.0))
}

/// Reads an answer that only confirms that something was done.
#[pyfunction]
pub(crate) fn directory_done(answer: &Bound<'_, PyMessage>) -> PyResult<()> {
    directory::done(&PyMessage::to_facade(answer)).map_err(|problem| raised(&problem))
}

/// Reads the result of a search in a DF.
#[pyfunction]
pub(crate) fn df_found(answer: &Bound<'_, PyMessage>) -> PyResult<Vec<PyDfAgentDescription>> {
    directory::found(&PyMessage::to_facade(answer), DfAgentDescription::from_term)
        .map(|found| found.into_iter().map(PyDfAgentDescription).collect())
        .map_err(|problem| raised(&problem))
}

/// Reads a notification of a subscription at a DF.
#[pyfunction]
pub(crate) fn df_told(news: &Bound<'_, PyMessage>) -> PyResult<Vec<PyDfAgentDescription>> {
    directory::told(&PyMessage::to_facade(news))
        .map(|told| told.into_iter().map(PyDfAgentDescription).collect())
        .map_err(|problem| raised(&problem))
}

/// Reads the result of a search in an AMS.
#[pyfunction]
pub(crate) fn ams_found(answer: &Bound<'_, PyMessage>) -> PyResult<Vec<PyAmsAgentDescription>> {
    directory::found(
        &PyMessage::to_facade(answer),
        AmsAgentDescription::from_term,
    )
    .map(|found| found.into_iter().map(PyAmsAgentDescription).collect())
    .map_err(|problem| raised(&problem))
}

/// Reads a notification of a subscription at an AMS.
#[pyfunction]
pub(crate) fn ams_told(news: &Bound<'_, PyMessage>) -> PyResult<Vec<PyAmsAgentDescription>> {
    directory::agents_told(&PyMessage::to_facade(news))
        .map(|told| told.into_iter().map(PyAmsAgentDescription).collect())
        .map_err(|problem| raised(&problem))
}

fn raised(problem: &DirectoryError) -> PyErr {
    match problem {
        DirectoryError::Refused {
            agent,
            directory,
            exception,
        } => error::directory(
            agent,
            format!("{directory} answered: {exception}"),
            Some(exception.to_wff().to_string()),
        ),
        DirectoryError::Unreadable {
            agent,
            directory,
            problem,
        } => error::directory(
            agent,
            format!("{directory} gave an answer that cannot be read: {problem}"),
            None,
        ),
        other => error::platform(other),
    }
}
