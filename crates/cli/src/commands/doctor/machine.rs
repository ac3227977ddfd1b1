//! Findings without a running platform.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use sealbus_brokers::rabbitmq::{BrokerError, ManagedBroker};
use sealbus_manifest::Manifest;
use tokio::process::Command;

use super::super::run;
use super::{Finding, existing, is_managed};
use crate::arguments::IsolationArguments;
use crate::python::Python;

/// Open files that are enough for a node with a few hundred agents.
const OPEN_FILES: u64 = 4096;
/// Free bytes below which a disk will soon be full.
const LITTLE: u64 = 1 << 30;

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

/// The state directory belongs to this user alone.
pub(super) fn state(directory: &Path) -> Finding {
    const SUBJECT: &str = "state";
    let shown = directory.display();
    let folder = existing(directory);
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding::problem(
            SUBJECT,
            format!("{} may not be written to", folder.display()),
            "run as its owner, or name another folder: --state DIRECTORY",
        );
    }
    if folder != directory {
        return Finding::good(SUBJECT, format!("{shown} will be made"));
    }
    match directory.metadata() {
        Ok(metadata) if metadata.mode() & 0o077 != 0 => Finding::problem(
            SUBJECT,
            format!("others may open {shown}, which keeps the CA's keys"),
            format!("chmod 700 {shown}"),
        ),
        Ok(metadata) if metadata.uid() != rustix::process::geteuid().as_raw() => Finding::problem(
            SUBJECT,
            format!("{shown} belongs to another user"),
            "run as its owner, or name another folder: --state DIRECTORY",
        ),
        Ok(_) => Finding::good(SUBJECT, shown.to_string()),
        Err(error) => Finding::problem(
            SUBJECT,
            format!("{shown}: {error}"),
            "name another folder: --state DIRECTORY",
        ),
    }
}

/// Room for messages and events that must be kept.
pub(super) fn disk(directory: &Path) -> Finding {
    const SUBJECT: &str = "disk";
    let folder = existing(directory);
    let disk = match statvfs(folder) {
        Ok(disk) => disk,
        Err(error) => {
            let found = format!("the disk of {}: {error}", folder.display());
            return Finding::warning(SUBJECT, found, "name another folder: --state DIRECTORY");
        }
    };
    let (free, all) = (
        disk.f_bavail.saturating_mul(disk.f_frsize),
        disk.f_blocks.saturating_mul(disk.f_frsize),
    );
    let found = format!(
        "{} MiB of {} MiB are free at {}",
        free >> 20,
        all >> 20,
        folder.display()
    );
    let remedy = "free space: a full disk refuses messages and events that must be kept";
    match free {
        _ if free < all / 100 => Finding::problem(SUBJECT, found, remedy),
        _ if free < LITTLE => Finding::warning(SUBJECT, found, remedy),
        _ => Finding::good(SUBJECT, found),
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

/// The broker that a platform will start.
pub(super) fn broker(manifest: &Manifest) -> Option<Finding> {
    const SUBJECT: &str = "broker";
    Some(match is_managed(manifest)? {
        true if ManagedBroker::is_installed() => Finding::good(SUBJECT, "RabbitMQ is installed"),
        true => Finding::problem(
            SUBJECT,
            BrokerError::NotInstalled.to_string(),
            "install it, or use the mesh: remove `transport` from [platform]",
        ),
        false => Finding::good(
            SUBJECT,
            "a RabbitMQ of your own; `sealbus broker status` shows it once the platform runs",
        ),
    })
}

/// How many files a process may open.
pub(super) fn open_files() -> Finding {
    const SUBJECT: &str = "open files";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES => Finding::warning(
            SUBJECT,
            format!("a process may open {limit}; each link and each waiting stranger takes one"),
            "raise the limit: `ulimit -n 65536`, or LimitNOFILE=65536 in a systemd unit",
        ),
        Some(limit) => Finding::good(SUBJECT, format!("a process may open {limit}")),
        None => Finding::good(SUBJECT, "a process may open any number"),
    }
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

/// Whether programs can be isolated.
pub(super) async fn isolation(arguments: &IsolationArguments) -> Finding {
    const SUBJECT: &str = "isolation";
    const REMEDY: &str = "run the node as root, allow user namespaces or Landlock, or use --isolation none; \
                          `sealbus node --check` shows each mode";
    let probed = match run::isolation(arguments, &[]) {
        Ok(config) => run::probe(&config).await,
        Err(error) => Err(error),
    };
    let probed = match probed {
        Ok(probed) => probed,
        Err(error) => return Finding::problem(SUBJECT, error.to_string(), REMEDY),
    };
    let wanted = |mode| arguments.isolation.is_none_or(|only| only == mode);
    let best = probed
        .iter()
        .find(|(mode, outcome)| wanted(*mode) && outcome.is_ok());
    match best {
        Some((mode, _)) => Finding::good(SUBJECT, format!("programs are isolated by {mode}")),
        None => Finding::problem(SUBJECT, "no mode works on this machine", REMEDY),
    }
}
