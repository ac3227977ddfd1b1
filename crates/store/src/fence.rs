//! The fence between leaders: a store that takes commits of one term only.

#[cfg(test)]
mod simulation;

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sealbus_seal::Term;
use tokio::sync::watch;

use super::{Batch, Entry, Revision, Store, StoreError, TakeEntry};

/// The key of the row with the latest [`Term`].
pub const TERM_ROW: &str = "term";
/// The key of the row with the name of a restore from a backup that is not complete. While it is there, no term begins.
pub const RESTORING_ROW: &str = "restoring";

/// The latest term in a store, and the revision of its row; revision 0 if nobody has led yet.
///
/// # Errors
/// If the store cannot be read, or the row is damaged.
pub async fn latest_term(store: &dyn Store) -> Result<(Term, Revision), StoreError> {
    match store.get(TERM_ROW).await? {
        None => Ok((Term::default(), 0)),
        Some(entry) => Ok((parse(&entry.value)?, entry.revision)),
    }
}

/// Writes a term into a store that is restored from a backup. The term is above all that the backup may not know of, so
/// it [supersedes](StoreError::Superseded) leaders that are left over from before. `now` is in Unix seconds.
///
/// # Errors
/// If the row of the backup is damaged.
pub fn restore_term(row: Option<&[u8]>, now: u64, batch: &mut Batch) -> Result<Term, StoreError> {
    let former = row.map(parse).transpose()?.unwrap_or_default();
    let restored = Term {
        epoch: now.max(former.epoch + 1),
        number: 0,
    };
    batch.put(TERM_ROW, row_of(restored));
    Ok(restored)
}

fn parse(row: &[u8]) -> Result<Term, StoreError> {
    let damaged = |detail: String| StoreError::DamagedRow {
        key: TERM_ROW.to_owned(),
        detail,
    };
    let term: Term = serde_json::from_slice(row).map_err(|error| damaged(error.to_string()))?;
    match term.epoch.max(term.number) {
        u64::MAX => Err(damaged(format!("no term can follow {term}"))),
        _ => Ok(term),
    }
}

fn row_of(term: Term) -> Vec<u8> {
    format!(r#"{{"epoch":{},"number":{}}}"#, term.epoch, term.number).into_bytes()
}

/// A store for one leader.
///
/// [`claim`](Self::claim) begins a new term. Every commit then demands that this term is still the latest, in the same
/// transaction that makes the changes. So a leader that was stopped, cut off or slow writes nothing once another one has
/// claimed the store. Its first such commit fails with [`StoreError::Superseded`], and so do all after it.
pub struct Fenced {
    store: Arc<dyn Store>,
    term: Term,
    /// The revision of the row of our term.
    pub(super) revision: Revision,
    /// The later term, once a commit has found it.
    over: watch::Sender<Option<Term>>,
}

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("term", &self.term)
            .field("over", &*self.over.borrow())
            .finish_non_exhaustive()
    }
}

impl Fenced {
    /// Begins the next term.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another one claims the store in the same moment; [`StoreError::Restoring`]; or another error of
    /// the store.
    pub async fn claim(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let latest = latest_term(&*store).await?;
        Self::claim_after(store, latest).await
    }

    /// Begins the next term, if `latest` is still the [latest](latest_term) one. A Master that looked, and then waited
    /// for too long, thus does not depose the Master that leads since.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_after(
        store: Arc<dyn Store>,
        (latest, held): (Term, Revision),
    ) -> Result<Self, StoreError> {
        let term = Term {
            number: latest.number + 1,
            ..latest
        };
        let mut batch = Batch::new();
        batch.require(TERM_ROW, held);
        batch.require(RESTORING_ROW, 0);
        batch.put(TERM_ROW, row_of(term));
        let revision = match store.commit(batch).await {
            Err(StoreError::Conflict { key, .. }) if key == RESTORING_ROW => {
                return Err(StoreError::Restoring);
            }
            claimed => claimed?,
        };
        Ok(Self {
            store,
            term,
            revision,
            over: watch::Sender::new(None),
        })
    }

    /// The term that commits belong to.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The leadership that this store's commits belong to.
    pub fn leadership(&self) -> Leadership {
        Leadership {
            term: self.term,
            over: self.over.subscribe(),
        }
    }

    /// Looks whether this term is still the latest.
    ///
    /// # Errors
    /// [`StoreError::Superseded`], or an error of the store.
    pub async fn look(&self) -> Result<(), StoreError> {
        let (_, revision) = latest_term(&*self.store).await?;
        match revision == self.revision {
            true => Ok(()),
            false => Err(self.ended().await),
        }
    }

    fn superseded(&self, by: Term) -> StoreError {
        StoreError::Superseded {
            term: self.term,
            by,
        }
    }

    /// The error of a commit that found another term than ours.
    async fn ended(&self) -> StoreError {
        // A store without a readable term is not ours either.
        let (by, _) = latest_term(&*self.store).await.unwrap_or_default();
        self.over.send_replace(Some(by));
        self.superseded(by)
    }
}

/// A leadership, for readers that do not write. It does not keep the store open.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: Term,
    over: watch::Receiver<Option<Term>>,
}

impl Leadership {
    /// Whether a commit has found that a later term has begun.
    pub fn has_ended(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Waits until a commit finds that a later term has begun. Returns [`StoreError::Superseded`].
    pub async fn ended(&self) -> StoreError {
        let mut over = self.over.clone();
        let by = match over.wait_for(Option::is_some).await {
            Ok(by) => *by,
            Err(_) => None,
        };
        match by {
            Some(by) => StoreError::Superseded {
                term: self.term,
                by,
            },
            // The store was closed in this term.
            None => std::future::pending().await,
        }
    }
}

impl Store for Fenced {
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

    fn commit(&self, mut batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        batch.require(TERM_ROW, self.revision);
        async move {
            let over = *self.over.borrow();
            if let Some(by) = over {
                return Err(self.superseded(by));
            }
            match self.store.commit(batch).await {
                Err(StoreError::Conflict { key, .. }) if key == TERM_ROW => Err(self.ended().await),
                // The store names one condition, and the term may be over, too.
                Err(conflict @ StoreError::Conflict { .. }) => match self.look().await {
                    Err(over @ StoreError::Superseded { .. }) => Err(over),
                    _ => Err(conflict),
                },
                result => result,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_none_can_follow_is_a_damaged_row() {
        for (epoch, number) in [(u64::MAX, 0), (0, u64::MAX)] {
            let row = row_of(Term { epoch, number });
            let restored = restore_term(Some(&row), 1000, &mut Batch::new());
            assert!(
                matches!(restored, Err(StoreError::DamagedRow { .. })),
                "{restored:?}"
            );
        }
    }
}
