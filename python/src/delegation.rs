//! The agents on whose behalf an agent sends: the chain of the message that it handles. Python's context holds it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sealbus_bus::Delegation;
use sealbus_fipa::{AclMessage, AclMessageRef};

/// The agents on whose behalf something is done.
#[pyclass(frozen, module = "sealbus", name = "Delegation")]
pub(crate) struct PyDelegation(Delegation);

/// `asked.get` of `sealbus.delegation`.
static ASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl PyDelegation {
    /// The chain of the work for a message, if the message asks for something.
    pub(crate) fn by(message: &AclMessageRef<'_>) -> Option<Self> {
        let chain = Delegation::by(message);
        (!chain.is_empty()).then_some(Self(chain))
    }

    /// The chain of the present work, if it is on somebody's behalf.
    pub(crate) fn present(py: Python<'_>) -> PyResult<Option<Bound<'_, Self>>> {
        let get = ASKED.get_or_try_init(py, || {
            let asked = py.import("sealbus.delegation")?.getattr("asked")?;
            PyResult::Ok(asked.getattr("get")?.unbind())
        })?;
        let chain = get.bind(py).call0()?;
        // Most work is on nobody's behalf. A failed cast would make an error, which takes longer than the rest of this
        // function.
        if chain.is_none() {
            return Ok(None);
        }
        Ok(chain.cast_into().ok())
    }

    /// The message with this chain.
    pub(crate) fn put_into(&self, message: Arc<AclMessage>) -> Arc<AclMessage> {
        self.0.put_into(message)
    }
}

/// The message with the chain of the present work.
pub(crate) fn carried(py: Python<'_>, message: Arc<AclMessage>) -> PyResult<Arc<AclMessage>> {
    Ok(match PyDelegation::present(py)? {
        Some(chain) => chain.get().put_into(message),
        None => message,
    })
}
