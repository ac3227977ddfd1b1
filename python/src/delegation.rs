//! On whose behalf an agent sends: the chain of the message that it handles, which Python's context holds.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sealbus_bus::Delegation;
use sealbus_fipa::{AclMessage, AclMessageRef};

/// The agents on whose behalf something is done.
#[pyclass(frozen, module = "sealbus", name = "Delegation")]
pub(crate) struct PyDelegation(Delegation);

/// `asked` of `sealbus.delegation`.
static ASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl PyDelegation {
    /// The chain of the work for a message, if it asks something.
    pub(crate) fn by(message: &AclMessageRef<'_>) -> Option<Self> {
        let chain = Delegation::by(message);
        (!chain.is_empty()).then_some(Self(chain))
    }
}

/// The message with the chain of the present work.
pub(crate) fn carried(py: Python<'_>, message: Arc<AclMessage>) -> PyResult<Arc<AclMessage>> {
    let asked = ASKED.get_or_try_init(py, || {
        let module = py.import("sealbus.delegation")?;
        PyResult::Ok(module.getattr("asked")?.unbind())
    })?;
    let chain = asked.bind(py).call_method0("get")?;
    match chain.cast::<PyDelegation>() {
        Ok(chain) => Ok(chain.get().0.put_into(message)),
        Err(_) => Ok(message),
    }
}
