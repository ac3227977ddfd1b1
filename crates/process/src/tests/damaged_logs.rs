//! Readers of a log with a damaged part. They get the events before the damage once, a report of the damage, and the
//! events behind it when it is mended. If the damage is given up, the damaged events count as missed.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use sealbus_channels::{ChannelPath, Channels, DamagedLog, Replay, Subscription};
use sealbus_journal::Retention;

use super::killable::{LONG, Life, NODE, Node, durable, next, text};
use super::*;

const EVENTS: u64 = 40;

/// A node with several files in the log of `/a/one` and one event in the log of `/a/two`.
async fn filled(folder: &Path) -> (Arc<Node>, Life) {
    let node = Node::start(folder, 4);
    let retention = Retention {
        // The files have 64 KiB each.
        bytes: Some(512 << 10),
        ..Retention::default()
    };
    *node.retention.lock() = Some((ChannelPath::new("/a/one").unwrap(), retention));
    node.fall().await;
    let anna = Life::begin("anna", &node);
    for number in 1..=EVENTS {
        let long = format!("{number} {}", "x".repeat(10_000));
        anna.publish("/a/one", &long).await.unwrap();
    }
    anna.publish("/a/two", "first").await.unwrap();
    (node, anna)
}

/// Changes a bit of a file. Returns the former contents.
fn damage(file: &Path) -> Vec<u8> {
    let whole = std::fs::read(file).unwrap();
    let mut bytes = whole.clone();
    let place = bytes.len() - 100;
    bytes[place] ^= 1;
    std::fs::write(file, bytes).unwrap();
    whole
}

/// Waits until a subscription reports that a log is damaged.
async fn damaged(subscription: &Subscription) -> DamagedLog {
    let said = async {
        loop {
            if let [log] = subscription.damaged().as_slice() {
                return log.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, said).await.unwrap()
}

/// The next event of `/a/one`: its number, and how many events were missed before it. The text is checked.
async fn next_of_one(subscription: &mut Subscription) -> (u64, u64) {
    loop {
        let event = next(subscription).await;
        if event.header.channel.as_str() == "/a/one" {
            let text = text(&event);
            let (number, _) = text.split_once(' ').unwrap();
            assert_eq!(number, event.header.number.to_string());
            return (
                event.header.number,
                event.header.logged.clone().unwrap().missed,
            );
        }
    }
}

/// The events to take once the damage is reported, for each channel.
async fn until_damage(subscription: &mut Subscription) -> (Vec<u64>, Vec<String>) {
    damaged(subscription).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    while let Some(event) = subscription.try_recv() {
        match event.header.channel.as_str() {
            "/a/one" => one.push(event.header.number),
            _ => two.push(text(&event)),
        }
    }
    (one, two)
}

/// Ends a process when its node knows which events its agent has handled.
async fn leave(life: Life, subscription: Subscription) {
    subscription.settle();
    drop(subscription);
    Channels::of(&life.bus).settled().await;
    life.kill(None);
}

async fn shown(node: &Node) -> Option<String> {
    node.list().await.into_iter().find_map(|log| log.damage)
}

#[tokio::test]
async fn a_durable_subscription_waits_before_the_damage_and_goes_on_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (node, anna) = filled(folder.path()).await;
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", |options| {
        durable("all")(options);
        options.replay = Replay::From(1);
    });
    for number in 1..=3 {
        assert_eq!(next_of_one(&mut all).await, (number, 0));
    }
    leave(ben, all).await;
    let (mut file, mut whole) = (PathBuf::new(), Vec::new());
    let hurt = |files: &[PathBuf]| {
        assert!(files.len() > 3, "{files:?}");
        file.clone_from(&files[1]);
        whole = damage(&file);
    };
    node.fall_and("/a/one", hurt).await;
    let place = file.to_str().unwrap();
    assert!(shown(&node).await.unwrap().contains(place));

    // Events before the damage come.
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", durable("all"));
    let said = damaged(&all).await;
    assert_eq!((&*said.node, said.channel.as_str()), (NODE, "/a/one"));
    assert!(
        said.damage.contains(place) && said.damage.contains("restore it"),
        "{said:?}"
    );
    let (one, _) = until_damage(&mut all).await;
    let last = *one.last().unwrap();
    assert!((4..EVENTS - 5).contains(&last), "{one:?}");
    assert_eq!(one, (4..=last).collect::<Vec<_>>());
    // Other channels go on.
    anna.publish("/a/two", "second").await.unwrap();
    assert_eq!(text(&next(&mut all).await), "second");
    leave(ben, all).await;

    // Nothing comes again in another life.
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", durable("all"));
    anna.publish("/a/two", "third").await.unwrap();
    assert_eq!(text(&next(&mut all).await), "third");
    assert_eq!(until_damage(&mut all).await, (vec![], vec![]));
    leave(ben, all).await;

    // The file is restored from a copy, and the log goes on as if nothing had happened.
    node.fall_and("/a/one", |_| std::fs::write(&file, &whole).unwrap())
        .await;
    assert_eq!(shown(&node).await, None);
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", durable("all"));
    for number in last + 1..=EVENTS {
        assert_eq!(next_of_one(&mut all).await, (number, 0));
    }
    assert_eq!(all.damaged(), []);
}

#[tokio::test]
async fn what_is_given_up_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (node, anna) = filled(folder.path()).await;
    let hurt = |files: &[PathBuf]| {
        damage(&files[1]);
    };
    node.fall_and("/a/one", hurt).await;
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", |options| {
        durable("all")(options);
        options.replay = Replay::From(1);
    });
    let (one, two) = until_damage(&mut all).await;
    let last = *one.last().unwrap();
    assert_eq!(one, (1..=last).collect::<Vec<_>>());
    assert_eq!(two, ["first"]);
    // A reader that begins behind the damage is not affected.
    let mut late = anna.subscribe("/a/one", |options| options.replay = Replay::Last(2));
    assert_eq!(next_of_one(&mut late).await, (EVENTS - 1, 0));
    assert_eq!(next_of_one(&mut late).await, (EVENTS, 0));
    assert_eq!(late.damaged(), []);
    leave(ben, all).await;
    let give_up = |files: &[PathBuf]| {
        for file in &files[..2] {
            std::fs::remove_file(file).unwrap();
        }
    };
    node.fall_and("/a/one", give_up).await;
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", durable("all"));
    let (number, missed) = next_of_one(&mut all).await;
    assert!(
        missed > 0 && number == last + 1 + missed,
        "{number} {missed}"
    );
    for number in number + 1..=EVENTS {
        assert_eq!(next_of_one(&mut all).await, (number, 0));
    }
}

#[tokio::test]
async fn damage_where_the_log_is_written_is_told_to_those_who_read_and_those_who_publish() {
    let folder = tempfile::tempdir().unwrap();
    let (node, anna) = filled(folder.path()).await;
    let hurt = |files: &[PathBuf]| {
        let newest = files.last().unwrap();
        // The damage hits the first record. The records behind it prove that there was one.
        let mut bytes = std::fs::read(newest).unwrap();
        let place = bytes.windows(2).position(|two| two == b"SJ").unwrap();
        bytes[place + 200] ^= 1;
        std::fs::write(newest, bytes).unwrap();
    };
    node.fall_and("/a/one", hurt).await;
    let mut all = anna.subscribe("/a/one", |options| options.replay = Replay::From(1));
    let (one, _) = until_damage(&mut all).await;
    assert_eq!(one, (1..=one.len() as u64).collect::<Vec<_>>());
    assert!((1..EVENTS as usize).contains(&one.len()));
    // A durable subscription gets the same, and each event in only one of its lives.
    let from_the_first = |options: &mut sealbus_channels::SubscriptionOptions| {
        durable("all")(options);
        options.replay = Replay::From(1);
    };
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", from_the_first);
    assert_eq!(
        until_damage(&mut all).await,
        (one, vec!["first".to_owned()])
    );
    leave(ben, all).await;
    node.fall_and("/a/one", |_| {}).await;
    let ben = Life::begin("ben", &node);
    let mut all = ben.subscribe("/a/*", from_the_first);
    assert_eq!(until_damage(&mut all).await, (vec![], vec![]));
    leave(ben, all).await;
    let refused = anna.publish("/a/one", "more").await.unwrap_err();
    assert!(refused.contains("is damaged at byte"), "{refused}");
    anna.publish("/a/two", "more").await.unwrap();
}
