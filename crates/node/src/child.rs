//! Starting, watching and ending programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::control_groups::NewGroup;
use super::descendants::{raw, stat};
use super::isolation::ProgramIsolation;
use sealbus_control::node::{Exit, Launch};
use sealbus_launcher::{IsolationStep, Launching, NotIsolated};
use sealbus_manifest::isolation::Isolation;
use sealbus_manifest::program::locate;
use sealbus_process::attachment::{TLS, secret_text};
use sealbus_seal::token::Token;

/// How often a process that is not a child of this one is checked.
const LOOK: Duration = Duration::from_millis(200);

/// The variables that a program gets in addition to the manifest's.
pub(crate) struct Invitation<'i> {
    /// The node's socket.
    pub(crate) socket: &'i Path,
    /// The one-time ticket, and the way to the node without unix sockets.
    pub(crate) token: &'i Token,
}

/// The variables of the node's environment that a program may inherit, in addition to those that begin with `LC_`.
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
    // The log level or filter, which the program itself also uses.
    "SEALBUS_LOG",
    "RUST_BACKTRACE",
    // Python finds its packages by its own path. Other programs look here.
    "VIRTUAL_ENV",
];

/// The variables of a node's environment that its programs inherit. All others may be secrets of the node, such as its
/// token, or of the user who started it.
fn inherited(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let is_inherited = |(name, _): &(String, String)| {
        INHERITED.contains(&name.as_str()) || name.starts_with("LC_")
    };
    variables.filter_map(text).filter(is_inherited)
}

/// All variables of a program. `own` are the variables of its isolation.
fn environment(
    launch: &Launch,
    own: BTreeMap<String, String>,
    work: &Path,
    address: &str,
    invitation: &Invitation<'_>,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<_, _> = inherited(std::env::vars_os()).collect();
    // Without this, Python buffers 8 KiB of output to a file.
    variables.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    variables.extend(own);
    variables.extend(launch.environment.clone());
    let ticket = match address {
        TLS => invitation.token.to_string(),
        _ => secret_text(invitation.token.secret()),
    };
    for (name, value) in [
        ("SEALBUS_ATTACH", address),
        ("SEALBUS_TICKET", &ticket),
        ("SEALBUS_AGENT", &launch.group),
        ("SEALBUS_PLATFORM", invitation.token.platform().as_str()),
        ("SEALBUS_FOLDER", &work.display().to_string()),
    ] {
        variables.insert(name.to_owned(), value.to_owned());
    }
    variables
}

/// A program that is being started.
pub(crate) struct Starting {
    /// The process. If the program is isolated, this is a launcher at first.
    pub(crate) child: Child,
    /// Whether the program has no unix sockets, and attaches over the network.
    pub(crate) is_remote: bool,
    launching: Option<Launching>,
}

/// Starts a program in a process group of its own, with its output going to `log`. If it is isolated, it does not run before
/// [`Starting::sealed`]. `slot` is its own user in the mode `uid`, `group` its control group, and `work` its folder.
pub(crate) fn start(
    launch: &Launch,
    log: &File,
    invitation: &Invitation<'_>,
    sealing: &ProgramIsolation,
    (mode, slot, group, work): (Isolation, Option<u32>, Option<&NewGroup>, PathBuf),
) -> Result<Starting, String> {
    let directory = Path::new(launch.directory.as_deref().unwrap_or("."));
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err("it has no command".to_owned());
    };
    // Without this, the system would say that the program does not exist.
    if !directory.is_dir() {
        return Err(format!(
            "its folder {} is not on this machine: a node finds programs at the path of the manifest's folder, so copy that \
             folder to the same path",
            directory.display()
        ));
    }
    let path = locate(program, directory).map_err(|problem| problem.to_string())?;
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let socket = format!("unix:{}", invitation.socket.display());
    let mut is_remote = false;
    let (mut command, launching) = if mode == Isolation::None && group.is_none() {
        let mut command = Command::new(&path);
        command
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .envs(environment(
                launch,
                BTreeMap::new(),
                &work,
                &socket,
                invitation,
            ))
            .stdin(Stdio::null())
            .process_group(0);
        (command, None)
    } else {
        let of_it = (work.clone(), slot, group.map(|group| group.folder.clone()));
        let plan = sealing.plan(mode, launch, path.clone(), of_it, invitation.socket);
        let mut plan = plan.map_err(failed)?;
        is_remote = plan.attachment.is_none();
        let address = match is_remote {
            true => TLS,
            false => socket.as_str(),
        };
        plan.environment = environment(launch, plan.environment, &work, address, invitation);
        let (command, launching) = sealing.launcher(plan).map_err(failed)?;
        (Command::from(command), Some(launching))
    };
    let output = log.try_clone().map_err(failed)?;
    let errors = log.try_clone().map_err(failed)?;
    let child = command.stdout(output).stderr(errors).spawn();
    let child = child.map_err(failed)?;
    Ok(Starting {
        child,
        is_remote,
        launching,
    })
}

impl Starting {
    /// Waits until the program runs, sealed as its plan says.
    ///
    /// # Errors
    /// [`NotIsolated`]. The program then never ran.
    pub(crate) async fn sealed(mut self) -> Result<Child, NotIsolated> {
        let Some(launching) = self.launching else {
            return Ok(self.child);
        };
        let sealed = tokio::task::spawn_blocking(|| launching.wait()).await;
        let sealed = sealed.unwrap_or_else(|error| {
            Err(NotIsolated {
                step: IsolationStep::Session,
                cause: error.to_string(),
                errno: None,
            })
        });
        if sealed.is_err() {
            // The launcher ends by itself. An error means that it has ended.
            let _ = self.child.wait().await;
        }
        sealed.map(|()| self.child)
    }
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

/// Asks the process group of a program to end, unless another process has its number by now.
pub(crate) fn terminate((pid, started): (u32, u64)) {
    if let Some(pid) = raw(pid).filter(|_| !is_reused(pid, started)) {
        // The process group may have ended already.
        let _ = kill_process_group(pid, Signal::TERM);
    }
}

/// The system's own value for the start time of a process; `None` if it is not running, or has ended and only waits for
/// its parent to notice.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    (!stat.has_ended).then_some(stat.started)
}

/// Whether the number of a process that was started at that time belongs to another one by now. Without `/proc` this is
/// unknown.
pub(crate) fn is_reused(pid: u32, started: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.started != started)
}

/// Waits for the end of a process that is not a child of this one and was started at that time.
pub(crate) async fn ended(pid: u32, started: u64) {
    while started_at(pid) == Some(started) {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use sealbus_seal::token::Purpose;
    use sealbus_seal::{Fingerprint, PlatformName};

    use super::super::testing::no_isolation;
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
        let platform = PlatformName::new("factory").unwrap();
        let addresses = vec!["127.0.0.1:1".to_owned()];
        let root = Fingerprint::of(b"root");
        let token = Token::new(Purpose::Ticket, platform, None, addresses, root).unwrap();
        let invitation = Invitation {
            socket: Path::new("/nowhere"),
            token: &token,
        };
        let config = no_isolation();
        let sealing = ProgramIsolation::open(config, folder.path()).await.unwrap();
        let log_file = File::create(&log).unwrap();
        let work = sealing.folder_of("g", None).unwrap();
        let open = (Isolation::None, None, None, work);
        let starting = start(&launch, &log_file, &invitation, &sealing, open).unwrap();
        let mut child = starting.sealed().await.unwrap();
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
            "SEALBUS_FOLDER",
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
        let names: Vec<_> = inherited.map(|(name, _)| name).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }
}
