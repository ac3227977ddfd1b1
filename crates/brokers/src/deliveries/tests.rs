//! Tests of the limits on what one owner holds.

mod model;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sealbus_bus::BoxFuture;

use super::{ArrivingDelivery, BRIEF, Broken, Delivered, Deliveries, SAMPLE};
use crate::client::{BrokerFailure, Receiving};
use crate::envelope::BrokerDelivery;
use crate::held::BUDGET;
use crate::incoming::Sorted;
use crate::stamp::OrderStamp;

const PATIENCE: Duration = Duration::from_secs(30);
const USUAL: u16 = 64;
const LARGEST: usize = 16 << 20;

/// The name of a message: its sender, and its number.
type Name = (usize, u64);

/// The broker's end of a connection that receives. It notes what is acknowledged.
#[derive(Default)]
struct Acknowledged(BTreeSet<u64>);

impl Receiving for Acknowledged {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<BrokerDelivery>, BrokerFailure>> {
        Box::pin(std::future::pending())
    }

    fn acknowledge(
        &mut self,
        up_to: Option<u64>,
        singles: &BTreeSet<u64>,
    ) -> Result<(), BrokerFailure> {
        self.0.extend(1..=up_to.unwrap_or(0));
        self.0.extend(singles);
        Ok(())
    }

    fn reject(&mut self, _: u64) -> Result<(), BrokerFailure> {
        Ok(())
    }

    fn close(self: Box<Self>, _: &'static str) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn stamp(number: u64) -> OrderStamp {
    OrderStamp {
        epoch: 7,
        number,
        base: 1,
    }
}

fn deliveries(prefetch: u16) -> Deliveries<Name> {
    let mut deliveries = Deliveries::new(PATIENCE, USUAL);
    deliveries.connected(prefetch, Instant::now());
    deliveries
}

/// A message of sender 0 arrives as the delivery with this number.
fn arrives(
    deliveries: &mut Deliveries<Name>,
    number: u64,
    of: u64,
    bytes: usize,
) -> Result<Sorted<Delivered<Name>>, Broken> {
    let arrival = ArrivingDelivery {
        number,
        bytes,
        is_here: false,
        content: (0, of),
    };
    deliveries.arrived(&"a@f".into(), stamp(of), arrival, Instant::now())
}

fn names(delivered: &[Delivered<Name>]) -> Vec<u64> {
    delivered.iter().map(|it| it.content.1).collect()
}

/// The next connection, after one that ended by choice.
fn reconnected(deliveries: &mut Deliveries<Name>, prefetch: u16, now: Instant) {
    deliveries.disconnected(true, now);
    deliveries.connected(prefetch, now);
}

proptest! {
    #[test]
    fn fewer_are_delivered_to_one_that_holds_too_much(last in 1u16..2000, held in 1usize..3000) {
        let less = Broken::TooMuch { held }.next_prefetch(last, USUAL);
        prop_assert!((1..=last).contains(&less) && usize::from(less) <= held);
        let is_behind = usize::from(last) > held;
        prop_assert!(!is_behind || less < last);
        // There are few steps, however much is taken between them.
        prop_assert!(!is_behind || held < 8 || less <= last - last / 10);
        prop_assert!(usize::from(less) > held / 2 || less == last);
    }

    #[test]
    fn more_are_delivered_to_one_with_room(last in 1u16..600, usual in 1u16..600, average in 0usize..100 << 20) {
        let fits = |prefetch: u16| prefetch <= 1 || usize::from(prefetch - 1) * average <= BUDGET;
        let last = last.min(usual);
        let more = Broken::Relieved { average }.next_prefetch(last, usual);
        prop_assert!((last..=usual).contains(&more) && (more == last || fits(more)));
    }

    #[test]
    fn more_is_delivered_to_one_that_waits_if_it_fits(last in 1u16..5000, held in 0usize..2 * BUDGET) {
        let next = Broken::Stuck { held }.next_prefetch(last, USUAL);
        let fits = held <= BUDGET / 2;
        prop_assert_eq!(next, if fits { (2 * last).min(64 * USUAL) } else { last });
        let failed = Broken::Failed(BrokerFailure::new("it broke"));
        prop_assert_eq!(failed.next_prefetch(last, USUAL), USUAL);
    }
}

#[test]
fn what_is_too_much_stays_at_the_broker() {
    let mut deliveries = deliveries(USUAL);
    for number in 1..=5 {
        let next = arrives(&mut deliveries, number, number, LARGEST)
            .unwrap()
            .next;
        assert_eq!(names(&next), [number]);
    }
    let broken = arrives(&mut deliveries, 6, 6, 1).unwrap_err();
    assert!(matches!(broken, Broken::TooMuch { held: 5 }));
    let prefetch = broken.next_prefetch(USUAL, USUAL);
    assert_eq!(prefetch, 5);
    reconnected(&mut deliveries, prefetch, Instant::now());
    // The same ones come again, and are not too much.
    for number in 1..=5 {
        let sorted = arrives(&mut deliveries, number, number, LARGEST).unwrap();
        assert!(sorted.spare.is_some() && sorted.next.is_empty());
        deliveries.may_acknowledge((0, number));
    }
    assert_eq!(deliveries.held.unread().bytes, 5 * LARGEST);
    // One is taken: the next one comes, for the first time as far as this owner knows.
    deliveries.may_acknowledge((1, 1));
    let next = arrives(&mut deliveries, 6, 6, 1).unwrap().next;
    assert_eq!(names(&next), [6]);
}

#[test]
fn another_copy_of_what_is_here_is_never_too_much() {
    let mut deliveries = deliveries(USUAL);
    for number in 1..=5 {
        arrives(&mut deliveries, number, number, LARGEST).unwrap();
    }
    reconnected(&mut deliveries, 5, Instant::now());
    let mut again = |sender: &str, is_here| {
        let arrival = ArrivingDelivery {
            number: 1,
            bytes: LARGEST,
            is_here,
            content: (0, 1),
        };
        deliveries.arrived(&sender.into(), stamp(1), arrival, Instant::now())
    };
    // The order of this sender was forgotten.
    assert!(again("forgotten@f", false).is_err());
    assert!(again("forgotten@f", true).is_ok());
    assert!(again("a@f", false).is_ok());
}

#[test]
fn a_missing_message_comes_to_one_that_holds_too_much_behind_it() {
    let mut deliveries = deliveries(USUAL);
    arrives(&mut deliveries, 1, 1, 1).unwrap();
    for number in 3..=6 {
        assert!(
            arrives(&mut deliveries, number, number, LARGEST)
                .unwrap()
                .next
                .is_empty()
        );
    }
    let broken = arrives(&mut deliveries, 8, 7, LARGEST).unwrap_err();
    assert!(matches!(broken, Broken::TooMuch { .. }), "{broken}");
    // A dead connection held it.
    let next = arrives(&mut deliveries, 9, 2, LARGEST).unwrap().next;
    assert_eq!(names(&next), [2, 3, 4, 5, 6]);
    assert_eq!(deliveries.held.all(), deliveries.held.unread());
}

#[test]
fn one_whose_deliveries_all_wait_gets_them_in_time() {
    let mut deliveries = deliveries(USUAL);
    arrives(&mut deliveries, 1, 1, 1).unwrap();
    deliveries.may_acknowledge((0, 1));
    deliveries
        .acks
        .send(&mut Acknowledged::default(), Instant::now())
        .unwrap();
    let prefetch = 4;
    let start = Instant::now();
    let mut now = start;
    reconnected(&mut deliveries, prefetch, now);
    let mut overdue = Vec::new();
    while overdue.is_empty() {
        assert!(now <= start + PATIENCE + Duration::from_secs(3));
        for number in 1..=4 {
            match arrives(&mut deliveries, number, number + 2, LARGEST) {
                Ok(sorted) => {
                    if let Some(spare) = sorted.spare {
                        deliveries.may_acknowledge(spare.tag);
                    }
                }
                Err(stuck) => {
                    assert!(matches!(stuck, Broken::Stuck { held } if held == 4 * LARGEST));
                    assert_eq!(stuck.next_prefetch(prefetch, USUAL), prefetch);
                }
            }
        }
        now += Duration::from_secs(2);
        reconnected(&mut deliveries, prefetch, now);
        if deliveries.deadline().unwrap() <= now {
            overdue = deliveries.overdue(now);
        }
    }
    assert_eq!(names(&overdue), [3, 4, 5, 6]);
    assert_eq!(deliveries.held.unread().bytes, 4 * LARGEST);
    // The broker itself was away: what is missing may come for the whole time.
    arrives(&mut deliveries, 1, 9, 1).unwrap();
    let later = now + 2 * PATIENCE;
    deliveries.disconnected(true, now);
    deliveries.connected(prefetch, later);
    assert!(deliveries.overdue(later + PATIENCE / 2).is_empty());
    assert_eq!(names(&deliveries.overdue(later + PATIENCE)), [9]);
}

#[test]
fn nothing_is_overdue_while_its_owner_holds_it_up() {
    let start = Instant::now();
    let mut deliveries = deliveries(2);
    arrives(&mut deliveries, 1, 1, LARGEST).unwrap();
    arrives(&mut deliveries, 2, 3, 1).unwrap();
    deliveries.look(start);
    assert_eq!(deliveries.deadline(), None);
    // The first one is taken.
    let later = start + 10 * PATIENCE;
    deliveries.may_acknowledge((0, 1));
    deliveries
        .acks
        .send(&mut Acknowledged::default(), later)
        .unwrap();
    deliveries.look(later);
    let deadline = deliveries.deadline().unwrap();
    assert!(deadline > later + PATIENCE - BRIEF && deadline <= later + PATIENCE + BRIEF);
    assert_eq!(
        names(&arrives(&mut deliveries, 3, 2, 1).unwrap().next),
        [2, 3]
    );
}

#[test]
fn the_usual_number_comes_again_when_deliveries_are_small_and_taken() {
    let mut deliveries = deliveries(4);
    let mut broker = Acknowledged::default();
    let mut take = |deliveries: &mut Deliveries<Name>, number, bytes| {
        arrives(deliveries, number, number, bytes).unwrap();
        assert!(deliveries.relieved().is_none());
        deliveries.may_acknowledge((0, number));
        assert!(deliveries.relieved().is_none());
        deliveries.acks.send(&mut broker, Instant::now()).unwrap();
        deliveries.relieved()
    };
    let large = 5 * SAMPLE as u64;
    for number in 1..=large {
        assert!(take(&mut deliveries, number, LARGEST).is_none());
    }
    let mut small = large + 1..large + 4 * SAMPLE as u64;
    let relieved = small.find_map(|number| take(&mut deliveries, number, 100));
    let next = relieved.unwrap().next_prefetch(4, USUAL);
    assert!(next >= 8, "{next}");
    assert!(broker.0.len() > large as usize);
}

#[test]
fn one_that_has_not_read_a_large_delivery_gets_no_more_at_a_time() {
    let mut deliveries = deliveries(4);
    arrives(&mut deliveries, 1, 1, LARGEST).unwrap();
    reconnected(&mut deliveries, 4, Instant::now());
    for number in 1..=2 * SAMPLE as u64 {
        arrives(&mut deliveries, number, number + 1, 100).unwrap();
        deliveries.may_acknowledge((1, number));
    }
    let mut broker = Acknowledged::default();
    deliveries.acks.send(&mut broker, Instant::now()).unwrap();
    assert!(deliveries.relieved().is_none());
    deliveries.may_acknowledge((0, 1));
    assert!(deliveries.relieved().is_some());
}
