use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(super) fn private_file(options: &mut OpenOptions) {
    options.mode(0o600);
}

pub(super) fn private_folder(builder: &mut DirBuilder) {
    builder.mode(0o700);
}

pub(super) fn read_exact_from(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

pub(super) fn write_all_from(file: &File, buffer: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(buffer, offset)
}

pub(super) fn close_to_others(path: &Path) -> io::Result<()> {
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

pub(super) fn check_private(found: &Metadata) -> io::Result<()> {
    match found.mode() & 0o077 {
        0 => Ok(()),
        _ => {
            let mode = found.mode() & 0o7777;
            let message =
                format!("other users can open it (mode {mode:o}): close it with chmod 600");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
        }
    }
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(target_os = "linux")]
pub(super) fn sync_file_system(folder: &File) -> Option<io::Result<()>> {
    Some(rustix::fs::syncfs(folder).map_err(Into::into))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn sync_file_system(_: &File) -> Option<io::Result<()>> {
    None
}

pub(super) fn may_run(file: &Metadata) -> bool {
    file.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::folder;

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
