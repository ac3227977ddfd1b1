//! Ending programs with everything that they started, wherever that is now.

use std::collections::HashSet;
use std::sync::Arc;

use super::child::{is_reused, started_at};
use super::control_groups::{end_or_warn, kill, out_of_memory};
use super::descendants;
use super::isolation::is_user_of;
use super::memory::Remembered;
use super::shared::Shared;
use sealbus_control::node::Exit;

/// Ends a program by force, with everything that it started, unless another process has its number by now.
pub(super) fn end_program((pid, started): (u32, u64)) {
    if !is_reused(pid, started) {
        descendants::end(pid);
    }
}

/// The users of programs that no longer run, each with the name of its program.
pub(super) fn users_left(
    remembered: &[Remembered],
    runs: impl Fn(&Remembered) -> bool,
) -> Vec<(u32, &str)> {
    let running = remembered.iter().filter(|&process| runs(process));
    let taken: HashSet<u32> = running.filter_map(|process| process.slot).collect();
    let users = remembered
        .iter()
        .filter_map(|process| Some((process.slot?, process.launch.group.as_str())));
    users.filter(|(uid, _)| !taken.contains(uid)).collect()
}

/// Whether a program that a node remembers is running.
pub(super) fn runs(process: &Remembered) -> bool {
    let program = process.pid;
    program.is_some_and(|(pid, started)| started_at(pid) == Some(started))
}

impl Shared {
    /// Ends a program by force.
    pub(super) fn force(&self, process: &str, program: (u32, u64)) {
        let group = self
            .processes
            .with(process, |entry| entry.remembered.control_group.clone());
        if let Ok(Some(group)) = group
            && let Err(error) = kill(&group)
        {
            tracing::error!(%error, "a program's control group could not be ended");
        }
        end_program(program);
    }

    /// Ends all processes that an ended program left running, even those that left its process group. Returns how the
    /// program ended, which its control group may know better.
    pub(super) async fn sweep(self: &Arc<Self>, process: &str, exit: Exit) -> Exit {
        let known = self.processes.with(process, |entry| {
            let known = &entry.remembered;
            let verdict = entry.verdict.clone();
            (known.slot, known.control_group.clone(), verdict)
        });
        let (slot, group, verdict) = known.unwrap_or_default();
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
        let why = swept.await.ok().flatten();
        match (verdict.or(why), &exit) {
            (Some(why), Exit::Signal { .. } | Exit::Lost) => why,
            _ => exit,
        }
    }

    /// Ends everything that was left behind by programs that ended while the node was away.
    pub(super) fn clear(&self, remembered: &[Remembered]) {
        let mut running = HashSet::new();
        for process in remembered {
            match &process.control_group {
                Some(group) if runs(process) => _ = running.insert(group.clone()),
                Some(group) => end_or_warn(group),
                None => {}
            }
        }
        for (uid, group) in users_left(remembered, runs) {
            // After a restart of the machine, the user may be another program's.
            if is_user_of(uid, self.memory.directory(), group)
                && let Err(error) = self.sealing.end_slot(uid)
            {
                tracing::error!(%error, "what a program left running could not be ended");
            }
        }
        self.sealing.clear(&running);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::memory::tests::remembered;
    use super::*;

    #[test]
    fn a_process_that_got_the_number_of_a_program_is_not_ended_for_it() {
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = other.id();
        let started = started_at(pid).unwrap();
        end_program((pid, started - 1));
        assert_eq!(started_at(pid), Some(started));
        end_program((pid, started));
        assert!(!other.wait().unwrap().success());
    }

    #[test]
    fn the_user_of_a_program_that_ended_is_left_and_that_of_one_that_runs_is_not() {
        let process = |group: &str, slot, started| Remembered {
            slot,
            pid: Some((std::process::id(), started)),
            ..remembered(group)
        };
        let started = started_at(std::process::id()).unwrap();
        let all = [
            process("runs", Some(1), started),
            // An earlier process of the same program.
            process("runs", Some(1), started + 1),
            process("ended", Some(2), started + 1),
            process("shared", None, started + 1),
        ];
        assert_eq!(users_left(&all, runs), [(2, "ended")]);
    }
}
