//! The end of programs with everything that they started, wherever that is now.

use std::collections::HashSet;
use std::sync::Arc;

use super::child::started_at;
use super::control_groups::{end_or_warn, kill, out_of_memory};
use super::descendants;
use super::memory::Remembered;
use super::shared::Shared;
use sealbus_control::node::Exit;

impl Shared {
    /// Ends a program by force.
    pub(super) fn force(&self, process: &str, pid: u32) {
        let group = self
            .processes
            .with(process, |entry| entry.remembered.control_group.clone());
        if let Ok(Some(group)) = group
            && let Err(error) = kill(&group)
        {
            tracing::error!(%error, "a program's control group could not be ended");
        }
        descendants::end(pid);
    }

    /// Ends all processes that an ended program left running, even processes that left its process group. Returns how the
    /// program ended, which its control group may know better.
    pub(super) async fn sweep(self: &Arc<Self>, process: &str, exit: Exit) -> Exit {
        let known = self.processes.with(process, |entry| {
            let known = &entry.remembered;
            (known.slot, known.control_group.clone())
        });
        let (slot, group) = known.unwrap_or_default();
        let shared = self.clone();
        let swept = tokio::task::spawn_blocking(move || {
            let why = group.as_deref().and_then(out_of_memory);
            if let Some(group) = group {
                end_or_warn(&group);
            }
            if let Some(Err(error)) = slot.map(|uid| shared.sealing.end_slot(uid)) {
                tracing::error!(%error, "what a program left running could not be ended");
            }
            descendants::end_adopted(|| shared.processes.pids());
            why
        });
        match (swept.await, &exit) {
            (Ok(Some(why)), Exit::Signal { .. } | Exit::Lost) => why,
            _ => exit,
        }
    }

    /// Ends what programs left behind that ended while the node was away.
    pub(super) fn clear(&self, remembered: &[Remembered]) {
        let mut running = HashSet::new();
        for process in remembered {
            let runs = process
                .pid
                .is_some_and(|(pid, started)| started_at(pid) == Some(started));
            match &process.control_group {
                Some(group) if runs => _ = running.insert(group.clone()),
                Some(group) => end_or_warn(group),
                None => {}
            }
        }
        self.sealing.clear(&running);
    }
}
