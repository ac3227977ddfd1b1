//! Small scenes between a few exchanges: which receivers a publisher waits for and how long, and the reports to others.

#![allow(clippy::unwrap_used)]

mod filters;
mod groups;
mod judging;
mod levels;
mod moving;
mod receivers;
mod returning;
mod rows;
mod sealed_groups;
mod waiting;

use sealbus_bus::{ArrivedFrame, FrameCredit, FrameOrigin, FrameWriter, LostFrame, Provenance};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::{PlatformName, ProcessId};

use super::*;
use crate::qos::{Qos, Reliability};

/// A few exchanges. Frames are carried between them only when a test says so.
struct Scene {
    exchanges: Vec<Exchange>,
    identities: Vec<Arc<Identity>>,
    time: Duration,
}

impl Scene {
    /// This many processes, which all know each other.
    fn new(count: u8) -> Self {
        let platform = PlatformName::new("factory").unwrap();
        let identity = |byte| {
            let id = ProcessId::from_bytes([byte; 16]);
            Arc::new(Identity::process(&platform, "node-1", id).unwrap())
        };
        let mut scene = Self {
            exchanges: (0..count)
                .map(|it| Exchange::new(ExchangeConfig::new(u64::from(it) + 1)))
                .collect(),
            identities: (0..count).map(identity).collect(),
            time: Duration::from_secs(1),
        };
        for at in 0..scene.exchanges.len() {
            for (other, identity) in scene.identities.iter().enumerate() {
                if at != other {
                    scene.exchanges[at].process_joined(identity, scene_time(scene.time));
                }
            }
        }
        scene
    }

    fn now(&self) -> Now {
        scene_time(self.time)
    }

    /// Carries all frames between two processes until neither has more to send.
    fn carry(&mut self, one: usize, other: usize) {
        loop {
            let mut has_carried = false;
            for (from, to) in [(one, other), (other, one)] {
                let identity = self.identities[to].clone();
                let Some(index) = self.exchanges[from].index_of(&identity) else {
                    continue;
                };
                self.exchanges[from].unblock(index);
                for frame in self.send(from, to) {
                    self.arrive(from, to, frame);
                    has_carried = true;
                }
            }
            if !has_carried {
                return;
            }
        }
    }

    /// Takes the frames that one process has for another, as a transport does.
    fn send(&mut self, from: usize, to: usize) -> Vec<LostFrame> {
        let exchange = &mut self.exchanges[from];
        let index = exchange.index_of(&self.identities[to]).unwrap();
        let mut frames = Vec::new();
        while let Some(parcel) = exchange.next_parcel(index) {
            frames.push(LostFrame {
                sender: parcel.author.clone(),
                payload: [&parcel.head[..], &parcel.content, parcel.tail]
                    .concat()
                    .into(),
                may_have_arrived: true,
            });
            exchange.sent(index);
        }
        frames
    }

    fn arrive(&mut self, from: usize, to: usize, frame: LostFrame) {
        let now = self.now();
        let arrived = self.arrived(from, frame);
        self.exchanges[to].take(arrived, now).unwrap();
    }

    /// The frame of a process, as its transport hands it over.
    fn arrived(&self, from: usize, frame: LostFrame) -> ArrivedFrame {
        ArrivedFrame {
            writer: Arc::new(FrameWriter {
                process: self.identities[from].clone(),
                origin: frame
                    .sender
                    .map_or(FrameOrigin::Process, FrameOrigin::Agent),
                provenance: Provenance::Claimed,
            }),
            payload: frame.payload,
            credit: FrameCredit::free(),
        }
    }

    fn subscribe(&mut self, at: usize, pattern: &str) -> Arc<Consumer> {
        let options = SubscriptionOptions::new(ChannelPattern::new(pattern).unwrap());
        let now = self.now();
        let agent = format!("subscriber-{at}@factory").into();
        self.exchanges[at].subscribe(&agent, options, now).unwrap()
    }

    /// Makes subscriptions whose filters together cost publishers too much.
    fn subscribe_costly(&mut self, at: usize) {
        let now = self.now();
        // Each filter looks at every item of a long list many times over.
        let numbers = (0..100)
            .map(|it| it.to_string())
            .collect::<Vec<_>>()
            .join(",");
        let list = format!("[{numbers}]");
        let filter = format!("{list}.all(a, {list}.all(b, a + b >= 0))");
        for number in 0..40 {
            let pattern = ChannelPattern::new("/dates").unwrap();
            let options = SubscriptionOptions::new(pattern).filtered(filter.clone());
            let agent = format!("costly-{number}@factory").into();
            self.exchanges[at].subscribe(&agent, options, now).unwrap();
        }
    }

    fn publish(&mut self, reliability: Reliability) -> Result<Attempt<Reach>, PublishError> {
        self.publish_as(Qos {
            reliability,
            ..Qos::default()
        })
    }

    fn publish_as(&mut self, qos: Qos) -> Result<Attempt<Reach>, PublishError> {
        self.publish_with(qos, None)
    }

    fn publish_with(
        &mut self,
        qos: Qos,
        receipt: Option<&Arc<Receipt>>,
    ) -> Result<Attempt<Reach>, PublishError> {
        let publisher: Arc<str> = "publisher@factory".into();
        let message = AclMessage::new(Performative::Inform)
            .with_sender(sealbus_bus::aid_of(&publisher))
            .with_content("x");
        let publication = Publication {
            publisher: &publisher,
            channel: &ChannelPath::new("/dates").unwrap(),
            qos: &qos,
            message: &Arc::new(message),
            kept: None,
            receipt,
            turn: Turn::default(),
        };
        let now = self.now();
        self.exchanges[0].publish(&publication, now)
    }

    /// Publishes until the publisher has to wait. Returns the number of events published.
    fn fill(&mut self) -> usize {
        (0..100_000).take_while(|_| !self.waits()).count()
    }

    /// Lets time pass in steps. After each step, carries all frames between the first process and the others.
    fn pass(&mut self, time: Duration) {
        let until = self.time + time;
        while self.time < until {
            self.time += Duration::from_secs(1);
            let now = self.now();
            for exchange in &mut self.exchanges {
                exchange.tick(now);
            }
            for other in 1..self.exchanges.len() {
                self.carry(0, other);
            }
        }
    }

    fn take(&mut self, at: usize, consumer: &Consumer, most: usize) -> usize {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let taken = consumer.take(now.moment, None, most, |_| (), &mut aftermath);
        self.exchanges[at].settle(consumer.id, aftermath, now);
        taken
    }

    fn waits(&mut self) -> bool {
        matches!(
            self.publish(Reliability::ExactlyOnce).unwrap(),
            Attempt::Full(_)
        )
    }

    fn reaches(&mut self, count: usize) {
        match self.publish(Reliability::ExactlyOnce).unwrap() {
            Attempt::Done(reach) => assert_eq!(reach.processes, count),
            Attempt::Full(_) | Attempt::Unknown(_) => panic!("the publisher waits"),
        }
    }
}

fn scene_time(since_start: Duration) -> Now {
    Now {
        since_start,
        moment: Moment::from_unix_ms(1_000_000 + since_start.as_millis() as u64),
    }
}

#[test]
fn the_first_event_of_a_process_waits_for_whoever_announces_late() {
    let mut scene = Scene::new(3);
    scene.subscribe(1, "/dates");
    let late = scene.subscribe(2, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    assert!(scene.waits(), "process 2 has not said what it wants");
    // Long after a patient publisher on a slow machine would have stopped waiting.
    scene.time += Duration::from_secs(29);
    scene.carry(0, 2);
    scene.reaches(2);
    scene.carry(0, 2);
    assert_eq!(late.counts().0, 1);
}

#[test]
fn a_process_that_never_announces_itself_is_named() {
    let mut scene = Scene::new(3);
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.time += Duration::from_secs(30);
    let error = scene.publish(Reliability::ExactlyOnce).err();
    let silent = scene.identities[2].clone();
    assert_eq!(
        error,
        Some(PublishError::NotAnnounced {
            process: silent.clone(),
            seconds: 30
        })
    );
    // An event without promises is sent.
    let attempt = scene.publish(Reliability::BestEffort);
    assert!(matches!(attempt, Ok(Attempt::Done(_))));
    // It stops nobody, and gets events as soon as it has announced its subscriptions.
    scene.reaches(0);
    scene.subscribe(2, "/dates");
    scene.carry(0, 2);
    scene.reaches(1);
}

#[test]
fn a_publisher_waits_until_the_platform_has_told_of_the_other_processes() {
    let mut scene = Scene::new(2);
    scene.subscribe(1, "/dates");
    let other = scene.identities[1].clone();
    let now = scene.now();
    scene.exchanges[0].process_left(&other, now);
    scene.exchanges[0].is_to_be_acquainted();
    assert!(scene.waits());
    // Nobody says whether there is a subscription.
    scene.time += Duration::from_secs(30);
    let alarm = scene.exchanges[0].take_alarm();
    assert_eq!(alarm, Some(scene.time));
    let error = scene.publish(Reliability::ExactlyOnce).err();
    assert_eq!(error, Some(PublishError::NotAcquainted { seconds: 30 }));
    // An event without promises is sent to the known subscriptions.
    let attempt = scene.publish(Reliability::BestEffort);
    assert!(matches!(attempt, Ok(Attempt::Done(reach)) if reach.processes == 0));
    let now = scene.now();
    scene.exchanges[0].process_joined(&other, now);
    assert!(scene.publish(Reliability::ExactlyOnce).is_err());
    scene.exchanges[0].acquainted();
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(1);
}

#[test]
fn a_process_that_has_left_is_not_waited_for() {
    let mut scene = Scene::new(2);
    assert!(scene.waits());
    let silent = scene.identities[1].clone();
    let now = scene.now();
    scene.exchanges[0].process_left(&silent, now);
    scene.reaches(0);
}

#[test]
fn a_process_that_joins_later_is_waited_for_as_well() {
    let mut scene = Scene::new(3);
    let now = scene.now();
    let third = scene.identities[2].clone();
    scene.exchanges[0].process_left(&third, now);
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(0);
    scene.subscribe(2, "/dates");
    scene.exchanges[0].process_joined(&third, now);
    assert!(scene.waits());
    scene.carry(0, 2);
    scene.reaches(1);
}

#[test]
fn a_process_that_takes_no_frames_is_not_waited_for() {
    let mut scene = Scene::new(2);
    assert!(scene.waits());
    let other = scene.identities[1].clone();
    let now = scene.now();
    let index = scene.exchanges[0].index_of(&other).unwrap();
    let hello = scene.exchanges[0].next_parcel(index).unwrap().head.clone();
    scene.exchanges[0].sent(index);
    let reason = UndeliverableReason::ReceiverGone;
    scene.exchanges[0].frame_refused(&other, &hello, &reason, now);
    scene.reaches(0);
}

#[test]
fn a_slow_subscription_is_bounded_for_all_processes_together() {
    let mut scene = Scene::new(33);
    // All processes know each other before the subscription is made.
    let now = scene.now();
    scene.exchanges[0].take_interest(now);
    for other in 1..33 {
        scene.carry(0, other);
    }
    let options = SubscriptionOptions::new(ChannelPattern::new("/dates").unwrap());
    let bytes = options.limits.bytes as u64;
    let now = scene.now();
    let agent: Arc<str> = "slow@factory".into();
    let consumer = scene.exchanges[0].subscribe(&agent, options, now).unwrap();
    let mut credit = 0;
    for index in scene.exchanges[0].peers.indexes() {
        while let Some(parcel) = scene.exchanges[0].next_parcel(index) {
            if let Ok(crate::frame::Frame::Announce { announcement, .. }) =
                crate::frame::Frame::decode(&parcel.head)
                && announcement.subscription == consumer.id
            {
                credit += announcement.credit;
            }
            scene.exchanges[0].sent(index);
        }
    }
    assert!(0 < credit && credit <= bytes, "{credit} bytes of {bytes}");
}

#[test]
fn costly_filters_are_paid_for_by_the_process_that_has_them() {
    let mut scene = Scene::new(3);
    scene.subscribe_costly(1);
    scene.subscribe(2, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.carry(0, 2);
    scene.reaches(2);
    // The event went to all of the subscriptions, in one frame that names none. No filter failed here.
    let index = scene.exchanges[0]
        .index_of(&scene.identities[1].clone())
        .unwrap();
    let parcel = scene.exchanges[0].next_parcel(index).unwrap();
    let Ok(crate::frame::Frame::Event { targets, .. }) = crate::frame::Frame::decode(&parcel.head)
    else {
        panic!("no event");
    };
    assert!(targets.is_all());
    let reports = scene.exchanges[0].channel_reports();
    assert!(reports.iter().all(|it| it.filter_errors == 0));
}

fn missed(consumer: &Consumer) -> u64 {
    consumer.counts().2.missed
}

#[test]
fn an_idle_subscription_of_this_process_holds_up_nobody_for_ever() {
    let mut scene = Scene::new(1);
    let idle = scene.subscribe(0, "/**");
    assert!(scene.fill() > 100);
    scene.time += Duration::from_secs(29);
    assert!(scene.waits());
    scene.time += Duration::from_secs(1);
    for _ in 0..3 {
        assert!(!scene.waits());
    }
    assert_eq!(missed(&idle), 3);
    // The subscription takes something, and publishers wait for it again.
    assert_eq!(scene.take(0, &idle, 1), 1);
    assert!(!scene.waits());
    assert!(scene.waits());
    assert_eq!(missed(&idle), 3);
}

#[test]
fn an_idle_subscription_of_another_process_holds_up_nobody_for_ever() {
    let mut scene = Scene::new(3);
    let idle = scene.subscribe(1, "/**");
    let busy = scene.subscribe(2, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.carry(0, 2);
    let mut published = 0;
    while !scene.waits() {
        published += 1;
        scene.carry(0, 1);
        scene.carry(0, 2);
        scene.take(2, &busy, 1000);
    }
    assert!(published > 100);
    scene.pass(Duration::from_secs(28));
    assert!(scene.waits());
    scene.pass(Duration::from_secs(4));
    for _ in 0..3 {
        assert!(!scene.waits());
    }
    scene.carry(0, 2);
    assert_eq!(scene.take(2, &busy, 1000), 3);
    // As soon as the subscription takes an event, it learns which events it missed, and publishers wait for it again.
    while scene.take(1, &idle, 1000) > 0 {}
    scene.carry(0, 1);
    assert_eq!(missed(&idle), 3);
    scene.reaches(2);
    scene.carry(0, 1);
    assert_eq!(scene.take(1, &idle, 1000), 1);
}

#[test]
fn a_slow_subscription_that_takes_a_little_is_waited_for() {
    let mut scene = Scene::new(2);
    let slow = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    while !scene.waits() {
        scene.carry(0, 1);
    }
    // Each step takes far less than half a window, so the subscription reports none unasked.
    for _ in 0..12 {
        scene.take(1, &slow, 1);
        scene.pass(Duration::from_secs(20));
        scene.fill();
    }
    assert_eq!(missed(&slow), 0);
}

#[test]
fn a_process_that_was_silent_hears_what_it_missed() {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    let other = scene.subscribe(1, "/other");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.reaches(1);
    // The frames sent are never acknowledged, and the process is given up.
    scene.time += Duration::from_secs(31);
    let now = scene.now();
    scene.exchanges[0].tick(now);
    for _ in 0..5 {
        scene.reaches(0);
    }
    scene.pass(Duration::from_secs(3));
    scene.reaches(1);
    scene.carry(0, 1);
    assert_eq!((missed(&consumer), missed(&other)), (5, 0));
    assert_eq!(
        scene.exchanges[0].channel_reports()[0].subscriptions_there,
        1
    );
}
