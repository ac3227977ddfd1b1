//! Files of `sniff --record`: a first line that names the format, then one JSON object a line.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::seen::Seen;

/// Most bytes of a line.
const LONGEST: u64 = 64 * 1024;
/// The version of the format. Readers refuse a newer one; members may be added in the same version.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(rename = "sealbus-sniff")]
    version: u32,
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system refused it.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `create`, `write`, `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no recording, or a damaged one.
    #[error("{}, line {line}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The mistake.
        why: String,
    },
}

impl RecordingError {
    fn file(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path: path.clone(),
            source,
        }
    }
}

/// Writes a recording.
pub struct Recorder {
    path: PathBuf,
    file: File,
}

impl Recorder {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let file = File::create(path).map_err(RecordingError::file("create", path))?;
        let mut recorder = Self {
            path: path.to_owned(),
            file,
        };
        recorder.write(&Head { version: VERSION })?;
        Ok(recorder)
    }

    /// Writes one incident.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&mut self, seen: &Seen) -> Result<(), RecordingError> {
        self.write(seen)
    }

    /// Writes a whole line at once, so that a reader of the growing file finds whole lines.
    fn write(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        let written = serde_json::to_string(value)
            .map_err(std::io::Error::from)
            .and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(RecordingError::file("write", &self.path))
    }
}

/// Reads the contents of a file, line by line. Errors name it by `path`.
///
/// # Errors
/// If it cannot be read, or does not begin as a recording.
pub fn read_from<R: BufRead>(
    path: &Path,
    contents: R,
) -> Result<impl Iterator<Item = Result<Seen, RecordingError>> + use<R>, RecordingError> {
    let mut lines = RecordedLines {
        path: path.to_owned(),
        reader: contents,
        number: 0,
    };
    let head: Option<Head> = lines.next_value()?;
    match head {
        Some(Head { version }) if version <= VERSION => {}
        Some(_) => return Err(lines.damaged("it was written by a newer version of sealbus")),
        None => return Err(lines.damaged("it is empty")),
    }
    Ok(std::iter::from_fn(move || lines.next_value().transpose()))
}

struct RecordedLines<R> {
    path: PathBuf,
    reader: R,
    number: u64,
}

impl<R: BufRead> RecordedLines<R> {
    fn next_value<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Option<T>, RecordingError> {
        let mut line = Vec::new();
        let mut limited = self.reader.by_ref().take(LONGEST);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(RecordingError::file("read", &self.path))?;
        self.number += 1;
        if line.is_empty() {
            return Ok(None);
        }
        let value = serde_json::from_slice(&line);
        value
            .map(Some)
            .map_err(|error| self.damaged(&error.to_string()))
    }

    fn damaged(&self, why: &str) -> RecordingError {
        RecordingError::Damaged {
            path: self.path.clone(),
            line: self.number,
            why: why.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(contents: &[u8]) -> Result<Vec<Result<Seen, RecordingError>>, RecordingError> {
        Ok(read_from(Path::new("it"), contents)?.collect())
    }

    #[test]
    fn what_was_recorded_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let all = [Seen::Skipped { count: 7 }, Seen::Skipped { count: 8 }];
        let mut recorder = Recorder::create(&path).unwrap();
        for seen in &all {
            recorder.note(seen).unwrap();
        }
        let found = read(&std::fs::read(&path).unwrap()).unwrap();
        let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found, all);
        assert!(read(b"{\"sealbus-sniff\":2}\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_at_worst(bytes in any::<Vec<u8>>(), has_head in any::<bool>()) {
            let mut file = if has_head { b"{\"sealbus-sniff\":1}\n".to_vec() } else { Vec::new() };
            file.extend(bytes);
            if let Ok(lines) = read_from(Path::new("it"), &file[..]) {
                prop_assert!(lines.take_while(Result::is_ok).count() < 10_000);
            }
        }
    }
}
