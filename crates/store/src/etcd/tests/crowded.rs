//! A store that others write to all the time.

use super::*;

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_commit_that_others_come_before_ends_with_its_time() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let store = open(&settings, "master-1").await;
    let twin = open(&settings, "master-1").await;
    let changes =
        |number: u64| plan::Changes::from([(format!("row/{number}"), Some(b"x".to_vec()))]);
    let write = async |number: u64, until: Instant| {
        let begun = staged(&store, &changes(number), &format!("mark-{number}")).await;
        // Another process of its name comes first.
        commit(&twin, Batch::from_iter(changes(100 + number)))
            .await
            .unwrap();
        let mut writer = store.writer.lock().await;
        let made = store.make(&mut writer, &begun, until).await;
        made.map(|made| made.is_some())
    };
    // The first commit of a store does not know the last one.
    assert!(write(1, Instant::now() + DEADLINE).await.unwrap());
    let late = write(2, Instant::now()).await.unwrap_err();
    assert!(late.to_string().contains("other commits"), "{late}");
    assert!(store.get("row/2").await.unwrap().is_none());
    assert!(write(3, Instant::now() + DEADLINE).await.unwrap());
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_read_sees_no_half_of_a_commit_of_another_instance() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    let writer = open(&settings, "master-1").await;
    let reader = open(&settings, "master-2").await;
    // The writer has committed, and has moved nothing to its place yet.
    let begin = async |name: &str| {
        let mut changes = plan::Changes::new();
        for number in 0..250 {
            changes.insert(format!("{name}/{number:03}"), Some(b"x".to_vec()));
        }
        let begun = staged(&writer, &changes, name).await;
        let transaction = wire::Transaction {
            compare: begun.demands,
            success: begun.changes,
            failure: Vec::new(),
        };
        assert!(writer.transact(&transaction).await.unwrap().succeeded);
    };
    begin("got").await;
    assert!(reader.get("got/249").await.unwrap().is_some());
    begin("scanned").await;
    let page = reader.scan("scanned/", None, 999).await.unwrap();
    assert_eq!(page.len(), 250);
    begin("taken").await;
    let (taker, taken) = std::sync::mpsc::channel();
    let take = move |key: &str, _: &[u8]| taker.send(key.to_owned()).unwrap();
    reader.snapshot(Box::new(take)).await.unwrap();
    let taken = taken.iter().filter(|key| key.starts_with("taken/"));
    assert_eq!(taken.count(), 250);
}
