//! How long publishers wait for others: for many idle subscriptions, for a process that only greets, and for unread events
//! of former sessions.

use super::*;
use crate::flow::QueueLimits;
use crate::frame::Frame;

/// The limits of a subscription that is soon full.
const SMALL: QueueLimits = QueueLimits {
    events: 1000,
    bytes: 20_000,
};

impl Scene {
    /// Makes a subscription that is soon full.
    fn subscribe_small(&mut self, at: usize, name: &str) -> Arc<Consumer> {
        let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
        let now = self.now();
        let agent = format!("{name}@factory").into();
        let subscribed = self.exchanges[at].subscribe(&agent, options.with_limits(SMALL), now);
        subscribed.unwrap()
    }

    /// Publishes until the publisher has to wait, and carries each event.
    fn fill_and_carry(&mut self) {
        while !self.waits() {
            self.carry(0, 1);
        }
    }

    /// Ten seconds later the second process greets in a new epoch, and says nothing else.
    fn greet_later(&mut self, epoch: u64) {
        self.time += Duration::from_secs(10);
        let hello = Frame::Hello { from: epoch, to: 0 };
        let frame = LostFrame {
            sender: None,
            payload: hello.to_bytes(),
            may_have_arrived: true,
        };
        self.arrive(1, 0, frame);
    }
}

#[test]
fn idle_subscriptions_hold_up_a_publisher_together_and_not_one_after_another() {
    for at in [0, 1] {
        let mut scene = Scene::new(2);
        for number in 0..20 {
            scene.subscribe_small(at, &format!("idle-{number}"));
        }
        assert!(scene.waits());
        scene.carry(0, 1);
        scene.fill_and_carry();
        scene.pass(Duration::from_secs(28));
        assert!(scene.waits());
        scene.pass(Duration::from_secs(4));
        assert!(!scene.waits(), "subscriptions of process {at}");
    }
}

#[test]
fn a_slow_subscription_beside_an_idle_one_misses_nothing() {
    let mut scene = Scene::new(2);
    let idle = scene.subscribe_small(1, "idle");
    let slow = scene.subscribe_small(1, "slow");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.fill_and_carry();
    for _ in 0..6 {
        assert_eq!(scene.take(1, &slow, 1), 1);
        scene.pass(Duration::from_secs(20));
        scene.fill_and_carry();
    }
    while scene.take(1, &idle, 1000) > 0 {}
    scene.carry(0, 1);
    assert!(missed(&idle) > 0);
    assert_eq!(missed(&slow), 0);
}

#[test]
fn subscriptions_between_idle_ones_get_the_events_that_pass_those_by() {
    let mut scene = Scene::new(1);
    let names = ["idle-0", "busy-0", "idle-1", "idle-2", "busy-1"];
    let consumers = names.map(|name| scene.subscribe_small(0, name));
    let is_busy = |it: &&Arc<Consumer>| it.agent.starts_with("busy");
    while !scene.waits() {
        for busy in consumers.iter().filter(is_busy) {
            scene.take(0, busy, 1000);
        }
    }
    scene.time += Duration::from_secs(30);
    assert!(!scene.waits());
    let passed_by = consumers.each_ref().map(|it| missed(it));
    assert_eq!(passed_by, [1, 0, 1, 1, 0]);
    for busy in consumers.iter().filter(is_busy) {
        assert_eq!(scene.take(0, busy, 1000), 1);
    }
}

#[test]
fn a_process_that_only_greets_seldom_holds_up_publishers() {
    let mut scene = Scene::new(2);
    assert!(scene.waits());
    for epoch in [10, 20] {
        scene.greet_later(epoch);
        assert!(scene.waits());
    }
    scene.greet_later(30);
    let error = scene.publish(Reliability::ExactlyOnce).err();
    let process = scene.identities[1].clone();
    let seconds = 30;
    assert_eq!(error, Some(PublishError::NotAnnounced { process, seconds }));
    for epoch in [40, 50, 60] {
        scene.greet_later(epoch);
        scene.reaches(0);
    }
    // After a long pause, they wait for it again, for as long as before.
    scene.time = Duration::from_secs(320);
    scene.greet_later(61);
    scene.reaches(0);
    scene.greet_later(62);
    assert!(scene.waits());
    scene.time += Duration::from_secs(30);
    assert!(scene.publish(Reliability::ExactlyOnce).is_err());
    scene.greet_later(63);
    scene.reaches(0);
    // Once it has announced its subscriptions, publishers wait for it again when it begins anew.
    scene.subscribe(1, "/dates");
    scene.carry(0, 1);
    scene.reaches(1);
    scene.greet_later(70);
    assert!(scene.waits());
}

#[test]
fn a_process_that_takes_no_frames_is_waited_for_when_it_greets_long_after() {
    let mut scene = Scene::new(2);
    assert!(scene.waits());
    let other = scene.identities[1].clone();
    let hello = scene.send(0, 1).pop().unwrap();
    let (reason, now) = (UndeliverableReason::ReceiverGone, scene.now());
    scene.exchanges[0].frame_refused(&other, &hello.payload, &reason, now);
    scene.reaches(0);
    scene.subscribe(1, "/dates");
    scene.time += Duration::from_secs(3600);
    let now = scene.now();
    scene.exchanges[1].take_interest(now);
    for hello in scene.send(1, 0) {
        scene.arrive(1, 0, hello);
    }
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(1);
}

#[test]
fn unread_events_of_former_sessions_make_publishers_wait() {
    let mut scene = Scene::new(2);
    let slow = scene.subscribe_small(1, "slow");
    assert!(scene.waits());
    scene.carry(0, 1);
    let index = scene.exchanges[0].index_of(&scene.identities[1]).unwrap();
    for _ in 0..5 {
        scene.fill_and_carry();
        let now = scene.now();
        scene.exchanges[0].break_off(index, now);
        scene.pass(Duration::from_secs(1));
    }
    assert!(scene.waits());
    let (_, bytes, _) = slow.counts();
    assert!(bytes <= SMALL.bytes, "{bytes} bytes wait");
    // The agent reads the events of all sessions, and the publisher goes on at once.
    while scene.take(1, &slow, 1000) > 0 {}
    scene.carry(0, 1);
    scene.reaches(1);
    scene.carry(0, 1);
    assert_eq!(scene.take(1, &slow, 1000), 1);
}
