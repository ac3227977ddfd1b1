//! The cost of channels on platforms of many processes, by simulation: the frames and bytes between processes, and how
//! often a process wakes up.
//!
//! Processes that publish hear of the subscriptions of all others. All other pairs of processes have nothing to say to
//! each other. `SEALBUS_PROCESSES=1000 cargo test -p sealbus-channels --lib scale -- --nocapture` prints the counts.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealbus_bus::{ArrivedFrame, FrameCredit, FrameOrigin, FrameWriter, Provenance};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::{Identity, PlatformName, ProcessId};

use super::*;
use crate::path::ChannelPath;
use crate::qos::Qos;

/// The number of processes that publish.
const PUBLISHERS: usize = 10;
/// The number of subscriptions of each process.
const SUBSCRIPTIONS: usize = 10;
/// How long a frame travels.
const WAY: Duration = Duration::from_millis(1);

/// The events counted in a part of the simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    frames: u64,
    bytes: u64,
    /// How often a process was woken by its clock.
    ticks: u64,
    /// How many other processes were looked at in these ticks.
    looks: u64,
}

struct Process {
    exchange: Exchange,
    identity: Arc<Identity>,
    alarm: Option<Duration>,
    looks: u64,
}

struct Carried {
    from: usize,
    to: usize,
    author: Option<Arc<str>>,
    payload: Bytes,
}

struct Platform {
    now: Duration,
    processes: Vec<Process>,
    places: HashMap<Arc<Identity>, usize>,
    line: BTreeMap<(Duration, u64), Carried>,
    alarms: BTreeSet<(Duration, usize)>,
    carried: u64,
    counts: Counts,
}

impl Platform {
    fn new(count: usize) -> Self {
        let name = PlatformName::new("factory").unwrap();
        let identities: Vec<_> = (0..count)
            .map(|index| {
                let id = ProcessId::from_bytes((index as u128).to_le_bytes());
                Arc::new(Identity::process(&name, "node-1", id).unwrap())
            })
            .collect();
        let processes = identities
            .iter()
            .enumerate()
            .map(|(index, identity)| Process {
                exchange: Exchange::new(ExchangeConfig::new(index as u64 + 1)),
                identity: identity.clone(),
                alarm: None,
                looks: 0,
            });
        let mut platform = Self {
            now: Duration::from_secs(1),
            processes: processes.collect(),
            places: identities.iter().cloned().zip(0..).collect(),
            line: BTreeMap::new(),
            alarms: BTreeSet::new(),
            carried: 0,
            counts: Counts::default(),
        };
        for index in 0..count {
            let now = platform.time();
            for other in identities
                .iter()
                .filter(|other| **other != identities[index])
            {
                platform.processes[index]
                    .exchange
                    .process_joined(other, now);
            }
        }
        platform
    }

    fn time(&self) -> Now {
        Now {
            since_start: self.now,
            moment: Moment::from_unix_ms(1_000_000 + self.now.as_millis() as u64),
        }
    }

    fn set_alarm(&mut self, index: usize, at: Option<Duration>) {
        let former = std::mem::replace(&mut self.processes[index].alarm, at);
        former.map(|former| self.alarms.remove(&(former, index)));
        self.alarms.extend(at.map(|at| (at, index)));
    }

    /// Works on the exchange of one process, and carries the resulting frames.
    fn work<T>(&mut self, index: usize, work: impl FnOnce(&mut Exchange, Now) -> T) -> T {
        let now = self.time();
        let exchange = &mut self.processes[index].exchange;
        let result = work(exchange, now);
        let mut parcels = Vec::new();
        while let Some(other) = exchange.next_ready() {
            while let Some(parcel) = exchange.next_parcel(other) {
                let payload = [&parcel.head[..], &parcel.content, parcel.tail].concat();
                let author = parcel.author.clone();
                let to = exchange.identity(other).unwrap().clone();
                parcels.push((self.places[&to], author, Bytes::from(payload)));
                exchange.sent(other);
            }
        }
        let alarm = exchange.take_alarm();
        for (to, author, payload) in parcels {
            self.counts.frames += 1;
            self.counts.bytes += payload.len() as u64;
            self.carried += 1;
            let carried = Carried {
                from: index,
                to,
                author,
                payload,
            };
            self.line.insert((self.now + WAY, self.carried), carried);
        }
        if let Some(alarm) = alarm
            && self.processes[index]
                .alarm
                .is_none_or(|former| alarm < former)
        {
            self.set_alarm(index, Some(alarm));
        }
        result
    }

    /// Simulates everything that happens within `time`. Returns the counts, and the time at which the last frame
    /// arrived.
    fn run(&mut self, time: Duration) -> (Counts, Duration) {
        let began = self.now;
        let before = std::mem::take(&mut self.counts);
        // Frames that were sent before count as well.
        self.counts.frames = before.frames;
        self.counts.bytes = before.bytes;
        let mut last = Duration::ZERO;
        loop {
            let frame = self.line.first_key_value().map(|((at, _), _)| *at);
            let alarm = self.alarms.first().map(|(at, _)| *at);
            let next = [frame, alarm].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= began + time) else {
                break;
            };
            self.now = self.now.max(next);
            if let Some((_, carried)) = frame
                .filter(|at| *at <= self.now)
                .and_then(|_| self.line.pop_first())
            {
                last = self.now - began;
                let arrived = ArrivedFrame {
                    writer: Arc::new(FrameWriter {
                        process: self.processes[carried.from].identity.clone(),
                        origin: match carried.author {
                            Some(author) => FrameOrigin::Agent(author),
                            None => FrameOrigin::Process,
                        },
                        provenance: Provenance::Claimed,
                    }),
                    payload: carried.payload,
                    credit: FrameCredit::free(),
                };
                let taken = self.work(carried.to, |exchange, now| {
                    exchange.take(arrived, now).map_err(|refused| refused.1)
                });
                taken.unwrap();
                continue;
            }
            let (_, index) = *self.alarms.first().unwrap();
            self.counts.ticks += 1;
            self.set_alarm(index, None);
            let next = self.work(index, |exchange, now| exchange.tick(now));
            let sooner = [next, self.processes[index].alarm]
                .into_iter()
                .flatten()
                .min();
            self.set_alarm(index, sooner);
        }
        self.now = began + time;
        for process in &mut self.processes {
            let looks = process.exchange.looks;
            self.counts.looks += looks - std::mem::replace(&mut process.looks, looks);
        }
        (std::mem::take(&mut self.counts), last)
    }

    fn subscribe(&mut self, index: usize, pattern: &str) {
        let agent: Arc<str> = format!("agent-{index}@factory").into();
        let options = SubscriptionOptions::new(pattern.parse().unwrap());
        self.work(index, |exchange, now| {
            exchange.subscribe(&agent, options, now).unwrap()
        });
    }

    /// Publishes in one process. Returns the number of processes that get the event.
    fn publish(&mut self, index: usize, channel: &str) -> usize {
        let publisher: Arc<str> = format!("agent-{index}@factory").into();
        let channel = ChannelPath::new(channel).unwrap();
        let mut message = AclMessage::new(Performative::Inform).with_content("fresh leaves");
        message.sender = Some(sealbus_bus::aid_of(&publisher));
        let message = Arc::new(message);
        let publication = Publication {
            publisher: &publisher,
            channel: &channel,
            qos: &Qos::default(),
            message: &message,
            kept: None,
            receipt: None,
            turn: Turn::of(1),
        };
        match self
            .work(index, |exchange, now| exchange.publish(&publication, now))
            .unwrap()
        {
            Attempt::Done(reach) => reach.processes,
            Attempt::Full(_) | Attempt::Unknown(_) => panic!("an event waits"),
        }
    }
}

/// The counts for a platform of this many processes: until all publishers know all subscriptions; for one more
/// subscription; for an event of each publisher; and for a minute in which nothing happens.
fn costs(count: usize) -> [Counts; 4] {
    let mut platform = Platform::new(count);
    for index in 0..count {
        for number in 0..SUBSCRIPTIONS {
            platform.subscribe(index, &format!("/{}/{number}", index % 50));
        }
    }
    for publisher in 0..PUBLISHERS {
        platform.work(publisher, |exchange, now| exchange.take_interest(now));
    }
    let (beginning, in_force) = platform.run(Duration::from_secs(60));
    assert!(
        in_force < Duration::from_secs(1),
        "{in_force:?} until the last frame"
    );
    for publisher in 0..PUBLISHERS {
        assert!(platform.processes[publisher].exchange.knows_all());
    }
    platform.subscribe(count / 2, "/once/more");
    let (one_more, in_force) = platform.run(Duration::from_secs(60));
    assert!(
        in_force < Duration::from_secs(1),
        "{in_force:?} until the last frame"
    );
    for publisher in 0..PUBLISHERS {
        assert_eq!(platform.publish(publisher, "/once/more"), 1);
    }
    let (events, _) = platform.run(Duration::from_secs(60));
    let (idle, _) = platform.run(Duration::from_secs(60));
    [beginning, one_more, events, idle]
}

#[test]
fn the_cost_grows_with_the_number_of_processes_and_not_with_its_square() {
    let most = std::env::var("SEALBUS_PROCESSES")
        .ok()
        .and_then(|most| most.parse().ok());
    let large = most.unwrap_or(120);
    let small = large / 3;
    let (few, many) = (costs(small), costs(large));
    let parts = [
        "to know all",
        "one subscription more",
        "an event of each publisher",
        "a minute idle",
    ];
    for (part, (few, many)) in parts.iter().zip(few.iter().zip(&many)) {
        println!("{part}: {small} processes {few:?}");
        println!("{part}: {large} processes {many:?}");
    }
    assert_eq!(
        many[3],
        Counts::default(),
        "nothing happens, and processes wake up"
    );
    // Three times as many processes may cost three times as much, and a little more.
    for (few, many) in few.iter().zip(&many) {
        for (few, many) in [
            (few.frames, many.frames),
            (few.bytes, many.bytes),
            (few.ticks, many.ticks),
            (few.looks, many.looks),
        ] {
            assert!(
                many <= 4 * few,
                "{many} of {large} processes, {few} of {small}"
            );
        }
    }
}
