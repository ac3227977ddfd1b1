//! The processes of a node: starting, watching, and ending them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use sealbus_seal::PlatformName;
use sealbus_seal::token::{Purpose, SecretHash, Token};
use tokio::process::Child;

use super::child::{self, Invitation};
use super::descendants;
use super::memory::Remembered;
use super::notes::forget;
use super::peer::Peer;
use super::processes::{Entry, listed};
use super::refused;
use super::shared::Shared;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::clock::now;
use sealbus_control::node::{Exit, Launch, LogPosition, MasterRequest};
use sealbus_control::{Fault, FaultCode, UnixMillis};
use sealbus_manifest::isolation::Isolation;

/// How long a started program has to show its ticket, in milliseconds.
const TICKET: UnixMillis = 10 * 60 * 1000;
/// How long a process that was taken over after the node's restart has to attach again.
const TAKING_OVER: Duration = Duration::from_secs(30);
/// How long a program with a ticket may be gone before it counts as lost.
const ABSENT: Duration = Duration::from_secs(20);
/// How long an earlier process of a program may take to end before the next one starts.
const EARLIER: Duration = Duration::from_secs(8);
/// How often it is checked for its end.
const LOOK: Duration = Duration::from_millis(10);
/// How much of the end of a log is searched for refusals, in bytes.
const LOG_END: u32 = 64 * 1024;
/// How often logs are cut, and it is noted which have grown.
const LOGS: Duration = Duration::from_secs(1);
/// How long a process has to end if the request to stop could not go over its connection.
const FORCED: Duration = Duration::from_secs(1);

impl Shared {
    /// Starts a process. For a name that already runs, the answer only says so.
    pub(crate) async fn start(self: &Arc<Self>, launch: Launch) -> Result<u32, Fault> {
        if self.leaving.borrow().is_some() {
            return Err(Fault::new(FaultCode::Unavailable, "the node is leaving"));
        }
        let process = launch.process.clone();
        if let Ok(Some(pid)) = self.processes.with(&process, |entry| entry.pid()) {
            return Ok(pid);
        }
        let failed = |why: String| {
            Fault::new(
                FaultCode::StartFailed,
                format!("{} could not be started: {why}", launch.group),
            )
        };
        let token = self.ticket().map_err(failed)?;
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
        // The entry comes first, because the program may show its ticket before this goes on.
        let remembered = Remembered {
            launch: launch.clone(),
            pid: None,
            ticket: Some((token.secret().hash(), now() + TICKET)),
            reattach: Vec::new(),
            slot: None,
            control_group: None,
            channels: false,
        };
        self.processes
            .entries
            .lock()
            .insert(process.clone(), Entry::new(remembered));
        let (mut child, pid, mode) =
            match self.start_isolated(&launch, &modes, &mut log, &token).await {
                Ok(started) => started,
                Err(why) => {
                    self.processes.entries.lock().remove(&process);
                    // The program may have attached before it failed.
                    forget(&process, &self.memory);
                    let _ = writeln!(log, "-- {} did not start: {why}", launch.group);
                    return Err(failed(why));
                }
            };
        tracing::info!(target: "sealbus::certification", step = 2, agent = %listed(&launch.agents),
            node = %self.name, pid, "started");
        let shared = self.clone();
        let started = process.clone();
        tokio::spawn(async move {
            let exit = child::exit_of(child.wait().await);
            if mode != Isolation::None && matches!(exit, Exit::Code { code } if code != 0) {
                shared.advise(&launch.group);
            }
            // Processes that the program itself started end with it.
            descendants::end(pid);
            let exit = shared.sweep(&process, exit).await;
            shared.exited(&process, exit);
        });
        self.processes.note(&started, &self.memory).await;
        Ok(pid)
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

    /// Starts a program in the first of these modes that it can run in.
    async fn start_isolated(
        &self,
        launch: &Launch,
        modes: &[Isolation],
        log: &mut File,
        token: &Token,
    ) -> Result<(Child, u32, Isolation), String> {
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
                self.slot_is_free(uid).await?;
            }
            let group = match self.sealing.control_group(*mode, launch) {
                Ok(group) => group,
                Err(why) if refusals.contains(&why) => continue,
                Err(why) => {
                    refusals.push(why);
                    continue;
                }
            };
            let own = (*mode, slot, group.as_ref());
            let starting = child::start(launch, log, &invitation, &self.sealing, own)?;
            let pid = starting.child.id().ok_or("it ended at once")?;
            let started = child::started_at(pid).unwrap_or(0);
            // This is noted before the program runs, and can attach.
            let _ = self.processes.with(&launch.process, |entry| {
                entry.remembered.pid = Some((pid, started));
                entry.remembered.slot = slot;
                entry.remembered.control_group = group.as_ref().map(|it| it.folder.clone());
            });
            let error = match starting.sealed().await {
                Ok(child) => {
                    if *mode != Isolation::None {
                        tracing::info!(process = %launch.group, isolation = %mode, "isolated");
                        let _ = writeln!(log, "-- {} is isolated by {mode}", launch.group);
                    }
                    return Ok((child, pid, *mode));
                }
                Err(error) => error,
            };
            tracing::debug!(process = %launch.group, %mode, %error, "not isolated so");
            refusals.push(format!("isolated by {mode}, {error}"));
            // A missing file is missing in every mode; a closed one only for a user of its own.
            if error.errno == Some(Errno::NOENT.raw_os_error()) {
                break;
            }
        }
        Err(refusals.join("; "))
    }

    /// Writes into the log of a failed program the manifest's line that opens the refused file.
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
    async fn slot_is_free(&self, uid: u32) -> Result<(), String> {
        let free = async {
            while self.processes.is_slot(uid) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(EARLIER, free)
            .await
            .map_err(|_| "its earlier process has not ended yet".to_owned())
    }

    /// Allows a program to attach that comes with a ticket.
    pub(crate) async fn expect(&self, launch: Launch, ticket: SecretHash, expires: UnixMillis) {
        let process = launch.process.clone();
        let remembered = Remembered {
            launch,
            pid: None,
            ticket: Some((ticket, expires)),
            reattach: Vec::new(),
            slot: None,
            control_group: None,
            channels: false,
        };
        self.processes
            .entries
            .lock()
            .insert(process.clone(), Entry::new(remembered));
        self.processes.note(&process, &self.memory).await;
    }

    fn exited(&self, process: &str, exit: Exit) {
        // The node ends the programs that it started, and how they ended does not matter.
        let exit = match self.leaving.borrow().is_some() {
            true if exit != Exit::Detached => Exit::NodeLeft,
            _ => exit,
        };
        let entry = {
            // Both change at once, so that a node that registers in between reports the process either as running or as
            // ended.
            let mut ended = self.processes.ended.lock();
            let Some(entry) = self.processes.entries.lock().remove(process) else {
                return;
            };
            ended.unreported.insert(process.to_owned(), exit.clone());
            entry
        };
        forget(process, &self.memory);
        self.unfollow(entry.asked.iter());
        let group = &entry.remembered.launch.group;
        tracing::info!(process = %group, %exit, "ended");
        if let Ok(mut log) = self.logs.writer(group, "") {
            let _ = writeln!(log, "-- {group} ended: {exit}");
        }
        self.report_end(process.to_owned(), exit);
    }

    /// Tells the Master how a process ended. The end is remembered until the Master knows of it. Otherwise the missing
    /// process would count as lost, and would be restarted.
    fn report_end(&self, process: String, exit: Exit) {
        let is_kept = {
            let mut ended = self.processes.ended.lock();
            ended.unreported.insert(process.clone(), exit.clone());
            ended.is_kept
        };
        if is_kept {
            self.keep_ends();
        }
        self.report(MasterRequest::Exited { process, exit });
    }

    /// Keeps the ends that the Master does not know of on disk while the Master is away, in case the node is restarted
    /// first.
    pub(crate) fn keep_ends(&self) {
        let mut ended = self.processes.ended.lock();
        ended.is_kept = !ended.unreported.is_empty();
        if let Err(error) = self.memory.keep_ends(&ended.unreported) {
            tracing::error!(%error, "how processes ended could not be noted: after a restart of the node they count as lost");
        }
    }

    /// Notes that the Master knows of the end of a process.
    pub(crate) fn end_is_known(&self, process: &str) {
        let is_last = {
            let mut ended = self.processes.ended.lock();
            ended.unreported.remove(process);
            ended.is_kept && ended.unreported.is_empty()
        };
        // An end that is reported twice changes nothing, so each need not be noted on disk.
        if is_last {
            self.keep_ends();
        }
    }

    /// Notes that a connection ended. A program with a ticket has some time to come again, as long as it runs.
    pub(crate) fn disconnected(self: &Arc<Self>, process: &str, connection: u64, peer: Peer) {
        if !self.processes.disconnected(process, connection) {
            return;
        }
        let (ended, is_child) = self
            .processes
            .with(process, |entry| (entry.is_done(), entry.pid().is_some()))
            .unwrap_or((true, false));
        let (shared, process) = (self.clone(), process.to_owned());
        tokio::spawn(async move {
            if !ended {
                // The node learns from the system how its own child ended.
                let gone = async {
                    match is_child {
                        true => std::future::pending().await,
                        false => peer.ended().await,
                    }
                };
                let _ = tokio::time::timeout(ABSENT, gone).await;
            }
            if !shared.processes.is_connected(&process) {
                let exit = if ended { Exit::Detached } else { Exit::Lost };
                shared.exited(&process, exit);
            }
        });
    }

    /// Ends a process.
    pub(crate) fn stop(self: &Arc<Self>, process: &str, grace: Duration, reason: &str) {
        let found = self.processes.with(process, |entry| {
            let caller = entry.connection.as_ref().map(|(_, caller)| caller.clone());
            (entry.pid(), caller)
        });
        // The process has ended already.
        let Ok((pid, caller)) = found else { return };
        let notice = AttachmentNotice::Stop {
            grace: grace.as_millis() as u64,
            reason: reason.to_owned(),
        };
        let told = match &caller {
            Some(caller) => caller.try_notify(&notice).is_ok(),
            None => false,
        };
        let Some(pid) = pid else {
            // The node did not start this program. It is told to stop, and its connection is closed.
            let (shared, process) = (self.clone(), process.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(grace).await;
                shared.exited(&process, Exit::Lost);
            });
            return;
        };
        if grace.is_zero() {
            self.force(process, pid);
            return;
        }
        if !told {
            child::terminate(pid);
        }
        let (shared, process) = (self.clone(), process.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(grace.max(FORCED)).await;
            if shared
                .processes
                .with(&process, |entry| entry.pid())
                .ok()
                .flatten()
                == Some(pid)
            {
                shared.force(&process, pid);
            }
        });
    }

    /// Ends a process that does not read its node's notices.
    pub(crate) fn end_unreading(&self, process: &str) {
        let found = self.processes.with(process, |entry| {
            (entry.pid(), entry.remembered.launch.group.clone())
        });
        // The process has ended already.
        let Ok((pid, group)) = found else { return };
        tracing::warn!(process = %group, pid, "reads nothing of what its node tells it: it is ended");
        if let Ok(mut log) = self.logs.writer(&group, "") {
            let _ = writeln!(
                log,
                "-- {group} is ended: it reads nothing of what its node tells it"
            );
        }
        match pid {
            Some(pid) => self.force(process, pid),
            None => self.exited(process, Exit::Lost),
        }
    }

    /// Takes over the processes that ran before the node was restarted. Processes that do not attach again in time are
    /// ended, because they could receive no notices.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        remembered: Vec<Remembered>,
        ends: BTreeMap<String, Exit>,
    ) {
        self.clear(&remembered);
        self.processes.ended.lock().is_kept = !ends.is_empty();
        for (process, exit) in ends {
            self.report_end(process, exit);
        }
        for process in remembered {
            let name = process.launch.process.clone();
            let alive = match process.pid {
                Some((pid, started)) => child::started_at(pid) == Some(started),
                None => process.launch.command.is_empty(),
            };
            let pid = process.pid;
            self.processes
                .entries
                .lock()
                .insert(name.clone(), Entry::taken_over(process));
            if !alive {
                self.exited(&name, Exit::Lost);
                continue;
            }
            let shared = self.clone();
            tokio::spawn(async move {
                let unattached = async {
                    tokio::time::sleep(TAKING_OVER).await;
                    if shared.processes.is_connected(&name) {
                        std::future::pending::<()>().await;
                    }
                };
                match pid {
                    Some((pid, started)) => {
                        tokio::select! {
                            () = child::ended(pid, started) => {}
                            () = unattached => shared.force(&name, pid),
                        }
                        let exit = shared.sweep(&name, Exit::Lost).await;
                        shared.exited(&name, exit);
                    }
                    None => {
                        unattached.await;
                        shared.exited(&name, Exit::Lost);
                    }
                }
            });
        }
    }

    /// Ends all processes. Returns when they have ended.
    pub(crate) async fn end_all(self: &Arc<Self>, grace: Duration) {
        let all: Vec<String> = self.processes.entries.lock().keys().cloned().collect();
        for process in &all {
            self.stop(process, grace, "the node is leaving");
        }
        let all_gone = async {
            while self.processes.count() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(grace + FORCED * 3, all_gone)
            .await
            .is_err()
        {
            let left: Vec<String> = self.processes.entries.lock().keys().cloned().collect();
            tracing::error!(left = %left.join(", "), "did not end in time: the node leaves without them");
        }
    }
}

/// Keeps logs short for ever, and notes when they grew.
pub(crate) async fn tend_logs(shared: Arc<Shared>) {
    let mut is_told = false;
    loop {
        let tending = shared.clone();
        let tended = tokio::task::spawn_blocking(move || tending.logs.tend(now())).await;
        match tended {
            Ok(Err(error)) if !is_told => {
                tracing::warn!(%error, "logs cannot be tended: they grow, and `sealbus logs --since` shows too much");
                is_told = true;
            }
            Ok(Ok(())) => is_told = false,
            _ => {}
        }
        tokio::time::sleep(LOGS).await;
    }
}
