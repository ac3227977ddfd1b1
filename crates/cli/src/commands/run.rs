//! The log and the signals of commands that run until they are told to end.

#[cfg(unix)]
use std::time::Duration;

use sealbus::process::LOG_VARIABLE;
use sealbus_brokers::quiet_log;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::error::CliError;
use crate::output::Output;

/// Time that agents have to leave by themselves when the platform or the node ends.
#[cfg(unix)]
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// The usual filter.
const LOG: &str = "info";

/// Logs to standard error: the platform's events, and the six steps of each certification. The reports of brokers'
/// libraries are left out, because the platform itself reports a broken connection to a broker.
pub(super) fn log(output: Output) {
    log_to(output.is_json(), output.is_coloured(), LOG);
}

/// The same as text, even for programs, because people read the file.
#[cfg(unix)]
pub(super) fn log_as_text(output: Output) {
    log_to(false, output.is_coloured(), LOG);
}

/// Logs only warnings, for a command that shows events and refused attempts itself.
#[cfg(unix)]
pub(super) fn log_warnings(output: Output) {
    let filter = "warn,sealbus::refused=off,sealbus::refusals=off";
    log_to(false, output.is_coloured(), filter);
}

fn log_to(as_json: bool, coloured: bool, usual: &str) {
    let filter =
        EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(quiet_log(usual)));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // On a full disk the subscriber would report to the place it cannot write to, and panic.
        .log_internal_errors(false)
        .with_ansi(coloured);
    // An error means that a subscriber is already set, and only this place sets one.
    let _ = if as_json {
        log.json().try_init()
    } else {
        log.try_init()
    };
}

/// Ctrl-C and SIGTERM; on Windows, Ctrl-C and the end of the console. Both are caught from the moment this is made, so
/// that nothing that is started later is left behind.
pub(super) struct EndSignals {
    interrupt: Interrupt,
    terminate: Terminate,
}

#[cfg(unix)]
type Interrupt = Signal;
#[cfg(unix)]
type Terminate = Signal;
#[cfg(not(unix))]
type Interrupt = tokio::signal::windows::CtrlC;
#[cfg(not(unix))]
type Terminate = tokio::signal::windows::CtrlClose;

#[cfg(unix)]
fn caught() -> std::io::Result<(Interrupt, Terminate)> {
    Ok((
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ))
}

#[cfg(not(unix))]
fn caught() -> std::io::Result<(Interrupt, Terminate)> {
    use tokio::signal::windows::{ctrl_c, ctrl_close};
    Ok((ctrl_c()?, ctrl_close()?))
}

impl EndSignals {
    /// Begins to catch the signals.
    pub(super) fn catch() -> Result<Self, CliError> {
        let (interrupt, terminate) = caught().map_err(|error| CliError::Failed {
            message: format!("cannot wait for signals: {error}"),
            help: None,
        })?;
        Ok(Self {
            interrupt,
            terminate,
        })
    }

    /// Waits for a signal since they were first caught.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
