//! A store in an etcd cluster.
//!
//! All keys of a platform begin with `/sealbus/PLATFORM/`. Below that, `rows/` holds the store's entries. `commit/` has one
//! row for each instance that writes, with the mark of its last commit: if an answer does not come, the mark tells whether
//! the commit was made. `staged/` holds changes that are too many for one transaction of etcd, and `pending` the mark of
//! those that must still be moved to their rows. `pieces/` holds the values that are too long for one request to etcd, and
//! `in-pieces` the list of their rows. `role` and `instance/` say which instance leads and which are there.

mod certify;
mod check;
mod cluster;
mod commit;
#[doc(hidden)]
pub mod fuzzing;
mod pieces;
mod plan;
mod role;
mod settings;
mod staged;
#[cfg(test)]
pub(crate) mod tests;
mod unread;
mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use aws_lc_rs::rand;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::Code;

use super::backup::LONGEST_CONTENTS;
use super::{Batch, Entry, Revision, Store, StoreError, TakeEntry};
use cluster::{CallError, Cluster};
use commit::Writer;
use pieces::Pieces;
use unread::Unread;
use wire::{Found, KeyValue, Range};

pub use certify::{CertifyError, EtcdAuthority};
pub use check::{EtcdCheck, EtcdMember};
pub use role::{InstanceRow, Lease};
pub use settings::{AUTHORITY_FILE, CERTIFICATE_FILE, EtcdSettings, EtcdSettingsError, KEY_FILE};

/// Longest value. A backup takes none that is longer.
const LONGEST_VALUE: usize = LONGEST_CONTENTS;
/// The most bytes that one transaction writes, approximately. A request to etcd may have 1.5 MiB.
const LONGEST_REQUEST: usize = 1 << 20;
/// Rows that are read at a time.
const PAGE: usize = 128;
/// Most bytes of keys and values that are read of a platform. etcd is made for 8 GiB.
const LONGEST_READ: u64 = 16 << 30;
/// Most bytes of keys and values that are read of the pieces of a value. Their keys are short.
const LONGEST_PIECES: u64 = 2 * LONGEST_VALUE as u64;
/// Pieces of a value that are read at a time. A member must answer soon.
const PIECES: usize = 8;
/// Longest answer that is read.
const LONGEST_ANSWER: usize = (PAGE + 1) * (LONGEST_REQUEST + 4096);
/// How often a read is tried, each time with another member.
const READS: usize = 4;

/// A store in an etcd cluster, for several machines.
///
/// A commit is durable on most members when it returns. It waits for some seconds for a cluster that does not answer, and
/// then fails with [`StoreError::Away`]. It may have been made nevertheless: the next commit finds that out first.
pub struct EtcdStore {
    cluster: Cluster,
    keys: Keys,
    /// Reads take the same lock, because they move changes to their places, too.
    writer: tokio::sync::Mutex<Writer>,
    /// The keys of the damaged rows of instances that the log has named.
    passed_over: parking_lot::Mutex<BTreeSet<Vec<u8>>>,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("members", &self.cluster.addresses())
            .field("prefix", &self.keys.prefix)
            .finish_non_exhaustive()
    }
}

/// The names of the keys in etcd.
struct Keys {
    /// `/sealbus/PLATFORM/`
    prefix: String,
    /// The instance that writes.
    instance: String,
}

impl Keys {
    fn row(&self, key: &str) -> Vec<u8> {
        format!("{}rows/{key}", self.prefix).into_bytes()
    }

    fn commit(&self) -> Vec<u8> {
        format!("{}commit/{}", self.prefix, self.instance).into_bytes()
    }

    fn pending(&self) -> Vec<u8> {
        format!("{}pending", self.prefix).into_bytes()
    }

    fn role(&self) -> Vec<u8> {
        format!("{}role", self.prefix).into_bytes()
    }

    /// The row of an instance, or, with an empty name, of all.
    fn of_instance(&self, name: &str) -> Vec<u8> {
        format!("{}instance/{name}", self.prefix).into_bytes()
    }

    /// The changes that wait under a mark, or, with an empty one, all of this instance's.
    fn staged(&self, mark: &str) -> Vec<u8> {
        format!("{}staged/{}/{mark}", self.prefix, self.instance).into_bytes()
    }

    /// The list of the rows whose values are in pieces.
    fn in_pieces(&self) -> Vec<u8> {
        format!("{}in-pieces", self.prefix).into_bytes()
    }

    /// The pieces in a folder.
    fn pieces(&self, folder: &str) -> Vec<u8> {
        format!("{}pieces/{folder}/", self.prefix).into_bytes()
    }

    fn piece(&self, folder: &str, number: usize) -> Vec<u8> {
        format!("{}pieces/{folder}{}", self.prefix, pieces::name(number)).into_bytes()
    }

    /// The store's key of a row in etcd.
    fn of_row(&self, row: &KeyValue) -> Result<String, StoreError> {
        let key = row.key.strip_prefix(self.row("").as_slice());
        let key = key.and_then(|key| std::str::from_utf8(key).ok());
        key.map(str::to_owned)
            .ok_or_else(|| StoreError::DamagedRow {
                key: String::from_utf8_lossy(&row.key).into_owned(),
                detail: "the key is not one of a row".to_owned(),
            })
    }
}

/// The first key after all that begin with `prefix`, which is not empty.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

impl EtcdStore {
    /// Opens the store of a platform, as [`new`](Self::new), [`reach`](Self::reach) and [`clear`](Self::clear).
    ///
    /// # Errors
    /// Those of the three methods.
    pub async fn open(
        settings: &EtcdSettings,
        platform: &str,
        instance: &str,
    ) -> Result<Self, StoreError> {
        let store = Self::new(settings, platform, instance)?;
        store.reach().await?;
        store.clear().await?;
        Ok(store)
    }

    /// The store of a platform, which may be away. It must be [reached](Self::reach) before it is changed. `instance` names the process that writes, among all that use the store: the name
    /// stays the same when the process is started anew.
    ///
    /// # Errors
    /// [`StoreError::EtcdSettings`].
    pub fn new(
        settings: &EtcdSettings,
        platform: &str,
        instance: &str,
    ) -> Result<Self, StoreError> {
        let (members, tls) = settings.read()?;
        let mut mark = [0; 8];
        rand::fill(&mut mark).map_err(|_| StoreError::Refused {
            detail: "the operating system gave no random bytes".to_owned(),
        })?;
        Ok(Self {
            cluster: Cluster::new(members, tls),
            keys: Keys {
                prefix: format!("/sealbus/{platform}/"),
                instance: instance.to_owned(),
            },
            writer: tokio::sync::Mutex::new(Writer::new(u64::from_be_bytes(mark))),
            passed_over: parking_lot::Mutex::default(),
        })
    }

    /// Checks the version of etcd, and moves the changes of a commit that was made to their places. The commit may be that of
    /// another process, even of a process with this instance's name. Changes that such a process has not committed yet stay.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`], or [`StoreError::EtcdVersion`] if a member is of a version that can lose
    /// acknowledged commits.
    pub async fn reach(&self) -> Result<(), StoreError> {
        check::refuse_versions(&self.cluster).await?;
        let mut writer = self.writer.lock().await;
        let until = Instant::now() + commit::TRYING;
        self.finish_pending(until).await?;
        // A damaged list shows now, and not with the first commit.
        self.listed(&mut writer, until).await.map(drop)
    }

    /// Removes the changes that this instance wrote before it was ended, and did not commit. No other process may have this
    /// instance's name then: the commits that such a process has begun would fail.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`].
    pub async fn clear(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        let until = Instant::now() + commit::TRYING;
        match self.clear_staged(&mut writer, until).await {
            // Any large commit first tries to remove them again.
            Err(StoreError::EtcdFull { .. }) => Ok(()),
            cleared => cleared,
        }
    }

    fn away(&self, detail: String) -> StoreError {
        StoreError::Away {
            members: self.cluster.addresses(),
            detail,
        }
    }

    fn failed(&self, error: CallError) -> StoreError {
        match error {
            CallError::Away(detail) => self.away(detail),
            CallError::Refused(status) => {
                let detail = status.message().to_owned();
                match status.code() {
                    Code::ResourceExhausted if detail.contains("space") => StoreError::EtcdFull {
                        members: self.cluster.addresses(),
                    },
                    _ => StoreError::Refused { detail },
                }
            }
        }
    }

    /// Reads, trying other members if one does not answer.
    async fn range(&self, range: &Range) -> Result<Found, StoreError> {
        let mut last = String::new();
        for _ in 0..READS {
            match self.cluster.ask(range).await {
                Ok(found) => return Ok(found),
                Err(CallError::Away(why)) => last = why,
                Err(refused) => return Err(self.failed(refused)),
            }
        }
        Err(self.away(last))
    }

    async fn read(&self, key: Vec<u8>) -> Result<Option<KeyValue>, StoreError> {
        let found = self.range(&Range::one(key)).await?;
        Ok(found.rows.into_iter().next())
    }

    /// The latest revision at which all commits are whole. Changes that wait are first moved to their places, because the
    /// instance that committed them may be another one, or have ended, or have lost etcd.
    async fn whole(&self) -> Result<i64, StoreError> {
        let until = Instant::now() + commit::TRYING;
        loop {
            let pending = self.range(&Range::one(self.keys.pending())).await?;
            if pending.rows.is_empty() {
                return Ok(pending.header.unwrap_or_default().revision);
            }
            self.finish_pending(until).await?;
            self.check_time(until)?;
        }
    }

    /// The next page of rows, read at `revision`, and the revision at which it was read.
    async fn page(
        &self,
        unread: &mut Unread,
        limit: usize,
        revision: i64,
    ) -> Result<(Found, i64), StoreError> {
        let limit = limit.min(PAGE);
        let range = Range {
            key: unread.from.clone(),
            end: unread.end.clone(),
            limit: limit as i64,
            revision,
            keys_only: false,
        };
        let found = self.range(&range).await?;
        unread.take(&found, limit)?;
        let read_at = match (revision, &found.header) {
            (0, Some(header)) => header.revision,
            _ => revision,
        };
        Ok((found, read_at))
    }

    async fn scan_rows(
        &self,
        prefix: &str,
        after_key: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Entry)>, StoreError> {
        let _unchanged = self.writer.lock().await;
        let mut revision = self.whole().await?;
        let mut rows = Vec::new();
        let end = after(&self.keys.row(prefix));
        let from = match after_key {
            Some(after) if after >= prefix => next(self.keys.row(after)),
            _ => self.keys.row(prefix),
        };
        let mut unread = Unread::new(from, end, LONGEST_READ);
        while unread.is_more && rows.len() < limit {
            let rest = limit - rows.len();
            let (found, read_at) = self.page(&mut unread, rest, revision).await?;
            revision = read_at;
            for row in found.rows {
                let key = self.keys.of_row(&row)?;
                let entry = self.entry(&key, row, revision).await?;
                rows.push((key, entry));
            }
        }
        Ok(rows)
    }

    async fn take_all(&self, mut take: TakeEntry) -> Result<(), StoreError> {
        let from = self.keys.row("");
        let end = after(&from);
        let mut unread = Unread::new(from, end, LONGEST_READ);
        let unchanged = self.writer.lock().await;
        let mut revision = self.whole().await?;
        // The revision is chosen: commits may go on.
        drop(unchanged);
        while unread.is_more {
            let (found, read_at) = self.page(&mut unread, PAGE, revision).await?;
            revision = read_at;
            for row in found.rows {
                let key = self.keys.of_row(&row)?;
                let entry = self.entry(&key, row, revision).await?;
                take(&key, &entry.value);
            }
        }
        Ok(())
    }

    async fn get_row(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let _unchanged = self.writer.lock().await;
        let revision = self.whole().await?;
        let row = Range {
            revision,
            ..Range::one(self.keys.row(key))
        };
        let found = self.range(&row).await?;
        match found.rows.into_iter().next() {
            Some(row) => Ok(Some(self.entry(key, row, revision).await?)),
            None => Ok(None),
        }
    }

    /// The entry of a row that was read at `revision`. Its pieces are read as they were then, so they belong to the row even if
    /// another instance writes it anew meanwhile.
    async fn entry(&self, key: &str, row: KeyValue, revision: i64) -> Result<Entry, StoreError> {
        let damaged = |detail: String| StoreError::DamagedRow {
            key: key.to_owned(),
            detail,
        };
        let written = row.written.unsigned_abs();
        let pieces = Pieces::read(&row.value).map_err(|error| damaged(error.to_string()))?;
        let value = match pieces {
            None => row.value,
            Some(pieces) => {
                let found = self.found_pieces(&pieces.folder, revision).await?;
                pieces.join(found).map_err(damaged)?
            }
        };
        Ok(Entry {
            value,
            revision: written,
        })
    }

    /// The pieces in a folder at a revision.
    async fn found_pieces(&self, folder: &str, revision: i64) -> Result<Vec<KeyValue>, StoreError> {
        let from = self.keys.pieces(folder);
        let end = after(&from);
        let mut unread = Unread::new(from, end, LONGEST_PIECES);
        let mut pieces = Vec::new();
        while unread.is_more {
            let (found, _) = self.page(&mut unread, PIECES, revision).await?;
            pieces.extend(found.rows);
        }
        Ok(pieces)
    }
}

/// The first key after this one.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

impl Store for EtcdStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.get_row(key).boxed()
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>> {
        self.scan_rows(prefix, after, limit).boxed()
    }

    fn snapshot(&self, take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        self.take_all(take).boxed()
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move { self.write(batch).await }.boxed()
    }
}
