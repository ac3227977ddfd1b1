//! This program's place on a platform, for `sealbus/platform.py`.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use sealbus::Platform;
use sealbus::gateway::GatewayConfig;
use sealbus::process::{LongLivedKey, Process, ProcessEnd, Role, cast};
use sealbus_a2a::{CallersEntry, OpenedGateway};
use serde::de::DeserializeOwned;

use crate::agent::PyAgentHandle;
use crate::error;
use crate::pump::PyPump;
use crate::runtime::Owned;

/// A place on a platform: embedded, under a node, or with a ticket.
#[pyclass(frozen, module = "sealbus._sealbus", name = "PlatformHandle")]
pub(crate) struct PyPlatformHandle(Owned<Arc<PlatformPlace>>);

struct PlatformPlace {
    process: Process,
    placed: Option<Vec<String>>,
    /// The gateway's addresses, if this process runs the gateway.
    addresses: Vec<String>,
    /// The beginning of the addresses for A2A clients, if this program admits them.
    a2a_address: Option<String>,
    /// None once the place is closed.
    platform: Mutex<Option<(Platform, Option<OpenedGateway>)>>,
}

/// The doors of an embedded platform.
struct Doors {
    gateway: Option<GatewayConfig>,
    a2a: Option<CallersEntry>,
    /// The program that shows the window.
    window: Option<String>,
}

/// Reads a configuration in JSON.
fn read<C: DeserializeOwned>(json: Option<&str>, whose: &str) -> PyResult<Option<C>> {
    let read = json.map(serde_json::from_str).transpose();
    read.map_err(|problem| error::platform(format!("{whose}: {problem}")))
}

/// Joins the platform that the environment names, or starts an embedded one. The outcome is a `PlatformHandle`. An
/// embedded platform gets this name; a gateway and a door for A2A clients, if they have a configuration (in JSON); and
/// a window, if `window` names the program that shows it.
#[pyfunction]
pub(crate) fn join_platform(
    pump: &PyPump,
    call: u64,
    name: Option<String>,
    gateway: Option<&str>,
    a2a: Option<&str>,
    window: Option<String>,
) -> PyResult<()> {
    sealbus::log_to_stderr();
    let doors = Doors {
        gateway: read(gateway, "the gateway's configuration")?,
        a2a: read(a2a, "the configuration for A2A")?,
        window,
    };
    pump.call(call, async move {
        let name = name.as_deref().unwrap_or(sealbus::process::EMBEDDED_NAME);
        let joined = join(name, doors).await;
        move |py: Python<'_>| {
            let place = joined.map_err(error::platform)?;
            Ok(Py::new(py, PyPlatformHandle(Owned::new(Arc::new(place))))?.into_any())
        }
    })
}

async fn join(name: &str, doors: Doors) -> Result<PlatformPlace, String> {
    let joined = Platform::join_or_embed(name).await;
    let mut platform = joined.map_err(|problem| problem.to_string())?;
    match open(&mut platform, doors).await {
        Ok((addresses, a2a)) => Ok(PlatformPlace {
            process: platform.process().clone(),
            placed: platform.placed().map(<[String]>::to_vec),
            addresses,
            a2a_address: a2a.as_ref().map(|opened| opened.base().to_owned()),
            platform: Mutex::new(Some((platform, a2a))),
        }),
        Err(problem) => {
            platform.close().await;
            Err(problem)
        }
    }
}

/// Opens the doors. Returns the addresses of the gateway, and the door for A2A clients.
async fn open(
    platform: &mut Platform,
    doors: Doors,
) -> Result<(Vec<String>, Option<OpenedGateway>), String> {
    let is_embedded = platform.placed().is_none();
    let addresses = match doors.gateway.filter(|_| is_embedded) {
        Some(config) => platform
            .open_gateway(config)
            .await
            .map_err(|problem| problem.to_string())?,
        None => Vec::new(),
    };
    let a2a = match doors.a2a {
        Some(entry) => sealbus_a2a::open(platform, entry)
            .await
            .map_err(|problem| problem.to_string())?,
        None => None,
    };
    if let Some(program) = doors.window {
        platform
            .open_window(program)
            .map_err(|problem| problem.to_string())?;
    }
    Ok((addresses, a2a))
}

#[pymethods]
impl PyPlatformHandle {
    /// The addresses at which other platforms reach this one, if this program runs the gateway.
    #[getter]
    fn addresses(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.addresses.clone())
    }

    /// The beginning of the addresses at which A2A clients reach the agents, if this program admits them.
    #[getter]
    fn a2a_address(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.a2a_address.clone())
    }

    /// The platform's name.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(self.0.get()?.process.platform())
    }

    /// The security level.
    #[getter]
    fn level(&self) -> PyResult<String> {
        Ok(self.0.get()?.process.level().to_string())
    }

    /// The agents with these names that run here: pairs of an agent's name and an index into `names`.
    fn cast(&self, names: Vec<String>) -> PyResult<Vec<(String, usize)>> {
        let roles: Vec<_> = names
            .into_iter()
            .map(|name| Role { name, count: None })
            .collect();
        let parts = cast(&roles, self.0.get()?.placed.as_deref()).map_err(error::platform)?;
        Ok(parts
            .into_iter()
            .map(|part| (part.name, part.role))
            .collect())
    }

    /// Gets a certificate for an agent and puts it on the bus. The outcome is its `AgentHandle`. `identity` is the file with
    /// the key of its long-lived identity.
    fn open_agent(
        &self,
        pump: &PyPump,
        call: u64,
        name: String,
        identity: Option<PathBuf>,
    ) -> PyResult<()> {
        let process = self.0.get()?.process.clone();
        let identity = identity.as_deref().map(LongLivedKey::read).transpose();
        let identity = identity.map_err(error::platform)?;
        pump.call(call, async move {
            let opened = process.agent_with(&name, identity).await;
            move |py: Python<'_>| {
                let handle = opened.map_err(error::platform)?;
                Ok(Py::new(py, PyAgentHandle::new(handle))?.into_any())
            }
        })
    }

    /// Tells the platform that this program's agents can be reached.
    fn announce(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let process = self.0.get()?.process.clone();
        pump.call(call, async move {
            let announced = process.announce().await;
            move |py: Python<'_>| announced.map(|()| py.None()).map_err(error::platform)
        })
    }

    /// Asks all agents of this program to end.
    fn stop(&self, reason: &str) -> PyResult<()> {
        self.0.get()?.process.stop(reason);
        Ok(())
    }

    /// Waits until the agents are asked to end. The outcome is the seconds that the platform gives them, or None
    /// without a limit.
    fn stopping(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let process = self.0.get()?.process.clone();
        pump.call(call, async move {
            let grace = process
                .stopping()
                .await
                .grace
                .map(|grace| grace.as_secs_f64());
            move |py: Python<'_>| Ok(grace.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Why this process had to leave the platform, if it had to.
    fn expelled(&self) -> PyResult<Option<String>> {
        Ok(match self.0.get()?.process.end() {
            Some(end @ (ProcessEnd::PlatformGone { .. } | ProcessEnd::Revoked { .. })) => {
                Some(end.to_string())
            }
            _ => None,
        })
    }

    /// Leaves the platform. An embedded platform ends.
    fn close(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let place = self.0.get()?.clone();
        pump.call(call, async move {
            let taken = place.platform.lock().take();
            if let Some((platform, a2a)) = taken {
                platform.process().stop("the program is done");
                if let Some(a2a) = a2a {
                    a2a.left().await;
                }
                platform.close().await;
            }
            |py: Python<'_>| Ok(py.None())
        })
    }
}
