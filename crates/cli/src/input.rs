//! A file that a command reads: `-` stands for standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::CliError;

/// Whether standard input is meant.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The file's name for people.
pub(crate) fn name(path: &Path) -> PathBuf {
    match is_standard(path) {
        true => PathBuf::from("standard input"),
        false => path.to_owned(),
    }
}

/// Opens the file.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(CliError::file("read", path))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The file, for readers that need one on disk. Standard input is copied into a private file, which lasts as long as the
/// second value.
pub(crate) fn on_disk(path: &Path) -> Result<(PathBuf, Option<NamedTempFile>), CliError> {
    if !is_standard(path) {
        return Ok((path.to_owned(), None));
    }
    let copied = NamedTempFile::new().and_then(|mut copy| {
        io::copy(&mut io::stdin().lock(), &mut copy)?;
        Ok(copy)
    });
    let copy = copied.map_err(CliError::file("copy", name(path)))?;
    Ok((copy.path().to_owned(), Some(copy)))
}

/// Reads the file.
///
/// # Errors
/// If it cannot be read, or has more than `most` bytes: a part of it is never taken for the whole.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(CliError::file("read", name(path)))?;
    if bytes.len() as u64 > most {
        return Err(CliError::Failed {
            message: format!("{} has more than {most} bytes", name(path).display()),
            help: Some("no more are read for this command".to_owned()),
        });
    }
    Ok(bytes)
}

/// As [`read`], as text.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, CliError> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        CliError::file("read", name(path))(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_is_not_taken_for_the_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "four").unwrap();
        assert_eq!(read_text(file.path(), 4).unwrap(), "four");
        let error = read_text(file.path(), 3).unwrap_err().to_string();
        assert!(error.ends_with("has more than 3 bytes"), "{error}");
        assert_eq!(read(file.path(), u64::MAX).unwrap(), b"four");
    }
}
