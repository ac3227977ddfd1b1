//! Commits that are too large for one transaction of etcd. Their changes are first written beside the rows, where nobody
//! reads them. One transaction then makes the commit: it leaves a row that says that these changes are to be moved to their
//! places. Nothing else is committed before they are, and whoever finds that row moves them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prost::Message;

use super::commit::{Commit, MOST_CHANGES, size_of};
use super::wire::{Compare, Delete, KeyValue, Operation, Operations, Range, Transaction};
use super::{EtcdStore, LONGEST_VALUE, after};
use crate::{Revision, StoreError};

/// The pause before it is.
const PAUSE: Duration = Duration::from_millis(100);

type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// A part of a large commit, small enough for one transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Part {
    #[prost(message, repeated, tag = "1")]
    changes: Vec<Change>,
}

/// A row to be written, or, without a value, deleted.
#[derive(Clone, PartialEq, Message)]
struct Change {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", optional, tag = "2")]
    value: Option<Vec<u8>>,
}

impl EtcdStore {
    /// Writes changes beside the rows. Returns the commit that makes them.
    pub(super) async fn stage(
        &self,
        mark: String,
        changes: Changes,
        conditions: BTreeMap<String, Revision>,
        until: Instant,
    ) -> Result<Commit, StoreError> {
        let folder = [self.keys.staged(&mark), b"/".to_vec()].concat();
        let mut demands = Vec::new();
        for (number, part) in parts(changes).into_iter().enumerate() {
            let key = [folder.clone(), format!("{number:06}").into_bytes()].concat();
            let written = self.put_new(&key, &part.encode_to_vec(), until).await?;
            // All parts go together, so one stands for all.
            if number == 0 {
                demands.push(Compare::last_write(key, written));
            }
        }
        Ok(Commit {
            mark,
            changes: vec![Operation::put(self.keys.pending(), folder)],
            demands,
            conditions,
        })
    }

    /// Writes a row that is not there, once. Returns the revision that wrote it.
    async fn put_new(&self, key: &[u8], value: &[u8], until: Instant) -> Result<i64, StoreError> {
        let transaction = Transaction {
            compare: vec![Compare::last_write(key.to_vec(), 0)],
            success: vec![Operation::put(key.to_vec(), value.to_vec())],
            failure: vec![Operation::read(key.to_vec())],
        };
        let outcome = self.insist(&transaction, until).await?;
        if outcome.succeeded {
            return Ok(outcome.header.unwrap_or_default().revision);
        }
        let found = outcome.answers.into_iter().find_map(|answer| answer.found);
        let row = found.and_then(|found| found.rows.into_iter().next());
        Ok(row.map_or(0, |row| row.written))
    }

    /// Moves the changes of a commit to their places, if there is one that waits for it.
    pub(super) async fn finish_pending(&self, until: Instant) -> Result<(), StoreError> {
        let Some(pending) = self.read(self.keys.pending()).await? else {
            return Ok(());
        };
        loop {
            let next = Range {
                end: after(&pending.value),
                limit: 1,
                ..Range::one(pending.value.clone())
            };
            let found = self.range(&next).await?;
            let (row, mut changes) = match found.rows.into_iter().next() {
                Some(staged) => {
                    let changes = self.changes_of(&staged)?;
                    (staged, changes)
                }
                None => (pending.clone(), Vec::new()),
            };
            let is_last = changes.is_empty() && row.key == pending.key;
            changes.push(Operation::delete(row.key.clone()));
            // If another one was faster, the row is gone, and this does nothing.
            let transaction = Transaction {
                compare: vec![Compare::last_write(row.key, row.written)],
                success: changes,
                failure: Vec::new(),
            };
            self.insist(&transaction, until).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn changes_of(&self, staged: &KeyValue) -> Result<Vec<Operation>, StoreError> {
        let part = Part::decode(staged.value.as_slice());
        let part = part.map_err(|error| StoreError::DamagedRow {
            key: String::from_utf8_lossy(&staged.key).into_owned(),
            detail: error.to_string(),
        })?;
        let changes = part.changes.into_iter();
        Ok(changes
            .map(|change| self.change(&change.key, change.value))
            .collect())
    }

    /// Removes what this instance staged and did not commit before it ended.
    pub(super) async fn clear_staged(&self, until: Instant) -> Result<(), StoreError> {
        let key = self.keys.staged("");
        let end = after(&key);
        let delete = Operations::Delete(Delete { key, end });
        let transaction = Transaction {
            compare: vec![Compare::last_write(self.keys.pending(), 0)],
            success: vec![Operation { is: Some(delete) }],
            failure: Vec::new(),
        };
        self.insist(&transaction, until).await.map(|_| ())
    }

    /// Sends a transaction that does no more when it is sent twice, until it was carried out.
    async fn insist(
        &self,
        transaction: &Transaction,
        until: Instant,
    ) -> Result<super::wire::Outcome, StoreError> {
        loop {
            match self.transact(transaction).await {
                Err(StoreError::Away { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }
}

/// Divides changes into parts.
fn parts(changes: Changes) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut size = 0;
    for (key, value) in changes {
        let more = size_of((&key, &value));
        let is_full =
            |part: &Part| part.changes.len() >= MOST_CHANGES || size + more > LONGEST_VALUE;
        if parts.last().is_none_or(is_full) {
            parts.push(Part::default());
            size = 0;
        }
        size += more;
        if let Some(part) = parts.last_mut() {
            part.changes.push(Change { key, value });
        }
    }
    parts
}
