//! A model of a broker and of one owner, for any course of events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::{ArrivingDelivery, Broken, Delivered, Deliveries, Tag};
use super::{Acknowledged, LARGEST, Name, USUAL, deliveries, stamp};
use crate::client::BrokerFailure;
use crate::held::BUDGET;

/// A broker, and one owner that receives from it on one connection after another.
struct Model {
    now: Instant,
    /// By their places: each message and its bytes.
    queue: BTreeMap<u64, (Name, usize)>,
    next_place: u64,
    /// The deliveries that are not acknowledged: the places and the messages.
    open: BTreeMap<u64, (u64, (Name, usize))>,
    /// Deliveries of connections of which the broker does not know yet that they are dead.
    of_dead: Vec<(u64, (Name, usize))>,
    next_number: u64,
    prefetch: u16,
    deliveries: Deliveries<Name>,
    mailbox: VecDeque<Name>,
    untaken: HashMap<Name, Tag>,
    taken: Vec<Name>,
    most: usize,
}

impl Model {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            queue: BTreeMap::new(),
            next_place: 0,
            open: BTreeMap::new(),
            of_dead: Vec::new(),
            next_number: 0,
            prefetch: USUAL,
            deliveries: deliveries(USUAL),
            mailbox: VecDeque::new(),
            untaken: HashMap::new(),
            taken: Vec::new(),
            most: 0,
        }
    }

    fn publish(&mut self, name: Name, bytes: usize) {
        self.queue.insert(self.next_place, (name, bytes));
        self.next_place += 1;
    }

    /// The connection is gone. Returns whether the next one is as the last one was.
    fn ends(&mut self, broken: &Broken, is_noticed: bool) -> bool {
        let open = std::mem::take(&mut self.open).into_values();
        match is_noticed {
            true => self.queue.extend(open),
            false => self.of_dead.extend(open),
        }
        let last = self.prefetch;
        self.prefetch = broken.next_prefetch(last, USUAL);
        self.deliveries
            .disconnected(broken.is_by_choice(), self.now);
        self.deliveries.connected(self.prefetch, self.now);
        self.next_number = 0;
        last == self.prefetch
    }

    fn hand_over(&mut self, next: Vec<Delivered<Name>>) {
        for delivered in next {
            self.mailbox.push_back(delivered.content);
            self.untaken.insert(delivered.content, delivered.tag);
        }
    }

    /// The broker makes one delivery, if it may. `Ok`: whether it did.
    fn deliver(&mut self) -> Result<bool, Broken> {
        self.now += Duration::from_millis(1);
        if self.open.len() >= self.prefetch.into() {
            return Ok(false);
        }
        let Some((place, (name, bytes))) = self.queue.pop_first() else {
            return Ok(false);
        };
        self.next_number += 1;
        self.open.insert(self.next_number, (place, (name, bytes)));
        let sender: Arc<str> = name.0.to_string().into();
        let arrival = ArrivingDelivery {
            number: self.next_number,
            bytes,
            is_here: self.untaken.contains_key(&name),
            content: name,
        };
        let sorted = self
            .deliveries
            .arrived(&sender, stamp(name.1), arrival, self.now)?;
        if let Some(spare) = sorted.spare {
            let of_mailbox = self.untaken.get_mut(&name);
            let tag = of_mailbox.map_or(spare.tag, |tag| std::mem::replace(tag, spare.tag));
            self.deliveries.may_acknowledge(tag);
        }
        self.hand_over(sorted.next);
        self.most = self.most.max(self.deliveries.held.all().bytes);
        self.deliveries.look(self.now);
        Ok(true)
    }

    /// The owner takes one message.
    fn take(&mut self) {
        if let Some(name) = self.mailbox.pop_front() {
            self.taken.push(name);
            let tag = self.untaken.remove(&name).unwrap();
            self.deliveries.may_acknowledge(tag);
        }
    }

    /// All that may be acknowledged is. Returns whether the connection should end.
    fn acknowledge(&mut self) -> Option<Broken> {
        let mut acknowledged = Acknowledged::default();
        self.deliveries
            .acks
            .send(&mut acknowledged, self.now)
            .unwrap();
        self.open
            .retain(|number, _| !acknowledged.0.contains(number));
        self.deliveries.look(self.now);
        self.deliveries.relieved()
    }

    /// The broker delivers until nothing more comes while the owner takes nothing. Returns whether that was soon.
    fn is_quiet_soon(&mut self) -> bool {
        for _ in 0..40 {
            let broken = loop {
                match self.deliver() {
                    Ok(true) => {}
                    Ok(false) => match self.acknowledge() {
                        Some(relieved) => break relieved,
                        // Repeated ones may have been acknowledged.
                        None if !self.may_deliver() => return true,
                        None => {}
                    },
                    Err(broken) => break broken,
                }
            };
            // There is a pause before such a connection is tried again.
            if self.ends(&broken, true) {
                return true;
            }
        }
        false
    }

    fn may_deliver(&self) -> bool {
        self.open.len() < self.prefetch.into() && !self.queue.is_empty()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A sender sends messages of this size. Those that the broker refuses at first come after the others.
    Send(usize, usize, usize, bool),
    Deliver(usize),
    Take(usize),
    /// The connection breaks, and the broker notices that or not.
    Break(bool),
    /// The broker notices all dead connections.
    Notice,
    /// The owner takes nothing for a while.
    Rest,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(100), Just(200_000), Just(3 << 20), Just(LARGEST)];
    prop_oneof![
        3 => (0..3usize, bytes, 1..40usize, any::<bool>())
            .prop_map(|(sender, bytes, count, is_late)| Step::Send(sender, bytes, count, is_late)),
        4 => (1..60usize).prop_map(Step::Deliver),
        3 => (1..30usize).prop_map(Step::Take),
        1 => any::<bool>().prop_map(Step::Break),
        1 => Just(Step::Notice),
        1 => Just(Step::Rest),
    ]
}

proptest! {
    /// Whatever is sent, and however the owner reads: it holds a limited number of bytes, each message comes once and
    /// in order, and connections end again and again only as the owner reads.
    #[test]
    fn the_bytes_are_bounded_and_nothing_is_lost(steps in proptest::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        let mut sent = [0u64; 3];
        for step in steps {
            match step {
                Step::Send(sender, bytes, count, is_late) => {
                    let mut late = None;
                    for index in 0..count {
                        sent[sender] += 1;
                        let name = (sender, sent[sender]);
                        // A first message goes alone.
                        if is_late && index == 0 && name.1 > 1 {
                            late = Some(name);
                        } else {
                            model.publish(name, bytes);
                        }
                        if index == 2 && let Some(late) = late.take() {
                            model.publish(late, bytes);
                        }
                    }
                    if let Some(late) = late {
                        model.publish(late, bytes);
                    }
                }
                Step::Deliver(count) => {
                    for _ in 0..count {
                        if let Err(broken) = model.deliver() {
                            model.ends(&broken, true);
                        }
                    }
                }
                Step::Take(count) => {
                    for _ in 0..count {
                        model.take();
                    }
                    if let Some(relieved) = model.acknowledge() {
                        model.ends(&relieved, true);
                    }
                }
                Step::Break(is_noticed) => {
                    let failed = Broken::Failed(BrokerFailure::new("it broke"));
                    model.ends(&failed, is_noticed);
                }
                Step::Notice => model.queue.extend(model.of_dead.drain(..)),
                Step::Rest => prop_assert!(model.is_quiet_soon()),
            }
        }
        model.queue.extend(model.of_dead.drain(..));
        let all: u64 = sent.iter().sum();
        let mut rounds = 0;
        while (model.taken.len() as u64) < all {
            rounds += 1;
            prop_assert!(rounds <= all + 10, "{} of {all}", model.taken.len());
            prop_assert!(model.is_quiet_soon());
            for _ in 0..5 {
                model.take();
            }
        }
        prop_assert!(model.is_quiet_soon());
        prop_assert_eq!(model.deliveries.held.all().count, 0);
        prop_assert!(model.most <= 2 * (BUDGET + LARGEST), "{}", model.most);
        for (sender, sent) in sent.into_iter().enumerate() {
            let of_sender = model.taken.iter().filter(|name| name.0 == sender);
            let numbers: Vec<u64> = of_sender.map(|name| name.1).collect();
            prop_assert_eq!(numbers, (1..=sent).collect::<Vec<_>>());
        }
    }
}
