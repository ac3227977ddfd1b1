//! Where the platform keeps its state: one small trait, and the stores behind it.
//!
//! A store is an ordered map from text keys to bytes. Parts of the platform keep apart by the
//! prefixes of their keys (`ams/`, `df/`, …). All changes go through [`Store::commit`], which is
//! atomic and, when it returns, as durable as the store is; each gives the store a new [`Revision`].
//! A [`Batch`] may demand that some key has not changed since a revision: that is the fence which
//! keeps a Master that lost its role without noticing from changing anything.

mod embedded;
mod memory;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::future::BoxFuture;

pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;
pub use rows::{Row, Rows};

/// The state of a store after one commit; each commit's is higher than all before it.
pub type Revision = u64;

/// The value that a store keeps under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The bytes.
    pub value: Vec<u8>,
    /// The commit that wrote them.
    pub revision: Revision,
}

/// Changes that a store makes all together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    changes: BTreeMap<String, Option<Vec<u8>>>,
    conditions: BTreeMap<String, Revision>,
}

impl Batch {
    /// A batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a value; the last change of a key counts.
    pub fn put(&mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.changes.insert(key.into(), Some(value.into()));
    }

    /// Removes a key; nothing happens if it is not there.
    pub fn delete(&mut self, key: impl Into<String>) {
        self.changes.insert(key.into(), None);
    }

    /// Demands that `key` was last written by the commit of this revision, or, with revision 0,
    /// that it is not there. Otherwise the commit fails with [`StoreError::Conflict`].
    pub fn require(&mut self, key: impl Into<String>, revision: Revision) {
        self.conditions.insert(key.into(), revision);
    }

    /// Appends the changes and conditions of another batch, which come after those of this one.
    pub fn append(&mut self, other: Batch) {
        self.changes.extend(other.changes);
        self.conditions.extend(other.conditions);
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes in the order of their keys; `None` removes.
    pub fn changes(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.changes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
    }
}

impl Extend<(String, Option<Vec<u8>>)> for Batch {
    fn extend<I: IntoIterator<Item = (String, Option<Vec<u8>>)>>(&mut self, changes: I) {
        self.changes.extend(changes);
    }
}

impl FromIterator<(String, Option<Vec<u8>>)> for Batch {
    fn from_iter<I: IntoIterator<Item = (String, Option<Vec<u8>>)>>(changes: I) -> Self {
        Self {
            changes: changes.into_iter().collect(),
            conditions: BTreeMap::new(),
        }
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A condition of the batch does not hold; nothing was changed.
    #[error(
        "the store's entry '{key}' was written at revision {found}, not {expected}: another Master has taken over; this one must stop"
    )]
    Conflict {
        /// The key of the condition.
        key: String,
        /// The revision demanded.
        expected: Revision,
        /// The revision found; 0 if there is no entry.
        found: Revision,
    },
    /// The disk is full; nothing was changed.
    #[error(
        "no space left for the store {}: free some on that disk; what was not kept is tried anew with the next change",
        path.display()
    )]
    Full {
        /// The store's file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the store open.
    #[error(
        "the store {} is open in another process: stop the Master that uses this state directory, or choose another directory",
        path.display()
    )]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is no store, or is damaged.
    #[error(
        "the store {} is damaged or is no Sealbus store ({detail}): restore it from a backup, or move it away to begin with an empty state",
        path.display()
    )]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// The fault.
        detail: String,
    },
    /// The file can't be opened, read or written.
    #[error("the store {} cannot be {action}: {source}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// The attempted operation: `opened`, `read`, `written`, `used`.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A value that no store takes.
    #[error("a value of {length} bytes is too large for the store")]
    TooLarge {
        /// Its length.
        length: usize,
    },
}

/// A place for the platform's state. Calls may be made from many tasks at once; a read sees every
/// commit that returned before it began.
pub trait Store: Send + Sync + 'static {
    /// The value under `key`.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;

    /// At most `limit` entries whose keys begin with `prefix`, in the order of the keys; after the
    /// key `after`, if given. Fewer than `limit` means that there are no more.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>>;

    /// Makes all changes of a batch, or none if there is an error. When this returns, the changes
    /// are durable. The revision returned is higher than all before, also for an empty batch.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>>;
}

/// Reads all entries whose keys begin with `prefix`, in pages, so that no more than a page is in
/// memory beside what `each` keeps.
pub async fn read_all(
    store: &dyn Store,
    prefix: &str,
    mut each: impl FnMut(String, Entry),
) -> Result<(), StoreError> {
    const PAGE: usize = 1024;
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(prefix, after.as_deref(), PAGE).await?;
        let last = page.len() < PAGE;
        after = page.last().map(|(key, _)| key.clone());
        page.into_iter().for_each(|(key, entry)| each(key, entry));
        if last {
            return Ok(());
        }
    }
}
