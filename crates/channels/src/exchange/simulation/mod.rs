//! Many exchanges over a [carrier](carrier) from which frames come back, in simulated time, with processes that are
//! killed and started again. In every schedule, agents get a message once, in order, in its time, and only if they may
//! have it. An accepted message is handed out, or its publisher is told, also by its receipt, even if its subscriber
//! moves away. A slow receiver slows down no other. Members of groups come, leave and die; even so, a living member of
//! each group handles each event, and only marked events come to a second member.
//!
//! `SEALBUS_SEED=7 cargo test -p sealbus-channels simulation` runs the one schedule of that seed.
//! `SEALBUS_SCHEDULES=100000` runs that many schedules (`make soak`).

#![allow(clippy::unwrap_used)]

mod agents;
mod carrier;
mod checks;
mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, AclMessageRef, Performative};
use sealbus_seal::permission::{ChannelRight, Policy};
use sealbus_seal::{Identity, PlatformName, ProcessId};

use super::groups::GroupKey;
use super::*;
use crate::event::{ChannelHeader, ReceivedEvent};
use crate::filter::ChannelFilter;
use crate::flow::{FlowPolicy, QueueLimits};
use crate::qos::{Priority, Qos, Reliability, Time};
use carrier::Carrier;
use sealbus_bus::Provenance;
use sealbus_bus::{ArrivedFrame, FrameCredit, FrameOrigin, FrameWriter};
use sealbus_conformance::schedule::{Random, seeds};

/// The default number of schedules. The environment variable asks for more.
const SCHEDULES: u64 = 400;

/// The faults in a schedule, each in percent.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// A frame comes back although later frames arrive.
    loss: u64,
    /// A frame arrives and comes back.
    double: u64,
    /// A frame of an agent is refused on the way.
    refusals: u64,
    /// The longest delay in milliseconds.
    delay: u64,
    cuts: u64,
    restarts: u64,
    full: u64,
}

/// A subscription, and the messages that its agent got from it.
struct Seat {
    consumer: Arc<Consumer>,
    /// Whether this is the subscription that pushes back and is not read for most of the time.
    is_lazy: bool,
    got: BTreeSet<String>,
    /// The last number of each publisher, channel and priority.
    last: BTreeMap<(String, String, u8), u64>,
    has_left: bool,
    /// Whether it has ended because its agent moved away.
    has_moved: bool,
    open: Vec<ReceivedEvent>,
    /// The events of its group that its agent is handling.
    in_hand: Vec<String>,
}

struct Process {
    identity: Identity,
    exchange: Exchange,
    epoch: u64,
    seats: Vec<Seat>,
    alarm: Option<Duration>,
    requests: Vec<SentRequest>,
    /// Agents that rest before they move.
    resting: BTreeSet<Arc<str>>,
}

/// An accepted message, and the subscriptions and groups to which it is owed.
struct Owed {
    process: usize,
    epoch: u64,
    expiry: Option<Moment>,
    /// The process, epoch and number of each subscription.
    to: Vec<(usize, u64, u32)>,
    /// Whether the other processes refuse the message.
    is_forbidden: bool,
    is_reported: bool,
    /// The groups of which a member must handle the message.
    groups: Vec<GroupKey>,
    receipt: Option<Arc<Receipt>>,
}

struct World {
    random: Random,
    weather: Weather,
    /// Whether no process is ever out of reach or started again.
    is_in_reach: bool,
    now: Duration,
    processes: Vec<Process>,
    carrier: Carrier,
    /// When each transport that was full has room again.
    full: Vec<(Duration, usize, u64, u32)>,
    owed: BTreeMap<String, Owed>,
    shared: groups::Shared,
    next_message: u64,
    next_epoch: u64,
    permissions: Arc<ChannelPermissions>,
    refused: usize,
    journal: String,
}

fn config(epoch: u64) -> ExchangeConfig {
    ExchangeConfig {
        kept_frames: 48,
        kept_bytes: 16 << 10,
        greet: (Duration::from_millis(50), Duration::from_millis(500)),
        introduction: Duration::from_millis(3000),
        absence: Duration::from_millis(1500),
        acknowledge_after: Duration::from_millis(5),
        acknowledge_frames: 8,
        channels: 4,
        ..ExchangeConfig::new(epoch)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let kind = random.below(4);
        let weather = Weather {
            loss: if kind == 0 { 0 } else { random.below(15) },
            double: if kind == 0 { 0 } else { random.below(15) },
            refusals: if kind == 0 { 0 } else { random.below(3) },
            delay: 1 + random.below(40),
            cuts: if kind >= 2 { random.below(4) } else { 0 },
            restarts: if kind == 3 { random.below(3) } else { 0 },
            full: random.below(10),
        };
        let policy: Policy = toml::from_str(
            r#"
            [[channel]]
            allow = { agents = ["a0-0", "a0-1", "a0-2", "a1-0", "a2-0"], do = ["subscribe", "answer"], on = ["/secret"] }
            [[channel]]
            deny = { agents = ["*"], do = ["subscribe", "answer"], on = ["/secret"] }
            [[channel]]
            deny = { agents = ["a1-1"], do = ["publish"], on = ["/a/b"] }
            "#,
        )
        .unwrap();
        let platform = PlatformName::new("factory").unwrap();
        let permissions = Arc::new(ChannelPermissions::compile(&policy, &platform).unwrap());
        let count = 2 + random.below(3) as usize;
        let mut world = Self {
            random,
            weather,
            is_in_reach: weather.cuts == 0 && weather.restarts == 0,
            now: Duration::from_secs(1),
            processes: Vec::new(),
            carrier: Carrier::default(),
            full: Vec::new(),
            owed: BTreeMap::new(),
            shared: groups::Shared::default(),
            next_message: 0,
            next_epoch: 1,
            permissions,
            refused: 0,
            journal: format!("{count} processes, {weather:?}\n"),
        };
        for index in 0..count {
            let id = ProcessId::from_bytes([index as u8; 16]);
            let identity = Identity::process(&platform, "node-1", id).unwrap();
            let (exchange, epoch) = world.exchange(index);
            world.processes.push(Process {
                identity,
                exchange,
                epoch,
                seats: Vec::new(),
                alarm: None,
                requests: Vec::new(),
                resting: BTreeSet::new(),
            });
        }
        for index in 0..count {
            world.join_all(index);
        }
        world
    }

    fn exchange(&mut self, index: usize) -> (Exchange, u64) {
        self.next_epoch += 10;
        let mut exchange = Exchange::new(config(self.next_epoch));
        // Process 1 does not keep to the policy. The others must enforce it.
        if index != 1 {
            exchange.set_permissions(self.permissions.clone());
        }
        (exchange, self.next_epoch)
    }

    fn join_all(&mut self, index: usize) {
        let now = self.time();
        for other in 0..self.processes.len() {
            if other != index {
                let identity = self.processes[other].identity.clone();
                self.processes[index]
                    .exchange
                    .process_joined(&identity, now);
            }
        }
    }

    fn time(&self) -> Now {
        Now {
            since_start: self.now,
            moment: Moment::from_unix_ms(1_000_000 + self.now.as_millis() as u64),
        }
    }

    fn log(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.journal, "{:>6} {line}", self.now.as_millis());
    }

    fn agent(process: usize, number: u64) -> Arc<str> {
        format!("a{process}-{number}@factory").into()
    }

    fn restart(&mut self, index: usize) {
        let (exchange, epoch) = self.exchange(index);
        self.log(format!("{index} starts anew"));
        let process = &mut self.processes[index];
        process.exchange = exchange;
        process.epoch = epoch;
        process.seats.clear();
        process.requests.clear();
        process.resting.clear();
        process.alarm = None;
        self.join_all(index);
        let (now, identity) = (self.time(), self.processes[index].identity.clone());
        for other in (0..self.processes.len()).filter(|other| *other != index) {
            // The process has a new address.
            self.processes[other]
                .exchange
                .process_joined(&identity, now);
            self.pump(other);
            if self.random.chance(50) {
                self.break_line(other, index);
            }
        }
        self.pump(index);
    }
}

fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let steps = 100 + world.random.below(200);
        for _ in 0..steps {
            world.step();
        }
        world.finish();
    }));
    if let Err(panic) = outcome {
        if std::env::var_os("SEALBUS_SEED").is_some() {
            eprintln!("{}", world.journal);
        }
        eprintln!(
            "schedule failed: run it again with SEALBUS_SEED={seed} cargo test -p sealbus-channels simulation"
        );
        std::panic::resume_unwind(panic);
    }
    world.refused
}

#[test]
fn simulation() {
    let seeds = seeds(SCHEDULES);
    let schedules = seeds.end - seeds.start;
    let refused: usize = seeds.map(run).sum();
    assert!(
        schedules < 100 || refused > 0,
        "no schedule tried what is not permitted"
    );
}
