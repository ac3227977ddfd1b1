//! Disks that fail.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redb::StorageBackend;

use super::*;

/// A disk that can be told that it is full, or that it cannot be read, and that counts what it is given.
#[derive(Debug)]
struct Disk {
    file: redb::backends::FileBackend,
    gauge: Arc<Gauge>,
}

#[derive(Debug, Default)]
struct Gauge {
    full: AtomicBool,
    unreadable: AtomicBool,
    /// In bytes.
    written: AtomicUsize,
}

impl Disk {
    fn check(&self) -> io::Result<()> {
        if self.gauge.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.gauge.unreadable.load(Ordering::Relaxed) {
            return Err(io::Error::other("a bad sector"));
        }
        self.file.read(offset, out)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_len(length)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.gauge.written.fetch_add(data.len(), Ordering::Relaxed);
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

fn open_disk(path: &Path, gauge: &Arc<Gauge>) -> Result<redb::Database, redb::DatabaseError> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = redb::backends::FileBackend::new(options.open(path)?)?;
    // Large values are read from the disk each time.
    redb::Builder::new()
        .set_cache_size(64 << 10)
        .create_with_backend(Disk {
            file,
            gauge: Arc::clone(gauge),
        })
}

fn store_on_disk(directory: &Path) -> (EmbeddedStore, Arc<Gauge>) {
    let path = directory.join("state.redb");
    let gauge = Arc::new(Gauge::default());
    let disk = (path.clone(), Arc::clone(&gauge));
    let store = EmbeddedStore::open_with(path, move || open_disk(&disk.0, &disk.1)).unwrap();
    (store, gauge)
}

#[tokio::test]
async fn a_change_does_not_write_the_large_values_beside_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, disk) = store_on_disk(directory.path());
    let small = |n: u32| (format!("row {n}"), Some(b"small".to_vec()));
    store.commit((10..30).map(small).collect()).await.unwrap();
    let large = ("row 20".to_owned(), Some(vec![0; 4 << 20]));
    store.commit(Batch::from_iter([large])).await.unwrap();

    let before = disk.written.load(Ordering::Relaxed);
    for n in (10..20).chain(21..30) {
        store.commit(Batch::from_iter([small(n)])).await.unwrap();
    }
    let written = disk.written.load(Ordering::Relaxed) - before;
    assert!(written < 1 << 20, "{written} bytes were written");
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_goes_on_when_there_is_space() {
    let directory = tempfile::tempdir().unwrap();
    let (store, disk) = store_on_disk(directory.path());
    let before = store.commit(put("a", "kept")).await.unwrap();

    disk.full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let error = store.commit(put("a", "lost")).await.unwrap_err();
        assert!(matches!(&error, StoreError::Full { .. }), "{error:?}");
        assert!(error.to_string().contains("no space left"), "{error}");
    }

    disk.full.store(false, Ordering::Relaxed);
    assert_eq!(value(&store, "a").await.as_deref(), Some("kept"));
    assert!(store.commit(put("b", "again")).await.unwrap() > before);
    assert_eq!(value(&store, "a").await.as_deref(), Some("kept"));
    assert_eq!(value(&store, "b").await.as_deref(), Some("again"));
}

#[tokio::test]
async fn a_disk_that_could_not_be_read_for_a_while_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let large = ("a".to_owned(), Some(vec![7; 4 << 20]));
    let (store, _) = store_on_disk(directory.path());
    store.commit(Batch::from_iter([large])).await.unwrap();
    drop(store);
    // None of it is in memory.
    let (store, disk) = store_on_disk(directory.path());
    disk.unreadable.store(true, Ordering::Relaxed);
    let error = store.get("a").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Io { action: "read", .. }),
        "{error:?}"
    );
    disk.unreadable.store(false, Ordering::Relaxed);
    assert!(store.get("a").await.unwrap().unwrap().value == vec![7; 4 << 20]);

    drop(store);
    let (store, disk) = store_on_disk(directory.path());
    disk.unreadable.store(true, Ordering::Relaxed);
    assert!(store.snapshot(Box::new(|_, _| {})).await.is_err());
    disk.unreadable.store(false, Ordering::Relaxed);
    assert_eq!(snapshot(&store).await.len(), 1);
}
