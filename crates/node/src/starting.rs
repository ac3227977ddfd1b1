//! Starting programs: each once, however often a start is requested, and none that was told to stop in the meantime.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use sealbus_seal::PlatformName;
use sealbus_seal::token::{Purpose, SecretHash, Token};
use tokio::process::Child;
use tokio::sync::watch;

use super::child::{self, Invitation};
use super::disk::held_in;
use super::ending::end_program;
use super::memory::{Remembered, boot};
use super::notes::forget;
use super::processes::{Begun, Entry, Outcome, listed};
use super::refused;
use super::shared::Shared;
use sealbus_control::clock::now;
use sealbus_control::node::{Exit, Launch, LogPosition};
use sealbus_control::{Fault, FaultCode, UnixMillis};
use sealbus_manifest::isolation::Isolation;

/// How long a started program has to show its ticket, in milliseconds.
const TICKET: UnixMillis = 10 * 60 * 1000;
/// How long an earlier process of a program may take to end before the next one starts.
const EARLIER: Duration = Duration::from_secs(8);
/// How often that process is checked for its end.
const LOOK: Duration = Duration::from_millis(10);
/// How much of the end of a log is searched for refusals, in bytes.
const LOG_END: u32 = 64 * 1024;

/// A running program: its process, with its id and its start time by the system; and its isolation.
type Started = (Child, (u32, u64), Isolation);

fn leaving() -> Fault {
    Fault::new(FaultCode::Unavailable, "the node is leaving")
}

fn not_startable(group: &str, why: &str) -> Fault {
    Fault::new(
        FaultCode::StartFailed,
        format!("{group} could not be started: {why}"),
    )
}

/// The outcome of a start that was requested before.
async fn told(mut outcome: watch::Receiver<Outcome>) -> Result<u32, Fault> {
    let told = outcome.wait_for(Option::is_some).await;
    let told = told.ok().and_then(|outcome| outcome.clone());
    told.unwrap_or_else(|| Err(leaving()))
}

impl Shared {
    /// Starts a process. If it was started before, or is being started, only answers so.
    pub(crate) async fn start(self: &Arc<Self>, launch: Launch) -> Result<u32, Fault> {
        if self.leaving.borrow().is_some() {
            return Err(leaving());
        }
        let token = self.ticket();
        let token = token.map_err(|why| not_startable(&launch.group, &why))?;
        // The entry comes first, because the program may show its ticket before this goes on.
        let ticket = (token.secret().hash(), now() + TICKET);
        let entry = Entry::new(to_attach(launch.clone(), ticket));
        let outcome = match self.processes.begin(entry) {
            Begun::Now(outcome) => outcome,
            Begun::Before(outcome) => return told(outcome).await,
            Begun::Over(end) => {
                let pid = end.row.pid.map(|(pid, _)| pid);
                // A Master that asks for an ended process does not know of the end.
                self.report_end(*end);
                return Ok(pid.unwrap_or_default());
            }
        };
        let answer = match self.start_once(&launch, &token).await {
            Ok((child, program, mode)) => {
                let (pid, _) = program;
                tracing::info!(target: "sealbus::certification", step = 2, agent = %listed(&launch.agents),
                    node = %self.name, pid, "started");
                tokio::spawn(self.clone().await_end(launch, (child, program, mode)));
                Ok(pid)
            }
            Err(fault) => Err(self.not_started(&launch.process, fault)),
        };
        outcome.send_replace(Some(answer.clone()));
        answer
    }

    /// Forgets a process that does not run. If the Master told it to stop, it waits for the end, and is told.
    fn not_started(&self, process: &str, fault: Fault) -> Fault {
        if self.is_unwanted(process) {
            let error = fault.to_string();
            self.exited(process, Exit::NotStarted { error });
        } else {
            self.processes.entries.lock().remove(process);
            // The program may have attached before it failed.
            forget(process, &self.memory);
        }
        match self.leaving.borrow().is_some() {
            true => leaving(),
            false => fault,
        }
    }

    /// Whether a process that is being started was told to stop.
    fn is_unwanted(&self, process: &str) -> bool {
        self.processes.is_stopped(process) || self.leaving.borrow().is_some()
    }

    /// Waits for the end of a program, and reports it.
    async fn await_end(self: Arc<Self>, launch: Launch, (mut child, program, mode): Started) {
        let exit = child::exit_of(child.wait().await);
        if mode != Isolation::None && matches!(exit, Exit::Code { code } if code != 0) {
            self.advise(&launch.group);
        }
        // Processes that the program itself started end with it.
        end_program(program);
        let exit = self.sweep(&launch.process, exit).await;
        self.exited(&launch.process, exit);
    }

    /// The ticket of a program that this node starts.
    fn ticket(&self) -> Result<Token, String> {
        let platform = PlatformName::new(&self.platform.read().name);
        let platform = platform.map_err(|error| error.to_string())?;
        let address = self.attachment.map(|address| address.to_string());
        let addresses = address.into_iter().collect();
        Token::new(Purpose::Ticket, platform, None, addresses, self.root)
            .map_err(|error| error.to_string())
    }

    async fn start_once(&self, launch: &Launch, token: &Token) -> Result<Started, Fault> {
        let failed = |why: String| not_startable(&launch.group, &why);
        let heading = format!("-- {} is started on {}\n", launch.group, self.name);
        let mut log = self.logs.writer(&launch.group, &heading).map_err(|error| {
            failed(format!("its log cannot be written: {error}"))
                .advise("is the disk full? what runs goes on")
        })?;
        let asked = launch.confinement.isolation;
        let modes = self
            .sealing
            .modes_for(asked, self.description.isolation)
            .map_err(|why| {
                failed(why).advise(
                    "start the node as root, allow user namespaces or Landlock there (see `sealbus node --check`), or \
                     ask for less with `isolation` in the manifest",
                )
            })?;
        let started = self.start_isolated(launch, &modes, &mut log, token).await;
        started.map_err(|why| {
            let _ = writeln!(log, "-- {} did not start: {why}", launch.group);
            failed(why)
        })
    }

    /// Starts a program in the first of these modes that it can run in.
    async fn start_isolated(
        &self,
        launch: &Launch,
        modes: &[Isolation],
        log: &mut File,
        token: &Token,
    ) -> Result<Started, String> {
        let invitation = Invitation {
            socket: &self.socket,
            token,
        };
        let mut refusals = Vec::new();
        for mode in modes {
            let slot = match mode {
                Isolation::Uid => self.sealing.slot_of(&launch.group),
                _ => Ok(None),
            };
            let slot = slot.map_err(|error| error.to_string())?;
            if let Some(uid) = slot {
                self.slot_is_free(&launch.process, uid).await?;
                let taken = |entry: &mut Entry| entry.remembered.slot = slot;
                let _ = self.processes.with(&launch.process, taken);
            }
            let group = match self.sealing.control_group(*mode, launch) {
                Ok(group) => group,
                Err(why) if refusals.contains(&why) => continue,
                Err(why) => {
                    refusals.push(why);
                    continue;
                }
            };
            let work = self.folder_of(launch, slot).await?;
            if self.is_unwanted(&launch.process) {
                return Err("it was told to stop before it ran".to_owned());
            }
            let folder = work.clone();
            let own = (*mode, slot, group.as_ref(), work);
            let starting = child::start(launch, log, &invitation, &self.sealing, own)?;
            let pid = starting.child.id().ok_or("it ended at once")?;
            let program = (pid, child::started_at(pid).unwrap_or(0));
            let boot = boot();
            // This is noted before the program runs and can attach.
            let _ = self.processes.with(&launch.process, |entry| {
                entry.remembered.pid = Some(program);
                entry.remembered.boot = boot;
                entry.remembered.slot = slot;
                entry.remembered.control_group = group.as_ref().map(|it| it.folder.clone());
                entry.remembered.folder = starting.is_remote.then_some(folder);
            });
            // An isolated program waits for this, so that a node knows it even if it is killed at any time.
            self.processes.note(&launch.process, &self.memory).await;
            let error = match starting.sealed().await {
                Ok(child) => {
                    if *mode != Isolation::None {
                        tracing::info!(process = %launch.group, isolation = %mode, "isolated");
                        let _ = writeln!(log, "-- {} is isolated by {mode}", launch.group);
                    }
                    return Ok((child, program, *mode));
                }
                Err(error) => error,
            };
            tracing::debug!(process = %launch.group, %mode, %error, "not isolated so");
            refusals.push(format!("isolated by {mode}, {error}"));
            // A missing file is missing in every mode. A closed file may be closed only to a user of its own.
            if error.errno == Some(Errno::NOENT.raw_os_error()) {
                break;
            }
        }
        Err(refusals.join("; "))
    }

    /// Makes the folder of a program, and gives it to the program's user. The folder may contain very many files.
    async fn folder_of(&self, launch: &Launch, slot: Option<u32>) -> Result<PathBuf, String> {
        let (sealing, group) = (self.sealing.clone(), launch.group.clone());
        let limit = launch.confinement.room();
        let making = tokio::task::spawn_blocking(move || {
            let folder = sealing.folder_of(&group, slot)?;
            // Otherwise it is measured while the program runs.
            let held = held_in(&folder, limit).unwrap_or(Some(0));
            Ok::<_, io::Error>((folder, held))
        });
        let made = match making.await {
            Ok(made) => made,
            Err(error) => Err(error.into()),
        };
        let (folder, held) = made.map_err(|error| format!("its folder cannot be made: {error}"))?;
        self.check_folder(launch, &folder, held)?;
        Ok(folder)
    }

    /// Writes the line of the manifest that would open the refused file into the log of a failed program.
    fn advise(&self, group: &str) {
        let lines = LogPosition::LastLines {
            lines: refused::LINES,
        };
        let Ok((end, _)) = self.logs.read(group, lines, LOG_END, now()) else {
            return;
        };
        if let Some(advice) = refused::advice(&end)
            && let Ok(mut log) = self.logs.writer(group, "")
        {
            let _ = writeln!(log, "-- {group} was refused a file: {advice}");
        }
    }

    /// Waits for the end of an earlier process of the same program. An agent that moves back may come before that.
    async fn slot_is_free(&self, process: &str, uid: u32) -> Result<(), String> {
        let free = async {
            while self.processes.is_slot(uid) && !self.is_unwanted(process) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(EARLIER, free)
            .await
            .map_err(|_| "its earlier process has not ended yet".to_owned())
    }

    /// Allows a program that comes with a ticket to attach.
    pub(crate) async fn expect(&self, launch: Launch, ticket: SecretHash, expires: UnixMillis) {
        let process = launch.process.clone();
        let entry = Entry::new(to_attach(launch, (ticket, expires)));
        self.processes.entries.lock().insert(process.clone(), entry);
        self.processes.note(&process, &self.memory).await;
    }
}

/// The record of a process that is expected to attach with this ticket.
fn to_attach(launch: Launch, ticket: (SecretHash, UnixMillis)) -> Remembered {
    Remembered {
        ticket: Some(ticket),
        ..Remembered::new(launch)
    }
}

#[cfg(test)]
mod tests;
