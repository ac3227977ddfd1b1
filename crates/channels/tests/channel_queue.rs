//! The queue of a subscription, compared with a simple model of its promises.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use sealbus_channels::{
    FlowPolicy, Loss, Moment, Priority, Pushed, QueueLimits, QueueTerms, SubscriptionQueue,
};

fn at(ms: u64) -> Moment {
    Moment::from_unix_ms(ms)
}

fn terms(priority: u8) -> QueueTerms {
    QueueTerms {
        priority: Priority::new(priority).unwrap(),
        valid_from: None,
        expiry: None,
        cost: 10,
    }
}

fn queue(policy: FlowPolicy, events: usize) -> SubscriptionQueue<u32> {
    SubscriptionQueue::new(
        policy,
        QueueLimits {
            events,
            bytes: 1 << 20,
        },
    )
}

#[test]
fn higher_priorities_come_first_and_each_keeps_its_order() {
    let mut queue = queue(FlowPolicy::PushBack, 10);
    let mut lost = Vec::new();
    for (item, priority) in [(1, 4), (2, 9), (3, 4), (4, 0), (5, 9)] {
        assert_eq!(
            queue.push(item, terms(priority), at(0), &mut lost),
            Pushed::Taken
        );
    }
    let out: Vec<_> = std::iter::from_fn(|| queue.pop(at(0), &mut lost)).collect();
    assert_eq!(out, [2, 5, 1, 3, 4]);
    assert!(lost.is_empty());
}

#[test]
fn nothing_comes_out_before_it_is_valid_or_after_it_expired() {
    let mut queue = queue(FlowPolicy::PushBack, 10);
    let mut lost = Vec::new();
    let window = |from, expiry| QueueTerms {
        valid_from: Some(at(from)),
        expiry: Some(at(expiry)),
        ..terms(4)
    };
    queue.push(1, window(10, 20), at(0), &mut lost);
    queue.push(2, window(5, 8), at(0), &mut lost);
    queue.push(3, window(30, 25), at(0), &mut lost);
    assert_eq!(queue.next_change(), Some(at(5)));
    assert_eq!(queue.pop(at(4), &mut lost), None);
    assert!(!queue.is_ready());
    assert_eq!(queue.pop(at(9), &mut lost), None);
    assert_eq!(lost, [(2, Loss::Expired)]);
    assert_eq!(queue.pop(at(10), &mut lost), Some(1));
    assert_eq!(queue.pop(at(40), &mut lost), None);
    assert_eq!(lost, [(2, Loss::Expired), (3, Loss::Expired)]);
    assert_eq!(
        queue.push(4, window(0, 40), at(40), &mut lost),
        Pushed::Lost
    );
    assert!(queue.is_empty() && queue.bytes() == 0 && queue.next_change().is_none());
    assert_eq!(queue.counters().expired, 3);
}

#[test]
fn a_full_queue_does_what_its_policy_says() {
    let mut lost = Vec::new();
    let mut full = |policy| {
        let mut queue = queue(policy, 2);
        assert_eq!(queue.push(1, terms(4), at(0), &mut lost), Pushed::Taken);
        assert_eq!(queue.push(2, terms(4), at(0), &mut lost), Pushed::Taken);
        queue
    };
    let mut pushing_back = full(FlowPolicy::PushBack);
    let mut oldest = full(FlowPolicy::DropOldest);
    let mut newest = full(FlowPolicy::DropNewest);
    let mut disconnecting = full(FlowPolicy::Disconnect);

    assert_eq!(
        pushing_back.push(3, terms(9), at(0), &mut lost),
        Pushed::Full(3)
    );
    let report = pushing_back.report(at(0)).unwrap();
    assert_eq!(
        (report.pushed_back, report.dropped, report.disconnected),
        (1, 0, false)
    );
    pushing_back.push(3, terms(9), at(0), &mut lost);
    assert_eq!(pushing_back.report(at(9_999)), None);
    assert!(pushing_back.report(at(10_000)).is_some());

    assert_eq!(oldest.push(3, terms(4), at(0), &mut lost), Pushed::Taken);
    assert_eq!(std::mem::take(&mut lost), [(1, Loss::Dropped)]);
    // More urgent items stay.
    assert_eq!(oldest.push(4, terms(3), at(0), &mut lost), Pushed::Lost);
    assert_eq!(std::mem::take(&mut lost), [(4, Loss::Dropped)]);
    assert_eq!(
        (oldest.pop(at(0), &mut lost), oldest.pop(at(0), &mut lost)),
        (Some(2), Some(3))
    );

    assert_eq!(newest.push(3, terms(9), at(0), &mut lost), Pushed::Lost);
    assert_eq!(std::mem::take(&mut lost), [(3, Loss::Dropped)]);

    assert_eq!(
        disconnecting.push(3, terms(9), at(0), &mut lost),
        Pushed::Disconnected(3)
    );
    assert!(disconnecting.report(at(0)).unwrap().disconnected);
    assert_eq!(disconnecting.report(at(1 << 40)), None);
    assert_eq!(disconnecting.pop(at(0), &mut lost), Some(1));
    assert_eq!(
        disconnecting.push(4, terms(9), at(0), &mut lost),
        Pushed::Disconnected(4)
    );
}

#[test]
fn expired_events_make_room_before_the_policy_acts() {
    let mut queue = queue(FlowPolicy::Disconnect, 1);
    let mut lost = Vec::new();
    let short = QueueTerms {
        expiry: Some(at(5)),
        ..terms(4)
    };
    assert_eq!(queue.push(1, short, at(0), &mut lost), Pushed::Taken);
    assert_eq!(queue.push(2, terms(4), at(5), &mut lost), Pushed::Taken);
    assert_eq!(lost, [(1, Loss::Expired)]);
}

#[test]
fn an_event_larger_than_the_queue_goes_through_alone() {
    let mut queue = SubscriptionQueue::new(
        FlowPolicy::PushBack,
        QueueLimits {
            events: 10,
            bytes: 100,
        },
    );
    let mut lost = Vec::new();
    let large = QueueTerms {
        cost: 1_000,
        ..terms(4)
    };
    assert_eq!(queue.push(1, large, at(0), &mut lost), Pushed::Taken);
    assert_eq!(queue.push(2, terms(4), at(0), &mut lost), Pushed::Full(2));
    assert_eq!(queue.pop(at(0), &mut lost), Some(1));
    assert_eq!(queue.push(2, terms(4), at(0), &mut lost), Pushed::Taken);
    assert_eq!(queue.push(3, large, at(0), &mut lost), Pushed::Full(3));
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        priority: u8,
        valid_after: Option<u64>,
        expires_after: Option<u64>,
        cost: usize,
    },
    Pop,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u8..10, prop::option::of(0u64..30), prop::option::of(0u64..40), 1usize..60).prop_map(
            |(priority, valid_after, expires_after, cost)| Step::Push { priority, valid_after, expires_after, cost }
        ),
        2 => Just(Step::Pop),
        1 => (0u64..15).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn any_run_keeps_the_promises(
        policy in prop::sample::select(FlowPolicy::ALL.to_vec()),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let limits = QueueLimits { events: 8, bytes: 200 };
        let mut queue = SubscriptionQueue::new(policy, limits);
        let mut now = at(1_000);
        let mut given: Vec<QueueTerms> = Vec::new();
        let (mut waiting, mut settled, mut lost) = (std::collections::BTreeSet::new(), 0usize, Vec::new());
        // The time from which an item stands in its lane, and its place there.
        let entered = |terms: &QueueTerms, pushed: Moment| terms.valid_from.map_or(pushed, |from| from.max(pushed));
        let mut pushed_at = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ms) => now = now.plus(Duration::from_millis(ms)),
                Step::Push { priority, valid_after, expires_after, cost } => {
                    let item = given.len();
                    let moment = |after| now.plus(Duration::from_millis(after));
                    let terms = QueueTerms {
                        priority: Priority::new(priority).unwrap(),
                        valid_from: valid_after.map(moment),
                        expiry: expires_after.map(moment),
                        cost,
                    };
                    given.push(terms);
                    pushed_at.push(now);
                    match queue.push(item, terms, now, &mut lost) {
                        Pushed::Taken => { waiting.insert(item); }
                        Pushed::Lost => { waiting.insert(item); }
                        Pushed::Full(same) => {
                            prop_assert!(policy == FlowPolicy::PushBack && same == item);
                            settled += 1;
                        }
                        Pushed::Disconnected(same) => {
                            prop_assert!(policy == FlowPolicy::Disconnect && same == item);
                            settled += 1;
                        }
                    }
                }
                Step::Pop => {
                    let popped = queue.pop(now, &mut lost);
                    for (item, _) in &lost {
                        prop_assert!(waiting.remove(item));
                    }
                    settled += lost.len();
                    lost.clear();
                    let valid: Vec<_> = waiting.iter().copied()
                        .filter(|item| given[*item].valid_from.is_none_or(|from| from <= now)).collect();
                    match popped {
                        None => prop_assert!(valid.is_empty(), "{:?} wait", valid),
                        Some(item) => {
                            let terms = given[item];
                            prop_assert!(waiting.remove(&item));
                            prop_assert!(terms.valid_from.is_none_or(|from| from <= now));
                            prop_assert!(terms.expiry.is_none_or(|expiry| now < expiry));
                            for other in valid.into_iter().filter(|other| *other != item) {
                                let theirs = given[other];
                                prop_assert!(theirs.priority <= terms.priority);
                                if theirs.priority == terms.priority {
                                    let ours = (entered(&terms, pushed_at[item]), item);
                                    let theirs = (entered(&theirs, pushed_at[other]), other);
                                    prop_assert!(ours.0 <= theirs.0, "{ours:?} before {theirs:?}");
                                }
                            }
                            settled += 1;
                        }
                    }
                }
            }
            for (item, loss) in lost.drain(..) {
                prop_assert!(waiting.remove(&item));
                prop_assert!(loss == Loss::Expired || matches!(policy, FlowPolicy::DropOldest | FlowPolicy::DropNewest));
                prop_assert!(loss == Loss::Dropped || given[item].expiry.is_some_and(|expiry| expiry <= now));
                settled += 1;
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert_eq!(queue.bytes(), waiting.iter().map(|item| given[*item].cost).sum::<usize>());
            prop_assert!(queue.len() <= limits.events);
            prop_assert!(queue.bytes() <= limits.bytes || queue.len() == 1);
        }
        prop_assert_eq!(settled + queue.drain().len(), given.len());
        prop_assert_eq!(queue.bytes(), 0);
    }
}
