//! Findings without a running platform.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use sealbus_manifest::Manifest;
use tokio::process::Command;

use super::Finding;
use crate::python::Python;

/// The versions of this program and of the Python package beside it.
pub(super) async fn version() -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    match Python::find(None).await {
        Ok(python) if python.version == own => Finding::good(
            "version",
            format!(
                "sealbus {own}, the package of {} too",
                python.program.display()
            ),
        ),
        Ok(python) => Finding::warning(
            "version",
            format!(
                "this is sealbus {own}, the package of {} is {}",
                python.program.display(),
                python.version
            ),
            format!("install the same version: pip install sealbus=={own}"),
        ),
        Err(error) => Finding::warning(
            "version",
            format!("sealbus {own}; {error}"),
            "agents in Python need the package: pip install sealbus",
        ),
    }
}

/// The ports of a platform that does not run yet.
pub(super) fn ports(directory: &Path, manifest: &Manifest) -> Vec<Finding> {
    let entry = &manifest.platform;
    let named = [
        ("joining (enrolment-port)", entry.enrolment_port),
        ("the Master's agents (port)", entry.port),
    ];
    let named = named.into_iter().map(|(purpose, port)| {
        let address = SocketAddr::new(entry.address, port);
        match TcpListener::bind(address) {
            Ok(_) if port == 0 => {
                Finding::good("port", format!("the system chooses the one for {purpose}"))
            }
            Ok(_) => Finding::good("port", format!("{address} is free for {purpose}")),
            Err(error) => Finding::problem(
                "port",
                format!("{address} for {purpose}: {error}"),
                format!(
                    "end what listens there (ss -ltnp), or change [platform] in the manifest; \
                     a platform with its state in {} keeps its ports",
                    directory.display()
                ),
            ),
        }
    });
    named.collect()
}

/// The broker that a platform will run on.
pub(super) fn broker(manifest: &Manifest) -> Option<Finding> {
    const SUBJECT: &str = "broker";
    Some(match manifest.broker.as_ref()?.check() {
        Ok(found) => Finding::good(SUBJECT, found),
        Err(error) => Finding::problem(
            SUBJECT,
            error.to_string(),
            "install it, or use the mesh: remove `transport` from [platform]",
        ),
    })
}

/// Whether something keeps this machine's clock right: certificates live for minutes.
pub(super) async fn clock() -> Finding {
    const SUBJECT: &str = "clock";
    const REMEDY: &str = "keep the clocks of all machines together: systemd-timesyncd or chrony. A node whose clock is \
                          minutes away from the Master's is refused";
    let told = Command::new("timedatectl")
        .args(["show", "--property=NTPSynchronized", "--value"])
        .stdin(Stdio::null())
        .output()
        .await;
    match told {
        Ok(told) if told.stdout.trim_ascii() == b"yes" => {
            Finding::good(SUBJECT, "kept right by a time server")
        }
        Ok(told) if told.stdout.trim_ascii() == b"no" => {
            Finding::warning(SUBJECT, "no time server keeps it right", REMEDY)
        }
        _ => Finding::warning(
            SUBJECT,
            "this system does not say whether it is right",
            REMEDY,
        ),
    }
}
