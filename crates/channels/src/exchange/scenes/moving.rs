//! The subscriber of an event moves away before it has the event: the publisher gets the event back, once.

use super::*;

impl Scene {
    /// Two processes that know of each other's subscriptions.
    fn with_subscriber(at: usize) -> (Self, Arc<Consumer>) {
        let mut scene = Self::new(2);
        let consumer = scene.subscribe(at, "/dates");
        assert!(scene.waits());
        scene.carry(0, 1);
        scene.pass(Duration::from_secs(1));
        (scene, consumer)
    }

    fn rest(&mut self, consumer: &Consumer, at: usize) {
        self.exchanges[at].set_resting(&consumer.agent, true);
    }

    fn move_away(&mut self, consumer: &Consumer, at: usize) {
        let now = self.now();
        self.exchanges[at].unsubscribe(consumer.id, Ended::Cancelled, now);
        self.exchanges[at].agent_left(&consumer.agent, now);
    }

    fn publish_some(&mut self, count: usize) {
        for _ in 0..count {
            assert!(!self.waits());
        }
    }

    /// The events that came back to the publisher since the last call.
    fn returned(&mut self) -> usize {
        let outcomes = self.exchanges[0].take_outcomes();
        let is_return = |it: &&Outcome| matches!(it, Outcome::Failed { publisher, .. } if **publisher == *"publisher@factory");
        outcomes.iter().filter(is_return).count()
    }

    /// The events that the publisher's process holds for agents of the other one.
    fn unread(&self) -> usize {
        let mut peers = self.exchanges[0].peers.values();
        peers.next().unwrap().outgoing.unread_size().0
    }
}

#[test]
fn events_that_waited_come_back() {
    let (mut scene, consumer) = Scene::with_subscriber(1);
    scene.publish_some(5);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.take(1, &consumer, 2), 2);
    scene.rest(&consumer, 1);
    scene.publish_some(3);
    scene.pass(Duration::from_secs(1));
    scene.move_away(&consumer, 1);
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), scene.unread()), (6, 0));
}

#[test]
fn events_on_their_way_come_back() {
    let (mut scene, consumer) = Scene::with_subscriber(1);
    scene.publish_some(2);
    let frames = scene.send(0, 1);
    scene.rest(&consumer, 1);
    scene.move_away(&consumer, 1);
    for frame in frames {
        scene.arrive(0, 1, frame);
    }
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), scene.unread()), (2, 0));
}

#[test]
fn events_for_others_do_not_come_back() {
    let (mut scene, consumer) = Scene::with_subscriber(1);
    let now = scene.now();
    scene.publish_some(2);
    scene.rest(&consumer, 1);
    scene.pass(Duration::from_secs(1));
    let mut options = SubscriptionOptions::new(ChannelPattern::new("/**").unwrap());
    options.filter = "content == 'other'".to_owned();
    let other: Arc<str> = "other@factory".into();
    let picky = scene.exchanges[1].subscribe(&other, options, now).unwrap();
    scene.carry(0, 1);
    scene.publish_some(1);
    scene.exchanges[1].set_resting(&other, true);
    scene.move_away(&picky, 1);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.returned(), 0);
    scene.exchanges[1].set_resting(&consumer.agent, false);
    assert_eq!(scene.take(1, &consumer, 9), 3);
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), scene.unread()), (0, 0));
}

#[test]
fn events_of_the_same_process_come_back() {
    let (mut scene, consumer) = Scene::with_subscriber(0);
    scene.publish_some(3);
    assert_eq!(scene.take(0, &consumer, 1), 1);
    scene.rest(&consumer, 0);
    scene.move_away(&consumer, 0);
    assert_eq!(scene.returned(), 2);
}

#[test]
fn events_that_waited_in_a_process_that_ended_come_back() {
    let (mut scene, consumer) = Scene::with_subscriber(1);
    scene.publish_some(5);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.take(1, &consumer, 2), 2);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.unread(), 3);
    let (other, now) = (scene.identities[1].clone(), scene.now());
    scene.exchanges[0].process_left(&other, now);
    assert_eq!(scene.returned(), 3);
}

#[test]
fn a_subscription_that_its_agent_ends_gives_nothing_back() {
    let (mut scene, consumer) = Scene::with_subscriber(1);
    scene.publish_some(5);
    scene.pass(Duration::from_secs(1));
    let now = scene.now();
    scene.exchanges[1].unsubscribe(consumer.id, Ended::Cancelled, now);
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), scene.unread()), (0, 0));
}
