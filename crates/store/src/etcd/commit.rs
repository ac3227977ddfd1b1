//! Commits: one transaction of etcd each, with the mark of the commit in it. etcd's answer may fail to come, and the
//! transaction then may have been made, or may be made later still. Each transaction therefore demands that the mark of the
//! commit before it is still there. So the same commit can be sent again and again, and is made once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::Code;

use super::cluster::CallError;
use super::wire::{Answer, Compare, KeyValue, Operation, Outcome, Transaction};
use super::{EtcdStore, LONGEST_VALUE};
use crate::{Batch, Revision, StoreError};

/// How long a commit is tried.
pub(super) const TRYING: Duration = Duration::from_secs(10);
/// How long a commit is tried if the one before it found no etcd. The caller has other things to do, too.
const TRYING_AGAIN: Duration = Duration::from_secs(1);
/// The pause before a commit is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// Most changes of one transaction. etcd takes 128 operations by default; the rest is for marks.
pub(super) const MOST_CHANGES: usize = 100;
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
    /// Whether the last commit found no etcd.
    is_away: bool,
}

impl Writer {
    pub(super) fn new(opening: u64) -> Self {
        Self {
            opening,
            number: 0,
            mark: None,
            is_away: false,
        }
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
}

/// How a transaction ended.
enum Step {
    /// It was made, now or before, at this revision.
    Made(i64),
    /// It must be sent again.
    Again,
}

impl EtcdStore {
    pub(super) async fn write(&self, batch: Batch) -> Result<Revision, StoreError> {
        let rows = batch.changes.iter();
        let longest = rows.map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        let length = longest.max().unwrap_or(0);
        if length > LONGEST_VALUE {
            return Err(StoreError::TooLarge { length });
        }
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
        let result = self.write_until(&mut writer, batch, until).await;
        writer.is_away = matches!(result, Err(StoreError::Away { .. }));
        result
    }

    async fn write_until(
        &self,
        writer: &mut Writer,
        batch: Batch,
        until: Instant,
    ) -> Result<Revision, StoreError> {
        writer.number += 1;
        let mark = format!("{:016x}.{}", writer.opening, writer.number);
        let size: usize = batch.changes.iter().map(size_of).sum();
        let is_large = batch.changes.len() > MOST_CHANGES || size > LONGEST_VALUE;
        let commit = if is_large {
            self.stage(mark, batch.changes, batch.conditions, until)
                .await?
        } else {
            let changes = batch.changes.into_iter();
            Commit {
                mark,
                changes: changes
                    .map(|(key, value)| self.change(&key, value))
                    .collect(),
                demands: Vec::new(),
                conditions: batch.conditions,
            }
        };
        loop {
            match self.attempt(writer, &commit, until).await {
                Ok(Step::Made(revision)) => {
                    writer.mark = Some(revision);
                    if is_large {
                        self.finish_pending(until).await?;
                    }
                    return Ok(revision.unsigned_abs());
                }
                Ok(Step::Again) => {}
                Err(StoreError::Away { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn change(&self, key: &str, value: Option<Vec<u8>>) -> Operation {
        let key = self.keys.row(key);
        match value {
            Some(value) => Operation::put(key, value),
            None => Operation::delete(key),
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
        let mut compare = vec![
            Compare::last_write(mark_row.clone(), before),
            Compare::last_write(pending.clone(), 0),
        ];
        compare.extend_from_slice(&commit.demands);
        let mut failure = vec![Operation::read(mark_row.clone()), Operation::read(pending)];
        for (key, revision) in conditions {
            let key = self.keys.row(key);
            let revision = i64::try_from(*revision).unwrap_or(i64::MAX);
            compare.push(Compare::last_write(key.clone(), revision));
            failure.push(Operation::read(key));
        }
        let mut success = vec![Operation::put(mark_row, mark.to_vec())];
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

pub(super) fn size_of((key, value): (&String, &Option<Vec<u8>>)) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len) + 16
}

fn row(answer: Answer) -> Option<KeyValue> {
    answer.found?.rows.into_iter().next()
}
