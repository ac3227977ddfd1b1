use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

pub(super) fn private_file(_: &mut OpenOptions) {}

pub(super) fn private_folder(_: &mut DirBuilder) {}

pub(super) fn read_exact_from(
    file: &File,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn write_all_from(file: &File, mut buffer: &[u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.seek_write(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                buffer = &buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn close_to_others(_: &Path) -> io::Result<()> {
    Ok(())
}

pub(super) fn check_private(_: &Metadata) -> io::Result<()> {
    Ok(())
}

pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
    // A folder cannot be opened as a file. NTFS notes names in its own log.
    Ok(())
}

pub(super) fn sync_file_system(_: &File) -> Option<io::Result<()>> {
    None
}

pub(super) fn may_run(_: &Metadata) -> bool {
    true
}
