//! Starting, watching and ending programs.

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

/// How often a process that is not our child is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// What the environment of a program says beside what the manifest adds.
pub(crate) struct Invitation<'i> {
    /// Where to attach.
    pub(crate) address: &'i str,
    /// The one-time ticket.
    pub(crate) ticket: &'i str,
    /// Name of the platform.
    pub(crate) platform: &'i str,
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
        // Python would keep what it prints to a file for itself until there are 8 KiB.
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
        // It may have ended already.
        let _ = kill_process_group(pid, signal);
    }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// When the system started a process, in its own measure; none if it is not running, or has ended and merely waits for its
/// parent to notice.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    test_kill_process(raw(pid)?).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold blanks; the state follows it, and the 22nd field is the 20th after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Waits for the end of a process that is not our child, which the system started then.
pub(crate) async fn ended(pid: u32, started: u64) {
    while started_at(pid) == Some(started) {
        tokio::time::sleep(LOOK).await;
    }
}
