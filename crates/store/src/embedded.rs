use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    ReadableTable, StorageError, TableDefinition, TableError,
};
use sealbus_files::{Private, sync_folder};

use super::{Batch, Entry, Revision, Store, StoreError, TakeEntry};

/// Maps each key to its revision (8 bytes, big-endian) and value. With [`ELSEWHERE`] in the revision, the value is in
/// [`LARGE`].
const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// Maps keys to values of more than [`SMALL`] bytes. A change of a row copies the rows of its page, so large values do
/// not share pages with small ones.
const LARGE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("large");
/// The longest value in [`ENTRIES`], in bytes.
const SMALL: usize = 4096;
/// The bit of a row's revision that says that its value is in [`LARGE`].
const ELSEWHERE: Revision = 1 << 63;
/// Has one row, the store's revision.
const REVISION: TableDefinition<'_, (), u64> = TableDefinition::new("revision");

/// Pages kept in memory. The directories keep their entries in memory themselves.
const CACHE: usize = 16 << 20;

/// A store in one file on disk, for one process at a time.
///
/// Every commit is on disk (fsync) when it returns. The work runs on tokio's threads for blocking calls, so that a slow
/// disk does not stop messages. After an error of the disk, the next call opens the file again: when there is space
/// again, the store goes on by itself.
#[derive(Debug, Clone)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
}

/// Opens the database; called again after an error of the disk.
type Open = dyn Fn() -> Result<Database, DatabaseError> + Send + Sync;

struct Shared {
    path: PathBuf,
    open: Box<Open>,
    /// `None` after an error of the disk.
    database: RwLock<Option<Database>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Opens the store in a file. A missing file is made, readable by its owner only. This call blocks.
    ///
    /// # Errors
    /// The file is in use, is no store, is damaged, or cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let file = path.clone();
        Self::open_with(path, move || open_database(&file))
    }

    /// Opens a store on the database that `open` returns.
    pub(super) fn open_with(
        path: PathBuf,
        open: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let shared = Shared {
            path,
            open: Box::new(open),
            database: RwLock::new(None),
        };
        *shared.database.write() = Some(shared.open()?);
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let shared = Arc::clone(&self.shared);
        let path = &self.shared.path;
        let task = tokio::task::spawn_blocking(move || work(&shared));
        async move {
            task.await.unwrap_or_else(|error| {
                // The runtime is shutting down, or the database panicked because of the contents of its file.
                let detail = error.to_string();
                Err(StoreError::Damaged {
                    path: path.clone(),
                    detail,
                })
            })
        }
        .boxed()
    }
}

fn open_database(path: &Path) -> Result<Database, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.private().open(path)?;
    let new = file.metadata()?.len() == 0;
    let file = FileBackend::new(file)?;
    let database = Builder::new()
        .set_cache_size(CACHE)
        .create_with_backend(file)?;
    if new && let Some(directory) = path.parent() {
        // Without this, a new file's name may not survive a power cut.
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        sync_folder(directory)?;
    }
    Ok(database)
}

/// Runs a call of redb. Some kinds of damage to its file make redb panic.
fn guarded<T, E: Into<redb::Error>>(call: impl FnOnce() -> Result<T, E>) -> Result<T, redb::Error> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(redb::Error::Corrupted(
            "its pages contradict each other".into(),
        )),
    }
}

/// Closes a database. Returns false if the database was found damaged.
fn close(database: Option<Database>) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(database))).is_ok()
}

impl Drop for Shared {
    fn drop(&mut self) {
        let database = self.database.get_mut().take();
        if !close(database) {
            tracing::error!(path = %self.path.display(), "the store was damaged when it was closed");
        }
    }
}

/// An error of redb, classified by its remedy.
fn explain(path: &Path, action: &'static str, error: redb::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path },
        redb::Error::ValueTooLarge(length) => StoreError::TooLarge { length },
        redb::Error::Io(source) => match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full { path, source }
            }
            // The database library gives this error for files that do not begin with its mark.
            io::ErrorKind::InvalidData => StoreError::Damaged {
                path,
                detail: source.to_string(),
            },
            _ => StoreError::Io {
                path,
                action,
                source,
            },
        },
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            let source = io::Error::other(error.to_string());
            StoreError::Io {
                path,
                action,
                source,
            }
        }
        other => StoreError::Damaged {
            path,
            detail: other.to_string(),
        },
    }
}

impl Shared {
    fn open(&self) -> Result<Database, StoreError> {
        guarded(|| (self.open)()).map_err(|error| explain(&self.path, "opened", error))
    }

    /// Runs `work` on the database, opening it first if an error closed it.
    fn read<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        loop {
            let held = self.database.read();
            if let Some(database) = held.as_ref() {
                let done = guarded(|| work(database));
                drop(held);
                return done.map_err(|error| self.not_read(error));
            }
            drop(held);
            let mut database = self.database.write();
            if database.is_none() {
                *database = Some(self.open()?);
            }
        }
    }

    /// The error of a read. After one of the disk, redb refuses reads, too, until it is reopened.
    fn not_read(&self, error: redb::Error) -> StoreError {
        if matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo) {
            let mut database = self.database.write();
            let closed = database.take();
            close(closed);
        }
        explain(&self.path, "read", error)
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.read(|database| match Tables::open(&database.begin_read()?)? {
            Some(tables) => tables.get(key),
            None => Ok(None),
        })
    }

    fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Entry)>, StoreError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.read(|database| {
            let Some(tables) = Tables::open(&database.begin_read()?)? else {
                return Ok(Vec::new());
            };
            let rows = tables.entries.range::<&str>((start, Bound::Unbounded))?;
            let mut page = Vec::new();
            for row in rows.take(limit) {
                let (key, row) = row?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                let entry = tables.entry(key.value(), row.value())?;
                page.push((key.value().to_owned(), entry));
            }
            Ok(page)
        })
    }

    fn snapshot(&self, take: &mut TakeEntry) -> Result<(), StoreError> {
        // Only the transaction sees one moment. Commits need the lock, so it is not held while the entries are taken.
        let transaction = self.read(|database| Ok(database.begin_read()?))?;
        let all = guarded(|| -> Result<(), redb::Error> {
            let Some(tables) = Tables::open(&transaction)? else {
                return Ok(());
            };
            for row in tables.entries.range::<&str>(..)? {
                let (key, row) = row?;
                take(key.value(), &tables.entry(key.value(), row.value())?.value);
            }
            Ok(())
        });
        drop(transaction);
        all.map_err(|error| self.not_read(error))
    }

    fn commit(&self, batch: &Batch) -> Result<Revision, StoreError> {
        let mut database = self.database.write();
        let open = match database.as_ref() {
            Some(open) => open,
            None => database.insert(self.open()?),
        };
        match guarded(|| commit(open, batch)) {
            Ok(Ok(revision)) => Ok(revision),
            Ok(Err(conflict)) => Err(conflict),
            Err(error) => {
                if !matches!(error, redb::Error::ValueTooLarge(_)) {
                    // After an error of the disk, redb takes no more writes until it is reopened.
                    let closed = database.take();
                    // The error at hand says more than an error on closing.
                    close(closed);
                }
                Err(explain(&self.path, "written", error))
            }
        }
    }
}

/// The inner error is a failed condition of the batch.
fn commit(database: &Database, batch: &Batch) -> Result<Result<Revision, StoreError>, redb::Error> {
    let transaction = database.begin_write()?;
    let revision = {
        let mut revisions = transaction.open_table(REVISION)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        let mut large = transaction.open_table(LARGE)?;
        for (key, expected) in &batch.conditions {
            let row = entries.get(key.as_str())?;
            let found = row.map(|row| revision_of(row.value())).transpose()?;
            let found = found.map_or(0, |found| found & !ELSEWHERE);
            if found != *expected {
                let (key, expected) = (key.clone(), *expected);
                // Dropping the transaction aborts it.
                return Ok(Err(StoreError::Conflict {
                    key,
                    expected,
                    found,
                }));
            }
        }
        let revision = revisions.get(())?.map_or(0, |row| row.value()) + 1;
        revisions.insert((), revision)?;
        for (key, value) in batch.changes() {
            let is_large = value.is_some_and(|value| value.len() > SMALL);
            let before = match value {
                Some(value) if is_large => {
                    large.insert(key, value)?;
                    entries.insert(key, (revision | ELSEWHERE).to_be_bytes().as_slice())?
                }
                Some(value) => {
                    let row = [revision.to_be_bytes().as_slice(), value].concat();
                    entries.insert(key, row.as_slice())?
                }
                None => entries.remove(key)?,
            };
            let before = before.map(|row| revision_of(row.value())).transpose()?;
            let was_large = before.is_some_and(|before| before & ELSEWHERE != 0);
            if was_large && !is_large {
                large.remove(key)?;
            }
        }
        revision
    };
    transaction.commit()?;
    Ok(Ok(revision))
}

/// The tables, as a transaction reads them.
struct Tables {
    entries: ReadOnlyTable<&'static str, &'static [u8]>,
    /// `None` in a store that has never had a large value.
    large: Option<ReadOnlyTable<&'static str, &'static [u8]>>,
}

impl Tables {
    /// `None` if nothing has ever been committed.
    fn open(transaction: &ReadTransaction) -> Result<Option<Self>, redb::Error> {
        let table = |definition| match transaction.open_table(definition) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(entries) = table(ENTRIES)? else {
            return Ok(None);
        };
        let large = table(LARGE)?;
        Ok(Some(Self { entries, large }))
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, redb::Error> {
        let row = self.entries.get(key)?;
        row.map(|row| self.entry(key, row.value())).transpose()
    }

    /// The entry of a key, by its row in [`ENTRIES`].
    fn entry(&self, key: &str, row: &[u8]) -> Result<Entry, redb::Error> {
        let revision = revision_of(row)?;
        let value = if revision & ELSEWHERE == 0 {
            row[size_of::<Revision>()..].to_vec()
        } else {
            let large = match &self.large {
                Some(large) => large.get(key)?,
                None => None,
            };
            let missing = || StorageError::Corrupted("a large value is missing".into());
            large.ok_or_else(missing)?.value().to_vec()
        };
        Ok(Entry {
            value,
            revision: revision & !ELSEWHERE,
        })
    }
}

/// The revision in a row of [`ENTRIES`], with its mark.
fn revision_of(row: &[u8]) -> Result<Revision, redb::Error> {
    let revision = row
        .first_chunk()
        .ok_or_else(|| StorageError::Corrupted("a row is shorter than its revision".into()))?;
    Ok(Revision::from_be_bytes(*revision))
}

impl Store for EmbeddedStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        let key = key.to_owned();
        self.blocking(move |shared| shared.get(&key))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.blocking(move |shared| shared.scan(&prefix, after.as_deref(), limit))
    }

    fn snapshot(&self, mut take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        self.blocking(move |shared| shared.snapshot(&mut take))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.blocking(move |shared| shared.commit(&batch))
    }
}
