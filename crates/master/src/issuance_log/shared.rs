//! The files of the issuance logs in a store that outlives the Master's machine. Entries are rows until their files are
//! written. The files are rows, too, so that later Masters can publish the log of a CA that is gone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use sealbus_ca::CaService;
use sealbus_store::{Batch, Store, StoreError, read_all};
use sealbus_transparency::{LogFile, LogHead};

use super::{edge_of, folder_in, is_name};

/// Prefix of the rows. The name of the CA and the path of a full file follow. The value ([`LogFile::to_row`]) names the file
/// itself, so a partial file is replaced by a fuller one.
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

fn put(batch: &mut Batch, authority: &str, file: LogFile, contents: &[u8]) {
    let key = format!("{LOG_FILE_ROW}{authority}/{}", file.full());
    batch.put(key, file.to_row(contents));
}

fn parse<'r>(key: &'r str, value: &'r [u8]) -> Option<(&'r str, LogFile, &'r [u8])> {
    let (authority, _) = key.strip_prefix(LOG_FILE_ROW)?.split_once('/')?;
    let (file, contents) = LogFile::from_row(value)?;
    is_name(authority).then_some((authority, file, contents))
}

/// Puts files that are about to be written into the store.
///
/// # Errors
/// [`StoreError`].
pub(crate) async fn keep(
    store: &dyn Store,
    authority: &str,
    files: &[(LogFile, Vec<u8>)],
) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    for (file, contents) in files {
        put(&mut batch, authority, *file, contents);
    }
    if batch.is_empty() {
        return Ok(());
    }
    store.commit(batch).await.map(|_| ())
}

/// Brings the files that the store has and the state folder lacks into the folder, and those that the folder alone has into
/// the store. `needed` returns the files of a log whose head this is.
///
/// # Errors
/// [`SharedLogError`].
pub(crate) async fn reconcile<F: Iterator<Item = LogFile>>(
    store: &dyn Store,
    directory: &Path,
    needed: impl Fn(u64) -> F,
) -> Result<(), SharedLogError> {
    let mut missing: BTreeMap<String, Vec<LogFile>> = BTreeMap::new();
    read_all(store, CaService::LOG_ROW, |key, entry| {
        let authority = key.strip_prefix(CaService::LOG_ROW).unwrap_or_default();
        if let (true, Ok(head)) = (
            is_name(authority),
            serde_json::from_slice::<LogHead>(&entry.value),
        ) {
            let files = needed(head.size).chain(edge_of(&folder_in(directory, authority)));
            missing.insert(authority.to_owned(), files.collect());
        }
    })
    .await?;
    let mut written = Ok(());
    let mut last = Vec::new();
    read_all(store, LOG_FILE_ROW, |key, entry| {
        let Some((authority, file, contents)) = parse(&key, &entry.value) else {
            return;
        };
        if let Some(missing) = missing.get_mut(authority) {
            missing.retain(|known| known.full() != file.full());
        }
        let folder = folder_in(directory, authority);
        match folder.read(file) {
            Ok(known) if known == contents => {}
            // The store had the file before any folder.
            _ if !is_place(file) => last.push((folder, file, contents.to_vec())),
            Ok(_) => {}
            Err(_) if written.is_ok() => written = folder.write(&[(file, contents.to_vec())]),
            Err(_) => {}
        }
    })
    .await?;
    written?;
    // A checkpoint comes after the files that it is about.
    last.sort_by_key(|(_, file, _)| *file == LogFile::Checkpoint);
    for (folder, file, contents) in last {
        folder.write(&[(file, contents)])?;
    }
    for (authority, files) in missing {
        let folder = folder_in(directory, &authority);
        for files in files.chunks(AT_ONCE) {
            let mut batch = Batch::new();
            for file in files {
                // A file that is nowhere is reported when the log is read.
                if let Ok(contents) = folder.read(*file) {
                    put(&mut batch, &authority, *file, &contents);
                }
            }
            if !batch.is_empty() {
                store.commit(batch).await?;
            }
        }
    }
    Ok(())
}

/// Whether the file is a piece of the log, and not a statement about it.
fn is_place(file: LogFile) -> bool {
    matches!(file, LogFile::Tile { .. } | LogFile::Entries { .. })
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

    async fn rows(store: &dyn Store) -> Vec<String> {
        let mut rows = Vec::new();
        read_all(store, LOG_FILE_ROW, |key, entry| {
            let (authority, file, _) = parse(&key, &entry.value).unwrap();
            rows.push(format!("{authority} {file}"));
        })
        .await
        .unwrap();
        rows.sort();
        rows
    }

    #[tokio::test]
    async fn files_of_each_log_go_where_they_are_missing() {
        let store = MemoryStore::new();
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = |at: &tempfile::TempDir, name| folder_in(at.path(), name);
        let content = |file: LogFile| (file, file.to_string().into_bytes());
        let written: Vec<_> = files(HEAD).map(content).collect();
        folder(&first, "ca").write(&written).unwrap();
        let mut batch = Batch::new();
        let mut head = LogHead::default();
        head.size = HEAD;
        let row = format!("{}ca", CaService::LOG_ROW);
        batch.put(row, serde_json::to_vec(&head).unwrap());
        store.commit(batch).await.unwrap();
        // A store that was restored from a backup has none of them.
        reconcile(&store, first.path(), files).await.unwrap();
        reconcile(&store, second.path(), files).await.unwrap();
        for (file, contents) in &written {
            assert_eq!(&folder(&second, "ca").read(*file).unwrap(), contents);
        }
        // A fuller tile replaces the partial one, and a newer checkpoint of another CA the older one.
        let named = |name: &str| content(name.parse().unwrap());
        let more = [named("tile/1/000.p/2"), named("tile/entries/001.p/7")];
        keep(&store, "ca", &more).await.unwrap();
        let other = folder(&second, "ca-2");
        other
            .write(&[(LogFile::Checkpoint, b"older".to_vec())])
            .unwrap();
        let newer = [(LogFile::Checkpoint, b"newer".to_vec())];
        keep(&store, "ca-2", &newer).await.unwrap();
        reconcile(&store, second.path(), files).await.unwrap();
        assert_eq!(other.read(LogFile::Checkpoint).unwrap(), b"newer");
        assert_eq!(
            rows(&store).await,
            [
                "ca tile/0/000",
                "ca tile/1/000.p/2",
                "ca tile/entries/000",
                "ca tile/entries/001.p/7",
                "ca-2 checkpoint"
            ]
        );
        // No name leads out of the folder.
        let mut batch = Batch::new();
        put(&mut batch, "..", LogFile::Checkpoint, b"out");
        store.commit(batch).await.unwrap();
        reconcile(&store, second.path(), files).await.unwrap();
        assert!(!second.path().join("checkpoint").exists());
    }
}
