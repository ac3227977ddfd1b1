//! Ending the programs of a node that is gone. A node that is killed leaves them running.

use std::path::Path;
use std::time::{Duration, Instant};

use super::child;
use super::control_groups;
use super::descendants;
use super::ending::{self, users_left};
use super::isolation::{end_slot, is_user_of};
use super::memory::{Memory, MemoryError};

/// How often the programs are checked for their end.
const LOOK: Duration = Duration::from_millis(20);
/// How long the system may take to end a process by force.
const FORCED: Duration = Duration::from_secs(5);

/// A program whose node is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// The program's process group in the manifest.
    pub group: String,
    /// The program's process id.
    pub pid: u32,
    /// Whether it still runs.
    pub still_runs: bool,
}

/// Ends the remaining programs that the node with this state directory started. They have `grace` to end by themselves.
/// The node must no longer run.
///
/// # Errors
/// [`MemoryError`] if the node's notes cannot be read.
pub async fn end_left_behind(
    directory: &Path,
    grace: Duration,
) -> Result<Vec<LeftBehind>, MemoryError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let runs = |pid: u32, started: u64| child::started_at(pid) == Some(started);
    let remembered = Memory::open(directory)?.processes()?;
    let left = users_left(&remembered, ending::runs).into_iter();
    let left = left.filter(|(uid, group)| is_user_of(*uid, directory, group));
    let mut slots: Vec<u32> = left.map(|(uid, _)| uid).collect();
    let mut found = Vec::new();
    let mut groups = Vec::new();
    for remembered in remembered {
        groups.extend(remembered.control_group);
        if let Some((pid, started)) = remembered.pid
            && runs(pid, started)
        {
            child::terminate((pid, started));
            slots.extend(remembered.slot);
            found.push((remembered.launch.group, pid, started));
        }
    }
    let all_ended =
        |found: &[(String, u32, u64)]| found.iter().all(|(_, pid, started)| !runs(*pid, *started));
    wait(grace, || all_ended(&found)).await;
    for (_, pid, started) in &found {
        if runs(*pid, *started) {
            descendants::end(*pid);
        }
    }
    for group in groups {
        control_groups::end_or_warn(&group);
    }
    if let Ok(launcher) = std::env::current_exe() {
        for uid in slots {
            // The return value names the processes that still run.
            let _ = end_slot(&launcher, uid);
        }
    }
    wait(FORCED, || all_ended(&found)).await;
    let left = found.into_iter().map(|(group, pid, started)| LeftBehind {
        group,
        pid,
        still_runs: runs(pid, started),
    });
    Ok(left.collect())
}

async fn wait(patience: Duration, is_over: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_over() && since.elapsed() < patience {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::super::memory::Remembered;
    use super::*;

    fn remembered(group: &str, pid: u32, started: u64) -> Remembered {
        Remembered {
            pid: Some((pid, started)),
            ..super::super::memory::tests::remembered(group)
        }
    }

    #[tokio::test]
    async fn what_a_killed_node_started_is_ended_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let stubborn = "trap '' TERM; while :; do sleep 1; done";
        let mut programs: Vec<_> = ["exec sleep 1000", stubborn, "exec sleep 1000"]
            .into_iter()
            .map(|script| {
                let mut command = Command::new("sh");
                command.args(["-c", script]).process_group(0);
                command.spawn().unwrap()
            })
            .collect();
        let pids: Vec<u32> = programs.iter().map(std::process::Child::id).collect();
        let started = |pid: u32| child::started_at(pid).unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        for program in [
            remembered("a", pids[0], started(pids[0])),
            remembered("b", pids[1], started(pids[1])),
            // This number belongs to another program by now.
            remembered("c", pids[2], started(pids[2]) + 1),
        ] {
            memory.keep_process(&program).unwrap();
        }
        let grace = Duration::from_millis(200);
        let ended = end_left_behind(directory.path(), grace).await.unwrap();
        let ended: Vec<_> = ended
            .into_iter()
            .map(|found| (found.group, found.pid, found.still_runs))
            .collect();
        assert_eq!(
            ended,
            [
                ("a".to_owned(), pids[0], false),
                ("b".to_owned(), pids[1], false)
            ]
        );
        assert!(programs[2].try_wait().unwrap().is_none());
        programs[2].kill().unwrap();
        for mut program in programs {
            program.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn a_node_that_never_was_left_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let nowhere = directory.path().join("node-1");
        let ended = end_left_behind(&nowhere, Duration::ZERO).await.unwrap();
        assert_eq!(ended, []);
        assert!(!nowhere.exists());
    }
}
