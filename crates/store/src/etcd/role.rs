//! The role of the leader: a row that says which instance leads or is about to, and a row for each instance that is there.
//! They hang on leases, so they go with an instance that does not renew its lease. They only say who tries to lead. The
//! [fence](crate::Fenced) decides whose commits are made.

use std::time::Duration;

use tokio::sync::Notify;

use super::cluster::CallError;
use super::unread::Unread;
use super::wire::{
    Compare, Granting, KeyValue, Operation, Range, Renewing, Request, Revoking, Transaction,
    WatchQuestion, Watching,
};
use super::{EtcdStore, PAGE, after};
use crate::{Revision, StoreError};

/// How long a member may take to answer before another one is asked. A lease must be renewed in time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes of the rows of all instances.
const LONGEST_INSTANCES: u64 = 64 << 20;

/// A lease, by its number in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(pub i64);

/// A row that an instance wrote about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRow {
    /// The instance.
    pub instance: String,
    /// The written value.
    pub value: Vec<u8>,
    /// The revision that wrote it.
    pub revision: Revision,
    /// The revision that made the row. Later writes leave it as it is.
    pub created: Revision,
    /// The lease with which the row goes; 0 if it stays.
    pub lease: Lease,
}

impl EtcdStore {
    /// The name under which this instance writes.
    pub fn instance(&self) -> &str {
        &self.keys.instance
    }

    async fn brief<R: Request>(&self, request: &R) -> Result<R::Answer, StoreError> {
        let asked = self.cluster.ask_within(request, PATIENCE).await;
        asked.map_err(|error| self.failed(error))
    }

    /// A lease that ends `life` after its last renewal.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`].
    pub async fn lease(&self, life: Duration) -> Result<Lease, StoreError> {
        let seconds = life.as_secs().max(1) as i64;
        let granted = self.brief(&Granting { seconds }).await?;
        Ok(Lease(granted.lease))
    }

    /// Renews a lease. Returns whether it still lives.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`].
    pub async fn renew(&self, Lease(lease): Lease) -> Result<bool, StoreError> {
        Ok(self.brief(&Renewing { lease }).await?.seconds > 0)
    }

    /// Ends a lease. The rows on it go at once.
    ///
    /// # Errors
    /// [`StoreError::Away`]. Then the lease ends by itself.
    pub async fn end_lease(&self, Lease(lease): Lease) -> Result<(), StoreError> {
        let asked = self.cluster.ask_within(&Revoking { lease }, PATIENCE).await;
        match asked {
            Err(CallError::Refused(status)) if status.code() == tonic::Code::NotFound => Ok(()),
            asked => asked.map(drop).map_err(|error| self.failed(error)),
        }
    }

    /// The row of the role.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`].
    pub async fn role(&self) -> Result<Option<InstanceRow>, StoreError> {
        let found = self.brief(&Range::one(self.keys.role())).await?;
        found.rows.first().map(instance_row).transpose()
    }

    /// Tells of changes of the role's row, as long as the asked member is there. It tells of no earlier changes, and
    /// silence proves nothing, so the row must be read now and then all the same. Returns [`StoreError::Away`] or
    /// [`StoreError::Refused`], sooner or later.
    pub async fn watch_role(&self, changed: &Notify) -> StoreError {
        let watching = WatchQuestion {
            create: Some(Watching {
                key: self.keys.role(),
            }),
        };
        let watched = async {
            let mut answers = self.cluster.follow(watching).await?;
            while let Some(watched) = answers.message().await? {
                if watched.canceled {
                    break;
                }
                if !watched.events.is_empty() {
                    changed.notify_one();
                }
            }
            Ok(())
        };
        match watched.await {
            Err(error) => self.failed(error),
            Ok(()) => self.away("the watch has ended".to_owned()),
        }
    }

    /// Writes the row of the role in this instance's name, if the present row is still that of the revision `seen`; 0
    /// stands for no row. Without a lease the row stays. Returns whether it was written.
    ///
    /// # Errors
    /// [`StoreError::Away`]: it may have been written nevertheless. [`StoreError::Refused`].
    pub async fn take_role(
        &self,
        value: &[u8],
        seen: Revision,
        lease: Option<Lease>,
    ) -> Result<bool, StoreError> {
        let row = self.row_of(value);
        let seen = i64::try_from(seen).unwrap_or(i64::MAX);
        let transaction = Transaction {
            compare: vec![Compare::last_write(self.keys.role(), seen)],
            success: vec![Operation::put_for(
                lease.map_or(0, |Lease(lease)| lease),
                self.keys.role(),
                row,
            )],
            failure: Vec::new(),
        };
        Ok(self.brief(&transaction).await?.succeeded)
    }

    /// Writes this instance's own row; with `new`, only while there is none. Returns whether it was written.
    ///
    /// # Errors
    /// [`StoreError::Away`]: it may have been written nevertheless. [`StoreError::Refused`].
    pub async fn announce(
        &self,
        value: &[u8],
        Lease(lease): Lease,
        new: bool,
    ) -> Result<bool, StoreError> {
        let key = self.keys.of_instance(&self.keys.instance);
        let is_free = new.then(|| Compare::last_write(key.clone(), 0));
        let transaction = Transaction {
            compare: is_free.into_iter().collect(),
            success: vec![Operation::put_for(lease, key, self.row_of(value))],
            failure: Vec::new(),
        };
        Ok(self.brief(&transaction).await?.succeeded)
    }

    /// The rows of the instances that are there. A damaged row is passed over, and the log says so once: the row may be somebody
    /// else's, and must not stop the others.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::Refused`], or [`StoreError::Impossible`] if the rows have no end.
    pub async fn instances(&self) -> Result<Vec<InstanceRow>, StoreError> {
        let key = self.keys.of_instance("");
        let end = after(&key);
        let mut unread = Unread::new(key, end, LONGEST_INSTANCES);
        let read = |row: &KeyValue| {
            instance_row(row)
                .inspect_err(|error| self.pass_over(row, error))
                .ok()
        };
        let mut instances = Vec::new();
        while unread.is_more {
            let range = Range {
                key: unread.from.clone(),
                end: unread.end.clone(),
                limit: PAGE as i64,
                ..Range::default()
            };
            let found = self.brief(&range).await?;
            unread.take(&found, PAGE)?;
            instances.extend(found.rows.iter().filter_map(read));
        }
        Ok(instances)
    }

    fn pass_over(&self, row: &KeyValue, error: &StoreError) {
        let mut passed_over = self.passed_over.lock();
        if passed_over.len() < PAGE && passed_over.insert(row.key.clone()) {
            tracing::warn!(
                "{error}: this row of an instance is passed over. If no Master of another version wrote it, delete its key from etcd"
            );
        }
    }

    /// A row with the name of its writer before its value.
    fn row_of(&self, value: &[u8]) -> Vec<u8> {
        [self.keys.instance.as_bytes(), b"\n", value].concat()
    }
}

pub(super) fn instance_row(row: &KeyValue) -> Result<InstanceRow, StoreError> {
    let damaged = || StoreError::DamagedRow {
        key: String::from_utf8_lossy(&row.key).into_owned(),
        detail: "it names no instance".to_owned(),
    };
    let end = row.value.iter().position(|byte| *byte == b'\n');
    let (instance, value) = row.value.split_at(end.ok_or_else(damaged)?);
    Ok(InstanceRow {
        instance: String::from_utf8(instance.to_vec()).map_err(|_| damaged())?,
        value: value[1..].to_vec(),
        revision: row.written.unsigned_abs(),
        created: row.created.unsigned_abs(),
        lease: Lease(row.lease),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::{EtcdCluster, open};
    use super::*;

    #[tokio::test]
    #[ignore = "needs etcd: make test-masters"]
    async fn a_damaged_row_of_an_instance_hides_no_other() {
        let cluster = EtcdCluster::start(1);
        let store = open(&cluster.settings(), "one").await;
        let lease = store.lease(Duration::from_secs(60)).await.unwrap();
        for name in ["damaged", "zero"] {
            let damaged = Transaction {
                compare: Vec::new(),
                success: vec![Operation::put(
                    store.keys.of_instance(name),
                    b"no name".to_vec(),
                )],
                failure: Vec::new(),
            };
            store.brief(&damaged).await.unwrap();
        }
        assert!(store.announce(b"{}", lease, true).await.unwrap());
        for _ in 0..2 {
            let found = store.instances().await.unwrap();
            let names: Vec<_> = found.iter().map(|row| row.instance.as_str()).collect();
            assert_eq!(names, ["one"]);
            // The log names each of them once.
            assert_eq!(store.passed_over.lock().len(), 2);
        }
    }

    #[tokio::test]
    #[ignore = "needs etcd: make test-masters"]
    async fn an_instance_behind_a_page_of_others_is_found() {
        let cluster = EtcdCluster::start(1);
        let store = open(&cluster.settings(), "one").await;
        let lease = store.lease(Duration::from_secs(60)).await.unwrap();
        let others: Vec<_> = (0..=PAGE)
            .map(|number| {
                let row = format!("{number:03}\n{{}}").into_bytes();
                Operation::put(store.keys.of_instance(&format!("{number:03}")), row)
            })
            .collect();
        for others in others.chunks(100) {
            let written = Transaction {
                compare: Vec::new(),
                success: others.to_vec(),
                failure: Vec::new(),
            };
            store.brief(&written).await.unwrap();
        }
        assert!(store.announce(b"{}", lease, true).await.unwrap());
        let found = store.instances().await.unwrap();
        assert_eq!(found.len(), PAGE + 2);
        assert_eq!(found.last().unwrap().instance, "one");
    }

    #[tokio::test]
    #[ignore = "needs etcd: make test-masters"]
    async fn a_new_row_of_an_instance_takes_no_others_place() {
        let cluster = EtcdCluster::start(1);
        let (store, twin) = (
            open(&cluster.settings(), "one").await,
            open(&cluster.settings(), "one").await,
        );
        let lease = store.lease(Duration::from_secs(60)).await.unwrap();
        let of_twin = twin.lease(Duration::from_secs(60)).await.unwrap();
        assert!(store.announce(b"{}", lease, true).await.unwrap());
        assert!(!twin.announce(b"{}", of_twin, true).await.unwrap());
        let row = |rows: Vec<InstanceRow>| rows.into_iter().next().unwrap();
        let first = row(twin.instances().await.unwrap());
        assert_eq!((first.lease, first.created), (lease, first.revision));
        assert!(store.announce(b"{}", lease, false).await.unwrap());
        let renewed = row(twin.instances().await.unwrap());
        assert_eq!(renewed.created, first.created);
        assert!(renewed.revision > first.revision);
    }

    #[tokio::test]
    #[ignore = "needs etcd: make test-masters"]
    async fn a_watch_tells_when_the_role_is_taken_and_given_back() {
        let cluster = EtcdCluster::start(1);
        let store = open(&cluster.settings(), "one").await;
        let changed = Notify::new();
        let acting = async {
            let lease = store.lease(Duration::from_secs(60)).await.unwrap();
            loop {
                let seen = store.role().await.unwrap().map_or(0, |row| row.revision);
                assert!(store.take_role(b"{}", seen, Some(lease)).await.unwrap());
                // The watch begins at some time.
                let told = tokio::time::timeout(Duration::from_millis(100), changed.notified());
                if told.await.is_ok() {
                    break;
                }
            }
            while store.role().await.unwrap().is_some() {
                let _ = store.end_lease(lease).await;
                changed.notified().await;
            }
        };
        tokio::select! {
            () = acting => {}
            error = store.watch_role(&changed) => panic!("{error}"),
        }
    }
}
