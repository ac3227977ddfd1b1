//! The files that belong to a program: the programs behind it, their libraries and packages.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

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
/// Most symbolic links from one to the next.
const MOST_LINKS: usize = 40;

/// The program's file and, if it is a script or a link, each program behind it, with the libraries and packages of each. Some
/// of the paths may not exist.
pub(crate) fn parts_of(program: &Path) -> Vec<PathBuf> {
    let mut parts = Vec::new();
    let mut next = Some(program.to_owned());
    for _ in 0..MOST_LINKS {
        let Some(path) = next.take() else { break };
        parts.extend(beside(&path));
        next = match fs::read_link(&path) {
            Ok(target) => path.parent().map(|folder| folder.join(target)),
            Err(_) => interpreter_of(&path),
        };
        parts.push(path);
    }
    parts
}

/// The files beside a program in a `bin` folder, or in a folder of shims.
fn beside(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let name = folder.file_name().unwrap_or_default();
    match folder.parent() {
        Some(prefix) if name == "shims" => vec![prefix.to_owned()],
        Some(prefix) if name == "bin" && prefix != Path::new("/") => {
            let own = BESIDE_BIN.iter().map(|name| prefix.join(name));
            own.chain(linked_packages(&prefix.join("lib"))).collect()
        }
        _ => Vec::new(),
    }
}

/// The interpreter in the first line of a script.
fn interpreter_of(path: &Path) -> Option<PathBuf> {
    let mut first = [0; 256];
    let read = fs::File::open(path).ok()?.read(&mut first).ok()?;
    let line = first.get(..read)?.strip_prefix(b"#!")?;
    let line = std::str::from_utf8(line.split(|byte| *byte == b'\n').next()?).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

/// The folders of packages that a Python environment uses in place, without a copy of them (`pip install --editable`).
fn linked_packages(library: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir(library).into_iter().flatten().flatten();
    let sites = versions.map(|version| version.path().join("site-packages"));
    let files = sites.flat_map(|site| fs::read_dir(site).into_iter().flatten().flatten());
    let lists = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "pth"));
    let lines = lists.filter_map(|list| fs::read_to_string(list.path()).ok());
    let folders = lines.flat_map(|text| text.lines().map(PathBuf::from).collect::<Vec<_>>());
    folders
        .filter(|folder| folder.is_absolute() && folder.is_dir() && folder.parent().is_some())
        .collect()
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
        let parts = parts_of(&root.join("venv/bin/python"));
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
        assert!(parts_of(&script).contains(&PathBuf::from("/usr/bin/env")));
    }
}
