//! Tests of the order of a broker's deliveries.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{IncomingOrder, OrderPlace, Sorted};
use crate::stamp::OrderStamp;

const PATIENCE: Duration = Duration::from_secs(10);
const KEPT: Sorted<u64> = Sorted {
    next: Vec::new(),
    spare: None,
};

fn deliver<const N: usize>(next: [u64; N]) -> Sorted<u64> {
    Sorted {
        next: next.into(),
        spare: None,
    }
}

fn spare(spare: u64) -> Sorted<u64> {
    Sorted {
        next: Vec::new(),
        spare: Some(spare),
    }
}

fn stamp(number: u64, base: u64) -> OrderStamp {
    OrderStamp {
        epoch: 7,
        number,
        base,
    }
}

#[test]
fn a_gap_is_waited_for_then_given_up() {
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(PATIENCE);
    let sender = "a@f".into();
    assert_eq!(incoming.arrived(&sender, stamp(1, 1), 1, now), deliver([1]));
    assert_eq!(incoming.arrived(&sender, stamp(3, 1), 3, now), KEPT);
    assert_eq!(incoming.deadline(), Some(now + PATIENCE));
    assert!(incoming.overdue(now).is_empty());
    assert_eq!(incoming.overdue(now + PATIENCE), [3]);
    // The message comes after all.
    assert_eq!(incoming.arrived(&sender, stamp(2, 1), 2, now), deliver([2]));
    assert_eq!(incoming.arrived(&sender, stamp(2, 1), 2, now), spare(2));
}

#[test]
fn who_goes_on_or_was_away_is_waited_for_anew() {
    let start = Instant::now();
    let second = |seconds| start + Duration::from_secs(seconds);
    let mut incoming = IncomingOrder::new(PATIENCE);
    let sender = "a@f".into();
    let _ = incoming.arrived(&sender, stamp(1, 1), 1, start);
    for number in [3, 5] {
        let _ = incoming.arrived(&sender, stamp(number, 1), number, start);
    }
    assert_eq!(
        incoming.arrived(&sender, stamp(2, 1), 2, second(9)),
        deliver([2, 3])
    );
    assert!(incoming.overdue(second(11)).is_empty());
    incoming.connected(second(100));
    assert!(incoming.overdue(second(101)).is_empty());
    assert_eq!(
        incoming.arrived(&sender, stamp(4, 1), 4, second(102)),
        deliver([4, 5])
    );
}

#[test]
fn what_a_dead_connection_held_comes_late_and_is_not_lost() {
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(PATIENCE);
    let sender = "a@f".into();
    for (number, arrival) in [
        (1, deliver([1])),
        (4, KEPT),
        (3, KEPT),
        (2, deliver([2, 3, 4])),
    ] {
        assert_eq!(
            incoming.arrived(&sender, stamp(number, 1), number, now),
            arrival
        );
    }
    // One message was given up, and another had been confirmed before.
    assert_eq!(incoming.arrived(&sender, stamp(8, 7), 8, now), KEPT);
    assert_eq!(incoming.arrived(&sender, stamp(5, 1), 5, now), deliver([5]));
}

#[test]
fn what_waits_and_comes_again_is_delivered_though_its_sender_gave_up_what_was_before() {
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(PATIENCE);
    let sender = "a@f".into();
    let _ = incoming.arrived(&sender, stamp(1, 1), 1, now);
    assert_eq!(incoming.arrived(&sender, stamp(5, 1), 5, now), KEPT);
    assert_eq!(incoming.arrived(&sender, stamp(5, 1), 50, now), spare(5));
    let last = Sorted {
        next: vec![500],
        spare: Some(50),
    };
    assert_eq!(incoming.arrived(&sender, stamp(5, 5), 500, now), last);
    assert_eq!(incoming.deadline(), None);
}

#[test]
fn what_the_sender_gave_up_is_not_waited_for() {
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(PATIENCE);
    let sender = "a@f".into();
    let _ = incoming.arrived(&sender, stamp(1, 1), 1, now);
    assert_eq!(incoming.arrived(&sender, stamp(3, 3), 3, now), deliver([3]));
    assert_eq!(incoming.deadline(), None);
}

#[test]
fn one_sender_with_many_epochs_has_no_other_forgotten() {
    let now = Instant::now();
    let mut incoming = IncomingOrder::new(PATIENCE);
    let (honest, hostile) = ("a@f".into(), "m@f".into());
    let _ = incoming.arrived(&honest, stamp(1, 1), 1, now);
    for epoch in 0..super::REMEMBERED as u64 + 10 {
        let stamp = OrderStamp {
            epoch,
            number: u64::MAX - 1,
            base: 1,
        };
        let _ = incoming.arrived(&hostile, stamp, epoch, now);
    }
    assert_eq!(incoming.senders.len(), 1 + super::EPOCHS);
    assert_eq!(incoming.epochs.len(), 2);
    assert_eq!(incoming.arrived(&honest, stamp(1, 1), 1, now), spare(1));
    assert_eq!(incoming.arrived(&honest, stamp(2, 1), 2, now), deliver([2]));
}

proptest! {
    /// Messages are sent in order, some repeated and some late. Each is delivered once, and in order after the
    /// first.
    #[test]
    fn once_and_in_order(shuffled in Just((2u64..40).collect::<Vec<_>>()).prop_shuffle(),
                         repeated in proptest::collection::vec(2u64..40, 0..20)) {
        let now = Instant::now();
        let mut incoming = IncomingOrder::new(PATIENCE);
        let sender = "a@f".into();
        let mut delivered = Vec::new();
        for number in [1].into_iter().chain(shuffled).chain(repeated) {
            delivered.extend(incoming.arrived(&sender, stamp(number, 1), number, now).next);
        }
        prop_assert_eq!(delivered, (1..40).collect::<Vec<_>>());
    }

    /// For any arrivals, and any messages that senders have given up, one copy of each message is delivered, as
    /// soon as no earlier message is waited for. No copy is forgotten, for each must be acknowledged.
    #[test]
    fn each_once_and_no_copy_forgotten(stamps in proptest::collection::vec((1u64..30, 1u64..30), 0..100)) {
        let now = Instant::now();
        let mut incoming = IncomingOrder::new(PATIENCE);
        let sender = "a@f".into();
        // A copy: its number, and which arrival it is.
        let (mut delivered, mut spares) = (Vec::new(), Vec::new());
        let mut arrived = BTreeSet::new();
        for (copy, (a, b)) in stamps.into_iter().enumerate() {
            let (number, base) = (a.max(b), a.min(b));
            let before = delivered.len();
            let place = incoming.place(&sender, stamp(number, base));
            let was_sent = arrived.iter().any(|(sent, _)| *sent == number);
            let arrival = incoming.arrived(&sender, stamp(number, base), (number, copy), now);
            delivered.extend(arrival.next);
            spares.extend(arrival.spare);
            let is_next = delivered[before..].contains(&(number, copy));
            prop_assert_eq!(place == OrderPlace::Known, was_sent);
            prop_assert_eq!(place == OrderPlace::Next, !was_sent && is_next);
            arrived.insert((number, copy));
            let is_due = number == base;
            let numbers = |copies: &[(u64, usize)]| copies.iter().map(|copy| copy.0).collect::<Vec<_>>();
            prop_assert!(!is_due || numbers(&delivered).contains(&number));
            // A waiting message is kept as its last copy, for the broker may have forgotten the others.
            prop_assert!(numbers(&delivered).contains(&number) || incoming.kept().any(|kept| *kept == (number, copy)));
            prop_assert!(delivered[before..].is_sorted());
            // A wait is known without a look at all senders.
            prop_assert_eq!(incoming.deadline().is_some(), incoming.kept().next().is_some());
            let here: Vec<_> = incoming.kept().chain(&delivered).chain(&spares).copied().collect();
            prop_assert_eq!(here.len(), arrived.len());
            prop_assert_eq!(here.into_iter().collect::<BTreeSet<_>>(), arrived.clone());
        }
        // No further message comes: waiting messages are released, gap after gap.
        while let Some(deadline) = incoming.deadline() {
            let late = incoming.overdue(deadline);
            prop_assert!(!late.is_empty());
            delivered.extend(late);
        }
        let mut numbers: Vec<_> = delivered.iter().map(|copy| copy.0).collect();
        numbers.sort_unstable();
        let sent: BTreeSet<_> = arrived.iter().map(|copy| copy.0).collect();
        prop_assert_eq!(numbers, sent.into_iter().collect::<Vec<_>>());
    }
}
