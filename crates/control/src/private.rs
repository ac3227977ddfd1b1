//! Files and sockets that only this user can open.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tokio::net::UnixListener;

/// Writes a file that only its owner can read. It is written completely or not at all.
///
/// # Errors
/// If the file cannot be written. Then an earlier file of that name is untouched.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// The most bytes in the path of a Unix socket. The kernel keeps 108, and the last is zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// Refuses a path that is too long for a Unix socket.
///
/// # Errors
/// If it is. The error says how long it is and may be.
pub fn check_socket_path(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if length <= LONGEST_SOCKET_PATH {
        return Ok(());
    }
    let message = format!(
        "the path has {length} bytes, and that of a socket has at most {LONGEST_SOCKET_PATH}: choose a state directory with a shorter path"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Listens on a socket at `path` that only this process's user may open.
///
/// # Errors
/// If the path is too long, a file in the way cannot be removed, or the socket cannot be made.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    check_socket_path(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Makes a folder for this user alone. If the folder exists, the rights of others to it are removed.
///
/// # Errors
/// If it cannot be made, or belongs to another user, who could replace its contents.
pub fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    let found = fs::metadata(path)?;
    let ours = rustix::process::geteuid().as_raw();
    if found.uid() != ours {
        let message = format!("it belongs to the user {} and not to {ours}", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if found.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), mode = format!("{:o}", found.mode() & 0o7777), "others could enter this folder: it is closed to them");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Keeps other processes, even of this user, from reading this process's memory and environment. This also excludes
/// debuggers and core dumps.
pub fn forbid_inspection() {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "other processes of this user may read this one's memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_made_before_is_closed_to_others() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        folder(&path.join("a/b")).unwrap();
        for made in ["a", "a/b"] {
            assert_eq!(fs::metadata(path.join(made)).unwrap().mode() & 0o777, 0o700);
        }
    }
}
