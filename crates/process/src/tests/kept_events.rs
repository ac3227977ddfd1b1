//! Persistent channels without the network: the bus of a process, its way to its node, and the node's logs on a real
//! disk. Requests and answers are lost, processes and nodes are killed, and the ends of files are torn.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::SystemTime;

use sealbus_channels::{
    ChannelPath, ChannelPattern, Channels, DeclaredChannels, EventKey, Moment, Qos, Replay,
    SubscriptionOptions,
};
use sealbus_conformance::schedule::seeds;
use sealbus_fipa::Expression;
use sealbus_journal::Retention;

use super::killable::{LONG, Life, NODE, Node, durable, next, text};
use super::*;
use sealbus_control::channel_log::{LogAnswer, LogRequest};

/// Publishes while the process and its node are killed. Returns the acknowledged events.
async fn publish_all(node: Arc<Node>, name: &'static str, count: usize) -> Vec<String> {
    let mut life = Life::begin(name, &node);
    let mut acknowledged = Vec::new();
    for number in 0..count {
        let channel = if number % 3 == 0 { "/a/one" } else { "/a/two" };
        let text = format!("{name} {number}");
        if node.below(12) == 0 {
            // The process is killed while it waits for the acknowledgement, so nobody knows whether the event is kept.
            let publishing = life.publish(channel, &text);
            let _ = tokio::time::timeout(Duration::from_micros(node.below(3000)), publishing).await;
            life.kill(None);
            life = Life::begin(name, &node);
            continue;
        }
        life.publish(channel, &text).await.unwrap();
        acknowledged.push(text);
        if node.below(15) == 0 {
            node.fall().await;
        }
    }
    acknowledged
}

async fn one_schedule(seed: u64) {
    const EVENTS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), seed);
    let mut reader = Life::begin("reader", &node);
    let mut subscription = reader.subscribe("/a/*", durable("all"));
    node.is_lossy.store(true, Ordering::SeqCst);
    let publishing = tokio::spawn({
        let node = node.clone();
        async move {
            let (one, two) = tokio::join!(
                publish_all(node.clone(), "anna", EVENTS),
                publish_all(node, "ben", EVENTS)
            );
            [one, two].concat()
        }
    });
    let mut publishing = Some(publishing);
    let mut wanted: HashSet<String> = HashSet::new();
    // The events by log and number, and the number of times each text was seen.
    let mut places: HashMap<(ChannelPath, u64), String> = HashMap::new();
    let mut last: BTreeMap<(String, ChannelPath), usize> = BTreeMap::new();
    loop {
        if publishing.is_none()
            && wanted
                .iter()
                .all(|text| places.values().any(|it| it == text))
        {
            break;
        }
        let event = match &mut publishing {
            None => next(&mut subscription).await,
            Some(running) => tokio::select! {
                event = next(&mut subscription) => event,
                done = running => {
                    wanted.extend(done.unwrap());
                    publishing = None;
                    continue;
                }
            },
        };
        let text = text(&event);
        let logged = event.header.logged.clone().unwrap();
        assert_eq!(logged.missed, 0, "seed {seed}: {text}");
        let place = (event.header.channel.clone(), event.header.number);
        match places.get(&place) {
            Some(former) => {
                assert_eq!(*former, text, "seed {seed}");
                assert!(
                    event.header.may_be_again,
                    "seed {seed}: {text} comes twice unmarked"
                );
            }
            None => {
                let is_twice = places.values().any(|other| *other == text);
                assert!(!is_twice, "seed {seed}: {text} was kept twice");
                let (name, number) = text.split_once(' ').unwrap();
                let number = number.parse::<usize>().unwrap() + 1;
                let of = (name.to_owned(), place.0.clone());
                let former = last.insert(of, number).unwrap_or(0);
                assert!(former < number, "seed {seed}: {text} comes after {former}");
                places.insert(place, text);
            }
        }
        // At the end the reader is left alone. If it were always killed before it reported its position, it would begin
        // again and again.
        if publishing.is_some() && node.below(14) == 0 {
            reader.kill(Some(subscription));
            reader = Life::begin("reader", &node);
            subscription = reader.subscribe("/a/*", durable("all"));
        }
    }
}

#[tokio::test]
async fn acknowledged_events_outlive_everything_and_come_once_in_effect() {
    for seed in seeds(4) {
        one_schedule(seed).await;
    }
}

#[tokio::test]
async fn a_durable_subscription_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    anna.publish("/news", "before").await.unwrap();
    {
        let mut news = ben.subscribe("/news", durable("news"));
        // Events that are published immediately after the subscription count.
        for number in 0..4 {
            anna.publish("/news", &number.to_string()).await.unwrap();
        }
        for number in 0..3 {
            assert_eq!(text(&next(&mut news).await), number.to_string());
        }
        let twice = SubscriptionOptions {
            durable: Some("news".to_owned()),
            ..SubscriptionOptions::new(ChannelPattern::new("/news").unwrap())
        };
        let refused = Channels::of(&ben.bus).subscribe(&ben.outbox, twice);
        assert!(refused.unwrap_err().to_string().contains("already"));
        news.settle();
    }
    Channels::of(&ben.bus).settled().await;
    node.fall().await;
    anna.publish("/news", "4").await.unwrap();
    // This channel did not exist yet.
    let mut news = ben.subscribe("/news", durable("news"));
    for number in 3..5 {
        let event = next(&mut news).await;
        assert_eq!(text(&event), number.to_string());
        let logged = event.header.logged.clone().unwrap();
        assert_eq!((&*logged.node, logged.missed), (NODE, 0));
        assert!(event.provenance().is_trusted());
    }
    // Another durable subscription begins now. Others begin where they choose.
    let mut late = ben.subscribe("/news", |options| {
        options.replay = sealbus_channels::Replay::Last(2);
    });
    let mut whole = ben.subscribe("/*", |options| {
        options.replay = sealbus_channels::Replay::From(1);
        options.filter = "content != '2'".to_owned();
    });
    assert_eq!(text(&next(&mut late).await), "3");
    assert_eq!(text(&next(&mut late).await), "4");
    for expected in ["before", "0", "1", "3", "4"] {
        assert_eq!(text(&next(&mut whole).await), expected);
    }
    anna.publish("/more", "new channel").await.unwrap();
    assert_eq!(text(&next(&mut whole).await), "new channel");
    // A live subscription gets an event when it is published, and a log reader gets it from the log. No subscription
    // gets it twice.
    let mut live = anna.subscribe("/news", |_| {});
    anna.publish("/news", "5").await.unwrap();
    let event = next(&mut live).await;
    assert_eq!((event.header.number, &event.header.logged), (7, &None));
    anna.publish("/news", "6").await.unwrap();
    for number in ["5", "6"] {
        assert_eq!(text(&next(&mut late).await), number);
    }
    assert_eq!(text(&next(&mut live).await), "6");
    assert!(live.try_recv().is_none());
}

#[tokio::test]
async fn what_was_not_kept_long_enough_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 2);
    let channel = ChannelPath::new("/news").unwrap();
    let retention = Retention {
        count: Some(3),
        ..Retention::default()
    };
    *node.retention.lock() = Some((channel.clone(), retention));
    node.fall().await;
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    {
        let mut news = ben.subscribe("/news", durable("news"));
        anna.publish("/news", "0").await.unwrap();
        assert_eq!(text(&next(&mut news).await), "0");
        news.settle();
    }
    Channels::of(&ben.bus).settled().await;
    for number in 1..10 {
        anna.publish("/news", &number.to_string()).await.unwrap();
    }
    node.fall().await;
    let mut news = ben.subscribe("/news", durable("news"));
    let event = next(&mut news).await;
    assert_eq!(text(&event), "7");
    assert_eq!(event.header.logged.clone().unwrap().missed, 6);
    assert_eq!(
        next(&mut news).await.header.logged.clone().unwrap().missed,
        0
    );
    let logs = node.list().await;
    assert_eq!((logs[0].events, logs[0].first, logs[0].next), (3, 8, 11));
    assert_eq!(logs[0].durable.keys().collect::<Vec<_>>(), ["ben/news"]);
}

/// A filter is evaluated where the log is. Events for which it cannot be evaluated are counted at the subscriber.
#[tokio::test]
async fn filters_that_cannot_be_evaluated_for_kept_events_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 5);
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    let offer = |text: &str, price: Option<i64>| {
        let mut message = AclMessage::new(Performative::Inform).with_content(text);
        let price = price.map(|price| ("X-price".to_owned(), Expression::Number(price.into())));
        message.user_defined.extend(price);
        message
    };
    let publish = async |text: &str, price: Option<i64>| {
        let published = anna.publish_as("/offers", "persistent,ack=disk", offer(text, price));
        published.await.unwrap();
    };
    publish("without a price", None).await;
    publish("dear", Some(12)).await;
    publish("cheap", Some(7)).await;
    let mut offers = ben.subscribe("/offers", |options| {
        options.replay = sealbus_channels::Replay::From(1);
        options.filter = "properties.price < 10".to_owned();
    });
    assert_eq!(text(&next(&mut offers).await), "cheap");
    assert_eq!(offers.counts().2.filter_errors, 1);
    publish("nor has this", None).await;
    publish("cheap again", Some(1)).await;
    assert_eq!(text(&next(&mut offers).await), "cheap again");
    let counters = offers.counts().2;
    assert_eq!((counters.filter_errors, counters.handed_out), (2, 2));
    let reports = Channels::of(&ben.bus).subscriptions();
    assert_eq!(reports[0].filter_errors, 2);
}

/// An event is delivered neither before nor after its time, even if it waited in a log.
#[tokio::test]
async fn kept_events_are_read_in_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 6);
    let anna = Life::begin("anna", &node);
    let say = |text: &str| AclMessage::new(Performative::Inform).with_content(text);
    let qos = |more: &str| format!("persistent,ack=disk,{more}");
    // The time is so long that no delay exceeds it.
    let soon = Moment::from(SystemTime::now() + Duration::from_secs(2));
    for (more, text) in [
        (format!("valid-from={soon}"), "later"),
        (format!("expiry={soon}"), "gone"),
        ("expiry=1h".to_owned(), "stays"),
    ] {
        let published = anna.publish_as("/news", &qos(&more), say(text)).await;
        // On a slow machine the event has expired before it is on disk.
        assert!(published.is_ok() || text == "gone", "{published:?}");
    }
    node.fall().await;
    let ben = Life::begin("ben", &node);
    while Moment::now() < soon {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut news = ben.subscribe("/news", |options| {
        options.replay = sealbus_channels::Replay::From(1);
    });
    let mut seen = [text(&next(&mut news).await), text(&next(&mut news).await)];
    seen.sort();
    assert_eq!(seen, ["later", "stays"]);
    // A reader that comes before the event's time gets it at that time.
    let from = Moment::from(SystemTime::now() + Duration::from_secs(2));
    let later = qos(&format!("valid-from={from}"));
    anna.publish_as("/news", &later, say("at its time"))
        .await
        .unwrap();
    anna.publish("/news", "at once").await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let text = text(&next(&mut news).await);
        assert!(text == "at once" || Moment::now() >= from);
        seen.push(text);
    }
    seen.sort();
    assert_eq!(seen, ["at its time", "at once"]);
}

#[tokio::test]
async fn a_node_keeps_only_what_it_may() {
    use sealbus_control::channel_log::{KeepOutcome, PostedEvent};
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 3);
    let event = |publisher: &str, frame: Vec<u8>| PostedEvent {
        publisher: publisher.to_owned(),
        frame: Blob(frame),
    };
    let events = vec![
        event("anna", b"nonsense".to_vec()),
        event("anna", Vec::new()),
    ];
    let logs = node.logs().unwrap();
    let kept = logs.answer("1", LogRequest::Keep { events });
    let LogAnswer::Kept { outcomes } = kept.await.unwrap() else {
        panic!("no outcomes");
    };
    for outcome in outcomes {
        let KeepOutcome::Refused { fault } = outcome else {
            panic!("nonsense was kept");
        };
        assert_eq!(fault.code, FaultCode::BadRequest);
    }
    let many = vec![event("anna", Vec::new()); sealbus_keeping::channel_log::MOST_EVENTS + 1];
    let refused = logs.answer("1", LogRequest::Keep { events: many });
    assert_eq!(refused.await.unwrap_err().code, FaultCode::BadRequest);
    let question = serde_json::json!({
        "log": "read",
        "question": {
            "agent": "ben", "pattern": "/**", "filter": "price <", "start": {"from": "now"},
            "began": 0, "events": 1, "bytes": 1, "wait": 0
        }
    });
    let question = serde_json::from_value(question).unwrap();
    let refused = logs.answer("1", question).await.unwrap_err();
    assert_eq!(refused.code, FaultCode::BadRequest);
}

/// Readers of a channel see the numbers that a process gave its events, and may guess the next ones.
#[tokio::test]
async fn no_process_uses_up_the_numbers_of_another() {
    use sealbus_channels::frame::{Frame, Stamp};
    use sealbus_control::channel_log::{KeepOutcome, PostedEvent};
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 7);
    let anna = Life::begin("anna", &node);
    anna.publish("/news", "1").await.unwrap();
    let logs = node.logs().unwrap();
    let read = serde_json::json!({
        "log": "read",
        "question": {
            "agent": "ben", "pattern": "/**", "start": {"from": "number", "number": 1},
            "began": 0, "events": 9, "bytes": 9999, "wait": 0
        }
    });
    let LogAnswer::Read { pieces } = logs
        .answer("", serde_json::from_value(read).unwrap())
        .await
        .unwrap()
    else {
        panic!("nothing read");
    };
    let frame = &pieces[0].events[0].frame.0;
    let Frame::Keep {
        stamp, head, body, ..
    } = Frame::decode(frame).unwrap()
    else {
        panic!("no event");
    };
    let with = |number: u64| {
        let session = stamp.session;
        let mut frame = Vec::new();
        Frame::Keep {
            stamp: Stamp { session, number },
            head,
            evidence: &[],
            body,
        }
        .encode(&mut frame);
        let event = PostedEvent {
            publisher: "anna".to_owned(),
            frame: Blob(frame),
        };
        LogRequest::Keep {
            events: vec![event],
        }
    };
    let next = stamp.number + 1;
    let keep = async |process: &str| match logs.answer(process, with(next)).await.unwrap() {
        LogAnswer::Kept { outcomes } => match outcomes[0] {
            KeepOutcome::Kept { number } => number,
            KeepOutcome::Refused { .. } => panic!("refused"),
        },
        _ => panic!("not kept"),
    };
    let (stranger, own) = (keep("stranger").await, keep("own").await);
    assert_ne!(stranger, own);
    assert_eq!((keep("stranger").await, keep("own").await), (stranger, own));
    node.fall().await;
    let logs = node.logs().unwrap();
    let LogAnswer::Kept { outcomes } = logs.answer("own", with(next)).await.unwrap() else {
        panic!("not kept");
    };
    assert_eq!(outcomes, [KeepOutcome::Kept { number: own }]);
}

/// An event without evidence, as from a node that took the evidence away, is not handed out where the platform declares
/// that its channel is signed.
#[tokio::test]
async fn events_of_a_signed_channel_are_not_handed_out_without_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    let life = Life::begin("anna", &node);
    life.publish("/contracts", "one").await.unwrap();
    life.publish("/dates", "two").await.unwrap();
    let all = |options: &mut SubscriptionOptions| options.replay = Replay::Last(10);
    let mut subscription = life.subscribe("/*", all);
    let mut read = HashSet::new();
    for _ in 0..2 {
        read.insert(text(&next(&mut subscription).await));
    }
    assert_eq!(read, HashSet::from(["one".to_owned(), "two".to_owned()]));
    let signed = (
        "/contracts".parse().unwrap(),
        "level=signed".parse().unwrap(),
    );
    Channels::of(&life.bus).declare(DeclaredChannels::new([signed]));
    let mut subscription = life.subscribe("/*", all);
    assert_eq!(text(&next(&mut subscription).await), "two");
    life.publish("/dates", "three").await.unwrap();
    assert_eq!(text(&next(&mut subscription).await), "three");
}

/// Nobody knows since when another party had the key of an agent that an operator revoked.
#[tokio::test]
async fn events_that_were_kept_before_their_publisher_was_revoked_are_not_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 8);
    let ben = Life::begin("ben", &node);
    let publishers = ["thief", "reborn", "anna"].map(|agent| Life::begin(agent, &node));
    for (publisher, said) in publishers.iter().zip(["1", "2", "3"]) {
        publisher.publish("/news", said).await.unwrap();
    }
    ben.hear_of_revocation("thief", now().plus(HOUR));
    // This event came later, under a new certificate.
    ben.hear_of_revocation("reborn", now().minus(HOUR));
    {
        let mut news = ben.subscribe("/news", |options| {
            options.durable = Some("mine".to_owned());
            options.replay = Replay::From(1);
        });
        for expected in ["2", "3"] {
            assert_eq!(text(&next(&mut news).await), expected);
        }
        news.settle();
    }
    Channels::of(&ben.bus).settled().await;
    let cursors: Vec<_> = node.list().await[0].durable.values().copied().collect();
    assert_eq!(cursors, [4]);
    let refused = ben.bus.refusals().last();
    let noted = refused.iter().map(|it| (&*it.tried_by, it.reason));
    let noted: Vec<_> = noted.collect();
    assert_eq!(noted, [("thief@factory", RefusalReason::Revoked)]);
    assert_eq!(refused[0].receiver.as_deref(), Some("ben@factory"));

    let (channel, key) = (ChannelPath::new("/news"), EventKey::new("sender"));
    let (channel, key, qos) = (channel.unwrap(), key.unwrap(), Qos::default());
    let channels = Channels::of(&ben.bus);
    let last = channels.last(&ben.outbox, &channel, &qos, &key, "", LONG);
    let mut last: Vec<_> = last.await.unwrap().events.iter().map(text).collect();
    last.sort();
    assert_eq!(last, ["2", "3"]);
    assert_eq!(ben.bus.refusals().total(), 2);
}
