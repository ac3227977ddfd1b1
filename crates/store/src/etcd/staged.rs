//! Commits that are too large for one transaction of etcd. Their long values, and changes that are too many, are first written
//! beside the rows, where nobody reads them. One transaction then makes the commit. If the changes were too many, the transaction
//! leaves a row that asks for moving them to their places. An instance that finds this row moves them. Nothing else is committed
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use prost::Message;

use super::commit::{Commit, Writer};
use super::pieces::{InPieces, Listed, PIECE};
use super::plan::{Change, CommitPart, MOST_CHANGES, Plan, parts};
use super::unread::Unread;
use super::wire::{Compare, KeyValue, Operation, Outcome, Transaction};
use super::{EtcdStore, LONGEST_READ, after};
use crate::{Revision, StoreError};

/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The keys from the first one up to, but without, the second one.
type KeyRange = (Vec<u8>, Vec<u8>);

impl EtcdStore {
    /// Writes the long values in pieces, and changes that are too many for one transaction, beside the rows. Returns the
    /// commit that makes the changes.
    pub(super) async fn stage(
        &self,
        mark: String,
        plan: Plan<'_>,
        conditions: BTreeMap<String, Revision>,
        until: Instant,
    ) -> Result<Commit, StoreError> {
        let mut demands = Vec::new();
        for (folder, value) in &plan.long {
            for (number, piece) in value.chunks(PIECE).enumerate() {
                let key = self.keys.piece(folder, number);
                let written = self.put_new(&key, piece, until).await?;
                // All pieces are removed together, so one stands for all.
                if demands.is_empty() {
                    demands.push(Compare::last_write(key, written));
                }
            }
        }
        let waits = !plan.fits();
        let changes = if waits {
            let folder = [self.keys.staged(&mark), b"/".to_vec()].concat();
            for (number, part) in parts(plan.changes).into_iter().enumerate() {
                let key = [folder.clone(), format!("{number:06}").into_bytes()].concat();
                let written = self.put_new(&key, &part.encode_to_vec(), until).await?;
                // All parts are removed together, too.
                if number == 0 {
                    demands.push(Compare::last_write(key, written));
                }
            }
            vec![Operation::put(self.keys.pending(), folder)]
        } else {
            self.operations(plan.changes)
        };
        Ok(Commit {
            mark,
            changes,
            demands,
            conditions,
            listed: plan.listed,
            list: plan.list,
            waits,
        })
    }

    /// The operations of etcd that make changes. A row's former pieces are deleted with its former value.
    fn operations(&self, changes: Vec<Change>) -> Vec<Operation> {
        let mut operations = Vec::with_capacity(changes.len());
        for change in changes {
            let row = self.keys.row(&change.key);
            operations.push(match change.value {
                Some(value) => Operation::put(row, value),
                None => Operation::delete(row),
            });
            if !change.former.is_empty() {
                let folder = self.keys.pieces(&change.former);
                let end = after(&folder);
                operations.push(Operation::delete_range(folder, end));
            }
        }
        operations
    }

    /// Writes a row that is not there, once. Returns the revision that wrote it.
    async fn put_new(&self, key: &[u8], value: &[u8], until: Instant) -> Result<i64, StoreError> {
        let transaction = Transaction {
            compare: vec![Compare::last_write(key.to_vec(), 0)],
            success: vec![Operation::put(key.to_vec(), value.to_vec())],
            failure: vec![Operation::look(key.to_vec(), Vec::new())],
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
        let end = after(&pending.value);
        let mut unread = Unread::new(pending.value.clone(), end, LONGEST_READ);
        loop {
            let (found, _) = self.page(&mut unread, 1, 0).await?;
            let (row, mut changes) = match found.rows.into_iter().next() {
                Some(staged) => {
                    let changes = self.changes_of(&staged)?;
                    (staged, changes)
                }
                None => (pending.clone(), Vec::new()),
            };
            let is_last = changes.is_empty() && row.key == pending.key;
            changes.push(Operation::delete(row.key.clone()));
            // If another instance was faster, the row is gone, and this transaction does nothing.
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
        let part = CommitPart::decode(staged.value.as_slice());
        let part = part.map_err(|error| StoreError::DamagedRow {
            key: String::from_utf8_lossy(&staged.key).into_owned(),
            detail: error.to_string(),
        })?;
        Ok(self.operations(part.changes))
    }

    /// The list of rows in pieces, as it was when it was last seen.
    pub(super) async fn listed(
        &self,
        writer: &mut Writer,
        until: Instant,
    ) -> Result<Listed, StoreError> {
        if let Some(listed) = &writer.listed {
            return Ok(listed.clone());
        }
        let row = loop {
            match self.read(self.keys.in_pieces()).await {
                Err(StoreError::Away { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                result => break result?,
            }
        };
        let listed = Listed::of(row.as_ref())?;
        writer.listed = Some(listed.clone());
        Ok(listed)
    }

    /// Removes what this instance wrote beside the rows for commits that were not made. The removal is a commit of its own: it
    /// is made once, and removes nothing that is written after it, even if it is sent again or arrives late.
    pub(super) async fn clear_staged(
        &self,
        writer: &mut Writer,
        until: Instant,
    ) -> Result<(), StoreError> {
        'anew: loop {
            let listed = self.listed(writer, until).await?;
            for ranges in self.beside_rows(&listed.rows).chunks(MOST_CHANGES) {
                if !self.is_any_there(ranges, until).await? {
                    continue;
                }
                let deletes = ranges.iter().cloned();
                let commit = Commit {
                    mark: writer.next_mark(),
                    changes: deletes
                        .map(|(key, end)| Operation::delete_range(key, end))
                        .collect(),
                    demands: Vec::new(),
                    conditions: BTreeMap::new(),
                    listed: listed.written,
                    list: None,
                    waits: false,
                };
                if self.make(writer, &commit, until).await?.is_none() {
                    // The list has changed: other pieces belong to rows now.
                    self.check_time(until)?;
                    continue 'anew;
                }
            }
            return Ok(());
        }
    }

    /// All keys that this instance writes beside the rows, without the pieces of rows.
    fn beside_rows(&self, listed: &InPieces) -> Vec<KeyRange> {
        let staged = self.keys.staged("");
        let end = after(&staged);
        let mut ranges = vec![(staged, end)];
        let own = self.keys.pieces(self.instance());
        let end = after(&own);
        let folders = listed.values().map(|folder| self.keys.pieces(folder));
        let kept: BTreeSet<_> = folders.filter(|folder| folder.starts_with(&own)).collect();
        let mut from = own;
        for folder in kept {
            let behind = after(&folder);
            if from < folder {
                ranges.push((from, folder));
            }
            from = behind;
        }
        if from < end {
            ranges.push((from, end));
        }
        ranges
    }

    /// Whether any of these keys is there.
    async fn is_any_there(&self, ranges: &[KeyRange], until: Instant) -> Result<bool, StoreError> {
        let looks = ranges.iter().cloned();
        let transaction = Transaction {
            compare: Vec::new(),
            success: looks.map(|(key, end)| Operation::look(key, end)).collect(),
            failure: Vec::new(),
        };
        let outcome = self.insist(&transaction, until).await?;
        let mut found = outcome
            .answers
            .iter()
            .filter_map(|answer| answer.found.as_ref());
        Ok(found.any(|found| !found.rows.is_empty()))
    }

    /// Sends a transaction until it is carried out. Sent twice, the transaction must do no more than sent once.
    async fn insist(
        &self,
        transaction: &Transaction,
        until: Instant,
    ) -> Result<Outcome, StoreError> {
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
