//! Commits. Each is one transaction of etcd, which contains the mark of the commit. If etcd's answer does not come, the
//! transaction may have been made, or may still be made later. Each transaction therefore demands that the mark of the
//! commit before it is still there. So the same commit can be sent again and again, and is made once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::Code;

use super::EtcdStore;
use super::cluster::CallError;
use super::pieces::{InPieces, Listed, list_row};
use super::plan::{Plan, check_lengths};
use super::wire::{Answer, Compare, KeyValue, Operation, Outcome, Transaction};
use crate::{Batch, Revision, StoreError};

/// How long a commit is tried.
pub(super) const TRYING: Duration = Duration::from_secs(10);
/// How long a commit is tried if the one before it found no etcd. The caller has other things to do, too.
const TRYING_AGAIN: Duration = Duration::from_secs(1);
/// The pause before a commit is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// Most conditions of a commit.
const MOST_CONDITIONS: usize = 100;

/// The writer's knowledge of its last commit.
pub(super) struct Writer {
    /// Distinguishes this opening of the store from all others.
    opening: u64,
    /// The number of the last commit.
    number: u64,
    /// The revision of the mark of the last commit; `None` if it is not known.
    mark: Option<i64>,
    /// The list of rows in pieces; `None` if it is not known.
    pub(super) listed: Option<Listed>,
    /// Whether the last commit found no etcd.
    is_away: bool,
}

impl Writer {
    pub(super) fn new(opening: u64) -> Self {
        Self {
            opening,
            number: 0,
            mark: None,
            listed: None,
            is_away: false,
        }
    }

    /// The mark of the next commit.
    pub(super) fn next_mark(&mut self) -> String {
        self.number += 1;
        format!("{:016x}.{}", self.opening, self.number)
    }
}

/// One commit.
pub(super) struct Commit {
    /// Distinguishes this commit from all others.
    pub(super) mark: String,
    /// The changes.
    pub(super) changes: Vec<Operation>,
    /// Comparisons that must hold beside the conditions.
    pub(super) demands: Vec<Compare>,
    /// The conditions of the batch.
    pub(super) conditions: BTreeMap<String, Revision>,
    /// The revision of the list of rows in pieces that the changes were planned from.
    pub(super) listed: i64,
    /// This list after the commit; `None` if it stays as it is.
    pub(super) list: Option<InPieces>,
    /// Whether the commit leaves changes that must be moved to their places.
    pub(super) waits: bool,
}

/// How a transaction ended.
enum Step {
    /// The transaction was made, now or before, at this revision.
    Made(i64),
    /// The transaction must be sent again.
    Again,
    /// The transaction will never be made: the list of rows in pieces has changed since the changes were planned.
    Stale,
}

impl EtcdStore {
    pub(super) async fn write(&self, batch: Batch) -> Result<Revision, StoreError> {
        check_lengths(&batch)?;
        if batch.conditions.len() > MOST_CONDITIONS {
            let length = batch.conditions.len();
            return Err(StoreError::TooLarge { length });
        }
        let mut writer = self.writer.lock().await;
        let trying = match writer.is_away {
            true => TRYING_AGAIN,
            false => TRYING,
        };
        let until = Instant::now() + trying;
        let result = self.write_until(&mut writer, &batch, until).await;
        writer.is_away = matches!(result, Err(StoreError::Away { .. }));
        result
    }

    async fn write_until(
        &self,
        writer: &mut Writer,
        batch: &Batch,
        until: Instant,
    ) -> Result<Revision, StoreError> {
        loop {
            let commit = self.prepare(writer, batch, until).await?;
            match self.make(writer, &commit, until).await {
                Ok(Some(revision)) => return Ok(revision.unsigned_abs()),
                // Another instance has made a row long or short meanwhile: the commit is planned anew.
                Ok(None) => self.check_time(until)?,
                Err(error) => {
                    let is_over = !matches!(error, StoreError::Away { .. });
                    // Nobody will commit the changes that were written beside the rows. If they stay, the next large
                    // commit removes them.
                    if is_over
                        && !commit.demands.is_empty()
                        && let Err(left) = self.clear_staged(writer, until).await
                    {
                        tracing::debug!(error = %left, "changes that were not made are still in etcd");
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Plans the commit of a batch, and writes beside the rows what one transaction cannot hold.
    async fn prepare(
        &self,
        writer: &mut Writer,
        batch: &Batch,
        until: Instant,
    ) -> Result<Commit, StoreError> {
        let mark = writer.next_mark();
        let folder = format!("{}/{mark}", self.keys.instance);
        let listed = self.listed(writer, until).await?;
        let mut plan = Plan::new(&batch.changes, &listed, &folder);
        if !plan.is_small() {
            // An earlier commit may have ended halfway, and this one may be its repetition.
            self.clear_staged(writer, until).await?;
            // The removal may have found a later list.
            let listed = self.listed(writer, until).await?;
            plan = Plan::new(&batch.changes, &listed, &folder);
        }
        self.stage(mark, plan, batch.conditions.clone(), until)
            .await
    }

    /// Sends a commit until it is made. Returns its revision, or `None` if it will never be made, because the list of rows
    /// in pieces has changed.
    pub(super) async fn make(
        &self,
        writer: &mut Writer,
        commit: &Commit,
        until: Instant,
    ) -> Result<Option<i64>, StoreError> {
        loop {
            match self.attempt(writer, commit, until).await {
                Ok(Step::Made(revision)) => {
                    writer.mark = Some(revision);
                    if let Some(rows) = &commit.list {
                        writer.listed = Some(Listed {
                            written: revision,
                            rows: rows.clone(),
                        });
                    }
                    if commit.waits {
                        self.finish_pending(until).await?;
                    }
                    return Ok(Some(revision));
                }
                Ok(Step::Stale) => return Ok(None),
                Ok(Step::Again) => self.check_time(until)?,
                Err(StoreError::Away { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that there is time to send a commit again after other commits came first.
    pub(super) fn check_time(&self, until: Instant) -> Result<(), StoreError> {
        match Instant::now() < until {
            true => Ok(()),
            false => Err(self.away("other commits came first each time".to_owned())),
        }
    }

    async fn attempt(
        &self,
        writer: &mut Writer,
        commit: &Commit,
        until: Instant,
    ) -> Result<Step, StoreError> {
        let mark = commit.mark.as_bytes();
        let conditions = &commit.conditions;
        let before = match writer.mark {
            Some(before) => before,
            None => {
                let row = self.read(self.keys.commit()).await?;
                let before = row.map_or(0, |row| row.written);
                *writer.mark.insert(before)
            }
        };
        let (mark_row, pending) = (self.keys.commit(), self.keys.pending());
        let list_key = self.keys.in_pieces();
        let mut compare = vec![
            Compare::last_write(mark_row.clone(), before),
            Compare::last_write(pending.clone(), 0),
            Compare::last_write(list_key.clone(), commit.listed),
        ];
        compare.extend_from_slice(&commit.demands);
        let mut failure = vec![
            Operation::read(mark_row.clone()),
            Operation::read(pending),
            Operation::read(list_key.clone()),
        ];
        for (key, revision) in conditions {
            let key = self.keys.row(key);
            let revision = i64::try_from(*revision).unwrap_or(i64::MAX);
            compare.push(Compare::last_write(key.clone(), revision));
            failure.push(Operation::look(key, Vec::new()));
        }
        let mut success = vec![Operation::put(mark_row, mark.to_vec())];
        if let Some(rows) = &commit.list {
            success.push(Operation::put(list_key, list_row(rows)));
        }
        success.extend_from_slice(&commit.changes);
        let transaction = Transaction {
            compare,
            success,
            failure,
        };
        let outcome = self.transact(&transaction).await?;
        if outcome.succeeded {
            let header = outcome.header.unwrap_or_default();
            return Ok(Step::Made(header.revision));
        }
        let mut answers = outcome.answers.into_iter().map(row);
        let held = answers.next().flatten();
        if let Some(held) = &held
            && held.value == mark
        {
            // An earlier attempt was carried out, and its answer was lost.
            return Ok(Step::Made(held.written));
        }
        let held = held.map_or(0, |held| held.written);
        let is_in_time = writer.mark.replace(held) == Some(held);
        if answers.next().flatten().is_some() {
            self.finish_pending(until).await?;
            return Ok(Step::Again);
        }
        let list = answers.next().flatten();
        for ((key, expected), found) in conditions.iter().zip(answers) {
            let found = found.map_or(0, |row| row.written.unsigned_abs());
            if found != *expected {
                return Err(StoreError::Conflict {
                    key: key.clone(),
                    expected: *expected,
                    found,
                });
            }
        }
        if list.as_ref().map_or(0, |list| list.written) != commit.listed {
            writer.listed = Some(Listed::of(list.as_ref())?);
            return Ok(Step::Stale);
        }
        if is_in_time && !commit.demands.is_empty() {
            // Only another process with this instance's name takes staged changes away.
            return Err(StoreError::Refused {
                detail: format!("another process writes as {} too", self.keys.instance),
            });
        }
        Ok(Step::Again)
    }

    /// Sends a transaction once.
    pub(super) async fn transact(&self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        match self.cluster.ask(transaction).await {
            Ok(outcome) => Ok(outcome),
            Err(CallError::Refused(status))
                if status.code() == Code::InvalidArgument
                    && status.message().contains("too large") =>
            {
                let puts = transaction.success.iter();
                let length = puts.map(prost::Message::encoded_len).sum();
                Err(StoreError::TooLarge { length })
            }
            Err(error) => Err(self.failed(error)),
        }
    }
}

fn row(answer: Answer) -> Option<KeyValue> {
    answer.found?.rows.into_iter().next()
}
