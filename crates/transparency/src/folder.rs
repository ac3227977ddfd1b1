//! A log's files on disk, as any web server could serve them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sealbus_seal::{LONGEST_CERTIFICATE, MOST_CERTIFICATES};

use crate::bundle::LONGEST_BUNDLE;
use crate::error::LogError;
use crate::file::LogFile;
use crate::note::MOST_SIGNATURES;

/// Longest chain of certificates, PEM: base64 makes four bytes of three, and its lines have 64.
const LONGEST_CHAIN: usize = MOST_CERTIFICATES * (LONGEST_CERTIFICATE * 7 / 5 + 64);

impl LogFile {
    /// The most bytes that a reader takes of the file.
    pub fn longest(self) -> usize {
        match self {
            // Each cosignature of the checkpoint may be that of another node.
            Self::Witnesses => MOST_SIGNATURES * LONGEST_CHAIN,
            _ => LONGEST_BUNDLE,
        }
    }
}

/// The folder of one log.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The log in this folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`LogError::Unreadable`]; also for files that are longer than any of a log.
    pub fn read(&self, file: LogFile) -> Result<Vec<u8>, LogError> {
        let mut bytes = Vec::new();
        let most = file.longest() as u64;
        let read = File::open(self.path.join(file.to_string()))
            .and_then(|opened| opened.take(most + 1).read_to_end(&mut bytes));
        let why = match read {
            Ok(length) if length as u64 <= most => return Ok(bytes),
            Ok(_) => "it is too long".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(LogError::Unreadable { file, why })
    }

    /// As [`read`](Self::read). If a full tile or bundle has replaced the partial one, reads the full one. Returns the file
    /// that was read.
    ///
    /// # Errors
    /// [`LogError::Unreadable`].
    pub fn read_or_full(&self, file: LogFile) -> Result<(LogFile, Vec<u8>), LogError> {
        let full = file.full();
        match self.read(file) {
            Err(error) if full == file => Err(error),
            Err(error) => self
                .read(full)
                .map(|bytes| (full, bytes))
                .map_err(|_| error),
            Ok(bytes) => Ok((file, bytes)),
        }
    }

    /// Writes files. When this returns they are on disk. A full tile or bundle takes the place of its partial ones.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write(&self, files: &[(LogFile, Vec<u8>)]) -> io::Result<()> {
        let mut folders = BTreeSet::new();
        for (file, bytes) in files {
            let path = self.path.join(file.to_string());
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let folder = path.parent().unwrap_or(&self.path);
            if !folders.contains(folder) && !folder.is_dir() {
                fs::create_dir_all(folder).map_err(named)?;
                // A new folder must last as its files do.
                let above = folder.ancestors().skip(1);
                folders.extend(
                    above
                        .take_while(|above| above.starts_with(&self.path))
                        .map(Path::to_owned),
                );
            }
            write_whole(&path, bytes).map_err(named)?;
            folders.insert(folder.to_owned());
        }
        for folder in &folders {
            sealbus_files::sync_folder(folder)?;
        }
        for (file, _) in files.iter().filter(|(file, _)| file.is_final()) {
            let partial = self.path.join(format!("{file}.p"));
            match fs::remove_dir_all(&partial) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes a file completely or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}
