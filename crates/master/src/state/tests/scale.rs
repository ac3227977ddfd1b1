//! The Master of a large platform, in virtual time: its processor time, its memory, and the bytes that it sends and writes.
//!
//! `cargo test -p sealbus-master --release --lib ten_thousand -- --ignored --nocapture` prints them beside the design's budget.

mod moves;

use std::collections::BTreeSet;
use std::time::Duration;

use sealbus_control::directory::{Concerned, HOLDERS, HollowReplica};
use sealbus_control::node::{MasterAnswer, MasterRequest};

use super::*;

/// The jobs that the desk does before it looks for due work.
const JOBS: usize = 256;
/// How often nodes send heartbeats, and how often concerned nodes are told of changes, in milliseconds.
const HEARTBEAT: UnixMillis = 1000;
const TELLING: UnixMillis = 250;

/// The cost of a part of the simulation for the Master.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    processor: Duration,
    /// Requests of nodes, reports and jobs of the desk.
    jobs: usize,
    sent: usize,
    /// The part of it that is news of the directory.
    news: usize,
    received: usize,
    messages: usize,
    rows: usize,
    written: usize,
}

/// The processor time of this thread; zero where the system does not tell.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

struct Platform {
    master: MasterState,
    nodes: BTreeMap<String, HollowReplica>,
    /// Nodes that are lost.
    lost: Vec<String>,
    /// Agents that use channels.
    users: BTreeSet<String>,
    rows: BTreeMap<String, Vec<u8>>,
    now: UnixMillis,
    jobs_since: usize,
    cost: Cost,
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).unwrap().len()
}

impl Platform {
    fn new(nodes: usize) -> Self {
        let mut platform = Self {
            master: master(),
            nodes: BTreeMap::new(),
            lost: Vec::new(),
            users: BTreeSet::new(),
            rows: BTreeMap::new(),
            now: 1_000_000,
            jobs_since: 0,
            cost: Cost::default(),
        };
        for number in 1..=nodes {
            let name = format!("node-{number}");
            let wish = name.clone();
            platform.job(|master, now| master.join(Some(&wish), description(), now).unwrap());
            platform.register(&name, &[]);
        }
        platform
    }

    /// Runs the Master's own work alone on the clock of the processor.
    fn on_clock<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = processor_time();
        let done = work(self);
        self.cost.processor += processor_time() - before;
        done
    }

    /// A job of the desk.
    fn job<T>(&mut self, job: impl FnOnce(&mut MasterState, UnixMillis) -> T) -> T {
        let now = self.now;
        self.cost.jobs += 1;
        let done = self.on_clock(|it| job(&mut it.master, now));
        self.jobs_since += 1;
        if self.jobs_since >= JOBS {
            self.desk();
        }
        done
    }

    /// The desk's part after a batch of jobs: it looks for due work, and writes.
    fn desk(&mut self) {
        self.jobs_since = 0;
        let now = self.now;
        let rows = self.on_clock(|it| {
            it.master.look(now);
            it.master.tick(now);
            it.master.next_tick();
            it.master.take_rows(now)
        });
        for (key, value) in rows {
            self.cost.rows += 1;
            self.cost.written += key.len() + value.as_ref().map_or(0, Vec::len);
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    fn register(&mut self, name: &str, running: &[RunningProcess]) {
        let contact = contact(&self.master, name);
        let request = MasterRequest::Register {
            node: description(),
            contact: contact.clone(),
            attachment: None,
            processes: running.to_vec(),
            ended: Vec::new(),
        };
        self.cost.received += size(&request);
        let (name, running) = (name.to_owned(), running.to_vec());
        let registered = name.clone();
        let (current, bytes) = self.job(|master, now| {
            let current = master.register(&registered, description(), contact, None, &running, now);
            let answer = MasterAnswer::from(current.unwrap());
            let bytes = size(&answer);
            let MasterAnswer::Current(current) = answer else {
                panic!("{answer:?}");
            };
            (current, bytes)
        });
        assert!(
            current.stop.is_empty(),
            "{name} is to stop {:?}",
            current.stop
        );
        self.cost.sent += bytes;
        self.nodes
            .entry(name)
            .or_default()
            .answered(&current.directory);
    }

    /// Each node sends a heartbeat. Nodes that want more ask again.
    fn beat(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let each = HEARTBEAT as f64 / names.len() as f64;
        let began = self.now;
        for (index, name) in names.iter().enumerate() {
            let now = began + (index as f64 * each) as UnixMillis;
            if now / TELLING > self.now / TELLING {
                self.tell();
            }
            self.now = now;
            while !self.lost.contains(name) {
                let heartbeat = MasterRequest::Heartbeat {
                    directory: self.nodes[name].standing(),
                    deny_list: 1,
                    processes: 2,
                };
                let request = serde_json::to_vec(&heartbeat).unwrap();
                self.cost.received += request.len();
                let (current, bytes) = self.job(|master, now| {
                    let request = serde_json::from_slice(&request).unwrap();
                    let MasterRequest::Heartbeat { directory, .. } = request else {
                        panic!("{request:?}");
                    };
                    let current = master.heartbeat(name, &directory, now);
                    let answer = MasterAnswer::from(current);
                    let bytes = size(&answer);
                    let MasterAnswer::Current(current) = answer else {
                        panic!("{answer:?}");
                    };
                    (current, bytes)
                });
                assert!(!current.register, "{name} is given up");
                self.cost.sent += bytes;
                if !self
                    .nodes
                    .get_mut(name)
                    .unwrap()
                    .answered(&current.directory)
                {
                    break;
                }
            }
        }
        self.now = began + HEARTBEAT;
        self.desk();
        self.tell();
    }

    /// Tells the concerned nodes what has changed.
    fn tell(&mut self) {
        let concerned = self.on_clock(|it| it.master.directory_mut().concerned());
        let concerned: Vec<String> = match concerned {
            Concerned::Nodes(nodes) => nodes.into_iter().collect(),
            Concerned::All => self.nodes.keys().cloned().collect(),
        };
        for name in concerned {
            let told = self.on_clock(|it| {
                let update = it.master.directory_mut().news_for(&name)?;
                let request = NodeRequest::Directory { update };
                let bytes = size(&request);
                Some((request, bytes))
            });
            if let Some((NodeRequest::Directory { update }, bytes)) = told {
                self.cost.messages += 1;
                self.cost.sent += bytes;
                self.cost.news += bytes;
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.told(&update);
                }
            }
        }
    }

    /// The nodes carry out what the Master asks for. Returns how many agents began to run.
    fn carry_out(&mut self) -> usize {
        self.desk();
        let mut begun = 0;
        for effect in self.on_clock(|it| it.master.take_effects()) {
            let Effect::Ask { request, about, .. } = effect else {
                continue;
            };
            self.cost.messages += 1;
            self.cost.sent += size(&request);
            let launch = match *request {
                NodeRequest::Start { launch } => launch,
                NodeRequest::Freeze { .. } => {
                    let frozen = Ok(NodeAnswer::Frozen { size: 3 });
                    self.job(|master, now| master.answered(about, frozen, now));
                    continue;
                }
                NodeRequest::Stop { process, .. } => {
                    let exit = Exit::Code { code: 0 };
                    self.job(|master, now| master.exited(&process, &exit, now));
                    continue;
                }
                _ => continue,
            };
            let pid = 4711;
            let started = Ok(NodeAnswer::Started { pid });
            self.job(|master, now| master.answered(about, started, now));
            let (process, agents) = (launch.process, launch.agents);
            self.job(|master, now| master.announced(&process, ([10, 0, 0, 1], 7000).into(), now));
            begun += agents.len();
            if agents.iter().any(|agent| self.users.contains(agent)) {
                self.uses_channels(&process);
            }
            for agent in agents {
                let report = AgentReport::State {
                    state: PlacedState::Active,
                };
                self.job(|master, now| master.reported(&process, &agent, report, now));
            }
        }
        self.desk();
        begun
    }

    /// The cost since the last call.
    fn cost(&mut self, part: &str) -> Cost {
        let cost = std::mem::take(&mut self.cost);
        println!("{part}: {cost:?}");
        cost
    }

    /// Each agent runs once, on a node that is there, and no node has much more than another.
    fn check(&self, agents: usize) {
        let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
        let mut placed = 0;
        for group in self.master.groups().values() {
            let process = group.process.as_ref().unwrap();
            assert!(!self.lost.contains(&process.node));
            assert_eq!(group.processes().count(), 1);
            assert_eq!(process.agents.len(), group.agents.len());
            *loads.entry(&process.node).or_default() += group.agents.len();
            placed += group.agents.len();
            for agent in &group.agents {
                let AgentLocation::Process(there) = self.master.directory().locate(agent) else {
                    panic!("{agent} is nowhere");
                };
                assert_eq!((&there.node, &there.process), (&process.node, &process.id));
            }
        }
        assert_eq!(placed, agents);
        let largest = self
            .master
            .groups()
            .values()
            .map(|group| group.agents.len());
        let largest = largest.max().unwrap();
        let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
        assert!(
            most - least <= largest,
            "{least} and {most} agents on nodes"
        );
        assert_eq!(loads.len() + self.lost.len(), self.nodes.len());
    }

    fn running(&self) -> BTreeMap<String, Vec<RunningProcess>> {
        let mut running: BTreeMap<String, Vec<RunningProcess>> = BTreeMap::new();
        for group in self.master.groups().values() {
            let process = group.process.as_ref().unwrap();
            let agents = process.agents.keys().cloned();
            let found = RunningProcess {
                process: process.id.clone(),
                pid: process.pid,
                address: process.address,
                channels: process.channels,
                agents: agents.map(|agent| (agent, PlacedState::Active)).collect(),
            };
            running.entry(process.node.clone()).or_default().push(found);
        }
        running
    }
}

/// Runs a platform. Processes have `each` agents, and some processes on one node in a hundred use channels. Returns the costs
/// of placing all agents, of a second of heartbeats, of moving a process without channels from each of these nodes, of moving
/// one with channels, of losing one node in a hundred, and of a fail-over.
fn run(nodes: usize, agents: usize, each: usize) -> [Cost; 6] {
    println!("{nodes} nodes, {agents} agents, {each} in a process");
    let mut platform = Platform::new(nodes);
    platform.cost("all nodes come");
    let sellers = AgentEntry {
        replicas: (agents / each) as u32,
        agents: ProcessAgents::Count(each as u32),
        ..entry("seller")
    };
    platform.job(|master, now| master.start(&[sellers], now).unwrap());
    assert_eq!(platform.carry_out(), agents);
    platform.check(agents);
    let placing = platform.cost("all agents are placed, and report");

    // The nodes follow their own agents, and get their slices.
    for group in platform.master.groups().values() {
        let node = &group.process.as_ref().unwrap().node;
        let own = platform.nodes.get_mut(node).unwrap();
        own.follow(group.agents.iter().cloned());
    }
    for _ in 0..3 {
        platform.beat();
    }
    platform.cost("the nodes learn what they must know");
    let seconds = 5;
    for _ in 0..seconds {
        platform.beat();
    }
    let mut beating = platform.cost("heartbeats of five seconds");
    beating.processor /= seconds;
    assert_eq!(beating.jobs, nodes * seconds as usize);
    assert_eq!((beating.rows, beating.messages), (0, 0), "nothing happened");

    // They are not the ones that get lost.
    let some = (nodes / 100).max(3);
    let some: Vec<String> = (nodes - some + 1..=nodes)
        .map(|number| format!("node-{number}"))
        .collect();
    platform.begin_to_use_channels(&some);
    let each_second = (some.len() / 6).max(1);
    let others_moved = platform.moves(&some, each_second, false);
    let users_moved = platform.moves(&some, each_second, true);
    platform.check(agents);
    // The agents of a process that moves are told to those that hold their slices and to its nodes. The other processes that
    // use channels are told to the nodes that have some: once that it is there, and once that it has ended.
    let of_agents = each * 2 * 5 * 640;
    let of_process = 2 * (some.len() + HOLDERS * each) * 640;
    let each_of = |moved: &Cost| moved.news / some.len();
    assert!(each_of(&others_moved) < of_agents, "{others_moved:?}");
    assert!(
        each_of(&users_moved) < of_agents + of_process,
        "{users_moved:?}"
    );

    let lost = (nodes / 100).max(1);
    platform.lost = (1..=lost).map(|number| format!("node-{number}")).collect();
    let (began, mut again, mut seconds) = (platform.now, 0, 0);
    let of_lost = |platform: &Platform| {
        let groups = platform.master.groups().values();
        let placed = groups.filter_map(|group| group.process.as_ref());
        let lost = placed.filter(|process| platform.lost.contains(&process.node));
        lost.map(|process| process.agents.len()).sum::<usize>()
    };
    let there = of_lost(&platform);
    while again < there {
        platform.beat();
        again += platform.carry_out();
        seconds += 1;
        assert!(seconds < 60, "{again} of {there} agents are back");
    }
    println!("{there} agents are back after {} ms", platform.now - began);
    platform.beat();
    platform.check(agents);
    assert_eq!(again, there);
    let losing = platform.cost("one node in a hundred is lost");

    // Another Master takes over.
    let running = platform.running();
    let before: Vec<String> = platform.master.groups().values().map(place_of).collect();
    platform.master.take_effects();
    let (rows, now) = (platform.rows.clone(), platform.now);
    platform.master = platform.on_clock(|_| load_at(&rows, now));
    for (name, running) in &running {
        platform.register(name, running);
    }
    platform.desk();
    for effect in platform.master.take_effects() {
        let changes = matches!(
            effect,
            Effect::Ask { .. } | Effect::Revoke { .. } | Effect::Settled { .. }
        );
        assert!(!changes, "{effect:?}");
    }
    let after: Vec<String> = platform.master.groups().values().map(place_of).collect();
    assert!(before == after, "a process was replaced");
    platform.check(agents);
    let taking_over = platform.cost("another Master leads, and all nodes register");
    assert_eq!(platform.check_users(), 2 * some.len());
    [
        placing,
        beating,
        others_moved,
        users_moved,
        losing,
        taking_over,
    ]
}

fn place_of(group: &Group) -> String {
    group.process.as_ref().unwrap().id.clone()
}

#[test]
fn no_agent_of_a_hundred_nodes_is_lost_or_doubled() {
    let [placing, beating, ..] = run(100, 4000, 10);
    // Each heartbeat and its answer are small, and a group is not written for each agent's report.
    let nodes = 100 * 5;
    assert!(
        beating.received < nodes * 256 && beating.sent < nodes * 256,
        "{beating:?}"
    );
    assert!(placing.rows < 400 * 8, "{placing:?}");
    run(20, 2500, 1);
}

/// The largest platform that the design speaks of. An agent has a process of its own in the second run.
#[test]
#[ignore = "large"]
fn ten_thousand_nodes_with_a_million_agents() {
    for each in [50, 1] {
        let [placing, beating, others, users, losing, taking_over] = run(10_000, 1_000_000, each);
        let heartbeat = beating.processor / 10_000;
        println!("measured, and in brackets the design's budget, with {each} agents in a process:");
        println!(
            "  heartbeats: {:.3} of a core (0.1), {heartbeat:?} each, {} + {} bytes (64)",
            beating.processor.as_secs_f64(),
            beating.received / 50_000,
            beating.sent / 50_000,
        );
        println!("  a million agents placed: {:?} (300 s)", placing.processor);
        println!(
            "  rows: {} of {} bytes in all, {} transactions (8400)",
            placing.rows,
            placing.written,
            placing.rows.div_ceil(120)
        );
        for (what, moved) in [("no channels", others), ("channels", users)] {
            println!(
                "  1000 processes that use {what} move in a minute: {} bytes/s of news (200000), {:?} each",
                moved.news / 100 * 1000 / 60,
                moved.processor / 100,
            );
        }
        println!(
            "  100 nodes lost: {:?} (30 s), {} bytes",
            losing.processor, losing.sent
        );
        println!("  all nodes registered: {:?} (15 s)", taking_over.processor);
        let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = memory.lines().find(|line| line.starts_with("VmHWM"));
        println!("  {}", peak.unwrap_or_default());
    }
}
