//! The way to a path: the symbolic links on it, and the folders on it that a user may not pass.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on the way to a path.
const MOST_LINKS: usize = 40;

/// The symbolic links on the way to an absolute path, and their targets, in the order in which they are met. The links' own paths
/// have no links in them.
pub(crate) fn links(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut links = Vec::new();
    let (mut real, mut ahead) = (PathBuf::new(), path.to_owned());
    while links.len() < MOST_LINKS {
        let mut parts = ahead.components();
        match parts.next() {
            None => break,
            Some(Component::CurDir) => {}
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(part) => real.push(part),
        }
        let rest = parts.as_path().to_owned();
        ahead = match fs::read_link(&real) {
            Ok(target) => {
                let next = target.join(rest);
                links.push((real.clone(), target));
                real.pop();
                next
            }
            Err(_) => rest,
        };
    }
    links
}

/// The folders on the way to a path that a user may not pass.
pub(crate) fn closed_to(user: u32, path: &Path) -> impl Iterator<Item = &Path> {
    let around = path.ancestors().skip(1);
    around.filter(move |folder| is_closed_to(user, folder))
}

/// Whether a user, whose only group has the same number, may not pass a folder.
pub(crate) fn is_closed_to(user: u32, folder: &Path) -> bool {
    let Ok(about) = fs::metadata(folder) else {
        return false;
    };
    let passing = match (about.uid() == user, about.gid() == user) {
        (true, _) => 0o100,
        (_, true) => 0o010,
        _ => 0o001,
    };
    about.is_dir() && about.mode() & passing == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn every_link_on_the_way_is_found_in_its_real_place() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("srv/venv/bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        fs::write(root.join("srv/venv/bin/python3"), "").unwrap();
        symlink("python3", root.join("srv/venv/bin/python")).unwrap();
        symlink("../srv/./venv", root.join("tmp/env")).unwrap();
        symlink(root.join("tmp/env"), root.join("again")).unwrap();
        let found = links(&root.join("tmp/../again/bin/python"));
        assert_eq!(
            found,
            [
                (root.join("again"), root.join("tmp/env")),
                (root.join("tmp/env"), "../srv/./venv".into()),
                (root.join("srv/venv/bin/python"), "python3".into()),
            ]
        );
        assert!(links(&root.join("srv/venv/bin/python3")).is_empty());
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(links(&root.join("circle")).len(), MOST_LINKS);
    }

    #[test]
    fn every_folder_that_is_closed_to_the_user_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c/d")).unwrap();
        let allow = |folder: &str, mode: u32| {
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        };
        allow("", 0o755);
        allow("a", 0o700);
        allow("a/b", 0o755);
        allow("a/b/c", 0o700);
        let owner = root.metadata().unwrap().uid();
        let (inner, other) = (root.join("a/b/c/d"), owner + 70_000);
        let closed: Vec<_> = closed_to(other, &inner).collect();
        assert_eq!(closed, [root.join("a/b/c"), root.join("a")]);
        assert_eq!(closed_to(other, &root.join("a")).count(), 0);
        assert!(!is_closed_to(owner, &root.join("a")));
        // No path leads through a file.
        fs::write(root.join("file"), "").unwrap();
        assert!(!is_closed_to(other, &root.join("file")));
    }
}
