//! Findings about the system on which a Master and nodes run.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use sealbus_manifest::isolation::Isolation;

use super::super::node;
use super::Finding;
use crate::arguments::IsolationArguments;

/// Open files that are enough for a node with a few hundred agents.
const OPEN_FILES: u64 = 4096;
/// Free bytes below which a disk will soon be full.
const LITTLE: u64 = 1 << 30;

/// The state directory, and the disk it is on.
pub(super) fn state(directory: &Path) -> Vec<Finding> {
    vec![folder(directory), disk(directory)]
}

/// Limits and isolation, which a node needs for programs.
pub(super) async fn limits(arguments: &IsolationArguments) -> Vec<Finding> {
    vec![open_files(), isolation(arguments).await, control_groups()]
}

/// The state directory belongs to this user alone.
fn folder(directory: &Path) -> Finding {
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
fn disk(directory: &Path) -> Finding {
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

/// How many files a process may open.
fn open_files() -> Finding {
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

/// Whether programs can be isolated.
async fn isolation(arguments: &IsolationArguments) -> Finding {
    const SUBJECT: &str = "isolation";
    const REMEDY: &str = "run the node as root, allow user namespaces or Landlock, or use --isolation none; \
                          `sealbus node --check` shows each mode";
    let probed = match node::isolation(arguments, &[]) {
        Ok(config) => node::probe(&config).await,
        Err(error) => Err(error),
    };
    let probed = match probed {
        Ok(probed) => probed,
        Err(error) => return Finding::problem(SUBJECT, error.to_string(), REMEDY),
    };
    match node::strongest(&probed, arguments.isolation) {
        Some(Isolation::None) => Finding::warning(
            SUBJECT,
            "programs are not isolated",
            "leave out --isolation none",
        ),
        Some(mode) => Finding::good(SUBJECT, format!("programs are isolated by {mode}")),
        None => Finding::problem(
            SUBJECT,
            "no mode that the node may use works on this machine",
            REMEDY,
        ),
    }
}

/// Which limits of programs can be kept.
fn control_groups() -> Finding {
    const SUBJECT: &str = "control groups";
    match node::told(&node::control_groups()) {
        (found, true) => Finding::good(SUBJECT, found),
        (found, false) => Finding::warning(SUBJECT, found, node::CONTROLLERS),
    }
}

/// A folder that exists: `directory`, or the nearest one above it.
fn existing(directory: &Path) -> &Path {
    let mut folders = directory.ancestors();
    folders
        .find(|folder| folder.exists())
        .unwrap_or_else(|| Path::new("/"))
}
