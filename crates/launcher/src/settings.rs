//! The system's settings, and which of them everybody may read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The system's settings.
pub(crate) const SETTINGS: &str = "/etc";

/// The system's settings that everybody may read. The search takes some milliseconds.
pub fn public_settings() -> Vec<PathBuf> {
    public_parts(Path::new(SETTINGS))
}

/// The paths in a folder that everybody may read. A folder in which all is public counts as one path.
pub(crate) fn public_parts(folder: &Path) -> Vec<PathBuf> {
    match public_in(folder) {
        (_, true) => vec![folder.to_owned()],
        (public, false) => public,
    }
}

/// The paths in a folder that everybody may read, and whether that is all of it.
fn public_in(folder: &Path) -> (Vec<PathBuf>, bool) {
    let mut public = Vec::new();
    let mut is_all = true;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else {
            is_all = false;
            continue;
        };
        let mode = about.permissions().mode();
        let path = entry.path();
        if about.is_dir() && mode & 0o005 == 0o005 {
            let (inner, is_whole) = public_in(&path);
            is_all &= is_whole;
            match is_whole {
                true => public.push(path),
                false => public.extend(inner),
            }
        } else if about.is_file() && mode & 0o004 != 0 {
            public.push(path);
        } else if !about.is_symlink() {
            is_all = false;
        }
    }
    (public, is_all)
}
