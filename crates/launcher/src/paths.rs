//! The files and folders that a program may touch: those of the system, those of its interpreter, its own, and those
//! that the manifest adds.
//!
//! Landlock takes a list of allowed paths without exceptions. If a hidden folder lies in an allowed one, each entry
//! beside the hidden folder is therefore allowed by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sealbus_manifest::isolation::Isolation;

use super::interpreter::parts_of;
use super::plan::Plan;
use super::settings::{SETTINGS, public_settings};
use super::way::{is_closed_to, links};

/// A program's right to a file, or to everything in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// See the names in the folder and in those below it.
    List,
    /// Read and execute.
    Read,
    /// Read and write, and nothing else: a device.
    Use,
    /// Everything.
    Write,
}

/// The paths that a program may touch.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The rights, by path. The paths have no symbolic links in them.
    pub(crate) rights: BTreeMap<PathBuf, Right>,
    /// Paths without which the program cannot work, and the rights that it needs there.
    pub(crate) needed: BTreeSet<(PathBuf, Right)>,
    /// The symbolic links on the way to these paths, and their targets. The links' own paths have no links in them.
    pub(crate) links: BTreeMap<PathBuf, PathBuf>,
    /// The program's own user, if it gets one.
    pub(crate) user: Option<u32>,
    /// Folders that the program may change.
    writable: Vec<PathBuf>,
    /// The meeting places that the program does not see.
    covered: Vec<PathBuf>,
}

/// The system's programs and libraries.
const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
];
/// The system's facts about itself. A program sees no other process in `/proc`.
const FACTS: [&str; 14] = [
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/fs/cgroup",
    // Often a link to a file that the network's daemon writes.
    "/etc/resolv.conf",
];
/// Devices without a state.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
impl Paths {
    /// Finds the paths that the program of a plan may touch.
    ///
    /// # Errors
    /// A path that the manifest names does not exist, or cannot be looked at.
    pub(crate) fn of(plan: &Plan) -> Result<Self, (PathBuf, io::Error)> {
        let hidden: Vec<PathBuf> = plan
            .hidden
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let writable = plan.confinement.write.iter();
        let writable = writable.map(Path::new).chain([&*plan.work]);
        let writable = writable.filter_map(|path| path.canonicalize().ok());
        let mut paths = Self {
            writable: writable.collect(),
            covered: plan.meeting_places(),
            user: plan.slot.filter(|_| plan.mode == Isolation::Uid),
            ..Self::default()
        };
        for path in SYSTEM.iter().chain(&FACTS) {
            paths.allow_if_there(Path::new(path), Right::Read, &hidden);
        }
        for path in DEVICES {
            paths.allow_if_there(Path::new(path), Right::Use, &hidden);
        }
        let settings = Path::new(SETTINGS);
        match plan.mode {
            // The program stays root, but root's own files are not for it.
            Isolation::Landlock | Isolation::Namespace if rustix::process::geteuid().is_root() => {
                let public = plan.public.clone();
                paths.allow_public(settings, public.unwrap_or_else(public_settings));
            }
            _ => paths.allow_if_there(settings, Right::Read, &hidden),
        }
        for part in parts_of(&plan.program, &paths.writable) {
            paths.allow_if_there(&part, Right::Read, &hidden);
        }
        paths.demand(&plan.program, Right::Read, &hidden)?;
        paths.allow_packages_of_user(plan.home.as_deref(), &hidden);
        paths.allow_programs_folder(plan, &hidden)?;
        for path in &plan.confinement.read {
            paths.demand_named(Path::new(path), Right::Read, &hidden)?;
        }
        for path in &plan.confinement.write {
            paths.demand_named(Path::new(path), Right::Write, &hidden)?;
        }
        paths.demand(&plan.work, Right::Write, &[])?;
        if let Some(folder) = &plan.attachment {
            paths.demand(folder, Right::List, &[])?;
        }
        if plan.mode >= Isolation::Namespace {
            // The program's shared memory is its own by now.
            paths.allow_if_there(Path::new(SHARED_MEMORY), Right::Write, &[]);
        }
        Ok(paths)
    }

    /// The folder in which the program starts, and the files that its command line names.
    fn allow_programs_folder(
        &mut self,
        plan: &Plan,
        hidden: &[PathBuf],
    ) -> Result<(), (PathBuf, io::Error)> {
        let home = plan.home.as_deref();
        self.demand_folder(&plan.directory, home, hidden)?;
        let named = plan
            .arguments
            .iter()
            .map(|argument| plan.directory.join(argument));
        for (index, file) in named.filter(|path| path.is_file()).enumerate() {
            // The first is the script, which may import the files beside it.
            match file.parent() {
                Some(folder) if index == 0 => self.demand_folder(folder, home, hidden)?,
                _ => {}
            }
            self.demand_named(&file, Right::Read, hidden)?;
        }
        Ok(())
    }

    /// In a folder that others use too, the program gets only its own files, and not a whole home with all its secrets.
    fn demand_folder(
        &mut self,
        folder: &Path,
        home: Option<&Path>,
        hidden: &[PathBuf],
    ) -> Result<(), (PathBuf, io::Error)> {
        self.check_way(folder)?;
        let real = self
            .real(folder)
            .map_err(|error| (folder.to_owned(), error))?;
        let is_shared = ["/", "/home", "/tmp", "/var/tmp"]
            .iter()
            .any(|shared| real == Path::new(shared))
            || home.is_some_and(|home| home.canonicalize().is_ok_and(|home| home == real));
        if !is_shared {
            return self.demand(&real, Right::Read, hidden);
        }
        self.needed.insert((real.clone(), Right::List));
        let is_dotted =
            |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
        for entry in fs::read_dir(&real)
            .map_err(|error| (real.clone(), error))?
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && !is_dotted(&entry) {
                self.allow(&entry.path(), Right::Read, hidden);
            }
        }
        Ok(())
    }

    /// Allows a path that the manifest names.
    fn demand_named(
        &mut self,
        path: &Path,
        right: Right,
        hidden: &[PathBuf],
    ) -> Result<(), (PathBuf, io::Error)> {
        self.check_way(path)?;
        self.demand(path, right, hidden)
    }

    /// Refuses a path that leads out of a folder that the program may change. Otherwise the program could put a link
    /// there, and choose the files that it may open at its next start.
    fn check_way(&self, path: &Path) -> Result<(), (PathBuf, io::Error)> {
        let own = |path: &Path| self.writable.iter().find(|it| path.starts_with(it));
        for (link, _) in links(path) {
            let around = link.parent().and_then(own);
            if let (Some(folder), Ok(target)) = (around, link.canonicalize())
                && own(&target).is_none()
            {
                let (folder, target) = (folder.display(), target.display());
                let why = io::Error::other(format!(
                    "it leads out of {folder}, which the program may change: write {target} in the manifest instead"
                ));
                return Err((path.to_owned(), why));
            }
        }
        Ok(())
    }

    /// The path without symbolic links in it. The program also gets the links on the way.
    fn real(&mut self, path: &Path) -> io::Result<PathBuf> {
        // In a folder where everybody may make links, the kernel may refuse to follow another user's link.
        fs::metadata(path)?;
        self.links.extend(links(path));
        path.canonicalize()
    }

    fn demand(
        &mut self,
        path: &Path,
        right: Right,
        hidden: &[PathBuf],
    ) -> Result<(), (PathBuf, io::Error)> {
        let real = self.real(path).map_err(|error| (path.to_owned(), error))?;
        self.allow(&real, right, hidden);
        self.needed.insert((real, right));
        Ok(())
    }

    fn allow_if_there(&mut self, path: &Path, right: Right, hidden: &[PathBuf]) {
        if let Ok(real) = self.real(path) {
            self.allow(&real, right, hidden);
        }
    }

    /// Allows a path that has no symbolic links in it, but nothing in hidden folders.
    fn allow(&mut self, path: &Path, right: Right, hidden: &[PathBuf]) {
        if hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
            return self.grant(path, right);
        }
        self.grant(path, Right::List);
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries {
            let path = entry.path();
            // A right to a folder opens no meeting place in it, and no folder in it that is closed to the program's user.
            let is_closed = self.user.is_some_and(|user| is_closed_to(user, &path));
            if is_closed || self.covered.contains(&path) {
                continue;
            }
            // The target of a link has rights of its own.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.allow(&path, right, hidden);
            }
        }
    }

    fn grant(&mut self, path: &Path, right: Right) {
        let known = self.rights.entry(path.to_owned()).or_insert(right);
        *known = right.max(*known);
    }

    /// Allows the paths in a folder that everybody may read.
    fn allow_public(&mut self, folder: &Path, public: Vec<PathBuf>) {
        self.grant(folder, Right::List);
        for path in public {
            self.grant(&path, Right::Read);
        }
    }

    /// Python packages that the user installed for all of the user's programs.
    fn allow_packages_of_user(&mut self, home: Option<&Path>, hidden: &[PathBuf]) {
        if let Some(home) = home {
            self.allow_if_there(&home.join(".local/lib"), Right::Read, hidden);
        }
    }
}

/// Shared memory by name.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::settings::public_parts;
    use super::*;

    fn make(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }

    fn right_to(paths: &Paths, path: &Path) -> Option<Right> {
        let mut found = path.ancestors().filter_map(|path| paths.rights.get(path));
        found.next().copied()
    }

    #[test]
    fn what_lies_beside_a_hidden_folder_is_allowed_and_nothing_in_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(
            &root,
            &["agent.py", "lib/a.py", "deep/state/node.json", "deep/b.py"],
        );
        let hidden = [root.join("deep/state")];
        let mut paths = Paths::default();
        paths.allow(&root, Right::Read, &hidden);
        for file in ["agent.py", "lib/a.py", "deep/b.py"] {
            assert_eq!(
                right_to(&paths, &root.join(file)),
                Some(Right::Read),
                "{file}"
            );
        }
        assert_eq!(
            right_to(&paths, &root.join("deep/state/node.json")),
            Some(Right::List)
        );
        paths.allow(&root.join("deep/state/node.json"), Right::Read, &hidden);
        assert_eq!(
            right_to(&paths, &root.join("deep/state/node.json")),
            Some(Right::List)
        );
    }

    #[test]
    fn a_meeting_place_is_open_only_if_it_is_named() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(&root, &["tmp/socket", "state/key"]);
        let (tmp, hidden) = (root.join("tmp"), [root.join("state")]);
        let mut paths = Paths::default();
        paths.covered.push(tmp.clone());
        for (named, right) in [(&root, None), (&tmp, Some(&Right::Read))] {
            paths.allow(named, Right::Read, &hidden);
            // The view has every path to which there is a right.
            assert_eq!(paths.rights.get(&tmp), right);
        }
    }

    #[test]
    fn a_folder_that_is_closed_to_the_programs_user_is_open_only_if_it_is_named() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(&root, &["home/venv/bin/python", "open/file", "state/key"]);
        let (home, open) = (root.join("home"), root.join("open"));
        let hidden = [root.join("state")];
        for (folder, mode) in [(&home, 0o700), (&open, 0o755)] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut paths = Paths {
            user: Some(70_000),
            ..Paths::default()
        };
        for (named, right) in [(&root, None), (&home, Some(&Right::Read))] {
            paths.allow(named, Right::Read, &hidden);
            assert_eq!(paths.rights.get(&home), right);
        }
        assert!(paths.rights.contains_key(&open));
    }

    #[test]
    fn a_link_beside_a_hidden_folder_gives_no_right_to_its_target() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(&root, &["work/state/key", "other/secret"]);
        symlink(root.join("other"), root.join("work/link")).unwrap();
        let mut paths = Paths::default();
        paths.allow(&root.join("work"), Right::Read, &[root.join("work/state")]);
        assert_eq!(right_to(&paths, &root.join("other/secret")), None);
    }

    #[test]
    fn a_program_in_the_home_opens_its_files_and_none_of_its_secrets() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(&root, &["agent.py", ".netrc", ".ssh/id", "letters/a"]);
        let mut paths = Paths::default();
        paths.demand_folder(&root, Some(&root), &[]).unwrap();
        assert_eq!(right_to(&paths, &root.join("agent.py")), Some(Right::Read));
        for file in [".netrc", ".ssh/id", "letters/a"] {
            assert_eq!(right_to(&paths, &root.join(file)), None, "{file}");
        }
    }

    /// The program made the links before it was started again.
    #[test]
    fn links_in_a_folder_that_a_program_may_change_lead_nowhere_else() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(&root, &["data/own/file", "secret/key", "models/model"]);
        let data = root.join("data");
        symlink(root.join("secret/key"), data.join("config")).unwrap();
        symlink(root.join("secret"), data.join("folder")).unwrap();
        symlink("own/file", data.join("inside")).unwrap();
        symlink(data.join("config"), root.join("config")).unwrap();
        symlink(data.join("folder"), root.join("entry")).unwrap();
        let mut paths = Paths {
            writable: vec![data.clone()],
            ..Paths::default()
        };
        for path in [
            "data/config",
            "data/folder",
            "data/folder/key",
            "config",
            "entry/key",
        ] {
            let named = paths.demand_named(&root.join(path), Right::Read, &[]);
            let (refused, why) = named.unwrap_err();
            assert_eq!(refused, root.join(path));
            assert!(why.to_string().contains("may change"), "{why}");
            let folder = paths.demand_folder(&root.join(path), None, &[]);
            assert!(folder.is_err(), "{path}");
        }
        for path in [
            "data",
            "data/own/file",
            "data/inside",
            "data/../models/model",
        ] {
            let named = paths.demand_named(&root.join(path), Right::Read, &[]);
            named.unwrap_or_else(|(path, why)| panic!("{}: {why}", path.display()));
        }
        assert_eq!(right_to(&paths, &root.join("secret/key")), None);
    }

    #[test]
    fn of_a_folder_for_everybody_only_what_is_public_is_allowed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        make(
            &root,
            &["hosts", "shadow", "ssh/config", "ssh/key", "fonts/a"],
        );
        let close = |file: &str| {
            fs::set_permissions(root.join(file), fs::Permissions::from_mode(0o600)).unwrap()
        };
        close("shadow");
        close("ssh/key");
        let mut paths = Paths::default();
        paths.allow_public(&root, public_parts(&root));
        for file in ["hosts", "ssh/config", "fonts/a"] {
            assert_eq!(
                right_to(&paths, &root.join(file)),
                Some(Right::Read),
                "{file}"
            );
        }
        for file in ["shadow", "ssh/key"] {
            assert_eq!(
                right_to(&paths, &root.join(file)),
                Some(Right::List),
                "{file}"
            );
        }
        assert!(paths.rights.contains_key(&root.join("fonts")));
    }
}
