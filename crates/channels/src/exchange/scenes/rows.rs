//! Events that come together go into the queues in one go, and no reader can tell.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use super::*;
use crate::flow::QueueLimits;
use crate::frame::{Frame, Head, Stamp};
use crate::qos::{Priority, Time};

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Scene {
    /// As [`arrive`](Self::arrive), for frames that come together.
    fn arrive_together(&mut self, from: usize, to: usize, frames: Vec<LostFrame>) {
        let now = self.now();
        let frames = frames.into_iter().map(|frame| self.arrived(from, frame));
        let mut frames: Vec<ArrivedFrame> = frames.collect();
        let refused = self.exchanges[to].take_all(&mut frames, now);
        assert!(refused.is_empty() && frames.is_empty(), "{refused:?}");
    }

    /// Takes all events of a subscription of the second process. Returns their numbers.
    fn numbers_of(&mut self, consumer: &Consumer) -> Vec<u64> {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let mut numbers = Vec::new();
        let out = |event: crate::ReceivedEvent| numbers.push(event.header.number);
        consumer.take(now.moment, None, usize::MAX, out, &mut aftermath);
        self.exchanges[1].settle(consumer.id, aftermath, now);
        numbers
    }

    /// The number of frames that the first process keeps until they are acknowledged, and then until their events are read.
    fn kept(&self) -> (usize, usize) {
        let index = self.exchanges[0].index_of(&self.identities[1]).unwrap();
        let peer = self.exchanges[0].peers.get(index).unwrap();
        (peer.outgoing.size().0, peer.outgoing.unread_size().0)
    }
}

#[test]
fn each_subscription_gets_events_that_come_together_once_and_in_order() {
    for together in [1, 7, 63, 64, 65, 200, 400] {
        let mut scene = Scene::new(2);
        let consumers: Vec<_> = (0..10).map(|_| scene.subscribe(1, "/dates")).collect();
        assert!(scene.waits());
        scene.carry(0, 1);
        for _ in 0..400 {
            scene.reaches(1);
        }
        for frames in scene.send(0, 1).chunks(together) {
            scene.arrive_together(0, 1, frames.to_vec());
        }
        for consumer in &consumers {
            let expected: Vec<u64> = (1..=400).collect();
            assert_eq!(scene.numbers_of(consumer), expected);
        }
    }
}

#[test]
fn a_reader_is_woken_once_for_events_that_come_together() {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..60 {
        scene.reaches(1);
    }
    let frames = scene.send(0, 1);
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(woken.clone());
    let mut aftermath = Aftermath::default();
    let moment = scene.now().moment;
    let taken = consumer.take(moment, Some(&waker), 1, |_| (), &mut aftermath);
    assert_eq!((taken, woken.0.load(Ordering::Relaxed)), (0, 0));
    scene.arrive_together(0, 1, frames);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(scene.take(1, &consumer, 100), 60);
}

/// An acknowledgement names the events that wait for their agents. Those in a row are among them.
#[test]
fn events_that_come_together_count_as_unread_until_they_are_read() {
    let mut scene = Scene::new(2);
    let consumers = [scene.subscribe(1, "/dates"), scene.subscribe(1, "/**")];
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..300 {
        scene.reaches(1);
    }
    let frames = scene.send(0, 1);
    scene.arrive_together(0, 1, frames);
    scene.carry(0, 1);
    let (kept, unread) = scene.kept();
    assert_eq!(kept + unread, 300);
    assert!(unread > 200, "{unread} of 300 events count as unread");
    for consumer in &consumers {
        assert_eq!(scene.numbers_of(consumer).len(), 300);
    }
    scene.pass(Duration::from_secs(2));
    assert_eq!(scene.kept(), (0, 0));
}

/// The effects of rows between events of other priorities and events with a limited time: the numbers that a
/// subscription gets, and the frames that the publisher's process keeps meanwhile.
fn mixed(is_together: bool) -> (Vec<u64>, Vec<(usize, usize)>) {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    let plain = |number| Qos {
        priority: Priority::new(number).unwrap(),
        ..Qos::default()
    };
    let soon = Time::After(Duration::from_secs(1));
    let held = Qos {
        valid_from: Some(soon),
        ..plain(4)
    };
    let expiring = Qos {
        expiry: Some(soon),
        ..plain(4)
    };
    let (mut numbers, mut kept) = (Vec::new(), Vec::new());
    let rounds = [
        [plain(4), plain(4)],
        [plain(2), plain(2)],
        [plain(7), plain(7)],
        [plain(7), plain(3)],
        [plain(4), held],
        [plain(4), plain(4)],
        [plain(2), expiring],
        [plain(1), plain(1)],
    ];
    for (round, qos) in rounds.iter().enumerate() {
        for place in 0..20 {
            let published = scene.publish_as(qos[place / 10]);
            assert!(matches!(published, Ok(Attempt::Done(_))));
        }
        let frames = scene.send(0, 1);
        match is_together {
            true => scene.arrive_together(0, 1, frames),
            false => frames.into_iter().for_each(|it| scene.arrive(0, 1, it)),
        }
        let now = scene.now();
        let mut aftermath = Aftermath::default();
        let out = |event: crate::ReceivedEvent| numbers.push(event.header.number);
        consumer.take(now.moment, None, 3 * round, out, &mut aftermath);
        scene.exchanges[1].settle(consumer.id, aftermath, now);
        scene.carry(0, 1);
        kept.push(scene.kept());
    }
    assert_eq!(consumer.counts().0 + numbers.len(), 160);
    assert_eq!(consumer.counts().2.taken, 160);
    scene.pass(Duration::from_secs(2));
    kept.push(scene.kept());
    numbers.extend(scene.numbers_of(&consumer));
    scene.pass(Duration::from_secs(2));
    kept.push(scene.kept());
    assert_eq!(consumer.counts().2.handed_out, numbers.len() as u64);
    (numbers, kept)
}

#[test]
fn rows_keep_the_order_that_single_events_have() {
    let (numbers, kept) = mixed(true);
    assert!(numbers.len() < 160, "none of {numbers:?} has expired");
    assert_eq!(kept.last(), Some(&(0, 0)));
    assert_eq!((numbers, kept), mixed(false));
}

#[test]
fn events_that_came_together_go_back_when_their_agent_moves() {
    for taken in [0, 1, 30, 59] {
        let mut scene = Scene::new(2);
        let consumer = scene.subscribe(1, "/dates");
        assert!(scene.waits());
        scene.carry(0, 1);
        for _ in 0..60 {
            scene.reaches(1);
        }
        let frames = scene.send(0, 1);
        scene.arrive_together(0, 1, frames);
        assert_eq!(scene.take(1, &consumer, taken), taken);
        consumer.set_resting(true);
        let mut aftermath = Aftermath::default();
        let missed = consumer.end(Ended::Cancelled, &mut aftermath);
        assert_eq!(missed, 60 - taken as u64);
        assert_eq!(aftermath.taken.len(), 60 - taken);
        assert_eq!(consumer.counts().0, 0);
    }
}

/// The effects of far more events than a process has credit for: the events that each subscription gets, the frames
/// that are refused, and the number of refusals in the log.
fn effects(is_together: bool) -> (Vec<Vec<u64>>, Vec<u64>, usize) {
    let mut scene = Scene::new(2);
    let small = QueueLimits {
        events: 1000,
        bytes: 4096,
    };
    let mut consumers = Vec::new();
    for limits in [small, QueueLimits::default(), small] {
        let pattern = ChannelPattern::new("/dates").unwrap();
        let options = SubscriptionOptions::new(pattern).with_limits(limits);
        let now = scene.now();
        let agent = "greedy@factory".into();
        let consumer = scene.exchanges[1].subscribe(&agent, options, now);
        consumers.push(consumer.unwrap());
    }
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(1);
    let event = scene.send(0, 1).pop().unwrap();
    let Ok(Frame::Event {
        stamp,
        head,
        targets,
        body,
    }) = Frame::decode(&event.payload)
    else {
        panic!("no event");
    };
    let frame = |place: u64| {
        let number = stamp.number + place;
        let frame = Frame::Event {
            stamp: Stamp { number, ..stamp },
            head: Head {
                number: place,
                ..head
            },
            targets,
            body,
        };
        LostFrame {
            payload: frame.to_bytes(),
            ..event.clone()
        }
    };
    let frames: Vec<LostFrame> = (0..300).map(frame).collect();
    match is_together {
        true => scene.arrive_together(0, 1, frames),
        false => frames.into_iter().for_each(|it| scene.arrive(0, 1, it)),
    }
    let answers = scene.send(1, 0);
    let refused = answers
        .iter()
        .filter_map(|it| match Frame::decode(&it.payload) {
            Ok(Frame::Refusal { refused, .. }) => Some(refused),
            _ => None,
        });
    let refused = refused.collect();
    let outcomes = scene.exchanges[1].take_outcomes();
    let is_refused = |it: &&Outcome| {
        matches!(it, Outcome::Refused { tried_by, channel, reason, .. }
            if tried_by == "publisher@factory"
                && channel.as_deref() == Some("/dates")
                && *reason == RefusalReason::OverLimit)
    };
    let count = outcomes.iter().filter(is_refused).count();
    let numbers = consumers.iter().map(|it| scene.numbers_of(it)).collect();
    (numbers, refused, count)
}

#[test]
fn events_beyond_the_credit_are_refused_by_their_numbers_when_they_come_together() {
    let (numbers, refused, count) = effects(true);
    assert!(!refused.is_empty() && refused.is_sorted());
    assert_eq!(refused.len(), count);
    // A subscription with room still gets the events.
    assert_eq!(numbers[1].len(), 300);
    assert_eq!((numbers, refused, count), effects(false));
}
