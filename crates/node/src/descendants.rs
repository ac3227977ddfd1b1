//! The processes that programs started, as the system knows them.
//!
//! An isolated program is the reaper of its descendants: a process that loses its parent becomes the program's child,
//! and not a stranger. While the program lives, everything that it started can therefore be found. When it has ended,
//! these are the node's children.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rustix::process::{
    Pid, Signal, WaitOptions, getsid, kill_process, kill_process_group, waitpid,
};

/// The most times that new descendants are searched for. Each time, all that were found are stopped, and cannot start others.
const MOST_ROUNDS: usize = 100;
/// The most generations between a program and the process that attaches for it.
const MOST_ANCESTORS: usize = 64;

/// The system's knowledge about a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    /// Whether the process has ended, and only waits for its parent to notice.
    pub(crate) has_ended: bool,
    parent: u32,
    session: u32,
    /// The system's own value for its start time.
    pub(crate) started: u64,
}

/// The facts about a process; `None` if there is no such process.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain blanks. The state, which is the third field, follows it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| -> Option<u64> { fields.get(index - 3)?.parse().ok() };
    Some(Stat {
        has_ended: matches!(fields.first()?, &"Z" | &"X"),
        parent: number(4)?.try_into().ok()?,
        session: number(6)?.try_into().ok()?,
        started: number(22)?,
    })
}

pub(crate) fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = raw(pid) {
        // The process may have ended already.
        let _ = kill_process(pid, signal);
    }
}

fn all() -> BTreeMap<u32, Stat> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// The processes that descend from `pid`.
pub(crate) fn descendants(pid: u32) -> BTreeSet<u32> {
    let all = all();
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|(_, stat)| stat.parent == parent);
        let new = children.filter(|(child, _)| found.insert(**child));
        parents.extend(new.map(|(child, _)| *child).collect::<Vec<_>>());
    }
    found
}

/// Ends a program by force, with its process group and everything that it started, wherever that is now.
pub(crate) fn end(pid: u32) {
    signal(pid, Signal::STOP);
    let mut stopped = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let mut found = descendants(pid);
        found.retain(|process| stopped.insert(*process));
        if found.is_empty() {
            break;
        }
        for process in found {
            signal(process, Signal::STOP);
        }
    }
    if let Some(group) = raw(pid) {
        // It may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    for process in stopped.into_iter().chain([pid]) {
        signal(process, Signal::KILL);
    }
}

/// Makes this process the parent of the processes that its programs leave running when they end.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%error, "what programs leave running cannot be ended");
    }
}

/// Ends processes that programs left running: each is this process's child by now, and has left its session. `programs`
/// names the children that are programs themselves. Returns when all have ended.
pub(crate) fn end_adopted(programs: impl FnOnce() -> HashSet<u32>) {
    let own = std::process::id();
    let Some(session) = getsid(None)
        .ok()
        .map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    else {
        return;
    };
    let all = all();
    // A program is known before it leaves this session, and so before it can be among these.
    let programs = programs();
    for (pid, stat) in all {
        if stat.parent == own && stat.session != session && !programs.contains(&pid) {
            end(pid);
            // Nobody else waits for this process.
            let _ = waitpid(raw(pid), WaitOptions::empty());
        }
    }
}

/// Whether a process is the started program or descends from it. A shell in between is usual.
pub(crate) fn belongs_to(pid: u32, program: u32) -> bool {
    let mut next = Some(pid);
    for _ in 0..MOST_ANCESTORS {
        match next {
            Some(found) if found == program => return true,
            Some(found) if found > 1 => next = stat(found).map(|stat| stat.parent),
            _ => break,
        }
    }
    // Its parent may have ended.
    stat(pid).is_some_and(|stat| stat.session == program)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_ends_with_what_it_started_in_other_sessions() {
        let script =
            "setsid sleep 1000 & echo $!; setsid sh -c 'sleep 1000 & echo $!; wait' & wait";
        let mut program = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let started: Vec<u32> = lines
            .take(2)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        for pid in &started {
            assert!(belongs_to(*pid, program.id()));
            assert!(!belongs_to(program.id(), *pid));
        }
        end(program.id());
        program.wait().unwrap();
        for pid in started {
            // The process that adopts it may not have noticed its end yet.
            while stat(pid).is_some_and(|stat| !stat.has_ended) {
                std::thread::yield_now();
            }
        }
    }
}
