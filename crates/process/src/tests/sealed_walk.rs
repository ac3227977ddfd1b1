//! Random walks over a sealed channel: readers come and leave, are revoked, lose their state and begin anew,
//! certificates are renewed, and the publisher begins anew, while events are published. Each accepted event comes once
//! to each reader of its time, and to one member of each queue group, or its publisher is told. Nobody opens an event
//! that was published after it had left.
//!
//! `SEALBUS_SEED=7 cargo test -p sealbus-process sealed_walk` takes the one walk of that seed.

mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use sealbus_channels::{Channels, EventSealer, SealedPart};
use sealbus_conformance::schedule::{Random, seeds};
use tokio::task::JoinHandle;

use readers::{Program, Seat, program, read_all};

use super::sealed_channels::{know_each_other, offers, options, sealed, subscribe};
use super::*;

/// The number of processes of readers.
const PROCESSES: usize = 3;
/// The agents of each of them.
const AGENTS: usize = 12;
const STEPS: usize = 16;
const GROUP: &str = "workers";

struct Walk {
    world: Arc<World>,
    chance: Random,
    publisher: Program,
    alice: AgentHandle,
    programs: Vec<Program>,
    seats: Vec<Seat>,
    /// The next number to publish.
    next: Arc<AtomicU64>,
    /// The numbers of the accepted events.
    accepted: Arc<Mutex<BTreeSet<u64>>>,
    /// The failures that the publisher got, by the number of their events.
    told: BTreeMap<u64, Vec<String>>,
    /// Outsiders have tried to open all events before this number.
    tried: u64,
    journal: Vec<String>,
}

fn agents_of(program: usize) -> Vec<String> {
    (0..AGENTS).map(|it| format!("r{program}-{it}")).collect()
}

impl Walk {
    async fn new(seed: u64) -> Self {
        let world = World::new();
        let publisher = program(&world, &["alice".to_owned()]).await;
        let alice = publisher.process.agent("alice").await.unwrap();
        let mut programs = Vec::new();
        for index in 0..PROCESSES {
            programs.push(program(&world, &agents_of(index)).await);
        }
        let processes = programs.iter().chain([&publisher]);
        know_each_other(&processes.map(|it| &it.process).collect::<Vec<_>>());
        Self {
            world,
            chance: Random(seed),
            publisher,
            alice,
            programs,
            seats: Vec::new(),
            next: Arc::new(AtomicU64::new(1)),
            accepted: Arc::default(),
            told: BTreeMap::new(),
            tried: 0,
            journal: vec![format!("seed {seed}")],
        }
    }

    fn now(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Publishes this many events while something else happens.
    fn traffic(&self, count: u64) -> JoinHandle<()> {
        let channels = Channels::of(self.publisher.process.bus());
        let outbox = self.alice.outbox().clone();
        let (next, accepted) = (self.next.clone(), self.accepted.clone());
        let (offers, sealed) = (offers(), sealed());
        tokio::spawn(async move {
            for _ in 0..count {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let mut event =
                    AclMessage::new(Performative::Inform).with_content(number.to_string());
                event.conversation_id = Some(format!("n{number}").into());
                let published = channels.publish(&outbox, &offers, &sealed, event).await;
                if published.is_ok() {
                    accepted.lock().insert(number);
                }
                tokio::task::yield_now().await;
            }
        })
    }

    fn hear_failures(&mut self) {
        let any = |_: &sealbus_bus::ReceivedMessage| true;
        while let Some(received) = self.alice.mailbox().try_receive_matching(any) {
            let message = received.message().to_owned();
            if message.performative != Performative::Failure {
                continue;
            }
            let conversation = received.message().conversation_id().map(|it| {
                let text = it.text().unwrap();
                text[1..].parse().unwrap()
            });
            let number = conversation.expect("the failure names its conversation");
            let why = message.content_text().unwrap().to_owned();
            self.told.entry(number).or_default().push(why);
        }
    }

    /// Whether the publisher was told that a reader does not have an event. A failure that names other readers does not
    /// count.
    fn is_told(&self, number: u64, reader: Option<&str>) -> bool {
        self.told.get(&number).is_some_and(|failures| {
            failures.iter().any(|why| match reader {
                Some(reader) => {
                    why.contains(reader)
                        || !why.contains("@factory c") && !why.contains("sealed to r")
                }
                None => true,
            })
        })
    }

    /// The broken promises: which reader misses which event.
    fn missing(&self) -> Vec<String> {
        let accepted = self.accepted.lock().clone();
        let mut missing = Vec::new();
        for seat in self.seats.iter().filter(|it| !it.is_worker) {
            let heard: BTreeSet<u64> = seat.numbers().into_iter().collect();
            // A reader that left may miss the last events, but none before one that it got.
            let until = match seat.until {
                None => u64::MAX,
                Some(until) => heard.last().map_or(0, |last| until.min(*last)),
            };
            let name = seat.name();
            let lost = accepted.iter().filter(|it| (seat.from..until).contains(it));
            let lost = lost.filter(|it| !heard.contains(it) && !self.is_told(**it, Some(&name)));
            missing.extend(lost.map(|it| format!("{name} misses {it}")));
        }
        let workers = || self.seats.iter().filter(|it| it.is_worker);
        let handled: BTreeSet<u64> = workers().flat_map(Seat::numbers).collect();
        // Without a worker, events are for nobody.
        let is_covered = |number: u64| {
            let is_there =
                |it: &Seat| it.from <= number && it.until.is_none_or(|until| number < until);
            workers().any(is_there)
        };
        let lost = accepted
            .iter()
            .filter(|it| is_covered(**it) && !handled.contains(it));
        let lost = lost.filter(|it| !self.is_told(**it, None));
        missing.extend(lost.map(|it| format!("no worker has {it}")));
        missing
    }

    async fn settle(&mut self) {
        let begun = Instant::now();
        loop {
            self.hear_failures();
            let missing = self.missing();
            if missing.is_empty() {
                return;
            }
            let is_over = begun.elapsed() > DEADLINE;
            assert!(
                !is_over,
                "{missing:?}\n{:?}\n{:#?}",
                self.told, self.journal
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Checks that nobody gets an event twice, too early or too late, and that nobody opens events of others.
    fn check(&mut self) {
        let mut events = BTreeMap::new();
        let mut unmarked = BTreeSet::new();
        for seat in &self.seats {
            let mut own = BTreeSet::new();
            for (number, content, is_marked) in seat.heard.lock().iter() {
                // A worker's marked copy is not a first one, whoever has the other.
                let is_alone = !seat.is_worker || *is_marked || unmarked.insert(*number);
                let is_first = own.insert(*number) && is_alone;
                assert!(
                    is_first || *is_marked,
                    "{} has {number} twice\n{:#?}",
                    seat.agent,
                    self.journal
                );
                let is_late = seat.gone.is_some_and(|gone| *number >= gone);
                assert!(
                    !is_late,
                    "{} has {number} late\n{:#?}",
                    seat.agent, self.journal
                );
                events.insert(*number, content.clone());
            }
        }
        for (number, content) in events.range(self.tried..) {
            let part = SealedPart::parse(content, "alice@factory", "/offers").unwrap();
            for seat in self
                .seats
                .iter()
                .filter(|it| it.gone.is_some_and(|gone| gone <= *number))
            {
                let agent = BTreeSet::from([seat.name().into()]);
                let opening = seat.sealer.open(&part, &agent);
                assert!(
                    opening.event.is_none(),
                    "{} opens {number}\n{:#?}",
                    seat.agent,
                    self.journal
                );
            }
        }
        self.tried = self.now();
    }

    /// Whether the publisher's process knows of a subscription.
    fn is_known(&self, agent: &str) -> bool {
        let channels = Channels::of(self.publisher.process.bus());
        let name = format!("{agent}@factory");
        channels.subscriptions().iter().any(|it| *it.agent == *name)
    }

    async fn subscribe(&mut self, program: usize, agent: String, is_worker: bool) {
        let process = &self.programs[program].process;
        let handle = process.agent(&agent).await.unwrap();
        let options = match is_worker {
            true => options().grouped(GROUP),
            false => options(),
        };
        let (heard, reading) = read_all(subscribe(process, &handle, options));
        let sealer: Arc<dyn EventSealer> = process.shared.sealing.clone().unwrap();
        until("a subscription", || self.is_known(&agent)).await;
        self.seats.push(Seat {
            agent,
            program,
            is_worker,
            handle: Some(handle),
            sealer,
            heard,
            reading,
            from: self.now(),
            until: None,
            gone: None,
        });
    }

    fn present(&self) -> Vec<usize> {
        (0..self.seats.len())
            .filter(|it| self.seats[*it].until.is_none())
            .collect()
    }

    /// A seat that may become empty. One worker stays.
    fn some_seat(&mut self) -> Option<usize> {
        let mut present = self.present();
        let workers = present
            .iter()
            .filter(|it| self.seats[**it].is_worker)
            .count();
        present.retain(|it| workers > 1 || !self.seats[*it].is_worker);
        let at = self.chance.below(present.len().max(1) as u64) as usize;
        present.get(at).copied()
    }

    async fn unsubscribe(&mut self, at: usize) {
        let now = self.now();
        let seat = &mut self.seats[at];
        seat.until = Some(now);
        seat.reading.abort();
        let agent = seat.agent.clone();
        until("the end of a subscription", || !self.is_known(&agent)).await;
        self.seats[at].gone = Some(self.now());
    }

    async fn step(&mut self) {
        let program = self.chance.below(PROCESSES as u64) as usize;
        let kind = self.chance.below(10);
        self.journal
            .push(format!("step {kind} at {} in {program}", self.now()));
        match kind {
            0..=2 => {
                let used: BTreeSet<&String> = self.seats.iter().map(|it| &it.agent).collect();
                let new = agents_of(program).into_iter().find(|it| !used.contains(it));
                let is_worker = self.chance.one_in(3);
                if let Some(agent) = new.filter(|_| !self.programs[program].is_ending) {
                    self.subscribe(program, agent, is_worker).await;
                }
            }
            3 => {
                if let Some(at) = self.some_seat() {
                    self.unsubscribe(at).await;
                }
            }
            4 => {
                // A reader comes back under the same name.
                let seat = self.some_seat();
                let stays = |at: &usize| !self.programs[self.seats[*at].program].is_ending;
                if let Some(at) = seat.filter(stays) {
                    self.unsubscribe(at).await;
                    self.check();
                    let seat = &mut self.seats[at];
                    drop(seat.handle.take());
                    let (agent, program, is_worker) =
                        (seat.agent.clone(), seat.program, seat.is_worker);
                    // From now on its process may open events for its new seat.
                    seat.gone = Some(u64::MAX);
                    self.subscribe(program, agent, is_worker).await;
                }
            }
            5 => {
                if let Some(at) = self.some_seat() {
                    self.seats[at].until = Some(self.now());
                    let agent = self.seats[at].agent.clone();
                    self.world.deny(&agent).await;
                    let version = self
                        .world
                        .deny_list
                        .lock()
                        .sign(&self.world.authority)
                        .unwrap()
                        .version();
                    let trust = self.publisher.process.shared.trust.clone();
                    until("the deny list", || {
                        trust
                            .latest_deny_list()
                            .is_some_and(|it| it.version() >= version)
                    })
                    .await;
                    self.seats[at].gone = Some(self.now());
                    let program = self.seats[at].program;
                    self.programs[program].is_ending = true;
                }
            }
            6 => {
                // If this happens more often, it joins ever more slowly.
                let program = &mut self.programs[program];
                let has_lost = std::mem::replace(&mut program.has_lost, true);
                let sealing = program
                    .process
                    .shared
                    .sealing
                    .as_ref()
                    .filter(|_| !has_lost);
                if let Some(sealing) = sealing {
                    sealing.lose_groups();
                }
            }
            7 => {
                self.publisher.renew().await;
                self.programs[program].renew().await;
            }
            8 => self.begin_anew(program).await,
            _ => {}
        }
    }

    /// A process of readers ends. Its readers go on in another one.
    async fn begin_anew(&mut self, index: usize) {
        let mut there = self.present();
        there.retain(|it| self.seats[*it].program == index);
        for at in &there {
            self.unsubscribe(*at).await;
        }
        self.check();
        for at in &there {
            drop(self.seats[*at].handle.take());
        }
        let new = program(&self.world, &agents_of(index)).await;
        let former = std::mem::replace(&mut self.programs[index], new);
        former.process.close().await;
        know_each_other(&[&self.programs[index].process, &self.publisher.process]);
        for at in there {
            let (agent, is_worker) = (self.seats[at].agent.clone(), self.seats[at].is_worker);
            self.subscribe(index, agent, is_worker).await;
        }
    }

    /// The publisher ends in order, and begins anew.
    async fn publish_anew(&mut self) {
        self.journal
            .push(format!("the publisher begins anew at {}", self.now()));
        self.settle().await;
        let new = program(&self.world, &["alice".to_owned()]).await;
        let former = std::mem::replace(&mut self.publisher, new);
        let alice = self.publisher.process.agent("alice").await.unwrap();
        drop(std::mem::replace(&mut self.alice, alice));
        former.process.close().await;
        let processes = self.programs.iter().chain([&self.publisher]);
        know_each_other(&processes.map(|it| &it.process).collect::<Vec<_>>());
        // The readers that stay are known before anything else happens.
        for at in self.present() {
            let agent = self.seats[at].agent.clone();
            until("a known subscription", || self.is_known(&agent)).await;
        }
    }

    async fn walk(&mut self) {
        self.subscribe(0, "r0-0".to_owned(), true).await;
        self.subscribe(1, "r1-0".to_owned(), false).await;
        for _ in 0..STEPS {
            let count = 1 + self.chance.below(20);
            let traffic = self.traffic(count);
            self.step().await;
            traffic.await.unwrap();
            self.hear_failures();
            self.check();
            if self.chance.one_in(6) {
                self.publish_anew().await;
            }
        }
        self.settle().await;
        // At the end, all readers that are there read again.
        let begun = Instant::now();
        loop {
            let number = self.now();
            self.traffic(1).await.unwrap();
            self.settle().await;
            let readers = self.present().into_iter().map(|at| &self.seats[at]);
            let mut readers = readers.filter(|it| !it.is_worker);
            if readers.all(|it| it.numbers().contains(&number)) && !self.told.contains_key(&number)
            {
                break;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "{:?}\n{:#?}",
                self.told,
                self.journal
            );
        }
        self.check();
    }
}

#[tokio::test]
async fn members_of_the_moment_read_everything_once_and_nobody_else_does() {
    for seed in seeds(4) {
        Walk::new(seed).await.walk().await;
    }
}
