//! The files that belong to a program: the programs behind it, their libraries and packages.
//!
//! A program may be able to change its own script, a link to its interpreter, or its environment. It then chooses the files
//! that belong to it at its next start. Such a choice opens an interpreter, and nothing else outside the program's own
//! folders.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The files that belong to an interpreter, in the folder of its `bin`.
const BESIDE_BIN: [&str; 8] = [
    "pyvenv.cfg",
    "bin",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "share",
    "include",
];
/// The last of these. An interpreter that the program may have chosen goes without it, because other programs keep their
/// data there.
const DATA: &str = "share";
/// Most symbolic links from one to the next.
const MOST_LINKS: usize = 40;
/// Most bytes of a list of folders.
const LONGEST_LIST: u64 = 1 << 20;

/// The program's file and, if it is a script or a link, each program behind it, with the libraries and packages of each. Some
/// of the paths may not exist. `writable` are the real paths of the folders that the program may change.
pub(crate) fn parts_of(program: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
    let mut parts = Vec::new();
    let mut next = Some(program.to_owned());
    // Whether the program may have chosen the path.
    let mut is_chosen = false;
    for _ in 0..MOST_LINKS {
        let Some(path) = next.take() else { break };
        if is_chosen && !is_program(&path) {
            break;
        }
        is_chosen |= may_change(&path, writable);
        parts.extend(beside(&path, is_chosen, writable));
        next = match fs::read_link(&path) {
            Ok(target) => path.parent().map(|folder| folder.join(target)),
            Err(_) => interpreter_of(&path),
        };
        parts.push(path);
    }
    parts
}

/// Whether the program may change what is at a path, or on the way there.
fn may_change(path: &Path, writable: &[PathBuf]) -> bool {
    let mut real = path.ancestors().filter_map(|it| it.canonicalize().ok());
    real.any(|it| writable.iter().any(|own| it.starts_with(own)))
}

fn is_program(path: &Path) -> bool {
    let about = fs::metadata(path);
    about.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The files beside a program in a `bin` folder, or in a folder of shims.
fn beside(program: &Path, is_chosen: bool, writable: &[PathBuf]) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let name = folder.file_name().unwrap_or_default();
    match folder.parent() {
        Some(prefix) if name == "shims" && !is_chosen => vec![prefix.to_owned()],
        Some(prefix) if name == "bin" && prefix != Path::new("/") => {
            let own = BESIDE_BIN.iter().filter(|it| !is_chosen || **it != DATA);
            let own = own.map(|name| prefix.join(name));
            own.chain(linked_packages(&prefix.join("lib"), writable))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The interpreter in the first line of a script.
fn interpreter_of(path: &Path) -> Option<PathBuf> {
    let mut first = [0; 256];
    let read = open(path)?.read(&mut first).ok()?;
    let line = first.get(..read)?.strip_prefix(b"#!")?;
    let line = std::str::from_utf8(line.split(|byte| *byte == b'\n').next()?).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

/// The folders of packages that a Python environment uses in place, without a copy of them (`pip install --editable`). A
/// list that the program may have written opens nothing. The program's own folders are open anyway.
fn linked_packages(library: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
    let versions = fs::read_dir(library).into_iter().flatten().flatten();
    let sites = versions.map(|version| version.path().join("site-packages"));
    let files = sites.flat_map(|site| fs::read_dir(site).into_iter().flatten().flatten());
    let lists = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "pth"));
    let mut found = Vec::new();
    for list in lists.map(|list| list.path()) {
        let is_own = may_change(&list, writable);
        let folders = read(&list).unwrap_or_default();
        let folders = folders.lines().map(PathBuf::from);
        let folders = folders.filter(|it| it.is_absolute() && it.is_dir() && it.parent().is_some());
        for folder in folders {
            if !is_own {
                found.push(folder);
            } else if !may_change(&folder, writable) {
                // This line goes to the program's log, because Python does not report a folder that it cannot see.
                eprintln!(
                    "-- {} stays closed, though {} names it: the program may change that list, so write the folder in `read` \
                     of the manifest",
                    folder.display(),
                    list.display()
                );
            }
        }
    }
    found
}

/// The text of a file.
fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    open(path)?
        .take(LONGEST_LIST)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// Opens a file for reading. The program may have put anything else in its place, such as a pipe to which nobody writes.
fn open(path: &Path) -> Option<fs::File> {
    fs::metadata(path).ok().filter(|it| it.is_file())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    Some(opened.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_environments_interpreter_comes_with_the_one_behind_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        for folder in [
            "python/bin",
            "venv/bin",
            "venv/lib/python3/site-packages",
            "source",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("python/bin/python3"), "").unwrap();
        let source = root.join("source");
        let list = root.join("venv/lib/python3/site-packages/own.pth");
        fs::write(list, format!("import this\n{}\n/\n", source.display())).unwrap();
        symlink(
            root.join("python/bin/python3"),
            root.join("venv/bin/python"),
        )
        .unwrap();
        let parts = parts_of(&root.join("venv/bin/python"), &[]);
        for part in [
            "python/bin/python3",
            "python/lib",
            "venv/pyvenv.cfg",
            "source",
        ] {
            assert!(parts.contains(&root.join(part)), "{part}: {parts:?}");
        }
        assert!(!parts.contains(&root.join("python")) && !parts.contains(&PathBuf::from("/")));
    }

    #[test]
    fn a_scripts_interpreter_is_part_of_it() {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("agent");
        fs::write(&script, "#!/usr/bin/env python3\n").unwrap();
        let parts = parts_of(&script, &[]);
        assert!(parts.contains(&PathBuf::from("/usr/bin/env")));
    }

    /// The program made the pipe before it was started again.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_in_the_place_of_a_script_holds_up_nobody() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().canonicalize().unwrap();
        let script = own.join("agent");
        let (pipe, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &script, pipe, mode, 0).unwrap();
        let (found, parts) = std::sync::mpsc::channel();
        let program = script.clone();
        std::thread::spawn(move || found.send(parts_of(&program, &[own])));
        let parts = parts.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(parts.unwrap(), [script]);
    }

    fn program(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The program wrote them before it was started again.
    #[test]
    fn a_program_does_not_choose_by_its_own_files_what_it_may_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (own, home) = (root.join("own"), root.join("home"));
        let writable = [own.clone()];
        let script = own.join("agent");
        program(&home.join("shims/x"), "");
        fs::create_dir_all(home.join("secrets")).unwrap();
        fs::write(home.join("secrets/key"), "").unwrap();
        let interpreted_by = |path: &str| {
            program(&script, &format!("#!{}\n", home.join(path).display()));
            parts_of(&script, &writable)
        };
        assert!(!interpreted_by("shims/x").contains(&home));
        assert!(!interpreted_by("secrets/key").contains(&home.join("secrets/key")));
        // The files of others count as before.
        assert!(parts_of(&script, &[]).contains(&home.join("secrets/key")));
        assert!(parts_of(&home.join("shims/x"), &writable).contains(&home));
    }

    #[test]
    fn an_environment_that_its_program_may_change_has_an_interpreter_and_no_folders_of_others() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (own, python) = (root.join("own"), root.join("python"));
        program(&python.join("bin/python3"), "");
        let site = own.join("venv/lib/python3/site-packages");
        fs::create_dir_all(&site).unwrap();
        let source = root.join("source");
        fs::create_dir_all(&source).unwrap();
        fs::write(site.join("own.pth"), source.display().to_string()).unwrap();
        fs::create_dir_all(own.join("venv/bin")).unwrap();
        symlink(python.join("bin/python3"), own.join("venv/bin/python")).unwrap();
        let parts = parts_of(&own.join("venv/bin/python"), std::slice::from_ref(&own));
        for part in ["python/bin/python3", "python/lib", "own/venv/pyvenv.cfg"] {
            assert!(parts.contains(&root.join(part)), "{part}: {parts:?}");
        }
        for part in ["source", "python/share"] {
            assert!(!parts.contains(&root.join(part)), "{part}: {parts:?}");
        }
        // A folder on the way may be a link of the program, too.
        symlink(&python, own.join("current")).unwrap();
        let parts = parts_of(&own.join("current/bin/python3"), &[own]);
        assert!(
            !parts.contains(&root.join("own/current/share")),
            "{parts:?}"
        );
    }
}
