//! `up --detach`: the platform as a process of its own, which outlives the terminal.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sealbus_files::folder;
use sealbus_seal::SecurityLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::arguments::{General, Up};
use crate::error::CliError;
use crate::output::Output;

/// The platform's log, in its state directory.
const LOG: &str = "up.log";

/// The command's output for a platform that is up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlatformUp {
    pub(super) platform: String,
    pub(super) level: SecurityLevel,
    pub(super) state: PathBuf,
    pub(super) enrolment: SocketAddr,
    pub(super) address: SocketAddr,
}

impl PlatformUp {
    /// Says that the platform is up, and how to end it.
    pub(super) fn show(&self, output: Output, end: &str) {
        let others = match self.enrolment.ip().is_loopback() {
            true => "; other machines can join after `sealbus up --address ADDRESS`",
            false => "",
        };
        output.line(self, || {
            format!(
                "{} is up at level {}; its state is in {}\nnodes join at {}: `sealbus token`{others}\n\
                 look around with `sealbus ps`, `sealbus ca log`, `sealbus logs AGENT --follow`; {end}",
                self.platform,
                self.level,
                self.state.display(),
                self.enrolment
            )
        });
    }
}

/// The command's output for a Master that stands by.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StandsBy {
    pub(super) platform: String,
    pub(super) state: PathBuf,
    #[serde(rename = "stands-by")]
    pub(super) stands_by: bool,
    /// The instance that leads; empty if etcd does not answer.
    pub(super) leader: String,
}

impl StandsBy {
    /// Says that another Master leads, or that nobody knows.
    pub(super) fn show(&self, output: Output) {
        output.line(self, || match self.leader.as_str() {
            "" => format!(
                "etcd does not answer, so this Master of {} renews certificates, revokes, and waits",
                self.platform
            ),
            leader => format!(
                "another Master leads {} (instance {leader}), and this one stands by",
                self.platform
            ),
        });
    }
}

/// Starts `sealbus up` without a terminal, and returns when it says that it is up.
pub(super) async fn up(
    general: &General,
    up: &Up,
    directory: &Path,
    output: Output,
) -> Result<(), CliError> {
    folder(directory).map_err(CliError::file("create", directory))?;
    let log = directory.join(LOG);
    let file = File::options().create(true).append(true).open(&log);
    let file = file.map_err(CliError::file("open", &log))?;
    let program = std::env::current_exe().map_err(CliError::file("find", "this program"))?;
    let mut child = Command::new(&program)
        .args(arguments(general, up, directory))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .map_err(CliError::file("start", &program))?;
    let waiting = output.waiting("starting the platform");
    let mut told = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut told).await;
        read.map_err(CliError::file("read", "what the platform says"))?;
    }
    waiting.finish_and_clear();
    if let Ok(stands_by) = serde_json::from_str::<StandsBy>(&told) {
        stands_by.show(output);
        return Ok(());
    }
    let Ok(told) = serde_json::from_str::<PlatformUp>(&told) else {
        // The process ends by itself, or has ended. Its error is the last line of its log.
        let _ = child.wait().await;
        return Err(why(&log));
    };
    told.show(output, "`sealbus down` ends it");
    Ok(())
}

fn arguments(general: &General, up: &Up, directory: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["up", "--detached", "--json", "--state"]
        .map(Into::into)
        .into();
    arguments.push(directory.into());
    if let Some(platform) = &general.platform {
        arguments.extend(["--platform".into(), platform.into()]);
    }
    if let Some(level) = up.level {
        arguments.extend(["--level".into(), level.to_string().into()]);
    }
    if let Some(address) = up.address {
        arguments.extend(["--address".into(), address.to_string().into()]);
    }
    if up.accept_clock {
        arguments.push("--accept-clock".into());
    }
    if let Some(mode) = up.isolation.isolation {
        arguments.extend(["--isolation".into(), mode.as_str().into()]);
    }
    arguments.extend(["--uids".into(), up.isolation.uids.to_string().into()]);
    if let Some(manifest) = &up.manifest {
        arguments.extend(["--".into(), manifest.into()]);
    }
    arguments
}

/// The error with which the platform ended.
fn why(log: &Path) -> CliError {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().next_back().unwrap_or_default();
    let error = serde_json::from_str::<Value>(last).ok();
    let error = error
        .as_ref()
        .and_then(|error| error.get("error")?.as_str());
    let help = format!(
        "its log is {}; `sealbus doctor` examines this machine",
        log.display()
    );
    CliError::Failed {
        message: match error {
            Some(error) => format!("the platform did not start: {error}"),
            None => "the platform did not start".to_owned(),
        },
        help: Some(help),
    }
}
