//! The platform's stored state: one small trait, and the stores behind it.
//!
//! A store is an ordered map from text keys to bytes. Each part of the platform has its own prefix of keys (`ams/`,
//! `df/`, …). All changes go through [`Store::commit`], which is atomic. When `commit` returns, the changes are as
//! durable as the store itself. Each commit gives the store a new [`Revision`].
//!
//! A [`Batch`] may demand that some key has not changed since a revision. [`Fenced`] demands this of the row of the
//! leader's [`Term`]. So a Master that has lost its role without noticing cannot change anything.

pub mod backup;
mod embedded;
pub mod etcd;
mod fence;
mod memory;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use sealbus_seal::Term;

pub use embedded::EmbeddedStore;
pub use fence::{Fenced, Leadership, RESTORING_ROW, TERM_ROW, latest_term, restore_term};
pub use memory::{MemoryStore, WithCommits};
pub use rows::{Row, Rows};

/// The state of a store after one commit. Each commit's revision is higher than all before it.
pub type Revision = u64;

/// The value that a store keeps under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value's bytes.
    pub value: Vec<u8>,
    /// The commit that wrote the value.
    pub revision: Revision,
}

/// Changes that a store makes either all together or not at all.
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

    /// Writes a value. The last change of a key counts.
    pub fn put(&mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.changes.insert(key.into(), Some(value.into()));
    }

    /// Removes a key. A missing key is no error.
    pub fn delete(&mut self, key: impl Into<String>) {
        self.changes.insert(key.into(), None);
    }

    /// Demands that the commit with this revision was the last to write `key`, or, with revision 0, that there is no
    /// such key. Otherwise the commit fails with [`StoreError::Conflict`].
    pub fn require(&mut self, key: impl Into<String>, revision: Revision) {
        self.conditions.insert(key.into(), revision);
    }

    /// Appends the changes and conditions of another batch after those of this one.
    pub fn append(&mut self, other: Batch) {
        self.changes.extend(other.changes);
        self.conditions.extend(other.conditions);
    }

    /// Adds changes of rows after those of this batch. If a row's key `is_used_once`, and the row is deleted before its
    /// value was committed, the store never hears of the row.
    pub fn add(
        &mut self,
        rows: impl IntoIterator<Item = Row>,
        is_used_once: impl Fn(&str) -> bool,
    ) {
        for (key, value) in rows {
            let came = || matches!(self.changes.get(&key), Some(Some(_)));
            let came_and_went = value.is_none() && is_used_once(&key) && came();
            match came_and_went {
                true => self.changes.remove(&key),
                false => self.changes.insert(key, value),
            };
        }
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes in the order of their keys. `None` removes the key.
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

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A condition of the batch does not hold; nothing was changed.
    #[error(
        "the store's entry '{key}' was written at revision {found}, not {expected}: somebody else has changed it meanwhile"
    )]
    Conflict {
        /// The key of the condition.
        key: String,
        /// The revision demanded.
        expected: Revision,
        /// The revision found; 0 if there is no entry.
        found: Revision,
    },
    /// A later term has begun; nothing was changed, and nothing will be in this term.
    #[error(
        "the term {by} has begun, and this Master leads in the term {term} only: another Master has taken over its store, and it changes nothing any more"
    )]
    Superseded {
        /// The term of this leader.
        term: Term,
        /// The latest term.
        by: Term,
    },
    /// A restore from a backup is not complete, so no term begins.
    #[error(
        "restore-unfinished: a backup is being restored into this state, or that was interrupted, and no Master leads on half a state: run the same `sealbus restore` again with the state directory in which it was begun; if that is lost, remove this state for ever (`etcdctl del --prefix /sealbus/PLATFORM/`) and restore it anew"
    )]
    Restoring,
    /// A row cannot be read.
    #[error("the store's entry '{key}' is damaged ({detail}): restore the store from a backup")]
    DamagedRow {
        /// The row's key.
        key: String,
        /// The fault.
        detail: String,
    },
    /// The disk is full; nothing was changed.
    #[error(
        "no space left for the store {}: free some on that disk; the next change tries again to keep what was not kept",
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
        "the store {} is open in another process: stop the Master that uses this state directory (`sealbus down`), or choose another directory",
        path.display()
    )]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is not a store, or is damaged.
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
    /// The file cannot be opened, read or written.
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
    /// The settings for etcd cannot be used.
    #[error(transparent)]
    EtcdSettings(#[from] etcd::EtcdSettingsError),
    /// No member of the etcd cluster answers, or none can write. The commit may have been made nevertheless.
    #[error(
        "etcd-away: etcd ({members}) does not answer, or has lost most of its members: {detail}; changes wait until it is back, and messages go on"
    )]
    Away {
        /// The members' addresses.
        members: String,
        /// The last attempt.
        detail: String,
    },
    /// The Master ended before the store answered. The commit may have been made nevertheless.
    #[error(
        "this Master ended before the store answered, so nobody knows whether the change was made: ask again"
    )]
    Unanswered,
    /// etcd refused a request; nothing was changed.
    #[error("etcd refused a request of the Master: {detail}; `sealbus store check` examines etcd")]
    Refused {
        /// etcd's reason.
        detail: String,
    },
    /// etcd has no space left; nothing was changed.
    #[error(
        "etcd-full: etcd ({members}) has no space left: compact and defragment it, then `etcdctl alarm disarm`; the next change tries again to keep what was not kept"
    )]
    EtcdFull {
        /// The members' addresses.
        members: String,
    },
    /// etcd answered a read with something that etcd never answers; nothing of it was used.
    #[error(
        "etcd-impossible: the read of etcd from '{key}' on was answered with {detail}, which etcd never does: see that the members' addresses lead to etcd, with nothing in between, and that no member is damaged; `sealbus store check` examines them"
    )]
    Impossible {
        /// The first key that was asked for.
        key: String,
        /// The fault.
        detail: &'static str,
    },
    /// A member is of a version on which no platform may rely.
    #[error("the member {member} of etcd is of version {version}: {reason}")]
    EtcdVersion {
        /// The member's address.
        member: String,
        /// Its version.
        version: String,
        /// The fault, and what to do.
        reason: &'static str,
    },
    /// A value is too long for any store; nothing was changed.
    #[error(
        "the store's entry '{key}' has {length} bytes, and {limit} are the most that a store and a backup can hold: nothing was changed; reduce the entries that the platform keeps under this name"
    )]
    LongValue {
        /// The beginning of the key.
        key: String,
        /// The entry's length.
        length: usize,
        /// The longest value.
        limit: usize,
    },
    /// The changes are too large for the store.
    #[error("a value of {length} bytes is too large for the store")]
    TooLarge {
        /// The value's length.
        length: usize,
    },
}

/// Takes the key and the value of one entry after another.
pub type TakeEntry = Box<dyn FnMut(&str, &[u8]) + Send>;

/// A place for the platform's state. Many tasks may call it at once. A read sees every commit that returned before the
/// read began.
pub trait Store: Send + Sync + 'static {
    /// The value under `key`.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;

    /// At most `limit` entries with keys that begin with `prefix`, in the order of the keys, and after the key `after`
    /// if one is given. Fewer than `limit` entries mean that there are no more.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>>;

    /// Gives all entries to `take`, in the order of the keys, as they were at one moment. Commits go on meanwhile.
    fn snapshot(&self, take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Makes all changes of a batch, or none if there is an error. When this returns, the changes are durable. The
    /// returned revision is higher than all before, even for an empty batch.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>>;
}

/// Reads all entries with keys that begin with `prefix`. It reads in pages, so that memory holds no more than a page
/// besides the values that `each` keeps.
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
