//! The files of the issuance log in a store that outlives the Master's machine. Entries are rows until their files are
//! written. Files that must be there when the Master starts again are rows, too, before those entries go.

use std::io;

use sealbus_ca::CaService;
use sealbus_store::{Batch, Store, StoreError, read_all};
use sealbus_transparency::{Folder, LogFile, LogHead};

/// Prefix of the rows. The path of a full file follows. The value ([`LogFile::to_row`]) names the file itself, so a partial
/// file is replaced by a fuller one.
pub(crate) const LOG_FILE_ROW: &str = "log-file/";

/// The files could not be brought from one place to the other.
#[derive(Debug, thiserror::Error)]
pub enum SharedLogError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be written.
    #[error("the issuance log cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Files that are written to the store at a time.
const AT_ONCE: usize = 32;

fn row_of(file: LogFile) -> String {
    format!("{LOG_FILE_ROW}{}", file.full())
}

fn put(batch: &mut Batch, file: LogFile, contents: &[u8]) {
    batch.put(row_of(file), file.to_row(contents));
}

/// Whether a file is needed to go on with a log of which full bundles are in files. The others are made anew.
fn is_needed(file: LogFile) -> bool {
    match file {
        LogFile::Tile { level, .. } => level > 0 || file.is_final(),
        LogFile::Entries { .. } => file.is_final(),
        _ => false,
    }
}

/// Puts the files that were just written into the store.
///
/// # Errors
/// [`StoreError`].
pub(crate) async fn keep(
    store: &dyn Store,
    files: &[(LogFile, Vec<u8>)],
) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    let needed = files.iter().filter(|(file, _)| is_needed(*file));
    needed.for_each(|(file, contents)| put(&mut batch, *file, contents));
    if batch.is_empty() {
        return Ok(());
    }
    store.commit(batch).await.map(|_| ())
}

/// Brings the files that the store has and the folder lacks into the folder, and those that the folder alone has into the
/// store. `needed` returns the files of a log whose head this is.
///
/// # Errors
/// [`SharedLogError`].
pub(crate) async fn reconcile<F: Iterator<Item = LogFile>>(
    store: &dyn Store,
    folder: &Folder,
    needed: impl Fn(u64) -> F,
) -> Result<(), SharedLogError> {
    let head = store.get(CaService::LOG_ROW).await?;
    let head = head.and_then(|entry| serde_json::from_slice::<LogHead>(&entry.value).ok());
    let mut missing: Vec<LogFile> = head.map_or_else(Vec::new, |head| needed(head.size).collect());
    let mut written = Ok(());
    read_all(store, LOG_FILE_ROW, |_, entry| {
        let Some((file, contents)) = LogFile::from_row(&entry.value) else {
            return;
        };
        missing.retain(|known| *known != file);
        if written.is_ok() && folder.read(file).is_err() {
            written = folder.write(&[(file, contents.to_vec())]);
        }
    })
    .await?;
    written?;
    for files in missing.chunks(AT_ONCE) {
        let mut batch = Batch::new();
        for file in files {
            // A file that is nowhere is told when the log is read.
            if let Ok(contents) = folder.read(*file) {
                put(&mut batch, *file, &contents);
            }
        }
        store.commit(batch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sealbus_store::MemoryStore;

    use super::*;

    const HEAD: u64 = 256;

    fn files(size: u64) -> std::vec::IntoIter<LogFile> {
        let named = ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"];
        let files = named.map(|name| name.parse().unwrap()).to_vec();
        assert_eq!(size, HEAD);
        files.into_iter()
    }

    #[tokio::test]
    async fn files_go_where_they_are_missing() {
        let store = MemoryStore::new();
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = Folder::new(first.path());
        let written: Vec<_> = files(HEAD)
            .map(|file| (file, file.to_string().into()))
            .collect();
        folder.write(&written).unwrap();
        let mut batch = Batch::new();
        let mut head = LogHead::default();
        head.size = HEAD;
        batch.put(CaService::LOG_ROW, serde_json::to_vec(&head).unwrap());
        store.commit(batch).await.unwrap();
        // A store that was restored from a backup has none of them.
        reconcile(&store, &folder, files).await.unwrap();
        let empty = Folder::new(second.path());
        reconcile(&store, &empty, files).await.unwrap();
        for (file, contents) in &written {
            assert_eq!(&empty.read(*file).unwrap(), contents);
        }
        // A fuller tile replaces the partial one, and files that are made anew are not kept.
        let fuller: LogFile = "tile/1/000.p/2".parse().unwrap();
        let partial: LogFile = "tile/entries/001.p/7".parse().unwrap();
        let more = [(fuller, b"2".to_vec()), (partial, b"7".to_vec())];
        keep(&store, &more).await.unwrap();
        let mut rows = Vec::new();
        read_all(&store, LOG_FILE_ROW, |_, entry| {
            rows.push(LogFile::from_row(&entry.value).unwrap().0)
        })
        .await
        .unwrap();
        rows.sort_by_key(ToString::to_string);
        assert_eq!(
            rows,
            ["tile/0/000", "tile/1/000.p/2", "tile/entries/000"].map(|name| name.parse().unwrap())
        );
    }
}
