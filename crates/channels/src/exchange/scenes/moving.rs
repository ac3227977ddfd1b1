//! The subscriber of an event moves away. Either the subscriber has the event, or its publisher gets it back, once.

use super::*;
use crate::flow::QueueLimits;

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

    fn subscribe_as(&mut self, at: usize, name: &str) -> Arc<Consumer> {
        let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
        let now = self.now();
        let agent = format!("{name}@factory").into();
        self.exchanges[at].subscribe(&agent, options, now).unwrap()
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

    /// The number of events that the publisher's process holds for agents of the other one.
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

#[test]
fn an_agent_that_moves_has_each_event_in_one_of_its_two_places() {
    let mut scene = Scene::new(3);
    let former = scene.subscribe_as(1, "mover");
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.publish_some(2);
    scene.pass(Duration::from_secs(1));
    scene.rest(&former, 1);
    scene.publish_some(3);
    let latter = scene.subscribe_as(2, "mover");
    scene.pass(Duration::from_secs(1));
    scene.publish_some(4);
    scene.pass(Duration::from_secs(1));
    assert_eq!((former.counts().0, latter.counts().0), (5, 4));
    scene.move_away(&former, 1);
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), latter.counts().0), (5, 4));
}

#[test]
fn an_agent_that_stays_gets_what_does_not_come_to_one_that_moved() {
    let mut scene = Scene::new(3);
    let former = scene.subscribe_as(1, "mover");
    let stays = scene.subscribe_as(1, "other");
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.rest(&former, 1);
    let latter = scene.subscribe_as(2, "mover");
    scene.pass(Duration::from_secs(1));
    scene.publish_some(3);
    scene.pass(Duration::from_secs(1));
    let waiting = [&former, &stays, &latter].map(|it| it.counts().0);
    assert_eq!(waiting, [0, 3, 3]);
}

#[test]
fn an_agent_that_came_to_the_process_of_its_publisher_has_each_event_there() {
    let mut scene = Scene::new(2);
    let former = scene.subscribe_as(1, "mover");
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.rest(&former, 1);
    let latter = scene.subscribe_as(0, "mover");
    scene.publish_some(3);
    scene.pass(Duration::from_secs(1));
    assert_eq!((former.counts().0, latter.counts().0), (0, 3));
}

#[test]
fn an_agent_whose_new_place_is_lost_gets_events_in_its_former_one_again() {
    let mut scene = Scene::new(3);
    let former = scene.subscribe_as(1, "mover");
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.rest(&former, 1);
    scene.subscribe_as(2, "mover");
    scene.pass(Duration::from_secs(1));
    scene.publish_some(2);
    let (other, now) = (scene.identities[2].clone(), scene.now());
    scene.exchanges[0].process_left(&other, now);
    assert_eq!(scene.returned(), 2);
    scene.exchanges[1].set_resting(&former.agent, false);
    scene.publish_some(3);
    scene.carry(0, 1);
    assert_eq!((scene.take(1, &former, 9), scene.returned()), (3, 0));
}

#[test]
fn a_subscription_stays_in_the_former_place_until_the_new_one_has_the_same() {
    let mut scene = Scene::new(3);
    let former = scene.subscribe_as(1, "mover");
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.rest(&former, 1);
    let pattern = ChannelPattern::new("/dates").unwrap();
    let mut options = SubscriptionOptions::new(pattern).answering();
    options.takes_events = false;
    let now = scene.now();
    let agent = &former.agent;
    let questions = scene.exchanges[2].subscribe(agent, options, now).unwrap();
    scene.pass(Duration::from_secs(1));
    scene.publish_some(2);
    scene.pass(Duration::from_secs(1));
    assert_eq!((former.counts().0, questions.counts().0), (2, 0));
    let latter = scene.subscribe_as(2, "mover");
    scene.pass(Duration::from_secs(1));
    scene.publish_some(3);
    scene.pass(Duration::from_secs(1));
    assert_eq!((former.counts().0, latter.counts().0), (2, 3));
    scene.move_away(&former, 1);
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.returned(), latter.counts().0), (2, 3));
}

#[test]
fn what_a_former_place_gets_among_costly_filters_is_paid_for() {
    let mut scene = Scene::new(3);
    let limits = QueueLimits {
        events: 100,
        bytes: 2 << 10,
    };
    let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
    let (mover, now): (Arc<str>, _) = ("mover@factory".into(), scene.now());
    let former = scene.exchanges[1].subscribe(&mover, options.with_limits(limits), now);
    scene.subscribe_costly(1);
    assert!(scene.waits());
    scene.pass(Duration::from_secs(1));
    scene.rest(&former.unwrap(), 1);
    scene.subscribe_as(2, "mover");
    scene.pass(Duration::from_secs(1));
    // The frames to the former place name no subscription. The publisher waits before they exceed its credit.
    assert!((0..100).any(|_| scene.waits()));
}
