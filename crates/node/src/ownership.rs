//! The owners of programs' folders. A program may still run while its folder is given away, and put links in the way.
//! So no path in the folder is followed: each folder in it is opened once, and given away through its open handle.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, Uid, chownat, fchown, fstat, openat, statat,
};
use rustix::io::Errno;

/// The deepest nesting of folders in the folder of a program. Each of them is open while the folders in it are given away.
pub(crate) const MOST_DEEP: usize = 100;

/// Gives a folder to a user, with everything in it that belongs to the folder's owner.
///
/// # Errors
/// If the system refuses it, or folders are nested deeper than [`MOST_DEEP`].
pub(crate) fn give(path: &Path, owner: u32) -> io::Result<()> {
    let former = fs::symlink_metadata(path)?.uid();
    if former == owner {
        return Ok(());
    }
    match open_folder(CWD, path)? {
        Some(folder) => give_all(&folder, former, owner, MOST_DEEP),
        // The program has put something else in its place.
        None => Ok(()),
    }
}

/// Opens a folder; `None` if it is gone, or is something else.
pub(crate) fn open_folder(
    around: impl AsFd,
    name: impl rustix::path::Arg,
) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(around, name, flags, Mode::empty()) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn give_all(folder: &OwnedFd, former: u32, owner: u32, deepest: usize) -> io::Result<()> {
    if fstat(folder)?.st_uid != former {
        return Ok(());
    }
    let Some(deepest) = deepest.checked_sub(1) else {
        return Err(io::Error::other(format!(
            "more than {MOST_DEEP} folders lie in each other there: remove some"
        )));
    };
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match open_folder(folder, name)? {
            Some(inner) => give_all(&inner, former, owner, deepest)?,
            None => give_one(folder, name, former, owner)?,
        }
    }
    // This comes last, so that an interrupted node begins again.
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    Ok(fchown(folder, Some(user), Some(group))?)
}

/// Gives away a file or other entry that is not a folder. It may be a second name of another owner's file.
fn give_one(folder: &OwnedFd, name: &CStr, former: u32, owner: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let given = about.and_then(|about| match about.st_uid == former {
        true => chownat(
            folder,
            name,
            Some(user),
            Some(group),
            AtFlags::SYMLINK_NOFOLLOW,
        ),
        false => Ok(()),
    });
    match given {
        // It is gone in the meantime.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const ONE: u32 = 4_000_000_001;
    const OTHER: u32 = 4_000_000_002;

    /// A program's folder with a folder in it, and a folder of another owner; `None` if this user may not give files away.
    fn folders() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        let place = tempfile::tempdir().unwrap();
        let (own, foreign) = (place.path().join("own"), place.path().join("foreign"));
        for folder in [&own.join("inner"), &foreign] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "").unwrap();
        }
        for given in [&own.join("inner/file"), &own.join("inner"), &own] {
            if let Err(error) = chown(given, Some(ONE), Some(ONE)) {
                eprintln!("left out: only root gives files away ({error})");
                return None;
            }
        }
        Some((place, own, foreign))
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().uid()
    }

    #[test]
    fn a_folder_is_given_with_what_is_its_owners_and_nothing_else() {
        let Some((_place, own, foreign)) = folders() else {
            return;
        };
        let root = owner(&foreign);
        symlink(&foreign, own.join("link")).unwrap();
        lchown(own.join("link"), Some(ONE), Some(ONE)).unwrap();
        // A second name of another owner's file.
        fs::hard_link(foreign.join("file"), own.join("inner/stolen")).unwrap();
        give(&own, OTHER).unwrap();
        for given in ["", "inner", "inner/file", "link"] {
            assert_eq!(owner(&own.join(given)), OTHER, "{given}");
        }
        assert_eq!(owner(&foreign), root);
        assert_eq!(owner(&foreign.join("file")), root);
        // A link in place of the folder leads nowhere.
        let link = own.join("elsewhere");
        symlink(&foreign, &link).unwrap();
        lchown(&link, Some(ONE), Some(ONE)).unwrap();
        give(&link, OTHER).unwrap();
        assert_eq!(owner(&foreign), root);
    }

    #[test]
    fn links_that_a_program_puts_in_the_way_meanwhile_lead_nowhere() {
        let Some((_place, own, foreign)) = folders() else {
            return;
        };
        let root = owner(&foreign);
        let (inner, aside, link) = (own.join("inner"), own.join("aside"), own.join("link"));
        symlink(&foreign, &link).unwrap();
        lchown(&link, Some(ONE), Some(ONE)).unwrap();
        let is_over = AtomicBool::new(false);
        let given: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| {
                let there = [(&inner, &aside), (&link, &inner)];
                let back = [(&inner, &link), (&aside, &inner)];
                while !is_over.load(Ordering::Relaxed) {
                    for (from, to) in there.into_iter().chain(back) {
                        fs::rename(from, to).unwrap();
                    }
                }
            });
            let owners = [OTHER, ONE].into_iter().cycle().take(1000);
            let given: Vec<_> = owners.map(|next| give(&own, next)).collect();
            is_over.store(true, Ordering::Relaxed);
            given
        });
        for given in given {
            given.unwrap();
        }
        assert_eq!(owner(&foreign), root);
        assert_eq!(owner(&foreign.join("file")), root);
    }

    #[test]
    fn folders_in_folders_without_end_are_refused() {
        let Some((_place, own, _foreign)) = folders() else {
            return;
        };
        let mut deep = own.clone();
        for _ in 0..MOST_DEEP {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
            chown(&deep, Some(ONE), Some(ONE)).unwrap();
        }
        let refused = give(&own, OTHER).unwrap_err().to_string();
        assert!(refused.contains("lie in each other"), "{refused}");
    }
}
