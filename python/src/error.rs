//! Conversion of Rust's errors to the package's exceptions, which `sealbus/errors.py` defines.

use pyo3::PyErr;
use sealbus::body::BodyError;
use sealbus::channel::{FilterError, PublishError};
use sealbus_bus::SendError;
use sealbus_fipa::{AidError, DecodeError, EncodeError};

mod exceptions {
    pyo3::import_exception!(sealbus.errors, AclError);
    pyo3::import_exception!(sealbus.errors, BodyError);
    pyo3::import_exception!(sealbus.errors, DecodeError);
    pyo3::import_exception!(sealbus.errors, EncodeError);
    pyo3::import_exception!(sealbus.errors, AgentStopped);
    pyo3::import_exception!(sealbus.errors, AnswerNotTaken);
    pyo3::import_exception!(sealbus.errors, ChannelError);
    pyo3::import_exception!(sealbus.errors, ContentError);
    pyo3::import_exception!(sealbus.errors, DirectoryError);
    pyo3::import_exception!(sealbus.errors, FilterError);
    pyo3::import_exception!(sealbus.errors, PlatformError);
    pyo3::import_exception!(sealbus.errors, ProtocolError);
    pyo3::import_exception!(sealbus.errors, SendError);
}

/// A value that a message cannot contain.
pub(crate) fn acl(problem: impl ToString) -> PyErr {
    exceptions::AclError::new_err(problem.to_string())
}

/// The content of a received message cannot be read in the requested way.
pub(crate) fn content(problem: impl ToString) -> PyErr {
    exceptions::ContentError::new_err(problem.to_string())
}

pub(crate) fn aid(error: &AidError) -> PyErr {
    acl(error)
}

pub(crate) fn decode(error: &DecodeError) -> PyErr {
    exceptions::DecodeError::new_err((error.to_string(), error.offset))
}

pub(crate) fn encode(error: &EncodeError) -> PyErr {
    unwritable(&error.field, error)
}

/// A value cannot be written at its place in a message.
pub(crate) fn unwritable(field: &str, problem: impl ToString) -> PyErr {
    exceptions::EncodeError::new_err((problem.to_string(), field.to_owned()))
}

/// The content of a message differs from the declared type.
pub(crate) fn body(error: &BodyError) -> PyErr {
    match error {
        BodyError::Misfit { place, problem } => misfit(place, problem),
        // The text already names the place, `$`.
        _ => misfit("$", error.to_string().trim_start_matches("$: ")),
    }
}

/// A value at a place in a body differs from the declared type.
pub(crate) fn misfit(place: &str, problem: &str) -> PyErr {
    exceptions::BodyError::new_err((place.to_owned(), problem.to_owned()))
}

/// The platform, or this process's part of it, has failed.
pub(crate) fn platform(problem: impl ToString) -> PyErr {
    exceptions::PlatformError::new_err(problem.to_string())
}

/// The agent has stopped. `what` continues the sentence, as in `has left the platform`.
pub(crate) fn agent_stopped(agent: &str, what: &str) -> PyErr {
    exceptions::AgentStopped::new_err((agent.to_owned(), what.to_owned()))
}

/// A message was not accepted.
pub(crate) fn send(agent: &str, problem: &SendError) -> PyErr {
    let agent = agent.to_owned();
    match problem {
        SendError::AnswerNotTaken { .. } => {
            exceptions::AnswerNotTaken::new_err((agent, problem.to_string()))
        }
        SendError::Detached(_) => exceptions::AgentStopped::new_err((agent, problem.to_string())),
        _ => exceptions::SendError::new_err((agent, problem.to_string())),
    }
}

/// A channel, a QoS or a pattern is not valid, or the platform cannot provide it.
pub(crate) fn channel(problem: impl ToString) -> PyErr {
    exceptions::ChannelError::new_err(problem.to_string())
}

/// The filter of a subscription is wrong.
pub(crate) fn filter(problem: &FilterError) -> PyErr {
    exceptions::FilterError::new_err((
        problem.to_string(),
        problem.offset,
        problem.line,
        problem.column,
    ))
}

/// A message was not published.
pub(crate) fn publish(agent: &str, problem: &PublishError) -> PyErr {
    let agent = agent.to_owned();
    match problem {
        PublishError::Unavailable(problem) => channel(problem),
        PublishError::Downgrade(problem) => channel(problem),
        PublishError::NotSealed { .. } => channel(problem),
        _ => exceptions::SendError::new_err((agent, problem.to_string())),
    }
}

/// A directory refused or failed. If it gave a reason of the ontology `fipa-agent-management`, this is `exception`.
pub(crate) fn directory(agent: &str, problem: String, exception: Option<String>) -> PyErr {
    exceptions::DirectoryError::new_err((agent.to_owned(), problem, exception))
}

/// A protocol does not allow something.
pub(crate) fn protocol(problem: impl ToString) -> PyErr {
    exceptions::ProtocolError::new_err(problem.to_string())
}
