//! Control groups of programs (cgroup v2). A group bounds what a program uses, and ends everything that it started,
//! wherever that is now. A node does not guess whether it may make groups, but tries.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_control::node::Exit;
use sealbus_manifest::isolation::Confinement;
use sealbus_seal::Fingerprint;

/// The controllers that keep limits of the manifest.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The group of the node's own process. Beside processes in a group there are no controllers for the groups below it.
/// systemd makes this group (`DelegateSubgroup=node`), or else the node.
const NODE: &str = "node";
/// The group of all programs. Nodes that are in one group share it.
const PROGRAMS: &str = "sealbus";
/// The share of the memory that all programs may use together, in percent. The node needs the rest.
const SHARE: u64 = 85;
/// Most processes and threads of a program, if the manifest says nothing.
const PROCESSES: u64 = 512;
/// The time in which a program's processor time is counted, in microseconds.
const PERIOD: u64 = 100_000;
/// The limit of swapped memory. Without swap the kernel has no such limit.
const SWAP: &str = "memory.swap.max";
/// The name of the group that a node tries begins with this, and ends with its process id.
const TRIED: &str = "tried.";
/// How often, and with which pause, a group is ended until it is empty.
const ATTEMPTS: (usize, Duration) = (1000, Duration::from_millis(5));

/// A process that tries is elsewhere meanwhile, so only one node of a process does so at a time.
static TRYING: Mutex<()> = Mutex::new(());

/// The control groups of a node's programs.
#[derive(Debug)]
pub struct ControlGroups {
    folder: PathBuf,
    /// The names of this node's groups begin with this.
    prefix: String,
    controllers: Vec<&'static str>,
}

/// A new group. It is held until its program is in it, so that other nodes do not remove it. A group without a program is
/// removed.
pub(crate) struct NewGroup {
    pub(crate) folder: PathBuf,
    _held: File,
}

impl Drop for NewGroup {
    fn drop(&mut self) {
        // A group with a program in it stays.
        let _ = fs::remove_dir(&self.folder);
    }
}

impl ControlGroups {
    /// Finds out where groups can be made, and which controllers they have. `directory` is the node's state directory.
    ///
    /// # Errors
    /// No group can be made, entered or ended.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let _turn = TRYING.lock();
        let around = settle_now()?;
        let folder = around.join(PROGRAMS);
        make(&folder)?;
        let controllers = enable(&folder);
        if controllers.contains(&"memory") {
            let most = memory_of(&around) / 100 * SHARE;
            write(&folder.join("memory.max"), &most.to_string())?;
        }
        try_group(&folder.join(format!("{TRIED}{}", std::process::id())))?;
        let directory = directory.canonicalize()?;
        let owner = Fingerprint::of(directory.as_os_str().as_encoded_bytes()).to_string();
        Ok(Self {
            folder,
            prefix: format!("{owner:.12}."),
            controllers,
        })
    }

    /// The folder of the programs' groups.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The controllers that limit programs: some of `cpu`, `memory` and `pids`.
    pub fn controllers(&self) -> &[&'static str] {
        &self.controllers
    }

    /// Makes a group for a process.
    pub(crate) fn group(&self, process: &str, asked: &Confinement) -> io::Result<NewGroup> {
        if process.contains('/') {
            return Err(ErrorKind::InvalidInput.into());
        }
        let folder = self.folder.join(format!("{}{process}", self.prefix));
        end(&folder)?;
        make(&folder)?;
        let held = File::open(&folder)?;
        held.lock_shared()?;
        let group = NewGroup {
            folder,
            _held: held,
        };
        for (file, value) in limits(&self.controllers, asked) {
            let path = group.folder.join(file);
            if file != SWAP || path.exists() {
                write(&path, &value)?;
            }
        }
        Ok(group)
    }

    /// Ends what earlier programs of this node left behind, and removes groups that nobody uses. `running` are the groups
    /// of programs that still run.
    pub(crate) fn clear(&self, running: &HashSet<PathBuf>) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let folder = entry.path();
            if !folder.is_dir() || running.contains(&folder) {
                continue;
            }
            let name = entry.file_name();
            let tries = name.to_str().and_then(|name| name.strip_prefix(TRIED));
            if tries.is_some_and(|pid| Path::new("/proc").join(pid).exists()) {
                continue;
            }
            if name.as_encoded_bytes().starts_with(self.prefix.as_bytes()) {
                end_or_warn(&folder);
            } else if File::open(&folder).is_ok_and(|held| held.try_lock().is_ok()) {
                // The group of a program that still runs stays.
                let _ = fs::remove_dir(&folder);
            }
        }
    }
}

/// Moves this process to a group beside those of programs, if that gives programs controllers. Processes that it starts
/// later are there, too.
///
/// # Errors
/// This process may not manage its group.
pub fn settle() -> io::Result<()> {
    let _turn = TRYING.lock();
    settle_now().map(drop)
}

/// The group around the node's and those of programs.
fn settle_now() -> io::Result<PathBuf> {
    let own = present()?;
    // The root of all groups may have processes beside controllers, and has no type.
    let is_root = !own.join("cgroup.type").exists();
    match own.parent() {
        Some(around) if !is_root && own.ends_with(NODE) => {
            enable(around);
            return Ok(around.to_owned());
        }
        _ => {}
    }
    if is_root || offered(&own).next().is_none() {
        enable(&own);
        return Ok(own);
    }
    let node = own.join(NODE);
    make(&node)?;
    enter(&node)?;
    if enable(&own).is_empty() {
        // Other processes are in the group as well, and are not the node's to move.
        enter(&own)?;
        let _ = fs::remove_dir(node);
    }
    Ok(own)
}

/// The folder of this process's group.
fn present() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    folder_in(&mounts, &groups)
        .ok_or_else(|| io::Error::other("no control groups of version 2 are mounted here"))
}

fn folder_in(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|mount| {
        let (place, kind) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, folder) = (place.next()?, place.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        let is_second_version = kind.starts_with("cgroup2 ");
        is_second_version.then(|| Path::new(folder).join(below))
    })
}

/// Enters a group, and comes back.
fn try_group(folder: &Path) -> io::Result<()> {
    let before = present()?;
    make(folder)?;
    let entered = enter(folder).and_then(|()| enter(&before));
    let can_end = folder.join("cgroup.kill").exists();
    // Processes that this one started meanwhile would keep it.
    let _ = fs::remove_dir(folder);
    match can_end {
        true => entered,
        false => Err(io::Error::other("only Linux 5.14 or later ends groups")),
    }
}

fn enter(folder: &Path) -> io::Result<()> {
    write(&folder.join("cgroup.procs"), "0")
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(about(folder, &error)),
        _ => Ok(()),
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, value).map_err(|error| about(path, &error))
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The controllers that the groups below a group could have.
fn offered(folder: &Path) -> impl Iterator<Item = &'static str> {
    let all = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    CONTROLLERS
        .into_iter()
        .filter(move |wanted| all.split_whitespace().any(|given| given == *wanted))
}

/// Gives controllers to the groups below a group. Returns those that they have.
fn enable(folder: &Path) -> Vec<&'static str> {
    let switch = folder.join("cgroup.subtree_control");
    let enabled = |controller: &&str| fs::write(&switch, format!("+{controller}")).is_ok();
    offered(folder).filter(enabled).collect()
}

/// The memory of this machine, or of the group if that has less, in bytes.
fn memory_of(group: &Path) -> u64 {
    let number = |path: &Path, line: &str| -> Option<u64> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines().filter_map(|found| found.strip_prefix(line));
        lines.next()?.split_whitespace().next()?.parse().ok()
    };
    let machine = number(Path::new("/proc/meminfo"), "MemTotal:").map_or(u64::MAX, |kib| kib << 10);
    number(&group.join("memory.max"), "").map_or(machine, |most| most.min(machine))
}

/// The files of a group that keep the limits of a program, and their values.
fn limits(controllers: &[&str], asked: &Confinement) -> Vec<(&'static str, String)> {
    let mut limits = Vec::new();
    if controllers.contains(&"memory") {
        // A program of which the kernel ended a part would fail in ways that nobody understands.
        limits.push(("memory.oom.group", "1".to_owned()));
        if let Some(memory) = asked.memory {
            limits.push(("memory.max", memory.to_string()));
            limits.push((SWAP, "0".to_owned()));
        }
    }
    if controllers.contains(&"pids") {
        let most = asked.processes.unwrap_or(PROCESSES);
        limits.push(("pids.max", most.to_string()));
    }
    if let Some(thousandths) = asked.cpu.filter(|_| controllers.contains(&"cpu")) {
        let share = thousandths.saturating_mul(PERIOD / 1000);
        limits.push(("cpu.max", format!("{share} {PERIOD}")));
    }
    limits
}

/// Ends every process of a group at once. None escapes by starting others.
pub(crate) fn kill(group: &Path) -> io::Result<()> {
    match fs::write(group.join("cgroup.kill"), "1") {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(about(group, &error)),
        _ => Ok(()),
    }
}

/// Ends every process of a group, and removes the group when the last has ended.
pub(crate) fn end(group: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..ATTEMPTS.0 {
        last = match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => Err(about(group, &error)),
        };
        kill(group)?;
        std::thread::sleep(ATTEMPTS.1);
    }
    last
}

pub(crate) fn end_or_warn(group: &Path) {
    if let Err(error) = end(group) {
        tracing::error!(%error, "what a program left running could not be ended");
    }
}

/// How a program ended, if the kernel ended it because memory ran out.
pub(crate) fn out_of_memory(group: &Path) -> Option<Exit> {
    let events = fs::read_to_string(group.join("memory.events")).ok()?;
    let happened = |event: &str| {
        let mut lines = events.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(name, times)| name == event && times != "0")
    };
    // The kernel counts the first where it looked for memory, and the second where it ended a process.
    let own = happened("oom");
    happened("oom_kill").then_some(Exit::OutOfMemory { own })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// The groups of a node on this machine, or the reason why there are none.
    fn groups(directory: &Path) -> Option<ControlGroups> {
        let opened = ControlGroups::open(directory);
        opened
            .inspect_err(|error| eprintln!("left out: no control groups here ({error})"))
            .ok()
    }

    /// A program in a group.
    fn program(folder: &Path, script: &str) -> Child {
        let script = format!("echo 0 > {}/cgroup.procs; {script}", folder.display());
        let mut command = Command::new("sh");
        let program = command.args(["-c", &script]).stdout(Stdio::piped()).spawn();
        program.unwrap()
    }

    fn said(program: &mut Child) -> String {
        let mut line = String::new();
        let output = program.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    #[test]
    fn a_process_finds_its_group_among_the_mounts() {
        let mounts = "41 31 0:38 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      42 31 0:39 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let groups = "8:pids:/a\n0::/system.slice/sealbus.service\n";
        let folder = "/sys/fs/cgroup/unified/system.slice/sealbus.service";
        assert_eq!(folder_in(mounts, groups), Some(folder.into()));
        // A mount may show only a part of all groups.
        let part = mounts.replace("/ /sys/fs/cgroup/unified", "/system.slice /groups");
        let folder = "/groups/sealbus.service";
        assert_eq!(folder_in(&part, groups), Some(folder.into()));
        assert_eq!(folder_in(&part, "0::/user.slice\n"), None);
        assert_eq!(folder_in(mounts, "8:pids:/a\n"), None);
    }

    #[test]
    fn limits_are_set_as_far_as_there_are_controllers() {
        let asked = Confinement {
            memory: Some(1 << 30),
            cpu: Some(1500),
            ..Confinement::default()
        };
        let all = limits(&CONTROLLERS, &asked);
        let all: Vec<_> = all.iter().map(|(file, it)| (*file, &it[..])).collect();
        assert_eq!(
            all,
            [
                ("memory.oom.group", "1"),
                ("memory.max", "1073741824"),
                (SWAP, "0"),
                ("pids.max", "512"),
                ("cpu.max", "150000 100000"),
            ]
        );
        assert_eq!(limits(&[], &asked), []);
    }

    #[test]
    fn the_kernels_counts_tell_whose_memory_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        let told = |events: &str| {
            fs::write(folder.path().join("memory.events"), events).unwrap();
            out_of_memory(folder.path())
        };
        assert_eq!(told("low 0\noom 0\noom_kill 0\noom_group_kill 0\n"), None);
        let own = true;
        assert_eq!(told("oom 1\noom_kill 3\n"), Some(Exit::OutOfMemory { own }));
        let own = false;
        assert_eq!(told("oom 0\noom_kill 1\n"), Some(Exit::OutOfMemory { own }));
    }

    #[test]
    fn what_left_the_session_of_a_program_ends_with_its_group() {
        let directory = tempfile::tempdir().unwrap();
        let Some(groups) = groups(directory.path()) else {
            return;
        };
        let group = groups.group("escaping", &Confinement::default()).unwrap();
        let folder = group.folder.clone();
        let escape = "setsid sh -c 'sleep 1000 & echo $!'; exec sleep 1000";
        let mut program = program(&folder, escape);
        let escaped: u32 = said(&mut program).parse().unwrap();
        // A group with a program in it stays when it is no longer held.
        drop(group);
        kill(&folder).unwrap();
        program.wait().unwrap();
        end(&folder).unwrap();
        assert!(!folder.exists());
        assert!(super::super::child::started_at(escaped).is_none());
        // There is nothing left to end.
        end(&folder).unwrap();
    }

    #[test]
    fn a_thousand_starts_leave_no_group_over() {
        let directory = tempfile::tempdir().unwrap();
        let Some(groups) = groups(directory.path()) else {
            return;
        };
        for number in 0..1000 {
            let name = format!("p-{number}");
            let group = groups.group(&name, &Confinement::default()).unwrap();
            let folder = group.folder.clone();
            program(&folder, "true").wait().unwrap();
            drop(group);
            end(&folder).unwrap();
        }
        // A start that fails leaves none, either.
        drop(groups.group("failed", &Confinement::default()).unwrap());
        let names = fs::read_dir(groups.folder()).unwrap().flatten();
        let mut names = names.map(|entry| entry.file_name().into_string().unwrap());
        assert!(!names.any(|name| name.starts_with(&groups.prefix)));
    }

    #[test]
    fn a_node_that_starts_ends_what_it_does_not_know_and_nothing_of_others() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (Some(own), Some(others)) = (groups(one.path()), groups(other.path())) else {
            return;
        };
        let nothing = Confinement::default();
        let group = |groups: &ControlGroups, name: &str| groups.group(name, &nothing).unwrap();
        let (known, lost) = (group(&own, "known"), group(&own, "lost"));
        let (run, new) = (group(&others, "runs"), group(&others, "new"));
        let endless = "echo there; exec sleep 1000";
        let folders = [&known, &lost, &run].map(|group| group.folder.clone());
        let mut programs = folders.clone().map(|folder| program(&folder, endless));
        for program in &mut programs {
            said(program);
        }
        drop((known, lost, run));
        own.clear(&HashSet::from([folders[0].clone()]));
        assert_eq!(
            folders.each_ref().map(|it| it.exists()),
            [true, false, true]
        );
        assert!(new.folder.exists());
        for (folder, program) in folders.iter().zip(&mut programs) {
            end(folder).unwrap();
            program.wait().unwrap();
        }
    }
}
