//! Control groups of programs (cgroup v2). A group limits what a program uses, and can end everything that it has
//! started, wherever that is now. A node does not guess whether it may make groups, but tries.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_control::node::Exit;
use sealbus_manifest::isolation::Confinement;
use sealbus_seal::Fingerprint;

/// The controllers that enforce limits of the manifest.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The group of the node's own process. A group that has processes itself cannot give controllers to the groups below
/// it. Either systemd (`DelegateSubgroup=node`) or the node makes this group.
const NODE: &str = "node";
/// The group of all programs. Nodes in the same group share it.
const PROGRAMS: &str = "sealbus";
/// The share of the memory that all programs may use together, in percent. The node needs the rest.
const SHARE: u64 = 85;
/// The most processes and threads of a program, unless the manifest says otherwise.
const PROCESSES: u64 = 512;
/// The period over which a program's processor time is counted, in microseconds.
const PERIOD: u64 = 100_000;
/// The limit of swapped memory. Without swap the kernel has no such limit.
const SWAP: &str = "memory.swap.max";
/// The name of a group that a node makes to try begins with this, and ends with the node's process id.
const TRIED: &str = "tried.";
/// How often a group is ended until it is empty, and the pause in between.
const ATTEMPTS: (usize, Duration) = (1000, Duration::from_millis(5));

/// While a process tries, it is in another group, so only one node of a process tries at a time.
static TRYING: Mutex<()> = Mutex::new(());

/// The control groups of a node's programs.
#[derive(Debug)]
pub struct ControlGroups {
    folder: PathBuf,
    /// The prefix of the names of this node's groups.
    prefix: String,
    controllers: Vec<&'static str>,
}

/// A new group. It is held until its program is in it, so that other nodes do not remove it. A group without a program
/// is removed.
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
    /// If no group can be made, entered or ended.
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
        let group = make_held(folder)?;
        for (file, value) in limits(&self.controllers, asked) {
            let path = group.folder.join(file);
            if file != SWAP || path.exists() {
                write(&path, &value)?;
            }
        }
        Ok(group)
    }

    /// Ends everything that earlier programs of this node left behind, and removes groups that nobody uses. `running`
    /// are the groups of programs that still run.
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
            } else if let Ok(held) = File::open(&folder)
                && held.try_lock().is_ok()
            {
                // The group of a program that still runs stays. The lock lasts until the folder is gone.
                let _ = fs::remove_dir(&folder);
            }
        }
    }
}

/// Moves this process to a group beside those of programs, if that gives programs controllers. Processes that it starts
/// later are in that group, too.
///
/// # Errors
/// If this process may not manage its group.
pub fn settle() -> io::Result<()> {
    let _turn = TRYING.lock();
    settle_now().map(drop)
}

/// The group that contains the node's group and those of programs.
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
        // Other processes are in the group as well, and the node must not move them.
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

/// Tries to enter a group, and comes back.
fn try_group(folder: &Path) -> io::Result<()> {
    let before = present()?;
    make(folder)?;
    let entered = enter(folder).and_then(|()| enter(&before));
    let can_end = folder.join("cgroup.kill").exists();
    // Processes that this one started in the meantime would keep the group.
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

/// Makes a group that other nodes leave alone. A node that clears up may remove the group before it is held.
fn make_held(folder: PathBuf) -> io::Result<NewGroup> {
    let mut attempts = 0..ATTEMPTS.0;
    loop {
        make(&folder)?;
        let held = File::open(&folder).and_then(|held| held.lock_shared().map(|()| held));
        match held.and_then(|held| fs::metadata(&folder).map(|_| held)) {
            Ok(_held) => return Ok(NewGroup { folder, _held }),
            Err(error) if error.kind() == ErrorKind::NotFound && attempts.next().is_some() => {}
            Err(error) => return Err(about(&folder, &error)),
        }
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

/// The memory of this machine or, if it has less, of the group, in bytes.
fn memory_of(group: &Path) -> u64 {
    let number = |path: &Path, line: &str| -> Option<u64> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines().filter_map(|found| found.strip_prefix(line));
        lines.next()?.split_whitespace().next()?.parse().ok()
    };
    let machine = number(Path::new("/proc/meminfo"), "MemTotal:").map_or(u64::MAX, |kib| kib << 10);
    number(&group.join("memory.max"), "").map_or(machine, |most| most.min(machine))
}

/// The files of a group that set the limits of a program, and their values.
fn limits(controllers: &[&str], asked: &Confinement) -> Vec<(&'static str, String)> {
    let mut limits = Vec::new();
    if controllers.contains(&"memory") {
        // If the kernel ended only a part of a program, it would fail in ways that nobody understands.
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

/// Ends every process of a group at once. None can escape by starting others.
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

/// How a program ended, if the kernel ended it for lack of memory.
pub(crate) fn out_of_memory(group: &Path) -> Option<Exit> {
    let events = fs::read_to_string(group.join("memory.events")).ok()?;
    let happened = |event: &str| {
        let mut lines = events.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(name, times)| name == event && times != "0")
    };
    // The kernel counts `oom` where it looked for memory, and `oom_kill` where it ended a process.
    let own = happened("oom");
    happened("oom_kill").then_some(Exit::OutOfMemory { own })
}

#[cfg(test)]
mod tests;
