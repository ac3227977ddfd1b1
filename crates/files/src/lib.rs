//! Files and folders that only this user can open, access at positions, and names that survive a power cut.
//!
//! Here the systems differ. On Unix, a private file has rights for its owner alone. On Windows, it has the rights of the
//! folder in which it lies: those in a user's profile are that user's, the system's and the administrators'.

#![forbid(unsafe_code)]

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(not(unix), path = "windows.rs")]
mod system;

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Makes what is created open to this user alone.
pub trait Private {
    /// Nobody but this user may open what is created. On Windows, the folder's rights decide.
    fn private(&mut self) -> &mut Self;
}

impl Private for OpenOptions {
    fn private(&mut self) -> &mut Self {
        system::private_file(self);
        self
    }
}

impl Private for DirBuilder {
    fn private(&mut self) -> &mut Self {
        system::private_folder(self);
        self
    }
}

/// Reading and writing at positions. Threads may share the file.
pub trait Positions {
    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The system's error, or [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_exact_from(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buffer` from `offset` on.
    ///
    /// # Errors
    /// The system's error.
    fn write_all_from(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
}

impl Positions for File {
    fn read_exact_from(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        system::read_exact_from(self, buffer, offset)
    }

    fn write_all_from(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        system::write_all_from(self, buffer, offset)
    }
}

/// Writes a file that only its owner can read. It is written completely or not at all, and is on disk when this returns.
///
/// # Errors
/// If the file cannot be written. Then an earlier file of that name is untouched. Also if the file is there, and its name
/// may not be on disk: then the earlier file may be back after a power cut.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .private()
        .open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&draft, path)?;
    sync_name(path)
}

/// Makes a file that only its owner can read, with these bytes. It is on disk when this returns.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or the system's error. Then the file may be there all the same.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .private()
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    sync_name(path)
}

/// Reads a file that only its owner can read. On Windows, the folder's rights decide.
///
/// # Errors
/// The system's error; [`io::ErrorKind::PermissionDenied`] if other users can open the file;
/// [`io::ErrorKind::FileTooLarge`] if it has more than `most` bytes.
pub fn read_private(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    system::check_private(&file.metadata()?)?;
    // The bytes may be a key, and memory that grows would leave copies of them behind.
    let mut bytes = Vec::with_capacity(most + 1);
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Makes a folder, and those above it, for this user alone. A folder that exists stays as it is.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).private().create(path)
}

/// Makes a folder for this user alone. If the folder exists, the rights of others to it are removed. On Windows it keeps
/// the rights that it has.
///
/// # Errors
/// If it cannot be made, or belongs to another user, who could replace its contents.
pub fn folder(path: &Path) -> io::Result<()> {
    make_folder(path)?;
    system::close_to_others(path)
}

/// Makes a folder among the temporary files, for this user alone. Its name begins with `prefix`. Others may write there, so
/// nobody can foresee the name, and an existing folder is not used.
///
/// # Errors
/// If it cannot be made.
pub fn temporary(prefix: &str) -> io::Result<PathBuf> {
    // Each of these hashers has random keys.
    let random = RandomState::new().build_hasher().finish();
    let path = std::env::temp_dir().join(format!("{prefix}-{random:016x}"));
    DirBuilder::new().private().create(&path)?;
    Ok(path)
}

/// Waits until the names of the files in a folder are on disk. Windows does this by itself.
///
/// # Errors
/// The system's error.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCHRONISED.with_borrow_mut(|folders| folders.push(path.to_owned()));
    system::sync_folder(path)
}

/// Waits until the name of a file is on disk.
fn sync_name(path: &Path) -> io::Result<()> {
    match path.parent() {
        // A name alone is one in the present folder.
        Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Waits until all files in the file system of an open folder are on disk. `None` if this system cannot do that. Errors
/// since the folder was opened are reported, each of them once.
pub fn sync_file_system(folder: &File) -> Option<io::Result<()>> {
    system::sync_file_system(folder)
}

/// Whether a file can be run as a program.
pub fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && system::may_run(&found))
}

/// The examples of the README, which are tested as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// The folders that this thread has synchronised.
        pub(super) static SYNCHRONISED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    /// Otherwise a power cut would bring back the file that was there before, or none.
    #[test]
    fn a_file_that_is_written_has_its_name_on_disk() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        write_private(&path, b"one").unwrap();
        assert_eq!(SYNCHRONISED.take(), [place.path()]);
        fs::remove_file(&path).unwrap();
        create_private(&path, b"two").unwrap();
        assert_eq!(SYNCHRONISED.take(), [place.path()]);
        assert_eq!(read_private(&path, 3).unwrap(), b"two");
        sync_name(Path::new("file")).unwrap();
        assert_eq!(SYNCHRONISED.take(), [Path::new(".")]);
    }

    #[test]
    fn temporary_folders_are_new_and_for_this_user_alone() {
        let made = [temporary("sealbus-test"), temporary("sealbus-test")].map(Result::unwrap);
        assert_ne!(made[0], made[1]);
        for path in made {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with("sealbus-test-"), "{name}");
            system::check_private(&path.metadata().unwrap()).unwrap();
            fs::remove_dir(path).unwrap();
        }
    }

    #[test]
    fn positions_do_not_move_each_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        write_private(&path, b"0123456789").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_from(b"abc", 8).unwrap();
        let mut read = [0; 4];
        file.read_exact_from(&mut read, 7).unwrap();
        assert_eq!(&read, b"7abc");
        let end = file.read_exact_from(&mut read, 8).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        sync_folder(place.path()).unwrap();
    }
}
