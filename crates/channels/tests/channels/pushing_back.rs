//! Full subscriptions, and publishers that wait.

use sealbus_bus::Acknowledgement;
use sealbus_channels::{Channels, Ended, FlowPolicy, PublishError, Qos, QueueLimits};
use tokio::time::timeout;

use super::{LONG, agent, bus, next, on, path, say};

#[tokio::test]
async fn a_full_subscription_does_what_its_policy_says() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let limits = QueueLimits {
        events: 2,
        bytes: 1 << 20,
    };
    let with = |policy| on("/ticks").with_policy(policy).with_limits(limits);
    let mut oldest = channels
        .subscribe(&bob, with(FlowPolicy::DropOldest))
        .unwrap();
    let mut newest = channels
        .subscribe(&bob, with(FlowPolicy::DropNewest))
        .unwrap();
    let mut ends = channels
        .subscribe(&bob, with(FlowPolicy::Disconnect))
        .unwrap();
    let mut all = channels.subscribe(&bob, on("/ticks")).unwrap();
    let (channel, qos) = (path("/ticks"), Qos::default());
    for number in 0..5 {
        channels
            .publish(&alice, &channel, &qos, say(&number.to_string()))
            .await
            .unwrap();
    }
    for number in 0..5 {
        assert_eq!(next(&mut all).await, number.to_string());
    }
    assert_eq!(next(&mut oldest).await, "3");
    assert_eq!(next(&mut oldest).await, "4");
    assert_eq!(next(&mut newest).await, "0");
    assert_eq!(next(&mut newest).await, "1");
    assert_eq!(newest.counts().2.dropped, 3);
    assert_eq!(next(&mut ends).await, "0");
    assert_eq!(next(&mut ends).await, "1");
    assert!(timeout(LONG, ends.recv()).await.unwrap().is_none());
    assert_eq!(ends.ended(), Some(Ended::Disconnected));
}

#[tokio::test]
async fn a_subscription_that_pushes_back_holds_up_only_its_publishers() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let limits = QueueLimits {
        events: 2,
        bytes: 1 << 20,
    };
    let mut slow = channels
        .subscribe(&bob, on("/slow").with_limits(limits))
        .unwrap();
    let mut fast = channels.subscribe(&bob, on("/fast")).unwrap();
    let qos = Qos::default();
    let (slow_channel, fast_channel) = (path("/slow"), path("/fast"));
    for _ in 0..2 {
        assert!(
            channels
                .try_publish(&alice, &slow_channel, &qos, say("x"))
                .unwrap()
                .is_some()
        );
    }
    assert!(
        channels
            .try_publish(&alice, &slow_channel, &qos, say("x"))
            .unwrap()
            .is_none()
    );
    let waiting = channels.publish(&alice, &slow_channel, &qos, say("last"));
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("there was no room"),
        () = tokio::task::yield_now() => {}
    }
    channels
        .publish(&alice, &fast_channel, &qos, say("y"))
        .await
        .unwrap();
    assert_eq!(next(&mut fast).await, "y");
    assert_eq!(next(&mut slow).await, "x");
    timeout(LONG, waiting).await.unwrap().unwrap();
    assert_eq!(next(&mut slow).await, "x");
    assert_eq!(next(&mut slow).await, "last");
}

#[tokio::test]
async fn a_publisher_can_wait_until_the_agents_have_it() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let mut subscription = channels.subscribe(&bob, on("/dates")).unwrap();
    let qos = Qos {
        acknowledgement: Some(Acknowledgement::ReceiverAgent),
        ..Qos::default()
    };
    let channel = path("/dates");
    let publish = channels.publish(&alice, &channel, &qos, say("x"));
    tokio::pin!(publish);
    tokio::select! {
        biased;
        _ = &mut publish => panic!("nobody has it"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(next(&mut subscription).await, "x");
    timeout(LONG, publish).await.unwrap().unwrap();
    let publish = channels.publish(&alice, &channel, &qos, say("y"));
    tokio::pin!(publish);
    tokio::select! {
        biased;
        _ = &mut publish => panic!("nobody has it"),
        () = tokio::task::yield_now() => {}
    }
    drop(subscription);
    let error = timeout(LONG, publish).await.unwrap().unwrap_err();
    assert!(
        matches!(error, PublishError::Unacknowledged { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn events_that_a_disconnected_subscription_leaves_unread_are_reported() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let limits = QueueLimits {
        events: 1,
        bytes: 1 << 20,
    };
    let options = on("/dates").with_policy(FlowPolicy::Disconnect);
    let subscription = channels
        .subscribe(&bob, options.with_limits(limits))
        .unwrap();
    let (channel, qos) = (path("/dates"), Qos::default());
    let acknowledged = Qos {
        acknowledgement: Some(Acknowledgement::ReceiverAgent),
        ..qos
    };
    let first = channels.publish(&alice, &channel, &acknowledged, say("1"));
    tokio::pin!(first);
    tokio::select! {
        biased;
        _ = &mut first => panic!("nobody has it"),
        () = tokio::task::yield_now() => {}
    }
    let second = channels.publish(&alice, &channel, &qos, say("2"));
    second.await.unwrap();
    assert_eq!(subscription.ended(), Some(Ended::Disconnected));
    drop(subscription);
    let error = timeout(LONG, first).await.unwrap().unwrap_err();
    assert!(
        matches!(error, PublishError::Unacknowledged { .. }),
        "{error}"
    );
}
