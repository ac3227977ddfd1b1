mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::etcd::tests::EtcdCluster;
use super::*;

/// Runs a test against every store.
fn on_every_store(test: impl AsyncFn(&Arc<dyn Store>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        test(&(Arc::new(MemoryStore::new()) as _)).await;
        let directory = tempfile::tempdir().unwrap();
        let embedded = EmbeddedStore::open(directory.path().join("state.redb")).unwrap();
        test(&(Arc::new(embedded) as _)).await;
        // `make test-masters` installs etcd, and sets this variable.
        if std::env::var_os("SEALBUS_ETCD").is_some() {
            let cluster = EtcdCluster::start(1);
            let settings = cluster.settings();
            let store = super::etcd::tests::open(&settings, "one").await;
            test(&(Arc::new(store) as _)).await;
        }
    });
}

fn put(key: &str, value: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put(key, value);
    batch
}

async fn value(store: &dyn Store, key: &str) -> Option<String> {
    let entry = store.get(key).await.unwrap()?;
    Some(String::from_utf8(entry.value).unwrap())
}

async fn snapshot(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    let (taker, taken) = std::sync::mpsc::channel();
    let take = move |key: &str, value: &[u8]| {
        taker.send((key.to_owned(), value.to_vec())).unwrap();
    };
    store.snapshot(Box::new(take)).await.unwrap();
    taken.iter().collect()
}

#[test]
fn what_is_committed_is_read() {
    on_every_store(async |store| {
        assert_eq!(store.get("a").await.unwrap(), None);
        assert!(store.scan("", None, 9).await.unwrap().is_empty());
        let first = store.commit(put("a", "1")).await.unwrap();
        let second = store.commit(put("b", "2")).await.unwrap();
        assert!(second > first);
        let entry = store.get("a").await.unwrap().unwrap();
        assert_eq!(
            entry,
            Entry {
                value: b"1".to_vec(),
                revision: first
            }
        );
        let mut batch = put("a", "3");
        batch.delete("b");
        batch.delete("never there");
        store.commit(batch).await.unwrap();
        assert_eq!(value(&**store, "a").await.as_deref(), Some("3"));
        assert_eq!(value(&**store, "b").await, None);
        assert!(store.commit(Batch::new()).await.unwrap() > second);
    });
}

#[test]
fn a_condition_that_does_not_hold_changes_nothing() {
    on_every_store(async |store| {
        let mut batch = put("master", "one");
        batch.require("master", 0);
        let mine = store.commit(batch.clone()).await.unwrap();
        assert!(matches!(
            store.commit(batch).await,
            Err(StoreError::Conflict { expected: 0, found, .. }) if found == mine
        ));

        let mut fenced = put("x", "by one");
        fenced.require("master", mine);
        store.commit(fenced.clone()).await.unwrap();

        let theirs = store.commit(put("master", "two")).await.unwrap();
        fenced.put("x", "too late");
        fenced.delete("master");
        assert!(matches!(
            store.commit(fenced).await,
            Err(StoreError::Conflict { expected, found, .. }) if expected == mine && found == theirs
        ));
        assert_eq!(value(&**store, "x").await.as_deref(), Some("by one"));
        assert_eq!(value(&**store, "master").await.as_deref(), Some("two"));
    });
}

#[test]
fn a_leader_changes_nothing_after_the_next_one_has_claimed_the_store() {
    on_every_store(async |store| {
        let first = Fenced::claim(store.clone()).await.unwrap();
        first.commit(put("a", "first")).await.unwrap();
        let second = Fenced::claim(store.clone()).await.unwrap();
        assert!(second.term() > first.term());
        assert_eq!(value(&second, "a").await.as_deref(), Some("first"));
        let error = first.commit(put("a", "too late")).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Superseded { term, by } if term == first.term() && by == second.term()),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("another Master has taken over"),
            "{error}"
        );
        assert_eq!(
            first.leadership().ended().await.to_string(),
            error.to_string()
        );
        second.commit(put("a", "second")).await.unwrap();
        assert_eq!(value(&first, "a").await.as_deref(), Some("second"));
        assert!(second.leadership().ended().now_or_never().is_none());
    });
}

#[test]
fn a_leader_hears_that_its_term_is_over_also_if_another_condition_fails() {
    on_every_store(async |store| {
        let first = Fenced::claim(store.clone()).await.unwrap();
        first.commit(put("a", "first")).await.unwrap();
        let mut batch = put("a", "again");
        batch.require("a", 0);
        let error = first.commit(batch.clone()).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Conflict { key, .. } if key == "a"),
            "{error:?}"
        );
        assert!(!first.leadership().has_ended());
        let second = Fenced::claim(store.clone()).await.unwrap();
        let error = first.commit(batch).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Superseded { by, .. } if by == second.term()),
            "{error:?}"
        );
        assert!(first.leadership().has_ended());
        assert_eq!(value(&second, "a").await.as_deref(), Some("first"));
    });
}

#[test]
fn scans_keep_to_their_prefix_and_go_in_pages() {
    on_every_store(async |store| {
        let mut batch = Batch::new();
        for key in ["a", "a/", "a/1", "a/2", "a/20", "a/3", "a0", "b/1", "ä/1"] {
            batch.put(key, key);
        }
        store.commit(batch).await.unwrap();
        let scan = async |prefix, after, limit| {
            let page = store.scan(prefix, after, limit).await.unwrap();
            page.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(
            scan("a/", None, 9).await,
            ["a/", "a/1", "a/2", "a/20", "a/3"]
        );
        assert_eq!(scan("a/", Some("a/2"), 1).await, ["a/20"]);
        assert_eq!(scan("a/", Some("a"), 1).await, ["a/"]);
        assert_eq!(scan("a/", Some("a/3"), 9).await, [""; 0]);
        assert_eq!(scan("ä", None, 9).await, ["ä/1"]);
        let mut all = Vec::new();
        read_all(&**store, "a/", |key, _| all.push(key))
            .await
            .unwrap();
        assert_eq!(all.len(), 5);
    });
}

#[test]
fn a_snapshot_has_every_entry_in_order() {
    on_every_store(async |store| {
        let mut batch = put("b", "2");
        batch.put("a", "1");
        store.commit(batch).await.unwrap();
        let entry = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
        assert_eq!(snapshot(&**store).await, [entry("a", "1"), entry("b", "2")]);
    });
}

#[test]
fn a_long_value_is_kept_like_any_other() {
    on_every_store(async |store| {
        let long = |byte: u8| vec![byte; 5 << 20];
        let mut batch = put("b", "small");
        batch.put("a", long(1));
        batch.put("c", long(2));
        let first = store.commit(batch).await.unwrap();
        let mut batch = put("c", "small, too");
        batch.put("b", long(3));
        batch.require("a", first);
        store.commit(batch.clone()).await.unwrap();
        let kept = [
            ("a", long(1)),
            ("b", long(3)),
            ("c", b"small, too".to_vec()),
        ];
        let kept = kept.map(|(key, value)| (key.to_owned(), value));
        assert!(snapshot(&**store).await == kept);
        let page = store.scan("", None, 9).await.unwrap();
        let page = page.into_iter().map(|(key, entry)| (key, entry.value));
        assert!(page.eq(kept));

        // All or nothing.
        batch.put("a", long(4));
        batch.require("c", first);
        let refused = store.commit(batch).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
        let entry = store.get("a").await.unwrap().unwrap();
        assert!(entry.value == long(1) && entry.revision == first);
        let mut batch = Batch::new();
        batch.delete("a");
        batch.delete("b");
        store.commit(batch).await.unwrap();
        assert_eq!(store.scan("", None, 9).await.unwrap().len(), 1);
    });
}

#[test]
fn a_restored_store_is_beyond_every_term_before() {
    on_every_store(async |store| {
        let old = Fenced::claim(store.clone()).await.unwrap();
        let mut batch = Batch::new();
        let row = store.get(TERM_ROW).await.unwrap().unwrap();
        let restored = restore_term(Some(&row.value), 1000, &mut batch).unwrap();
        store.commit(batch).await.unwrap();
        let new = Fenced::claim(store.clone()).await.unwrap();
        assert!(new.term() > restored && restored > old.term());
        assert!(old.commit(put("a", "too late")).await.is_err());
        // A second restore in the same second.
        let row = store.get(TERM_ROW).await.unwrap().unwrap();
        let again = restore_term(Some(&row.value), 1000, &mut Batch::new()).unwrap();
        assert!(again > new.term());
    });
}

#[test]
fn no_term_begins_while_a_state_is_restored() {
    on_every_store(async |store| {
        store.commit(put(RESTORING_ROW, "id")).await.unwrap();
        let refused = Fenced::claim(store.clone()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Restoring), "{refused}");
    });
}

#[test]
fn many_pages_are_read_completely() {
    on_every_store(async |store| {
        let mut batch = Batch::new();
        for number in 0..2048 {
            batch.put(format!("n/{number:05}"), "x");
        }
        store.commit(batch).await.unwrap();
        let mut count = 0;
        read_all(&**store, "n/", |_, _| count += 1).await.unwrap();
        assert_eq!(count, 2048);
    });
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let value = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..4),
        // The file keeps values of more than 4,096 bytes apart.
        1 => (any::<u8>(), 4095..4099usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    let step = prop_oneof![
        3 => (0u8..6, value).prop_map(|(k, v)| Step::Put(k, v)),
        1 => (0u8..6).prop_map(Step::Delete),
    ];
    prop::collection::vec(prop::collection::vec(step, 0..4), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn stores_agree_with_a_map_also_after_reopening(commits in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.redb");
        runtime.block_on(async {
            let memory = MemoryStore::new();
            let mut model: BTreeMap<String, Entry> = BTreeMap::new();
            for (revision, commit) in (1..).zip(commits) {
                // The store is opened for each commit, as if the process had been restarted in between.
                let embedded = EmbeddedStore::open(&path).unwrap();
                let mut batch = Batch::new();
                for (key, entry) in &model {
                    batch.require(key, entry.revision);
                }
                for step in commit {
                    match step {
                        Step::Put(key, value) => {
                            batch.put(format!("k{key}"), value.clone());
                            model.insert(format!("k{key}"), Entry { value, revision });
                        }
                        Step::Delete(key) => {
                            batch.delete(format!("k{key}"));
                            model.remove(&format!("k{key}"));
                        }
                    }
                }
                assert_eq!(embedded.commit(batch.clone()).await.unwrap(), revision);
                assert_eq!(memory.commit(batch).await.unwrap(), revision);
            }
            let embedded = EmbeddedStore::open(&path).unwrap();
            let kept = embedded.scan("k", None, 99).await.unwrap();
            assert_eq!(memory.scan("k", None, 99).await.unwrap(), kept);
            for (key, entry) in &kept {
                assert_eq!(embedded.get(key).await.unwrap().as_ref(), Some(entry));
            }
            let values = model.iter().map(|(key, entry)| (key.clone(), entry.value.clone()));
            assert_eq!(snapshot(&embedded).await, values.collect::<Vec<_>>());
            assert_eq!(kept, model.into_iter().collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_file_belongs_to_one_process_and_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let _open = EmbeddedStore::open(&path).unwrap();
    let error = EmbeddedStore::open(&path).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("stop the Master"), "{error}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

#[test]
fn a_file_that_is_no_store_is_told_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    for length in [1, 100, 100_000] {
        std::fs::write(&path, vec![b'x'; length]).unwrap();
        let error = EmbeddedStore::open(&path).unwrap_err();
        assert!(
            matches!(&error, StoreError::Damaged { .. }),
            "{length}: {error:?}"
        );
        assert!(error.to_string().contains("backup"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; length]);
    }
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let error = EmbeddedStore::open("/nonexistent/state.redb").unwrap_err();
    assert!(
        matches!(
            &error,
            StoreError::Io {
                action: "opened",
                ..
            }
        ),
        "{error:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_file_never_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.redb");
        runtime.block_on(async {
            let store = EmbeddedStore::open(&path).unwrap();
            store.commit((0..50).map(|n| (format!("k{n}"), Some(vec![n; 100]))).collect()).await.unwrap();
            drop(store);
            let mut bytes = std::fs::read(&path).unwrap();
            for (index, byte) in damage {
                // Most damage hits the used part, because the file is almost all holes.
                let length = bytes.len().min(40_000);
                bytes[index.index(length)] = byte;
            }
            std::fs::write(&path, bytes).unwrap();
            match EmbeddedStore::open(&path) {
                Ok(store) => {
                    let _ = store.scan("", None, 99).await;
                    let _ = store.commit(put("a", "b")).await;
                }
                Err(error) => assert!(matches!(error, StoreError::Damaged { .. } | StoreError::Io { .. }), "{error:?}"),
            }
        });
    }
}
