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

/// Reads the file, up to `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(most).read_to_end(&mut bytes);
    read.map_err(CliError::file("read", name(path)))?;
    Ok(bytes)
}

/// As [`read`], as text.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, CliError> {
    let mut text = String::new();
    let read = open(path)?.take(most).read_to_string(&mut text);
    read.map_err(CliError::file("read", name(path)))?;
    Ok(text)
}
