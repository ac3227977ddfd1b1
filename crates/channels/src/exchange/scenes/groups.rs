//! Queue groups: which member gets an event, and what becomes of an event that no member handles.

use super::*;

impl Scene {
    pub(super) fn join(&mut self, at: usize, name: &str) -> Arc<Consumer> {
        let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
        let now = self.now();
        let agent = format!("{name}@factory").into();
        let options = options.grouped("workers");
        self.exchanges[at].subscribe(&agent, options, now).unwrap()
    }

    /// Takes a member's events. Returns their marks.
    pub(super) fn take_marks(&mut self, at: usize, consumer: &Consumer) -> Vec<bool> {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let mut marks = Vec::new();
        let out = |event: crate::ReceivedEvent| marks.push(event.header.may_be_again);
        consumer.take(now.moment, None, usize::MAX, out, &mut aftermath);
        self.exchanges[at].settle(consumer.id, aftermath, now);
        marks
    }

    fn leave(&mut self, at: usize, consumer: &Consumer) {
        let now = self.now();
        self.exchanges[at].unsubscribe(consumer.id, Ended::Cancelled, now);
    }

    /// How many events came back to their publishers.
    fn failures(&mut self) -> usize {
        let outcomes = self.exchanges[0].take_outcomes().into_iter();
        let failed = outcomes.filter(|it| matches!(it, Outcome::Failed { .. }));
        failed.count()
    }
}

#[test]
fn events_go_to_whoever_has_none() {
    let mut scene = Scene::new(2);
    let here = scene.join(0, "here");
    let there = scene.join(1, "there");
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..10 {
        scene.reaches(0);
        scene.carry(0, 1);
    }
    // Each member has one event. The others wait for the member that asks for more.
    assert_eq!((here.counts().0, there.counts().0), (1, 1));
    let mut taken = Vec::new();
    for _ in 0..40 {
        taken.extend(scene.take_marks(1, &there));
        scene.carry(0, 1);
    }
    assert_eq!(taken, [false; 9]);
    assert_eq!(scene.take_marks(0, &here), [false]);
    assert_eq!(scene.failures(), 0);
}

#[test]
fn what_a_member_has_not_taken_goes_on_unmarked() {
    let mut scene = Scene::new(2);
    let first = scene.join(1, "first");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(0);
    scene.carry(0, 1);
    scene.leave(1, &first);
    let second = scene.join(0, "second");
    scene.carry(0, 1);
    assert_eq!(scene.take_marks(0, &second), [false]);
}

#[test]
fn what_a_lost_process_had_goes_on_marked() {
    let mut scene = Scene::new(2);
    let first = scene.join(1, "first");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(0);
    scene.carry(0, 1);
    assert_eq!(scene.take_marks(1, &first), [false]);
    let second = scene.join(0, "second");
    assert!(scene.take_marks(0, &second).is_empty());
    let lost = scene.identities[1].clone();
    let now = scene.now();
    scene.exchanges[0].process_left(&lost, now);
    assert_eq!(scene.take_marks(0, &second), [true]);
}

#[test]
fn an_event_without_a_member_waits_for_one_and_comes_back_in_the_end() {
    let mut scene = Scene::new(1);
    let first = scene.join(0, "first");
    scene.reaches(0);
    scene.leave(0, &first);
    scene.pass(Duration::from_secs(20));
    let second = scene.join(0, "second");
    assert_eq!(scene.take_marks(0, &second), [false]);
    scene.leave(0, &second);
    scene.pass(Duration::from_secs(29));
    assert_eq!(scene.failures(), 0);
    scene.pass(Duration::from_secs(5));
    assert_eq!(scene.failures(), 1);
    assert_eq!(scene.exchanges[0].groups.held_bytes(), 0);
    // The group is no more, and nothing is held for it.
    scene.reaches(0);
    assert_eq!(scene.exchanges[0].groups.held_bytes(), 0);
}

#[test]
fn an_event_that_ends_each_member_comes_back() {
    let mut scene = Scene::new(1);
    let mut members: Vec<_> = (0..20).map(|it| scene.join(0, &format!("m{it}"))).collect();
    scene.reaches(0);
    let mut ended = 0;
    while scene.failures() == 0 {
        let place = members.iter().position(|it| it.counts().0 > 0).unwrap();
        let member = members.remove(place);
        assert_eq!(scene.take_marks(0, &member), [ended > 0]);
        scene.leave(0, &member);
        ended += 1;
    }
    assert_eq!(ended, 8);
}

#[test]
fn a_group_that_handles_nothing_holds_up_nobody_for_ever() {
    let mut scene = Scene::new(1);
    let member = scene.join(0, "idle");
    let plain = scene.subscribe(0, "/dates");
    let mut published = 0;
    while !scene.waits() {
        published += 1;
        scene.take(0, &plain, 1);
    }
    assert!(published > 1000, "{published}");
    scene.pass(Duration::from_secs(31));
    // Other subscriptions get the next event, and its publisher learns that the group does not.
    scene.reaches(0);
    assert_eq!((scene.take(0, &plain, 9), scene.failures()), (1, 1));
    assert_eq!(scene.take_marks(0, &member), [false]);
    scene.take_marks(0, &member);
    scene.reaches(0);
    assert_eq!(scene.failures(), 0);
}

#[test]
fn a_publisher_that_leaves_knows_which_events_nobody_has() {
    let mut scene = Scene::new(2);
    let left = |scene: &Scene| {
        let undelivered = scene.exchanges[0].undelivered("publisher@factory");
        let told = undelivered.iter();
        told.map(|it| (it.to_string(), it.is_awaited))
            .collect::<Vec<_>>()
    };
    let waits = |count: usize, is_awaited: bool| {
        let plural = if count == 1 { "" } else { "s" };
        let text = format!("{count} event{plural} on /dates for the group workers");
        vec![(text, is_awaited)]
    };
    let member = scene.join(1, "member");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(0);
    // The event is under way.
    let process = &scene.identities[1];
    let under_way = vec![(format!("1 event on /dates for {process}"), true)];
    assert_eq!(left(&scene), under_way);
    scene.pass(Duration::from_secs(2));
    assert_eq!(left(&scene), []);
    // The member has one event, and has not handled it. Two others wait for the member.
    scene.reaches(0);
    scene.reaches(0);
    scene.pass(Duration::from_secs(2));
    assert_eq!(left(&scene), waits(2, true));
    assert_eq!(scene.exchanges[0].undelivered("other@factory"), []);
    // The member takes the first event, and asks for the next one.
    for _ in 0..2 {
        scene.take_marks(1, &member);
        scene.pass(Duration::from_secs(2));
    }
    assert_eq!(left(&scene), waits(1, true));
    scene.leave(1, &member);
    scene.pass(Duration::from_secs(2));
    // The member's event comes back, and no member is there to get it.
    assert_eq!(left(&scene), waits(2, false));
}
