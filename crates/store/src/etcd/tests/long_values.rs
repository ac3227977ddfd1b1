//! Values that are longer than one request to etcd may be.

use super::*;

/// Longer than ten pieces.
const LONG: usize = (5 << 20) + 1;

/// A value whose pieces differ, and that differs from those of other seeds.
fn long(seed: u64) -> Vec<u8> {
    let mut value = vec![seed as u8; LONG];
    for (number, part) in value.chunks_exact_mut(1024).enumerate() {
        part[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    value
}

fn one(key: &str, value: Option<Vec<u8>>) -> Batch {
    Batch::from_iter([(key.to_owned(), value)])
}

/// The keys in etcd that begin with `/sealbus/factory/` and then with `prefix`.
async fn keys(store: &EtcdStore, prefix: &str) -> Vec<String> {
    let key = format!("{}{prefix}", store.keys.prefix).into_bytes();
    let range = Range {
        end: after(&key),
        key,
        keys_only: true,
        ..Range::default()
    };
    let found = store.range(&range).await.unwrap();
    let keys = found.rows.into_iter().map(|row| row.key);
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

/// Asserts that etcd holds nothing beside the rows but the pieces of `rows`, each with a value of [`long`].
async fn assert_nothing_is_left(store: &EtcdStore, rows: &[&str]) {
    assert_eq!(keys(store, "staged/").await, [""; 0]);
    assert_eq!(keys(store, "pending").await, [""; 0]);
    let pieces = keys(store, "pieces/").await;
    let each = LONG.div_ceil(pieces::PIECE);
    assert_eq!(pieces.len(), rows.len() * each, "{pieces:?}");
    let list = store.read(store.keys.in_pieces()).await.unwrap();
    let listed = pieces::Listed::of(list.as_ref()).unwrap();
    assert_eq!(listed.rows.keys().collect::<Vec<_>>(), rows);
}

/// Asserts that a row is read with this value and revision, by its key, in a page and in a snapshot.
async fn assert_reads(store: &EtcdStore, key: &str, value: Vec<u8>, revision: Revision) {
    let entry = Entry { value, revision };
    assert!(store.get(key).await.unwrap().as_ref() == Some(&entry));
    let mut page = store.scan(key, None, 1).await.unwrap();
    assert!(page.pop() == Some((key.to_owned(), entry.clone())));
    let (taker, taken) = std::sync::mpsc::channel();
    let wanted = key.to_owned();
    let take = move |key: &str, value: &[u8]| {
        if key == wanted {
            taker.send(value.to_vec()).unwrap();
        }
    };
    store.snapshot(Box::new(take)).await.unwrap();
    assert!(taken.iter().eq([entry.value]));
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_long_value_is_read_as_it_was_written_and_leaves_no_piece_behind() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let first = open(&settings, "master-1").await;
    let mut batch = one("a/2", Some(long(1)));
    batch.put("a/1", "small");
    batch.put("a/3", "small");
    let written = commit(&first, batch).await.unwrap();
    assert_reads(&first, "a/2", long(1), written).await;
    assert_nothing_is_left(&first, &["a/2"]).await;

    // Another Master replaces it by a small one, and this one by a long one again, and does not know of the other.
    let second = open(&settings, "master-2").await;
    assert_reads(&second, "a/2", long(1), written).await;
    let mut batch = one("a/2", Some(b"short".to_vec()));
    batch.require("a/2", written);
    let replaced = commit(&second, batch.clone()).await.unwrap();
    assert_reads(&second, "a/2", b"short".to_vec(), replaced).await;
    assert_nothing_is_left(&second, &[]).await;
    let refused = commit(&second, batch).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    let again = commit(&first, one("a/2", Some(long(2)))).await.unwrap();
    assert_reads(&second, "a/2", long(2), again).await;
    assert_nothing_is_left(&second, &["a/2"]).await;

    // A long value in the place of another one, both for a Master that starts anew.
    drop(first);
    let first = open(&settings, "master-1").await;
    let third = commit(&first, one("a/2", Some(long(3)))).await.unwrap();
    assert_reads(&first, "a/2", long(3), third).await;
    assert_nothing_is_left(&first, &["a/2"]).await;
    commit(&second, one("a/2", None)).await.unwrap();
    assert_nothing_is_left(&second, &[]).await;
    let rows = first.scan("", None, 9).await.unwrap();
    assert!(rows.iter().map(|(key, _)| key).eq(["a/1", "a/3"]));

    let unfit = one("longer", Some(vec![b'z'; LONGEST_VALUE + 1]));
    let refused = first.commit(unfit).await.unwrap_err();
    assert!(refused.to_string().contains("'longer'"), "{refused}");
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_commit_with_a_long_value_is_whole_or_not_there() {
    let cluster = EtcdCluster::start(1);
    let direct = open(&cluster.settings(), "reader").await;
    let cutting = Cutting::to(cluster.members[0].client, 10_000, 10_000).await;
    let store = open(&cluster.settings_at([cutting.address.port()]), "master-1").await;
    for round in 0..8_u64 {
        // Odd rounds have too many changes for one transaction.
        let count = 5 + 145 * (round as usize % 2);
        let mut batch = one("long", Some(long(round)));
        for number in 0..count {
            batch.put(format!("many/{number:03}"), round.to_string());
        }
        let mut unfit = batch.clone();
        unfit.put("long", long(99));
        unfit.require("many/000", 1);
        let refused = commit(&store, unfit).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
        let former = direct.get("long").await.unwrap().map(|entry| entry.value);
        assert!(former == round.checked_sub(1).map(long), "round {round}");
        commit(&store, batch).await.unwrap();
        let entry = direct.get("long").await.unwrap().unwrap();
        assert!(entry.value == long(round), "round {round}");
        let many = direct.scan("many/", None, 999).await.unwrap();
        let now = many
            .iter()
            .filter(|(_, row)| row.value == round.to_string().as_bytes());
        assert_eq!(now.count(), count);
    }
    assert!(cutting.cuts.load(Ordering::Relaxed) > 0);
    // A request whose answer was lost may have come late: the next start removes what it wrote.
    drop(store);
    let store = open(&cluster.settings(), "master-1").await;
    assert_nothing_is_left(&store, &["long"]).await;
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn what_a_commit_left_beside_the_rows_goes_with_the_next_large_one() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let store = open(&settings, "master-1").await;
    commit(&store, one("kept", Some(long(1)))).await.unwrap();
    let mut changes = plan::Changes::from([("lost".to_owned(), Some(long(2)))]);
    for number in 0..150 {
        changes.insert(format!("many/{number:03}"), Some(b"x".to_vec()));
    }
    // Each attempt ends before its transaction.
    for attempt in ["first", "second"] {
        staged(&store, &changes, attempt).await;
    }
    assert!(!keys(&store, "staged/").await.is_empty());
    let written = commit(&store, one("new", Some(long(3)))).await.unwrap();
    assert_nothing_is_left(&store, &["kept", "new"]).await;
    assert_reads(&store, "new", long(3), written).await;

    // The transaction of an attempt from before comes too late.
    let late = staged(&store, &changes, "third").await;
    drop(store);
    let store = open(&settings, "master-1").await;
    assert_nothing_is_left(&store, &["kept", "new"]).await;
    let transaction = wire::Transaction {
        compare: late.demands,
        success: late.changes,
        failure: Vec::new(),
    };
    assert!(!store.transact(&transaction).await.unwrap().succeeded);
    assert!(store.get("lost").await.unwrap().is_none());
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_store_that_is_reached_leaves_what_another_one_of_its_name_writes() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let store = open(&settings, "master-1").await;
    let mut changes = plan::Changes::from([("long".to_owned(), Some(long(1)))]);
    for number in 0..150 {
        changes.insert(format!("many/{number:03}"), Some(b"x".to_vec()));
    }
    // A process on a copy of this one's state directory comes between the two halves of a commit.
    let begun = staged(&store, &changes, "mark").await;
    let twin = EtcdStore::new(&settings, "factory", "master-1").unwrap();
    twin.reach().await.unwrap();
    let until = Instant::now() + DEADLINE;
    let made = store
        .make(&mut *store.writer.lock().await, &begun, until)
        .await;
    assert!(made.unwrap().is_some());
    assert_eq!(twin.scan("many/", None, 999).await.unwrap().len(), 150);
    let entry = twin.get("long").await.unwrap().unwrap();
    assert!(entry.value == long(1));

    // Once it is the only one, it removes what was not committed, and no more.
    staged(&store, &changes, "lost").await;
    drop(store);
    twin.clear().await.unwrap();
    assert_nothing_is_left(&twin, &["long"]).await;
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn whoever_comes_next_finishes_a_commit_with_long_values() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let ended = open(&settings, "master-1").await;
    let mut batch = one("replaced", Some(long(1)));
    batch.put("deleted", long(2));
    commit(&ended, batch).await.unwrap();
    let mut changes = plan::Changes::from([
        ("replaced".to_owned(), Some(long(3))),
        ("deleted".to_owned(), None),
    ]);
    for number in 0..150 {
        changes.insert(format!("many/{number:03}"), Some(b"x".to_vec()));
    }
    // The writer ends right after its transaction, before it has moved anything to its place.
    let commit = staged(&ended, &changes, "mark").await;
    assert!(commit.waits);
    let until = Instant::now() + DEADLINE;
    let list = pieces::list_row(&commit.list.unwrap());
    let mut success = commit.changes;
    success.push(wire::Operation::put(ended.keys.in_pieces(), list));
    let transaction = wire::Transaction {
        compare: commit.demands,
        success,
        failure: Vec::new(),
    };
    assert!(ended.transact(&transaction).await.unwrap().succeeded);
    // Until that is done, nothing that belongs to it is cleared.
    let next = open(&settings, "master-2").await;
    assert!(next.get("deleted").await.unwrap().is_none());
    let entry = next.get("replaced").await.unwrap().unwrap();
    assert!(entry.value == long(3));
    assert_eq!(next.scan("many/", None, 999).await.unwrap().len(), 150);
    assert_nothing_is_left(&next, &["replaced"]).await;
    let again = open(&settings, "master-1").await;
    again
        .clear_staged(&mut *again.writer.lock().await, until)
        .await
        .unwrap();
    assert_nothing_is_left(&again, &["replaced"]).await;
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_value_without_all_its_pieces_is_told_by_its_key() {
    let cluster = EtcdCluster::start(1);
    let store = open(&cluster.settings(), "master-1").await;
    let mut batch = one("a/2", Some(long(1)));
    batch.put("a/1", "small");
    commit(&store, batch).await.unwrap();
    let piece = keys(&store, "pieces/").await.swap_remove(3);
    let transaction = wire::Transaction {
        compare: Vec::new(),
        success: vec![wire::Operation::delete(piece.into_bytes())],
        failure: Vec::new(),
    };
    assert!(store.transact(&transaction).await.unwrap().succeeded);
    for damaged in [
        store.get("a/2").await.map(drop),
        store.scan("a/", None, 9).await.map(drop),
        store.snapshot(Box::new(|_: &str, _: &[u8]| {})).await,
    ] {
        let damaged = damaged.unwrap_err();
        assert!(
            matches!(&damaged, StoreError::DamagedRow { key, .. } if key == "a/2"),
            "{damaged}"
        );
    }
    assert_eq!(store.get("a/1").await.unwrap().unwrap().value, b"small");
    // The row can be written anew.
    commit(&store, one("a/2", Some(long(2)))).await.unwrap();
    assert_nothing_is_left(&store, &["a/2"]).await;
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn rows_of_earlier_versions_are_read_and_become_rows_in_pieces() {
    let cluster = EtcdCluster::start(1);
    let store = open(&cluster.settings(), "master-1").await;
    let old = vec![b'x'; LONGEST_REQUEST - 100];
    let transaction = wire::Transaction {
        compare: Vec::new(),
        success: vec![wire::Operation::put(store.keys.row("old"), old.clone())],
        failure: Vec::new(),
    };
    assert!(store.transact(&transaction).await.unwrap().succeeded);
    let written = store.get("old").await.unwrap().unwrap().revision;
    assert_reads(&store, "old", old, written).await;
    let mut batch = one("old", Some(long(1)));
    batch.require("old", written);
    let written = commit(&store, batch).await.unwrap();
    assert_reads(&store, "old", long(1), written).await;
    assert_nothing_is_left(&store, &["old"]).await;
}
