//! `up --detach`: the platform as a process of its own, which outlives the terminal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use sealbus_files::folder;
use sealbus_seal::SecurityLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::run::EndSignals;
use crate::arguments::{General, Up};
use crate::error::CliError;
use crate::output::Output;

/// The platform's log, in its state directory.
const LOG: &str = "up.log";
/// Most bytes of the log's end in which the platform's error is looked for.
const LAST: u64 = 1 << 20;

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
    let before = file.metadata().map_or(0, |file| file.len());
    let mut signals = EndSignals::catch()?;
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
        let mut stdout = BufReader::new(stdout);
        let read = tokio::select! {
            read = stdout.read_line(&mut told) => read,
            () = signals.told() => {
                let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(pid) = pid {
                    // The process may have ended already.
                    let _ = kill_process(pid, Signal::TERM);
                }
                let _ = child.wait().await;
                return Err(CliError::Failed {
                    message: "the start was interrupted, and the platform has ended".to_owned(),
                    help: None,
                });
            }
        };
        read.map_err(CliError::file("read", "what the platform says"))?;
    }
    waiting.finish_and_clear();
    if let Ok(stands_by) = serde_json::from_str::<StandsBy>(&told) {
        stands_by.show(output);
        return Ok(());
    }
    let Ok(told) = serde_json::from_str::<PlatformUp>(&told) else {
        // The process ends by itself, or has ended. Its error is in its log.
        let _ = child.wait().await;
        return Err(why(&log, before));
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

/// The error with which the platform ended, in the log after its first `before` bytes. A platform that runs already writes
/// to the same log.
fn why(log: &Path, before: u64) -> CliError {
    let text = since(log, before).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let error = text.lines().rev().find_map(|line| {
        let line = serde_json::from_str::<Value>(line).ok()?;
        Some(line.get("error")?.as_str()?.to_owned())
    });
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

/// The end of a file, without its first `before` bytes.
fn since(log: &Path, before: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(before.max(length.saturating_sub(LAST))))?;
    let mut text = Vec::new();
    file.take(LAST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_found_though_another_platform_logs_too() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join(LOG);
        let before = "{\"error\":\"of yesterday\"}\n";
        let error = "{\"error\":\"the port is taken\"}\n";
        let told = |text: String| {
            std::fs::write(&log, text).unwrap();
            why(&log, before.len() as u64).to_string()
        };
        let found = told(format!("{before}{error}INFO an agent was certified\n"));
        assert_eq!(found, "the platform did not start: the port is taken");
        let found = told(format!("{before}INFO an agent was certified\n"));
        assert_eq!(found, "the platform did not start");
    }
}
