//! Frames that come back from the transport: even so they are taken once and in order, or reported.

use super::*;

impl Scene {
    /// Gives frames back to one process that the other one has not taken, as far as the transport knows.
    fn come_back(&mut self, from: usize, to: usize, frames: &[LostFrame]) {
        let now = self.now();
        self.exchanges[from].frames_lost(&self.identities[to], frames, now);
        self.exchanges[from].tick(now);
    }

    /// Publishes this many events.
    fn fill_with(&mut self, count: usize) {
        for _ in 0..count {
            self.reaches(1);
        }
    }

    /// Takes all events of a subscription. Returns their numbers on the channel.
    fn take_numbers(&mut self, at: usize, consumer: &Consumer) -> Vec<u64> {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let mut numbers = Vec::new();
        let out = |event: crate::ReceivedEvent| numbers.push(event.header.number);
        consumer.take(now.moment, None, usize::MAX, out, &mut aftermath);
        self.exchanges[at].settle(consumer.id, aftermath, now);
        numbers
    }
}

#[test]
fn what_came_back_is_sent_again_before_what_was_published_since() {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.fill_with(3);
    let frames = scene.send(0, 1);
    // The first event arrives, and the transport does not know that.
    scene.arrive(0, 1, frames[0].clone());
    scene.fill_with(1);
    scene.come_back(0, 1, &frames);
    scene.fill_with(1);
    scene.carry(0, 1);
    assert_eq!(scene.take_numbers(1, &consumer), [1, 2, 3, 4, 5]);
}

#[test]
fn what_comes_too_early_after_a_frame_that_came_back_waits_for_its_turn() {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.fill_with(3);
    let frames = scene.send(0, 1);
    for at in [0, 2] {
        scene.arrive(0, 1, frames[at].clone());
    }
    assert_eq!(scene.take_numbers(1, &consumer), [1]);
    scene.come_back(0, 1, &frames[1..2]);
    scene.carry(0, 1);
    assert_eq!(scene.take_numbers(1, &consumer), [2, 3]);
}

#[test]
fn what_came_back_of_a_process_that_is_gone_is_reported() {
    let mut scene = Scene::new(2);
    scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.fill_with(2);
    let frames = scene.send(0, 1);
    scene.come_back(0, 1, &frames);
    scene.fill_with(1);
    let (now, gone) = (scene.now(), scene.identities[1].clone());
    scene.exchanges[0].process_left(&gone, now);
    let outcomes = scene.exchanges[0].take_outcomes();
    let failed = |it: &&Outcome| matches!(it, Outcome::Failed { .. });
    assert_eq!(outcomes.iter().filter(failed).count(), 3);
}

#[test]
fn an_acknowledgement_that_came_back_is_sent_again() {
    let mut scene = Scene::new(2);
    scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.fill_with(1);
    let mut frames = scene.send(0, 1);
    scene.arrive(0, 1, frames.remove(0));
    scene.time += Duration::from_secs(1);
    let now = scene.now();
    scene.exchanges[1].tick(now);
    let acknowledgement = scene.send(1, 0);
    assert_eq!(acknowledgement.len(), 1);
    scene.come_back(1, 0, &acknowledgement);
    scene.carry(0, 1);
    assert_eq!(kept(&scene.exchanges[0]), 0);
}

#[test]
fn what_overtook_its_hello_is_sent_again() {
    let mut scene = Scene::new(2);
    scene.subscribe(1, "/dates");
    // Both publish, so both greet.
    let now = scene.now();
    scene.exchanges[1].take_interest(now);
    assert!(scene.waits());
    for frame in scene.send(1, 0) {
        scene.arrive(1, 0, frame);
    }
    let mut frames = scene.send(0, 1);
    let hello = frames.remove(0);
    scene.come_back(0, 1, &[hello]);
    for frame in frames {
        scene.arrive(0, 1, frame);
    }
    assert!(kept(&scene.exchanges[0]) > 0);
    scene.pass(Duration::from_secs(2));
    assert_eq!(kept(&scene.exchanges[0]), 0);
}

/// The number of frames that an exchange keeps for others.
fn kept(exchange: &Exchange) -> usize {
    let peers = exchange.peers.values();
    peers.map(|peer| peer.outgoing.size().0).sum()
}
