//! Backups: a running Master writes one, and a state directory is restored from one.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_transparency::{Folder, LogError, LogFile, LogHead, TILE_WIDTH, Tiles};

use super::authorities::{CA_CHAIN, CA_KEY, CA_NAME, ROOT_CERTIFICATE, ROOT_KEY};
use super::issuance_log::LOGS;
use super::issuance_log::shared::LOG_FILE_ROW;
use sealbus_ca::CaService;
use sealbus_control::admin::BackupMade;
use sealbus_control::clock::now;
use sealbus_control::{Blob, Fault, FaultCode};
use sealbus_files::Private;
use sealbus_store::backup::{BackupError, BackupWriter, Description};
use sealbus_store::{Store, StoreError};

/// The draft of a backup, in the state directory. It has no name there for longer than a moment.
const DRAFT: &str = "backup.draft";
/// Most bytes of a backup in one answer.
const PIECE: u64 = 1 << 20;
/// How often a backup is begun again because the log's files changed meanwhile.
const ATTEMPTS: usize = 5;

/// The files that are always in a backup, and those with private keys.
pub(super) const FILES: [&str; 2] = [ROOT_CERTIFICATE, CA_CHAIN];
pub(super) const KEYS: [&str; 2] = [ROOT_KEY, CA_KEY];

/// The path of a file of the issuance log below the state directory begins with this.
pub(super) fn log_prefix() -> String {
    format!("{LOGS}/{CA_NAME}/")
}

/// Makes backups of the state in one directory, one at a time.
pub(crate) struct Backups {
    directory: PathBuf,
    store: Arc<dyn Store>,
    log: Folder,
    platform: String,
    /// The latest backup, until all of it was read.
    made: Mutex<Option<File>>,
}

/// A backup could not be made.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Backups {
    pub(crate) fn new(
        directory: PathBuf,
        store: Arc<dyn Store>,
        log: Folder,
        platform: String,
    ) -> Self {
        Self {
            directory,
            store,
            log,
            platform,
            made: Mutex::new(None),
        }
    }

    /// Makes a backup, with the private keys if asked. [`read`](Self::read) returns it.
    ///
    /// # Errors
    /// [`FaultCode::Storage`].
    pub(crate) async fn make(&self, keys: bool) -> Result<BackupMade, Fault> {
        let made = now();
        let mut file = Err(MakeError::Io(io::ErrorKind::NotFound.into()));
        for _ in 0..ATTEMPTS {
            file = self.attempt(keys, made).await;
            // A partial tile goes when the full one takes its place.
            if !matches!(file, Err(MakeError::Log(_))) {
                break;
            }
        }
        let length = match file.and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((length, file)) => {
                *self.made.lock() = Some(file);
                length
            }
            Err(error) => {
                let message = format!("the backup could not be made: {error}");
                return Err(Fault::new(FaultCode::Storage, message));
            }
        };
        tracing::info!(length, keys, "a backup was made");
        Ok(BackupMade { length, made })
    }

    async fn attempt(&self, keys: bool, made: u64) -> Result<File, MakeError> {
        let path = self.directory.join(DRAFT);
        let draft = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .private()
            .open(&path)?;
        std::fs::remove_file(&path)?;
        let description = Description {
            platform: self.platform.clone(),
            made,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            has_keys: keys,
        };
        let writer = BackupWriter::new(BufWriter::new(draft), &description)?;
        let (done, writing) = std::sync::mpsc::channel();
        let mut state = Writing {
            writer: Ok(writer),
            head: None,
            done,
        };
        self.store
            .snapshot(Box::new(move |key, value| state.row(key, value)))
            .await?;
        let (writer, head) = writing.recv().map_err(io::Error::other)?;
        let (mut writer, log) = (writer?, self.log.clone());
        let directory = self.directory.clone();
        let adding = tokio::task::spawn_blocking(move || -> Result<File, MakeError> {
            let named = FILES
                .iter()
                .chain(keys.then_some(&KEYS).into_iter().flatten());
            for name in named {
                match std::fs::read(directory.join(name)) {
                    Ok(contents) => writer.file(name, &contents)?,
                    // The root's key may lie elsewhere.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            add_log(&mut writer, &log, head)?;
            let draft = writer.finish()?;
            Ok(draft.into_inner().map_err(io::IntoInnerError::into_error)?)
        });
        adding.await.map_err(io::Error::other)?
    }

    /// A piece of the latest backup. The last piece is empty, and ends it.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`] if there is no backup; [`FaultCode::Storage`] if it cannot be read.
    pub(crate) fn read(&self, from: u64) -> Result<Blob, Fault> {
        let mut made = self.made.lock();
        let Some(file) = made.as_mut() else {
            return Err(Fault::new(FaultCode::Unknown, "no backup was made"));
        };
        let mut piece = Vec::new();
        let read = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.take(PIECE).read_to_end(&mut piece));
        read.map_err(|error| {
            let message = format!("the backup cannot be read: {error}");
            Fault::new(FaultCode::Storage, message)
        })?;
        if piece.is_empty() {
            *made = None;
        }
        Ok(Blob(piece))
    }
}

type Draft = BackupWriter<BufWriter<File>>;
/// A backup with all rows, and the row of the log's head.
type WithRows = (Result<Draft, BackupError>, Option<Vec<u8>>);

/// A backup to which rows are added.
struct Writing {
    writer: Result<Draft, BackupError>,
    head: Option<Vec<u8>>,
    done: std::sync::mpsc::Sender<WithRows>,
}

impl Writing {
    fn row(&mut self, key: &str, value: &[u8]) {
        if key == CaService::LOG_ROW {
            self.head = Some(value.to_owned());
        }
        if key.starts_with(LOG_FILE_ROW) {
            // The files themselves are in the backup.
            return;
        }
        if let Ok(writer) = &mut self.writer
            && let Err(error) = writer.row(key, value)
        {
            self.writer = Err(error);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let writer = std::mem::replace(&mut self.writer, Err(BackupError::Truncated));
        // Without a receiver nobody wants the backup.
        let _ = self.done.send((writer, self.head.take()));
    }
}

/// Adds the files of the issuance log that belong to the head in the store.
fn add_log(writer: &mut Draft, log: &Folder, head: Option<Vec<u8>>) -> Result<(), MakeError> {
    let Some(head) = head else {
        return Ok(());
    };
    let head: LogHead = serde_json::from_slice(&head).map_err(io::Error::from)?;
    for file in files_of(head.size) {
        writer.file(&format!("{}{file}", log_prefix()), &log.read(file)?)?;
    }
    let authority = LogFile::Authority;
    if let Ok(contents) = log.read(authority) {
        writer.file(&format!("{}{authority}", log_prefix()), &contents)?;
    }
    Ok(())
}

/// All tiles and bundles of a log whose files hold this many entries, in full bundles.
pub(super) fn files_of(size: u64) -> impl Iterator<Item = LogFile> {
    let width = TILE_WIDTH;
    let bundles = (0..size / u64::from(width)).map(move |index| LogFile::Entries { index, width });
    let counts = (0_u8..).zip(std::iter::successors(Some(size), |count| {
        Some(count / u64::from(TILE_WIDTH))
    }));
    let full = counts.take_while(|(_, count)| *count > 0);
    let full = full.flat_map(move |(level, count)| {
        let tile = move |index| LogFile::Tile {
            level,
            index,
            width,
        };
        (0..count / u64::from(width)).map(tile)
    });
    bundles.chain(full).chain(Tiles::partial_of(size))
}

/// The file of the issuance log at a path of a backup.
pub(super) fn log_file(path: &str) -> Option<LogFile> {
    path.strip_prefix(&log_prefix())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_log_are_named() {
        let names = |size| files_of(size).map(|file| file.to_string());
        assert_eq!(names(0).count(), 0);
        let first: Vec<String> = names(256).collect();
        assert_eq!(first, ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]);
        // In level 1, one tile is full and one has a hash. The tile of level 2 has a hash too.
        assert_eq!(names(257 * 256).count(), 257 + 257 + 3);
    }
}
