//! Sealed events: which member of a queue group gets one, what its publisher is told, and how many frames an agent gets.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sealbus_bus::{BoxFuture, NotSealed, RefusalReason, UndeliverableReason};
use sealbus_seal::SecurityLevel;

use super::*;
use crate::frame::{Frame, MOST_TARGETS};
use crate::sealed::{EventSealer, EventToSeal, GroupChange, Inside, Needs, OpenedPart, PartKind};
use crate::sealed::{Reader, SealedEvent, SealedPart, Unsealed};

/// A sealer that says which keys it has. It does not encrypt events.
#[derive(Default)]
struct Keys {
    /// The agents whose keys were looked up in vain.
    none: Mutex<BTreeSet<&'static str>>,
    /// The agents whose keys must be looked up.
    unknown: Mutex<BTreeSet<&'static str>>,
    /// Whether each event comes with a change.
    changes: bool,
}

impl EventSealer for Keys {
    fn is_for_all(&self) -> bool {
        false
    }

    fn is_of_platform(&self, _: &str) -> bool {
        false
    }

    fn seal(&self, event: &EventToSeal<'_>) -> Result<SealedEvent, Unsealed> {
        if let Needs::Reader(agent) = event.needs {
            if self.none.lock().contains(agent) {
                let why = NotSealed("it has stated no key".to_owned());
                return Err(Unsealed::Failed(why));
            }
            if self.unknown.lock().contains(agent) {
                return Err(Unsealed::Unknown(event.readers.to_vec()));
            }
        }
        let inside = Inside::new(event.message).unwrap();
        let outer = |kind| {
            let part = SealedPart {
                publisher: event.publisher,
                channel: event.channel.as_str(),
                group: [1; 16],
                kind,
                bytes: &inside.bytes,
            };
            Arc::new(part.to_message())
        };
        let change = self.changes.then(|| GroupChange {
            message: outer(PartKind::Commit),
            readers: event.readers.iter().map(|it| it.agent.clone()).collect(),
        });
        Ok(SealedEvent {
            changes: change.into_iter().collect(),
            message: outer(PartKind::Event(inside.commitment)),
            inside: inside.opened.clone(),
            left_out: Vec::new(),
        })
    }

    fn look_up<'a>(&'a self, _: &'a [Reader]) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn open(&self, part: &SealedPart<'_>, agents: &BTreeSet<Arc<str>>) -> OpenedPart {
        let mut opening = OpenedPart::default();
        match part.opened(part.bytes.to_vec()) {
            Ok(opened) => opening.event = Some(opened),
            Err(why) => opening
                .failed
                .extend(agents.iter().map(|agent| (agent.clone(), why.clone()))),
        }
        opening
    }

    fn not_opened(&self, _: &str, _: &str, _: &BTreeSet<Arc<str>>) {}
}

impl Scene {
    /// This many processes that know each other's subscriptions and have the same sealer.
    fn sealed(count: u8, keys: Keys) -> (Self, Arc<Keys>) {
        let keys = Arc::new(keys);
        let mut scene = Self::new(count);
        for exchange in &mut scene.exchanges {
            exchange.set_sealer(keys.clone());
        }
        (scene, keys)
    }

    fn publish_at(&mut self, level: Option<SecurityLevel>) {
        let qos = Qos {
            reliability: Reliability::ExactlyOnce,
            level,
            ..Qos::default()
        };
        let attempt = self.publish_as(qos).unwrap();
        assert!(matches!(attempt, Attempt::Done(_)));
    }

    fn publish_sealed(&mut self) {
        self.publish_at(Some(SecurityLevel::Sealed));
    }

    /// The events that the publisher's process sends to another one: their numbers, and how many subscriptions each names.
    fn sent(&mut self, to: usize) -> Vec<(u64, usize)> {
        let frames = self.send(0, to).into_iter();
        let events = frames.filter_map(|it| match Frame::decode(&it.payload) {
            Ok(Frame::Event { stamp, targets, .. }) => Some((stamp.number, targets.iter().count())),
            _ => None,
        });
        events.collect()
    }

    /// The reasons why events came back to their publishers.
    fn reasons(&mut self) -> Vec<String> {
        let outcomes = self.exchanges[0].take_outcomes().into_iter();
        let reasons = outcomes.filter_map(|it| match it {
            Outcome::Failed {
                reason: UndeliverableReason::Refused { explanation, .. },
                ..
            } => Some(explanation),
            _ => None,
        });
        reasons.collect()
    }
}

#[test]
fn a_member_that_lacked_its_key_gets_events_while_another_member_takes_all() {
    let (mut scene, keys) = Scene::sealed(2, Keys::default());
    keys.none.lock().insert("there@factory");
    let here = scene.join(0, "here");
    let there = scene.join(1, "there");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.publish_sealed();
    scene.publish_sealed();
    // The first member also takes the event that the second one could not get. No event waits.
    assert_eq!(scene.take_marks(0, &here), [false]);
    assert_eq!(scene.take_marks(0, &here), [false; 0]);
    keys.none.lock().clear();
    scene.pass(Duration::from_secs(2));
    scene.publish_sealed();
    assert_eq!(scene.sent(1).len(), 1);
    assert_eq!((here.counts().0, there.counts().0), (1, 0));
}

#[test]
fn an_event_that_one_member_could_not_open_returns_to_it_if_no_other_has_a_key() {
    let (mut scene, keys) = Scene::sealed(3, Keys::default());
    keys.none.lock().insert("keyless@factory");
    scene.join(1, "opener");
    scene.join(2, "keyless");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.carry(0, 2);
    scene.publish_sealed();
    let sent = scene.sent(1);
    assert_eq!(sent.len(), 1);
    let opener = scene.identities[1].clone();
    let publisher = &mut scene.exchanges[0];
    let index = publisher.index_of(&opener).unwrap();
    let now = scene_time(scene.time);
    publisher.refused(
        index,
        sent[0].0,
        RefusalReason::NotOpened,
        "it lost the group",
        now,
    );
    assert_eq!(scene.sent(1), [], "the other member is tried first");
    for _ in 0..3 {
        scene.time += Duration::from_secs(1);
        let now = scene.now();
        scene.exchanges[0].tick(now);
    }
    assert_eq!(scene.sent(1).len(), 1);
    assert_eq!(scene.sent(2), []);
}

#[test]
fn a_publisher_is_told_why_a_key_was_not_found_even_if_it_is_looked_up_again() {
    let (mut scene, keys) = Scene::sealed(2, Keys::default());
    keys.none.lock().insert("there@factory");
    scene.join(1, "there");
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.publish_sealed();
    keys.none.lock().clear();
    keys.unknown.lock().insert("there@factory");
    scene.pass(Duration::from_secs(35));
    assert_eq!(scene.reasons(), ["it has stated no key"]);
}

#[test]
fn events_that_are_not_sealed_pass_those_that_wait_for_a_key() {
    let (mut scene, keys) = Scene::sealed(2, Keys::default());
    keys.none.lock().insert("there@factory");
    let there = scene.join(1, "there");
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..100 {
        scene.publish_sealed();
    }
    scene.publish_at(None);
    scene.carry(0, 1);
    assert_eq!(scene.take_marks(1, &there), [false]);
}

#[test]
fn an_agent_gets_a_sealed_event_and_its_change_in_one_frame_each() {
    let keys = Keys {
        changes: true,
        ..Keys::default()
    };
    let (mut scene, _) = Scene::sealed(2, keys);
    for _ in 0..MOST_TARGETS + 1 {
        scene.subscribe(1, "/dates");
    }
    assert!(scene.waits());
    scene.carry(0, 1);
    scene.publish_sealed();
    let named: Vec<usize> = scene.sent(1).into_iter().map(|(_, named)| named).collect();
    assert_eq!(named, [MOST_TARGETS; 2]);
}
