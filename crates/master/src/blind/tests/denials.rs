//! The deny list in the store, as a CA that stands by learns it.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, ready};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::{IssuingAuthority, Serial};
use sealbus_store::{Entry, Revision, TakeEntry};

use super::*;

/// A store whose second scan fails.
#[derive(Default)]
struct Interrupted {
    store: MemoryStore,
    scans: AtomicUsize,
}

impl Store for Interrupted {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.store.get(key)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Entry)>, StoreError>> {
        match self.scans.fetch_add(1, Ordering::Relaxed) {
            1 => ready(Err(StoreError::Unanswered)).boxed(),
            _ => self.store.scan(prefix, after, limit),
        }
    }

    fn snapshot(&self, take: TakeEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.snapshot(take)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.store.commit(batch)
    }
}

/// The authority with state in this folder, its empty list, and a denial of this moment.
fn leading(folder: &Path, trust: &Trust) -> (IssuingAuthority, DenyList, Denial) {
    let (at, reason) = (timestamp(now()), Reason::ByOperator);
    let authorities = Authorities::keep(folder, trust.platform(), None, at).unwrap();
    let list = DenyList::new(authorities.issuing.identity().clone());
    (authorities.issuing, list, Denial { at, reason })
}

async fn keep(store: &MemoryStore, version: u64, signed: Vec<u8>) {
    let mut batch = Batch::new();
    let row = format!("{}{version:016x}", CaService::DENY_LIST_ROW);
    batch.put(row, signed);
    store.commit(batch).await.unwrap();
}

#[tokio::test]
async fn a_deny_list_that_is_not_whole_is_not_taken_as_learned() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, trust) = started(folder.path());
    let (authority, mut list, denial) = leading(folder.path(), &trust);
    for serial in [1, 2].map(|byte| Serial::from_bytes([byte; 16])) {
        list.deny_serial(serial, denial.at, denial).unwrap();
    }
    let signed = list.sign(&authority).unwrap();
    let store = MemoryStore::new();
    for (row, signed, is_learned) in [(2, signed.since(1), false), (1, signed.whole(), true)] {
        keep(&store, row, signed).await;
        assert_eq!(ca.learn(&store).await.is_ok(), is_learned);
    }
    assert_eq!(trust.latest_deny_list().unwrap().len(), 2);
}

/// A CA that led and was started anew revokes before it can read the store. Its list is then later than the stored one.
#[tokio::test]
async fn what_a_ca_denied_while_it_led_is_learned_although_it_has_revoked_since() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, trust) = started(folder.path());
    let (authority, mut list, denial) = leading(folder.path(), &trust);
    let store = MemoryStore::new();
    for (known, name) in [(0, "buyer"), (1, "seller")] {
        let agent = Identity::agent(trust.platform(), name).unwrap();
        let end = denial.at.plus(Duration::from_secs(3600));
        list.deny_identity(agent, end, denial).unwrap();
        let signed = list.sign(&authority).unwrap().since(known);
        keep(&store, known + 1, signed).await;
    }
    let revoked = ca.ca.lock().await.revoke("thief", "stolen", denial.at);
    revoked.unwrap();
    let mut known = None;
    for _ in 0..2 {
        ca.learn(&store).await.unwrap();
        for name in ["thief", "buyer", "seller"] {
            assert!(is_denied(&trust, name), "{name}");
        }
        // Once all is denied, no further list goes to the nodes.
        let held = ca.ca.lock().await.deny_list_after(0);
        assert_eq!(*known.get_or_insert(held.clone()), held);
    }
}

#[tokio::test]
async fn what_was_read_before_the_store_failed_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, trust) = started(folder.path());
    let (authority, mut list, denial) = leading(folder.path(), &trust);
    let store = Interrupted::default();
    // As many rows as are read at a time.
    for known in 0..PAGE as u64 {
        let agent = Identity::agent(trust.platform(), &format!("agent-{known}")).unwrap();
        let end = denial.at.plus(Duration::from_secs(3600));
        list.deny_identity(agent, end, denial).unwrap();
        let signed = list.sign(&authority).unwrap().since(known);
        keep(&store.store, known + 1, signed).await;
    }
    let revoked = ca.ca.lock().await.revoke("thief", "stolen", denial.at);
    revoked.unwrap();
    let mut last = None;
    assert!(ca.learn_denials(&store, &mut last).await.is_err());
    ca.learn_denials(&store, &mut last).await.unwrap();
    assert!(is_denied(&trust, "agent-0"));
}
