//! The processes of this node that use channels, and all others that do: each is told of the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{RESOLVING, Shared};
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::names::MASTER;
use sealbus_control::node::{ChannelListing, ask_master};
use sealbus_control::traffic::ask_process;
use sealbus_control::{Fault, FaultCode};

/// The first and the longest pause before the Master is asked again whether the others have been told of a process.
const TOLD: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long the Master, which has other news, waits for the answer that this node's processes have been told of others.
pub(crate) const HEARING: Duration = Duration::from_millis(100);
/// How long a process may take to confirm that it was told of others. Nobody waits longer for it.
const SILENT: Duration = Duration::from_secs(10);

impl Shared {
    /// Lets a process use channels: tells the Master, and then tells the process of the others that use channels,
    /// including all that the Master knew of before. Returns when the others have been told of the process.
    pub(crate) async fn use_channels(self: &Arc<Self>, process: &str) -> Result<(), Fault> {
        if self.processes.uses_channels(process)? {
            // It is told of the others even after a restart of the node.
            self.processes.note(process, &self.memory).await;
        }
        let listing = self.list(process).await?;
        if self.processes.lacks_others(process) {
            self.tell_of_others(process, listing.revision).await?;
        }
        let are_told = async {
            let (mut is_told, mut pause) = (listing.is_told, TOLD.0);
            while !is_told {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(TOLD.1);
                is_told = self.list(process).await?.is_told;
            }
            Ok(())
        };
        tokio::time::timeout(RESOLVING, are_told)
            .await
            .unwrap_or_else(|_| {
                let message = "not all others have heard yet that the process uses channels";
                Err(Fault::new(FaultCode::Unavailable, message))
            })
    }

    /// Asks the Master whether the others have been told that a process uses channels.
    async fn list(&self, process: &str) -> Result<ChannelListing, Fault> {
        let process = process.to_owned();
        let uses = ask_master::UsesChannels { process };
        self.correspondent()?.ask(MASTER, uses, RESOLVING).await
    }

    /// Tells a process of the others that use channels, as of this revision of the directory or later.
    async fn tell_of_others(self: &Arc<Self>, process: &str, revision: u64) -> Result<(), Fault> {
        tokio::time::timeout(RESOLVING, self.until_channels_are_known(revision))
            .await
            .map_err(|_| {
                let message = "the Master does not say which other processes use channels";
                Fault::new(FaultCode::Unavailable, message)
            })?;
        // No news of other processes may come in between.
        let _telling = self.telling.lock().await;
        let (processes, revision) = {
            let replica = self.replica.lock();
            (replica.processes(), replica.revision())
        };
        let away = || Fault::new(FaultCode::Unavailable, "another Master leads: ask again");
        let processes = processes.ok_or_else(away)?;
        if let Some(caller) = self.processes.is_to_hear_of_others(process) {
            let notice = AttachmentNotice::ProcessesAre { processes };
            self.tell(process, &caller, &notice);
        }
        self.processes.told_of_others(process, revision);
        self.await_hearing();
        Ok(())
    }

    /// Waits until the replica has all processes that use channels, as of this revision or later.
    async fn until_channels_are_known(&self, revision: u64) {
        let mut changed = self.heard.subscribe();
        loop {
            {
                let mut replica = self.replica.lock();
                replica.hear_processes(true);
                match replica.revision() >= revision {
                    true if replica.processes().is_some() => return,
                    true => {}
                    false => replica.state_at_once(),
                }
            }
            self.wanting.notify_one();
            // The sender lives as long as the node.
            let _ = changed.changed().await;
        }
    }

    /// The revision of the directory up to which the processes know those that use channels.
    pub(crate) fn heard(&self) -> u64 {
        let told = *self.heard.borrow();
        self.processes.heard(told)
    }

    /// Waits until the processes know those that use channels, up to this revision.
    pub(crate) async fn until_heard(&self, revision: u64) {
        let mut changed = self.heard.subscribe();
        while self.heard() < revision {
            let _ = changed.changed().await;
        }
    }

    /// States to the Master at once that the processes know those that use channels, up to this revision. Others may
    /// wait for that.
    pub(crate) fn state_when_heard(self: &Arc<Self>, revision: u64) {
        let shared = self.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(SILENT, shared.until_heard(revision)).await;
            shared.replica.lock().state_at_once();
            shared.wanting.notify_one();
        });
    }

    /// The processes were told all news up to this revision, or could not be told; `None` while not all others are
    /// known here. Returns the revision if others have joined, or have become known now.
    pub(crate) fn told_news(
        self: &Arc<Self>,
        revision: Option<u64>,
        have_joined: bool,
    ) -> Option<u64> {
        let were_known = *self.heard.borrow() > 0;
        let news = revision.filter(|_| have_joined || !were_known);
        if let Some(revision) = news {
            self.processes.told_news(revision);
        }
        self.heard.send_replace(revision.unwrap_or_default());
        self.await_hearing();
        news
    }

    /// A process has come back. Its welcome tells it which others there are, if they are known here.
    pub(crate) fn came_back(self: &Arc<Self>, process: &str, with_others: bool) {
        if !with_others {
            self.processes.came_back_without_others(process);
        }
        self.heard.send_modify(|_| ());
        self.await_hearing();
    }

    /// Waits for the processes that have not confirmed the latest news yet.
    fn await_hearing(self: &Arc<Self>) {
        for process in self.processes.await_hearing() {
            tokio::spawn(self.clone().until_one_has_heard(process));
        }
    }

    async fn until_one_has_heard(self: Arc<Self>, process: String) {
        let mut changed = self.heard.subscribe();
        let mut until = Instant::now() + SILENT;
        while let Some((told, caller)) = self.processes.awaited(&process) {
            let asked = match caller {
                Some(caller) => {
                    let left = until.saturating_duration_since(Instant::now());
                    caller.ask(ask_process::Heard, left).await.is_ok()
                }
                None => false,
            };
            if asked {
                self.processes.has_heard(&process, told);
                self.heard.send_modify(|_| ());
                until = Instant::now() + SILENT;
                continue;
            }
            // It may come back.
            let waiting = tokio::time::timeout_at(until, changed.changed());
            if until <= Instant::now() || waiting.await.is_err() {
                tracing::warn!(
                    process,
                    "does not say that it has heard which others use channels: they may miss what its agents publish"
                );
                self.processes.is_silent(&process);
                self.heard.send_modify(|_| ());
                return;
            }
        }
    }
}
