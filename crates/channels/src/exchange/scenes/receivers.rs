//! The receivers of a channel, and what is kept for those that are gone.

use sealbus_bus::Acknowledgement;

use super::*;
use crate::flow::{FlowPolicy, QueueLimits};

#[test]
fn subscriptions_to_other_channels_leave_the_receivers_of_a_channel_as_they_are() {
    let mut scene = Scene::new(2);
    scene.subscribe(0, "/dates");
    let dates = ChannelPath::new("/dates").unwrap();
    let before = scene.exchanges[0].targets(&dates);
    let other = scene.subscribe(0, "/offers/*");
    let now = scene.now();
    scene.exchanges[0].unsubscribe(other.id, Ended::Cancelled, now);
    let after = scene.exchanges[0].targets(&dates);
    assert!(Arc::ptr_eq(&before, &after));
    let all = scene.subscribe(0, "/**");
    let after = scene.exchanges[0].targets(&dates);
    assert_eq!((before.here.len(), after.here.len()), (1, 2));
    scene.exchanges[0].unsubscribe(all.id, Ended::Cancelled, now);
    let after = scene.exchanges[0].targets(&dates);
    assert_eq!(after.here.len(), 1);
    scene.exchanges[0].set_permissions(Arc::default());
    assert!(!Arc::ptr_eq(&after, &scene.exchanges[0].targets(&dates)));
}

#[test]
fn the_gates_of_subscriptions_that_ended_are_not_kept() {
    let mut scene = Scene::new(2);
    assert!(scene.waits());
    scene.carry(0, 1);
    let limits = QueueLimits {
        events: 100,
        bytes: 8 << 10,
    };
    for _ in 0..20 {
        let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
        let now = scene.now();
        let slow: Arc<str> = "slow@factory".into();
        let slow = scene.exchanges[1].subscribe(&slow, options.with_limits(limits), now);
        scene.carry(0, 1);
        assert!(scene.fill() > 0);
        scene.exchanges[1].unsubscribe(slow.unwrap().id, Ended::Cancelled, now);
        scene.carry(0, 1);
    }
    let gates = scene.exchanges[0].stalls.len();
    assert!(gates <= 2, "{gates} gates are kept");
}

#[test]
fn a_publisher_elsewhere_hears_that_a_disconnected_subscription_leaves_its_event_unread() {
    let mut scene = Scene::new(2);
    let limits = QueueLimits {
        events: 1,
        bytes: 8 << 10,
    };
    let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap())
        .with_policy(FlowPolicy::Disconnect)
        .with_limits(limits);
    let now = scene.now();
    let slow: Arc<str> = "slow@factory".into();
    let slow = scene.exchanges[1].subscribe(&slow, options, now).unwrap();
    assert!(scene.waits());
    scene.carry(0, 1);
    let receipt = Arc::<Receipt>::default();
    let qos = Qos {
        acknowledgement: Some(Acknowledgement::ReceiverAgent),
        ..Qos::default()
    };
    let published = scene.publish_with(qos, Some(&receipt));
    assert!(matches!(published, Ok(Attempt::Done(_))));
    // There is no room for a second one.
    scene.reaches(1);
    scene.pass(Duration::from_secs(1));
    assert_eq!(slow.ended(), Some(Ended::Disconnected));
    assert_eq!((slow.counts().0, receipt.outcome()), (1, None));
    let now = scene.now();
    scene.exchanges[1].drop_subscription(&slow, now);
    scene.pass(Duration::from_secs(1));
    assert!(matches!(receipt.outcome(), Some(Err(_))));
}
