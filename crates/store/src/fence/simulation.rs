//! Leaders over random walks on one store. They sleep at any moment, even between a decision and its commit. Answers of
//! the store get lost, after a change or without one. Each leader claims the store again when it likes.
//!
//! No row is written in a term after a later one has begun, and every acknowledged row is there in the end.

#![allow(clippy::unwrap_used)]

use std::io;

use parking_lot::Mutex;
use sealbus_conformance::schedule::{Random, seeds};

use super::*;
use crate::{MemoryStore, WithCommits, read_all};

const LEADERS: u64 = 3;
const ROWS_EACH: u64 = 12;

/// When the store is late or does not answer, and the orders that it got.
struct Orders {
    chance: Mutex<Random>,
    /// The latest term at each write of a row, beside the term in which its leader wrote it.
    written: Mutex<Vec<(Term, Term)>>,
    terms: Mutex<Vec<Term>>,
}

impl Orders {
    fn below(&self, bound: u64) -> u64 {
        self.chance.lock().below(bound)
    }

    async fn sleep(&self) {
        for _ in 0..self.below(8) {
            tokio::task::yield_now().await;
        }
    }

    async fn note(&self, store: &MemoryStore, batch: &Batch) {
        let (latest, _) = latest_term(store).await.unwrap();
        for (key, value) in batch.changes() {
            match (key, value) {
                (TERM_ROW, Some(_)) => self.terms.lock().push(latest),
                (_, Some(value)) => {
                    let term = serde_json::from_slice(value).unwrap();
                    self.written.lock().push((latest, term));
                }
                (_, None) => {}
            }
        }
    }

    /// Commits late, or not, or without an answer.
    async fn commit(&self, store: &MemoryStore, batch: Batch) -> Result<Revision, StoreError> {
        let lost = || StoreError::Io {
            path: "nowhere".into(),
            action: "written",
            source: io::ErrorKind::TimedOut.into(),
        };
        self.sleep().await;
        if self.below(10) == 0 {
            return Err(lost());
        }
        // Both calls are done at once.
        let result = store.commit(batch.clone()).await;
        if result.is_ok() {
            self.note(store, &batch).await;
        }
        self.sleep().await;
        match self.below(10) {
            0 => Err(lost()),
            _ => result,
        }
    }
}

/// Leads now and then until all its rows are acknowledged. Returns their keys.
async fn lead(
    name: u64,
    store: Arc<dyn Store>,
    orders: Arc<Orders>,
    is_fenced: bool,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while (acknowledged.len() as u64) < ROWS_EACH {
        orders.sleep().await;
        let Ok(fenced) = Fenced::claim(store.clone()).await else {
            continue;
        };
        let mut tries = 1 + orders.below(10);
        while tries > 0 && (acknowledged.len() as u64) < ROWS_EACH {
            tries -= 1;
            let key = format!("row/{name}/{}", acknowledged.len());
            let mut batch = Batch::new();
            batch.put(key.clone(), row_of(fenced.term()));
            let written = match is_fenced {
                true => fenced.commit(batch).await,
                false => store.commit(batch).await,
            };
            match written {
                Ok(_) => acknowledged.push(key),
                Err(StoreError::Superseded { term, by }) => {
                    assert!(by > term, "{by} does not end {term}");
                    let ended = fenced.leadership().ended().await;
                    assert!(
                        matches!(ended, StoreError::Superseded { by: ended, .. } if ended == by)
                    );
                    let after = fenced.commit(Batch::new()).await;
                    assert!(matches!(after, Err(StoreError::Superseded { .. })));
                    break;
                }
                // The same again: an answer was lost.
                Err(_) => {}
            }
        }
    }
    acknowledged
}

/// Walks, and returns the problem.
fn walk(seed: u64, is_fenced: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let orders = Arc::new(Orders {
            chance: Mutex::new(Random(seed)),
            written: Mutex::default(),
            terms: Mutex::default(),
        });
        let noted = orders.clone();
        let store: Arc<dyn Store> = Arc::new(WithCommits::new(move |store, batch| {
            let noted = noted.clone();
            async move { noted.commit(&store, batch).await }.boxed()
        }));
        let leaders = (0..LEADERS)
            .map(|name| tokio::spawn(lead(name, store.clone(), orders.clone(), is_fenced)));
        let mut acknowledged = Vec::new();
        for leader in leaders.collect::<Vec<_>>() {
            acknowledged.extend(leader.await.unwrap());
        }
        let mut found = Vec::new();
        read_all(&*store, "row/", |key, _| found.push(key))
            .await
            .unwrap();
        acknowledged.sort();
        found.sort();
        if let Some(lost) = acknowledged.iter().find(|key| !found.contains(key)) {
            return Err(format!("{lost} was acknowledged and is lost"));
        }
        let terms = orders.terms.lock();
        if !terms.is_sorted_by(|earlier, later| earlier < later) {
            return Err(format!("terms fall: {terms:?}"));
        }
        match orders
            .written
            .lock()
            .iter()
            .find(|(latest, of)| latest != of)
        {
            Some((latest, of)) => Err(format!("a row of {of} was written in {latest}")),
            None => Ok(()),
        }
    })
}

#[test]
fn no_row_is_written_in_a_term_that_is_over() {
    for seed in seeds(1000) {
        if let Err(wrong) = walk(seed, true) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn without_the_fence_the_walks_find_such_a_row() {
    assert!((0..100).any(|seed| walk(seed, false).is_err()));
}
