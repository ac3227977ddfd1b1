//! A program's own view of the file system: hidden folders are covered by empty ones, and so are folders that the
//! program's user may not pass. The paths in them that the program needs are put back in their places, and so are the links on
//! the way to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::paths::Paths;
use super::way::closed_to;

/// A change of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// An empty folder takes the place of this one.
    Cover(PathBuf),
    /// This path, which was covered, is there again.
    Keep(PathBuf),
    /// This symbolic link, which was covered, is there again, with its target.
    Link(PathBuf, PathBuf),
}

impl Mount {
    fn path(&self) -> &Path {
        match self {
            Self::Cover(path) | Self::Keep(path) | Self::Link(path, _) => path,
        }
    }
}

/// The changes for a program, in their order. `hidden` has no symbolic links in it.
pub(crate) fn changes(paths: &Paths, hidden: &[PathBuf]) -> Vec<Mount> {
    let keeps: BTreeSet<PathBuf> = paths.rights.keys().cloned().collect();
    let mut covers: BTreeSet<PathBuf> = hidden.iter().cloned().collect();
    if let Some(user) = paths.user {
        let closed = keeps.iter().flat_map(|path| closed_to(user, path));
        covers.extend(closed.map(Path::to_owned));
    }
    arrange(&keeps, &covers, &paths.links)
}

fn arrange(
    keeps: &BTreeSet<PathBuf>,
    covers: &BTreeSet<PathBuf>,
    links: &BTreeMap<PathBuf, PathBuf>,
) -> Vec<Mount> {
    let mut arranged: Vec<Mount> = Vec::new();
    // A folder comes before its contents.
    for path in keeps | covers {
        match (keeps.contains(&path), is_covered(&path, &arranged)) {
            (true, true) => arranged.push(Mount::Keep(path)),
            (false, false) => arranged.push(Mount::Cover(path)),
            _ => {}
        }
    }
    for (link, target) in links {
        if is_covered(link, &arranged) {
            arranged.push(Mount::Link(link.clone(), target.clone()));
        }
    }
    arranged
}

/// Whether a path is in a covered folder after these changes.
fn is_covered(path: &Path, arranged: &[Mount]) -> bool {
    let mut last = arranged.iter().rev();
    let around = last.find(|mount| path.starts_with(mount.path()));
    matches!(around, Some(Mount::Cover(_)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::paths::Right;
    use super::*;

    fn set(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_is_needed_in_a_covered_folder_is_put_back_and_nothing_else() {
        let keeps = set(&["/root/p", "/root/p/state/work", "/usr", "/root/.pyenv/lib"]);
        let covers = set(&["/root", "/root/p/state", "/root/.secret"]);
        let cover = |path: &str| Mount::Cover(path.into());
        let keep = |path: &str| Mount::Keep(path.into());
        assert_eq!(
            arrange(&keeps, &covers, &BTreeMap::new()),
            [
                cover("/root"),
                keep("/root/.pyenv/lib"),
                keep("/root/p"),
                cover("/root/p/state"),
                keep("/root/p/state/work"),
            ]
        );
    }

    #[test]
    fn nothing_changes_if_nothing_is_hidden_or_closed() {
        let links = BTreeMap::from([("/bin".into(), "usr/bin".into())]);
        let changes = arrange(&set(&["/usr", "/srv/p"]), &set(&[]), &links);
        assert_eq!(changes, []);
    }

    #[test]
    fn a_link_in_a_covered_folder_is_put_back() {
        let links = [("/tmp/agent", "/srv/agent"), ("/tmp/p/link", "file")];
        let links = links.map(|(link, target)| (link.into(), target.into()));
        let (keeps, covers) = (set(&["/srv/agent", "/tmp/p"]), set(&["/tmp"]));
        assert_eq!(
            arrange(&keeps, &covers, &BTreeMap::from(links)),
            [
                Mount::Cover("/tmp".into()),
                Mount::Keep("/tmp/p".into()),
                Mount::Link("/tmp/agent".into(), "/srv/agent".into()),
            ]
        );
    }

    #[test]
    fn a_closed_folder_in_an_open_one_has_what_is_needed_in_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (home, bin) = (root.join("p/home"), root.join("p/home/venv/bin"));
        fs::create_dir_all(&bin).unwrap();
        for folder in [&root, &home, &root.join("p/home/venv")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let mut paths = Paths::default();
        let rights = [root.join("p"), bin.clone()].map(|path| (path, Right::Read));
        paths.rights.extend(rights);
        paths.user = Some(70_000);
        let changes = changes(&paths, &[]);
        let expected = [
            Mount::Cover(root.clone()),
            Mount::Keep(root.join("p")),
            Mount::Cover(home),
            Mount::Keep(bin),
        ];
        assert_eq!(changes, expected);
    }
}
