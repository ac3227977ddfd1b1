//! Freezing a process's agents for a move, and thawing them when the move failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::processes::Frozen;
use super::shared::Shared;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::rpc::Untold;
use sealbus_control::traffic::ask_process;
use sealbus_control::{Blob, Fault, FaultCode, SealedKeys};

/// How long a process may take to freeze.
const FREEZING: Duration = Duration::from_secs(50);
/// How long a process may take to seal its keys.
pub(crate) const KEYS: Duration = Duration::from_secs(10);
/// How long frozen agents are kept for their destination after their process ended.
const FROZEN_KEPT: Duration = Duration::from_secs(300);

impl Shared {
    /// Has all agents of a process frozen. Returns the size of the frozen agents in bytes. A Master that takes over asks
    /// again for what the former one began: it gets the same outcome.
    ///
    /// # Errors
    /// The process cannot be moved, and goes on.
    pub(crate) async fn freeze_process(
        self: &Arc<Self>,
        process: &str,
        destination: &str,
    ) -> Result<u64, Fault> {
        if let Some(size) = self.processes.frozen_for(process, destination) {
            return Ok(size as u64);
        }
        let (waiting, frozen) = oneshot::channel();
        let caller = self.processes.with(process, |entry| {
            let caller = entry.connection.as_ref().map(|(_, caller)| caller.clone());
            let begun = entry.freezing.is_some();
            if caller.is_some() {
                let (_, all) = entry.freezing.get_or_insert_default();
                all.push(waiting);
            }
            caller.map(|caller| (caller, begun))
        })?;
        let (caller, begun) = caller.ok_or_else(|| {
            Fault::new(
                FaultCode::NotPermitted,
                "its process has not attached and cannot be moved",
            )
        })?;
        if begun {
            let ended = || Fault::new(FaultCode::NotPermitted, "its process ended meanwhile");
            return Ok(frozen.await.map_err(|_| ended())?? as u64);
        }
        let kept = Frozen {
            destination: destination.to_owned(),
            bytes: Arc::default(),
        };
        self.processes
            .frozen
            .lock()
            .insert(process.to_owned(), kept);
        let told = caller.try_notify(&AttachmentNotice::Freeze).map_err(untold);
        let result = match told {
            Ok(()) => match tokio::time::timeout(FREEZING, frozen).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(Fault::new(
                    FaultCode::NotPermitted,
                    "its process ended meanwhile",
                )),
                Err(_) => Err(Fault::new(
                    FaultCode::NotPermitted,
                    format!("its `save` hook did not return within {FREEZING:?}"),
                )),
            },
            Err(fault) => Err(fault),
        };
        match result {
            Ok(size) => {
                let (shared, process) = (self.clone(), process.to_owned());
                tokio::spawn(async move { shared.forget_frozen(&process).await });
                Ok(size as u64)
            }
            Err(fault) => {
                self.processes.frozen.lock().remove(process);
                // Parts that still come belong to no move.
                let _ = self.processes.with(process, |entry| entry.freezing = None);
                Err(fault)
            }
        }
    }

    /// The keys of a frozen process for sealed messages, sealed to the process that restores its agents on the node
    /// `from`.
    pub(crate) async fn former_keys(
        &self,
        from: &str,
        process: &str,
        key: Blob,
    ) -> Result<SealedKeys, Fault> {
        // Only the node that may fetch the frozen agents gets their keys.
        self.processes.fetch(from, process, 0)?;
        let caller = self.processes.with(process, |entry| {
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        })?;
        let caller = caller.ok_or_else(|| untold(Untold::Closed))?;
        caller.ask(ask_process::FormerKeys { key }, KEYS).await
    }

    /// Forgets frozen agents some time after their process ended.
    async fn forget_frozen(&self, process: &str) {
        loop {
            tokio::time::sleep(FROZEN_KEPT).await;
            if self.processes.with(process, |_| ()).is_err() {
                self.processes.frozen.lock().remove(process);
                return;
            }
        }
    }

    /// Ends a failed move: the process goes on.
    pub(crate) async fn thaw(&self, process: &str) -> Result<(), Fault> {
        self.processes.frozen.lock().remove(process);
        let caller = self.processes.with(process, |entry| {
            entry.freezing = None;
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        })?;
        match caller {
            Some(caller) => caller.try_notify(&AttachmentNotice::Thaw).map_err(untold),
            None => Ok(()),
        }
    }
}

fn untold(why: Untold) -> Fault {
    Fault::new(FaultCode::Unavailable, why.to_string())
}
