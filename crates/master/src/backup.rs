//! Backups: a running Master writes one, and a state directory is restored from one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_transparency::{LogError, LogFile, LogHead, TILE_WIDTH, Tiles};

use super::authorities::{CA_CHAIN, CA_KEY, ROOT_CERTIFICATE, ROOT_KEY};
use super::issuance_log::shared::LOG_FILE_ROW;
use super::issuance_log::{LOGS, edge_of, folder_in, is_name};
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

/// Makes backups of the state in one directory, one at a time.
pub(crate) struct Backups {
    directory: PathBuf,
    store: Arc<dyn Store>,
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
    pub(crate) fn new(directory: PathBuf, store: Arc<dyn Store>, platform: String) -> Self {
        Self {
            directory,
            store,
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
            // A partial tile disappears when the full one takes its place.
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
            heads: BTreeMap::new(),
            done,
        };
        self.store
            .snapshot(Box::new(move |key, value| state.row(key, value)))
            .await?;
        let (writer, heads) = writing.recv().map_err(io::Error::other)?;
        let mut writer = writer?;
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
            for (authority, head) in heads {
                add_log(&mut writer, &directory, &authority, &head)?;
            }
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
/// The heads of the issuance logs, by the names of their CAs.
type Heads = BTreeMap<String, Vec<u8>>;
/// A backup with all rows, and the rows with the heads of logs.
type WithRows = (Result<Draft, BackupError>, Heads);

/// A backup to which rows are added.
struct Writing {
    writer: Result<Draft, BackupError>,
    heads: Heads,
    done: std::sync::mpsc::Sender<WithRows>,
}

impl Writing {
    fn row(&mut self, key: &str, value: &[u8]) {
        if let Some(authority) = key.strip_prefix(CaService::LOG_ROW)
            && is_name(authority)
        {
            self.heads.insert(authority.to_owned(), value.to_owned());
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
        let _ = self.done.send((writer, std::mem::take(&mut self.heads)));
    }
}

/// Adds the files of an issuance log that belong to the head in the store, and the files that its CA published last. Another
/// CA may go on from the backup.
fn add_log(
    writer: &mut Draft,
    directory: &Path,
    authority: &str,
    head: &[u8],
) -> Result<(), MakeError> {
    let log = folder_in(directory, authority);
    let head: LogHead = serde_json::from_slice(head).map_err(io::Error::from)?;
    let needed: BTreeSet<LogFile> = files_of(head.size).collect();
    let mut others = edge_of(&log);
    if others.is_empty() {
        others.push(LogFile::Authority);
    }
    let path = |file: LogFile| format!("{LOGS}/{authority}/{file}");
    for file in &needed {
        writer.file(&path(*file), &log.read(*file)?)?;
    }
    for file in others.into_iter().filter(|file| !needed.contains(file)) {
        if let Ok(contents) = log.read(file) {
            writer.file(&path(file), &contents)?;
        }
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

/// The CA and the file of its issuance log at a path of a backup.
pub(super) fn log_file(path: &str) -> Option<(&str, LogFile)> {
    let (authority, file) = path
        .strip_prefix(LOGS)?
        .strip_prefix('/')?
        .split_once('/')?;
    let file = file.parse().ok()?;
    is_name(authority).then_some((authority, file))
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
