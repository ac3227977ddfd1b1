//! A program's own view of the file system: hidden folders are covered by empty ones, and so are folders that the
//! program's user may not pass. The paths in them that the program needs are put back in their places.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::paths::Paths;

/// A change of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// An empty folder takes the place of this one.
    Cover(PathBuf),
    /// This path, which was covered, is there again.
    Keep(PathBuf),
}

impl Mount {
    fn path(&self) -> &Path {
        match self {
            Self::Cover(path) | Self::Keep(path) => path,
        }
    }
}

/// The changes for a program, in their order. `hidden` has no symbolic links in it. With a user of its own, the program
/// passes only folders that are open to all.
pub(crate) fn changes(paths: &Paths, hidden: &[PathBuf], own_user: bool) -> Vec<Mount> {
    let keeps: BTreeSet<PathBuf> = paths.rights.keys().cloned().collect();
    let mut covers: BTreeSet<PathBuf> = hidden.iter().cloned().collect();
    if own_user {
        covers.extend(keeps.iter().filter_map(|path| closed_to_others(path)));
    }
    arrange(&keeps, &covers)
}

fn arrange(keeps: &BTreeSet<PathBuf>, covers: &BTreeSet<PathBuf>) -> Vec<Mount> {
    let mut arranged: Vec<Mount> = Vec::new();
    // A folder comes before its contents.
    for path in keeps | covers {
        let around = arranged
            .iter()
            .rev()
            .find(|mount| path.starts_with(mount.path()));
        let is_covered = matches!(around, Some(Mount::Cover(_)));
        match (keeps.contains(&path), is_covered) {
            (true, true) => arranged.push(Mount::Keep(path)),
            (false, false) => arranged.push(Mount::Cover(path)),
            _ => {}
        }
    }
    arranged
}

/// The folders on the way to a path that a user without rights of its own cannot pass.
fn closed_to_others(path: &Path) -> Option<PathBuf> {
    let mut ways: Vec<&Path> = path.ancestors().skip(1).collect();
    ways.reverse();
    let is_closed =
        |way: &&Path| fs::metadata(way).is_ok_and(|about| about.permissions().mode() & 0o001 == 0);
    ways.into_iter().find(is_closed).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
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
            arrange(&keeps, &covers),
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
        assert_eq!(arrange(&set(&["/usr", "/srv/p"]), &set(&[])), []);
    }

    #[test]
    fn the_first_folder_that_is_closed_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed_to_others(&root.join("a/b/c")), Some(root.join("a")));
        assert_eq!(closed_to_others(&root.join("a")), None);
    }
}
