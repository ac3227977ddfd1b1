//! The processes of a node: watching them and ending them.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::child;
use super::memory::Remembered;
use super::notes::{forget, note_end};
use super::peer::Peer;
use super::processes::{End, Entry};
use super::shared::Shared;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::clock::now;
use sealbus_control::node::{Exit, MasterRequest};

/// How long a process that was taken over after the node's restart has to attach again.
const TAKING_OVER: Duration = Duration::from_secs(30);
/// How long a program with a ticket may be gone before it counts as lost.
const ABSENT: Duration = Duration::from_secs(20);
/// How often the node checks whether all processes have ended.
const LOOK: Duration = Duration::from_millis(10);
/// How often logs are cut, and their growth is noted.
const LOGS: Duration = Duration::from_secs(1);
/// How long a process has to end if the request to stop could not be sent over its connection.
const FORCED: Duration = Duration::from_secs(1);

impl Shared {
    /// Notes that a process has ended, and reports it.
    pub(super) fn exited(&self, process: &str, exit: Exit) {
        // The node ends the programs that it started, so how they ended does not matter.
        let exit = match self.leaving.borrow().is_some() {
            true if exit != Exit::Detached => Exit::NodeLeft,
            _ => exit,
        };
        let (entry, end) = {
            // Both change at once, so that a node that registers in between reports the process either as running or as
            // ended.
            let mut ended = self.processes.ended.lock();
            let Some(entry) = self.processes.entries.lock().remove(process) else {
                return;
            };
            let end = End::of(&entry.remembered, exit, entry.noting.clone());
            ended
                .unreported
                .insert(process.to_owned(), end.exit.clone());
            ended.remember(end.clone());
            (entry, end)
        };
        self.unfollow(entry.asked.iter());
        let (group, exit) = (&entry.remembered.launch.group, &end.exit);
        tracing::info!(process = %group, %exit, "ended");
        if let Ok(mut log) = self.logs.writer(group, "") {
            let _ = writeln!(log, "-- {group} ended: {exit}");
        }
        self.report_end(end);
    }

    /// Tells the Master how a process ended. The end is remembered, also on disk, until the Master knows of it.
    /// Otherwise the missing process would count as lost, and would be restarted.
    pub(super) fn report_end(&self, end: End) {
        let process = end.row.launch.process.clone();
        let exit = end.exit.clone();
        let ended = self.processes.ended.clone();
        ended
            .lock()
            .unreported
            .insert(process.clone(), exit.clone());
        tokio::spawn(note_end(end, ended, self.memory.clone()));
        self.report(MasterRequest::Exited { process, exit });
    }

    /// Notes that the Master knows of the end of a process.
    pub(crate) fn end_is_known(&self, process: &str) {
        self.processes.ended.lock().unreported.remove(process);
        forget(process, &self.memory);
    }

    /// Notes that a connection ended. A program with a ticket has some time to come back, as long as it runs.
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
                // The system tells the node how its own child ended.
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

    /// Ends a process. If it is being started, it is ended at once, because its agents do not run yet.
    pub(crate) fn stop(self: &Arc<Self>, process: &str, grace: Duration, reason: &str) {
        let found = self.processes.with(process, |entry| {
            entry.is_stopped = true;
            let caller = entry.connection.as_ref().map(|(_, caller)| caller.clone());
            let is_new = entry.is_being_started() && caller.is_none();
            (entry.remembered.pid, caller, is_new)
        });
        // The process has ended already.
        let Ok((program, caller, is_new)) = found else {
            return;
        };
        if is_new {
            // The start notices that, and reports the end.
            if let Some(program) = program {
                self.force(process, program);
            }
            return;
        }
        let notice = AttachmentNotice::Stop {
            grace: grace.as_millis() as u64,
            reason: reason.to_owned(),
        };
        let told = match &caller {
            Some(caller) => caller.try_notify(&notice).is_ok(),
            None => false,
        };
        let Some(program) = program else {
            // The node did not start this program, so the program is told to stop, and its connection is closed.
            let (shared, process) = (self.clone(), process.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(grace).await;
                shared.exited(&process, Exit::Lost);
            });
            return;
        };
        if grace.is_zero() {
            self.force(process, program);
            return;
        }
        if !told {
            child::terminate(program);
        }
        let (shared, process) = (self.clone(), process.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(grace.max(FORCED)).await;
            let present = shared.processes.with(&process, |it| it.remembered.pid);
            if present.is_ok_and(|present| present == Some(program)) {
                shared.force(&process, program);
            }
        });
    }

    /// Ends a process that does not read its node's notices.
    pub(crate) fn end_unreading(&self, process: &str) {
        let found = self.processes.with(process, |entry| {
            let known = &entry.remembered;
            (known.pid, known.launch.group.clone())
        });
        // The process has ended already.
        let Ok((program, group)) = found else { return };
        let pid = program.map(|(pid, _)| pid);
        tracing::warn!(process = %group, pid, "reads nothing of what its node tells it: it is ended");
        if let Ok(mut log) = self.logs.writer(&group, "") {
            let _ = writeln!(
                log,
                "-- {group} is ended: it reads nothing of what its node tells it"
            );
        }
        match program {
            Some(program) => self.force(process, program),
            None => self.exited(process, Exit::Lost),
        }
    }

    /// Takes over the processes that ran before the node was restarted. Processes that do not attach again in time are
    /// ended, because they could not get notices.
    pub(crate) fn take_over(self: &Arc<Self>, remembered: Vec<Remembered>) {
        self.clear(&remembered);
        for process in remembered {
            if let Some(exit) = process.ended.clone() {
                let end = End::of(&process, exit, Arc::default());
                self.processes.ended.lock().remember(end.clone());
                self.report_end(end);
                continue;
            }
            let name = process.launch.process.clone();
            let alive = match process.pid {
                Some((pid, started)) => child::started_at(pid) == Some(started),
                None => process.launch.command.is_empty(),
            };
            let program = process.pid;
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
                match program {
                    Some((pid, started)) => {
                        tokio::select! {
                            () = child::ended(pid, started) => {}
                            () = unattached => shared.force(&name, (pid, started)),
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
