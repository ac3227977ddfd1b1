//! Tests of the messages that the broker has not confirmed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use sealbus_bus::{Rejected, UndeliverableReason};

use super::{Outcome, Publication, REFUSALS, Room, Unconfirmed};
use crate::incoming::IncomingOrder;

const ROOM: Room = Room {
    messages: 16,
    bytes: 1 << 20,
};

fn unconfirmed() -> (Unconfirmed<()>, Arc<str>) {
    (Unconfirmed::new(1, ROOM), "b@f".into())
}

fn accept(unconfirmed: &mut Unconfirmed<()>, receiver: &Arc<str>, count: u8) {
    for byte in 0..count {
        let payload = Bytes::copy_from_slice(&[byte]);
        unconfirmed.accept(receiver, payload, (), Instant::now());
    }
}

#[test]
fn what_was_not_confirmed_is_published_again_under_the_same_number() {
    let (mut unconfirmed, receiver) = unconfirmed();
    accept(&mut unconfirmed, &receiver, 3);
    let first = unconfirmed.publish().unwrap();
    assert!(
        unconfirmed.publish().is_none(),
        "the first message goes alone"
    );
    assert!(unconfirmed.confirmed(first.order, Instant::now()).is_none());
    let second = unconfirmed.publish().unwrap();
    assert_eq!((second.stamp.number, second.stamp.base), (2, 1));
    unconfirmed.disconnected();
    let again = unconfirmed.publish().unwrap();
    assert_eq!((again.stamp.number, again.stamp.base), (2, 1));
    assert_eq!(again.payload, second.payload);
    assert_eq!(unconfirmed.publish().unwrap().stamp.number, 3);
}

#[test]
fn what_is_refused_again_and_again_needs_another_connection() {
    let (mut unconfirmed, receiver) = unconfirmed();
    unconfirmed.accept(&receiver, Bytes::from_static(b"x"), (), Instant::now());
    for _ in 0..2 {
        for _ in 1..REFUSALS {
            let order = unconfirmed.publish().unwrap().order;
            assert!(!unconfirmed.refused(order));
        }
        let order = unconfirmed.publish().unwrap().order;
        assert!(unconfirmed.refused(order));
        unconfirmed.disconnected();
    }
    let again = unconfirmed.publish().unwrap();
    assert_eq!((again.stamp.number, again.stamp.base), (1, 1));
    assert!(unconfirmed.confirmed(again.order, Instant::now()).is_none());
    assert!(unconfirmed.is_settled());
}

#[test]
fn receivers_that_confirmed_everything_are_forgotten_and_their_numbers_are_not_given_again() {
    let mut unconfirmed = Unconfirmed::new(1, ROOM);
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(Duration::from_secs(10));
    let mut send = |receiver: &Arc<str>| {
        unconfirmed.accept(receiver, Bytes::from_static(b"x"), (), now);
        let publication = unconfirmed.publish().unwrap();
        assert!(
            unconfirmed
                .confirmed(publication.order, Instant::now())
                .is_none()
        );
        (publication.stamp, unconfirmed.lines.len())
    };
    let first: Arc<str> = "first@f".into();
    let sender: Arc<str> = "a@f".into();
    let mut taken = 0;
    for round in 0..2 {
        for _ in 0..3 {
            let (stamp, _) = send(&first);
            let arrival = incoming.arrived(&sender, stamp, (), now);
            assert_eq!(arrival.spare, None, "round {round}");
            taken += arrival.next.len();
        }
        for other in 0..20_000 {
            let (_, remembered) = send(&format!("b{other}@f").into());
            assert!(remembered <= 4_096, "{remembered} receivers are remembered");
        }
    }
    assert_eq!(taken, 6);
}

#[test]
fn all_that_came_back_goes_back_in_order() {
    let (mut unconfirmed, receiver) = unconfirmed();
    accept(&mut unconfirmed, &receiver, 5);
    let first = unconfirmed.publish().unwrap();
    assert!(unconfirmed.confirmed(first.order, Instant::now()).is_none());
    let published: Vec<_> = (0..3).map(|_| unconfirmed.publish().unwrap()).collect();
    assert!(unconfirmed.unroutable(published[1].order).is_none());
    assert!(matches!(unconfirmed.check("b@f"), Err(Rejected::Moving)));
    assert!(unconfirmed.unroutable(published[0].order).is_none());
    let Some(Outcome::Returned { messages, .. }) = unconfirmed.unroutable(published[2].order)
    else {
        panic!("nothing came back");
    };
    let bytes: Vec<_> = messages.iter().map(|(_, payload)| payload[0]).collect();
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert!(matches!(unconfirmed.check("b@f"), Err(Rejected::Moving)));
    unconfirmed.settled("b@f");
    assert!(unconfirmed.check("b@f").is_ok());
    assert!(unconfirmed.is_settled());
}

#[test]
fn what_follows_a_first_message_that_was_given_up_begins_anew() {
    let (mut unconfirmed, receiver) = unconfirmed();
    let start = Instant::now();
    let patience = Duration::from_secs(10);
    unconfirmed.accept(&receiver, Bytes::from_static(b"x"), (), start);
    for _ in 0..2 {
        unconfirmed.accept(&receiver, Bytes::from_static(b"x"), (), start + patience);
    }
    let why = UndeliverableReason::ReceiverGone;
    assert_eq!(
        unconfirmed.give_up(patience, start + patience, &why).len(),
        1
    );
    let first = unconfirmed.publish().unwrap();
    assert_eq!((first.stamp.number, first.stamp.base), (2, 2));
    assert!(unconfirmed.publish().is_none());
    assert!(unconfirmed.confirmed(first.order, Instant::now()).is_none());
    assert_eq!(unconfirmed.publish().unwrap().stamp.number, 3);
}

proptest! {
    /// For any answers of the broker, every message is confirmed, comes back or is given up, and all room is free
    /// again.
    #[test]
    fn nothing_is_forgotten(answers in proptest::collection::vec(0u8..4, 1..60)) {
        let (mut unconfirmed, receiver) = unconfirmed();
        let now = Instant::now();
        let (mut accepted, mut ended) = (0, 0);
        let mut count = |outcomes: Vec<Outcome<()>>| {
            for outcome in outcomes {
                ended += match outcome {
                    Outcome::Returned { messages, .. } => messages.len(),
                    Outcome::Undeliverable { .. } => 1,
                };
            }
        };
        let mut confirmed = 0;
        for answer in answers {
            if unconfirmed.check("b@f").is_ok() {
                unconfirmed.accept(&receiver, Bytes::from_static(b"x"), (), now);
                accepted += 1;
            }
            let Some(publication) = unconfirmed.publish() else {
                unconfirmed.settled("b@f");
                continue;
            };
            match answer {
                0 => { confirmed += 1; count(unconfirmed.confirmed(publication.order, Instant::now()).into_iter().collect()) }
                1 => {
                    let _ = unconfirmed.refused(publication.order);
                }
                2 => count(unconfirmed.unroutable(publication.order).into_iter().collect()),
                _ => unconfirmed.disconnected(),
            }
        }
        unconfirmed.disconnected();
        count(unconfirmed.give_up(Duration::ZERO, now, &UndeliverableReason::ReceiverGone));
        prop_assert!(unconfirmed.is_settled());
        prop_assert_eq!(unconfirmed.bytes, 0);
        prop_assert_eq!(accepted, ended + confirmed);
    }

    /// A broker breaks connections, and loses all that it holds at some of these breaks. Its receiver has every message
    /// once and in order, if the broker held no more of them than the sender keeps.
    #[test]
    fn what_a_broker_may_have_lost_is_published_again(strokes in proptest::collection::vec(0u8..8, 1..200)) {
        let now = Instant::now();
        let (unconfirmed, receiver) = unconfirmed();
        let mut unconfirmed = unconfirmed.at_risk();
        let sender: Arc<str> = "a@f".into();
        let mut incoming = IncomingOrder::new(Duration::from_secs(10));
        let (mut taken, mut accepted, mut at_broker) = (Vec::new(), 0, VecDeque::new());
        for stroke in strokes.into_iter().chain(std::iter::repeat_n([2, 3, 4], 400).flatten()) {
            match stroke {
                0 | 1 if unconfirmed.check("b@f").is_ok() && accepted - (taken.len() as u64) < 12 => {
                    unconfirmed.accept(&receiver, Bytes::from_static(b"x"), (), now);
                    accepted += 1;
                }
                2 | 3 => if let Some(publication) = unconfirmed.publish() {
                    at_broker.push_back(publication.stamp);
                    prop_assert!(unconfirmed.confirmed(publication.order, now).is_none());
                }
                4 | 5 => if let Some(stamp) = at_broker.pop_front() {
                    taken.extend(incoming.arrived(&sender, stamp, stamp.number, now).next);
                }
                6 => unconfirmed.disconnected(),
                7 => {
                    at_broker.clear();
                    unconfirmed.disconnected();
                    unconfirmed.may_have_lost(now);
                }
                _ => {}
            }
        }
        prop_assert!(unconfirmed.is_settled());
        prop_assert_eq!(taken, (1..=accepted).collect::<Vec<u64>>());
    }

    /// A broker takes, refuses and forgets the answers as it likes. Receivers that hear of the sender for the first
    /// time have every message once and in order, from the first one on.
    #[test]
    fn the_first_message_comes_first(strokes in proptest::collection::vec((0u8..4, any::<bool>()), 1..120)) {
        let now = Instant::now();
        let (mut unconfirmed, _) = unconfirmed();
        let sender: Arc<str> = "a@f".into();
        let receivers: [Arc<str>; 2] = ["b@f".into(), "c@f".into()];
        let mut incoming = [(); 2].map(|()| (IncomingOrder::new(Duration::from_secs(10)), Vec::new()));
        let mut accepted = [0, 0];
        let mut settle = |unconfirmed: &mut Unconfirmed<()>, publication: Publication<()>, stroke: u8| {
            if stroke == 0 {
                let _ = unconfirmed.refused(publication.order);
                return;
            }
            let index = usize::from(publication.receiver == receivers[1]);
            let (order, taken) = &mut incoming[index];
            let arrival = order.arrived(&sender, publication.stamp, publication.stamp.number, now);
            taken.extend(arrival.next);
            match stroke {
                1 => unconfirmed.disconnected(),
                _ => assert!(unconfirmed.confirmed(publication.order, Instant::now()).is_none()),
            }
        };
        for (stroke, is_second) in strokes {
            let receiver = &receivers[usize::from(is_second)];
            if unconfirmed.check(receiver).is_ok() {
                unconfirmed.accept(receiver, Bytes::from_static(b"x"), (), now);
                accepted[usize::from(is_second)] += 1;
            }
            if let Some(publication) = unconfirmed.publish() {
                settle(&mut unconfirmed, publication, stroke);
            }
        }
        while let Some(publication) = unconfirmed.publish() {
            settle(&mut unconfirmed, publication, 2);
        }
        prop_assert!(unconfirmed.is_settled());
        for ((_, taken), accepted) in incoming.iter().zip(accepted) {
            prop_assert_eq!(taken, &(1..=accepted).collect::<Vec<u64>>());
        }
    }
}
