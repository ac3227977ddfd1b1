//! Starting, watching and ending programs.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use tokio::process::{Child, Command};

use sealbus_control::node::{Exit, Launch};
use sealbus_manifest::program::locate;

/// How often a process that is not a child of this one is checked.
const LOOK: Duration = Duration::from_millis(200);

/// The variables that a program gets besides the manifest's.
pub(crate) struct Invitation<'i> {
    /// The address to attach to.
    pub(crate) address: &'i str,
    /// The one-time ticket.
    pub(crate) ticket: &'i str,
    /// Name of the platform.
    pub(crate) platform: &'i str,
}

/// The variables of the node's environment that a program may inherit, besides those that begin with `LC_`.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "TMPDIR",
    // The log level or filter, which the program itself uses too.
    "SEALBUS_LOG",
    "RUST_BACKTRACE",
    // Python finds its packages by its own path. Other programs look here.
    "VIRTUAL_ENV",
];

/// The variables of a node's environment that its programs inherit. The others may be secrets, of the node (such as its
/// token) or of the user who started it.
fn inherited(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let is_inherited = |(name, _): &(OsString, OsString)| {
        name.to_str()
            .is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_"))
    };
    variables.filter(is_inherited).collect()
}

/// Starts a program in a process group of its own, with its output to `log`.
pub(crate) fn start(
    launch: &Launch,
    log: File,
    invitation: &Invitation<'_>,
) -> Result<Child, String> {
    let directory = Path::new(launch.directory.as_deref().unwrap_or("."));
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err("it has no command".to_owned());
    };
    let path = locate(program, directory).map_err(|problem| problem.to_string())?;
    let log_again = log.try_clone().map_err(|error| error.to_string())?;
    Command::new(&path)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .envs(inherited(std::env::vars_os()))
        // Without this, Python buffers 8 KiB of output to a file.
        .env("PYTHONUNBUFFERED", "1")
        .envs(&launch.environment)
        .env("SEALBUS_ATTACH", invitation.address)
        .env("SEALBUS_TICKET", invitation.ticket)
        .env("SEALBUS_AGENT", &launch.group)
        .env("SEALBUS_PLATFORM", invitation.platform)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_again)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// How a process ended.
pub(crate) fn exit_of(status: io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code { code },
            (None, Some(signal)) => Exit::Signal { signal },
            (None, None) => Exit::Lost,
        },
        Err(_) => Exit::Lost,
    }
}

/// Asks a process group to end.
pub(crate) fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

/// Ends a process group by force.
pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = raw(pid) {
        // The process group may have ended already.
        let _ = kill_process_group(pid, signal);
    }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// The system's own time value for the start of a process. None if the process is not running, or has ended and merely
/// waits for its parent to notice.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    test_kill_process(raw(pid)?).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain blanks. The state follows it, and the 22nd field is the 20th after the name.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Waits for the end of a process that is not a child of this one and was started at that time.
pub(crate) async fn ended(pid: u32, started: u64) {
    while started_at(pid) == Some(started) {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_learns_little_of_its_nodes_environment() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let launch = serde_json::json!({
            "process": "p", "group": "g", "agents": ["g"], "directory": folder.path(),
            "command": ["/usr/bin/env"], "environment": { "GIVEN": "by the manifest" },
        });
        let launch: Launch = serde_json::from_value(launch).unwrap();
        let invitation = Invitation {
            address: "unix:/nowhere",
            ticket: "t",
            platform: "factory",
        };
        let mut child = start(&launch, File::create(&log).unwrap(), &invitation).unwrap();
        assert!(child.wait().await.unwrap().success());
        let seen = std::fs::read_to_string(&log).unwrap();
        let name = |line: &str| Some(line.split_once('=')?.0.to_owned());
        let names: Vec<String> = seen.lines().filter_map(name).collect();
        // Cargo sets this variable for tests.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let ours = [
            "SEALBUS_ATTACH",
            "SEALBUS_TICKET",
            "SEALBUS_AGENT",
            "SEALBUS_PLATFORM",
        ];
        let known = |name: &str| {
            INHERITED.contains(&name) || ours.contains(&name) || name.starts_with("LC_")
        };
        let mut others: Vec<_> = names.iter().filter(|name| !known(name)).collect();
        others.sort();
        assert_eq!(others, ["GIVEN", "PYTHONUNBUFFERED"]);
        assert!(
            ours.iter()
                .all(|name| names.iter().any(|seen| seen == name))
        );
    }

    #[test]
    fn secrets_of_the_node_are_not_inherited() {
        let variables = [
            "SEALBUS_TOKEN",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
            "LC_ALL",
            "PATH",
        ];
        let variables = variables.map(|name| (OsString::from(name), OsString::from("x")));
        let inherited = inherited(variables.into_iter());
        let names: Vec<_> = inherited.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }
}
