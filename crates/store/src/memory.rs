use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;

use super::{Batch, Entry, Revision, Store, StoreError, TakeEntry};

/// A store that lasts as long as its process, for the platform embedded in a program.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Behaves as a store on a full disk while `is_full`: commits fail with [`StoreError::Full`]. For tests of the
    /// parts that use a store.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}

impl State {
    fn commit(&mut self, batch: Batch) -> Result<Revision, StoreError> {
        for (key, expected) in batch.conditions {
            let found = self.entries.get(&key).map_or(0, |entry| entry.revision);
            if found != expected {
                return Err(StoreError::Conflict {
                    key,
                    expected,
                    found,
                });
            }
        }
        self.revision += 1;
        for (key, value) in batch.changes {
            match value {
                Some(value) => {
                    self.entries.insert(
                        key,
                        Entry {
                            value,
                            revision: self.revision,
                        },
                    );
                }
                None => {
                    self.entries.remove(&key);
                }
            }
        }
        Ok(self.revision)
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        ready(Ok(self.state.lock().entries.get(key).cloned())).boxed()
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>> {
        let state = self.state.lock();
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let entries = state.entries.range::<str, _>((start, Bound::Unbounded));
        let page = entries
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        ready(Ok(page)).boxed()
    }

    fn snapshot(&self, mut take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        for (key, entry) in &self.state.lock().entries {
            take(key, &entry.value);
        }
        ready(Ok(())).boxed()
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let result = match self.is_full.load(Ordering::Relaxed) {
            true => Err(StoreError::Full {
                path: "memory".into(),
                source: io::ErrorKind::StorageFull.into(),
            }),
            false => self.state.lock().commit(batch),
        };
        ready(result).boxed()
    }
}

/// A store in memory for tests. `F` makes each commit: late, after others, or without its answer.
#[derive(Debug)]
pub struct WithCommits<F> {
    store: Arc<MemoryStore>,
    commit: F,
}

impl<F> WithCommits<F>
where
    F: Fn(Arc<MemoryStore>, Batch) -> BoxFuture<'static, Result<Revision, StoreError>>,
{
    /// An empty store.
    pub fn new(commit: F) -> Self {
        let store = Arc::default();
        Self { store, commit }
    }
}

impl<F> Store for WithCommits<F>
where
    F: Fn(Arc<MemoryStore>, Batch) -> BoxFuture<'static, Result<Revision, StoreError>>
        + Send
        + Sync
        + 'static,
{
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.store.get(key)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>> {
        self.store.scan(prefix, after, limit)
    }

    fn snapshot(&self, take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.snapshot(take)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        (self.commit)(self.store.clone(), batch)
    }
}
