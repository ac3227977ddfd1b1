//! The receivers of a channel, and what is kept for those that are gone.

use super::*;
use crate::flow::QueueLimits;

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
