use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

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
    // A group with a program in it stays even if it is no longer held.
    drop(group);
    kill(&folder).unwrap();
    program.wait().unwrap();
    end(&folder).unwrap();
    assert!(!folder.exists());
    assert!(crate::child::started_at(escaped).is_none());
    // There is nothing left to end.
    end(&folder).unwrap();
}

#[test]
fn a_node_that_clears_up_removes_no_group_that_another_one_makes() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (Some(one), Some(other)) = (groups(first.path()), groups(second.path())) else {
        return;
    };
    let made = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !made.load(Ordering::Relaxed) {
                other.clear(&HashSet::new());
            }
        });
        let outcome: io::Result<Vec<_>> = (0..1000)
            .map(|number| {
                let group = one.group(&format!("p-{number}"), &Confinement::default())?;
                fs::metadata(&group.folder)
            })
            .collect();
        made.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
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
    // A start that fails leaves no group either.
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
