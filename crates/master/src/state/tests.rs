//! The state machine: starts, ends, names and tickets of agents, and the bounds of rows. The modules below have the rest.

mod channels;
mod histories;
mod moves;
mod nodes;
mod restored;
mod revoked;
mod scale;
mod silence;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use sealbus_control::attachment::AgentReport;
use sealbus_control::directory::Standing;
use sealbus_control::node::{Exit, NodeAnswer, RunningProcess};
use sealbus_control::{NodeDescription, ProcessContact};
use sealbus_manifest::isolation::{Confinement, Isolation};
use sealbus_manifest::{AgentEntry, ProcessAgents, RestartPolicy};

fn master() -> MasterState {
    load(&BTreeMap::new())
}

fn load(rows: &BTreeMap<String, Vec<u8>>) -> MasterState {
    load_at(rows, 0)
}

fn load_at(rows: &BTreeMap<String, Vec<u8>>, now: UnixMillis) -> MasterState {
    // Names must never repeat, not even between Masters.
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let draw_name = Box::new(|| Ok(format!("{:032x}", DRAWN.fetch_add(1, Ordering::Relaxed))));
    let rows = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    MasterState::load(rows, 1, TimeLimits::default(), draw_name, now).unwrap()
}

fn description() -> NodeDescription {
    NodeDescription {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: "here".to_owned(),
        processors: 2,
        version: "0".to_owned(),
        isolation: Some(Isolation::None),
    }
}

fn contact(master: &MasterState, node: &str) -> ProcessContact {
    let process = master.nodes()[node].process.clone();
    ProcessContact {
        node: node.to_owned(),
        process,
        address: ([127, 0, 0, 1], 9).into(),
    }
}

fn with_nodes(count: usize) -> MasterState {
    let mut master = master();
    for _ in 0..count {
        let (name, _) = master.join(None, description(), 0).unwrap();
        master
            .register(&name, description(), contact(&master, &name), None, &[], 0)
            .unwrap();
    }
    master.take_effects();
    master
}

/// Lets time pass, while the Master runs and hears these nodes each second.
fn pass(master: &mut MasterState, times: std::ops::RangeInclusive<UnixMillis>, heard: &[&str]) {
    let (from, to) = times.into_inner();
    let mut at = from;
    while at < to {
        at = (at + 250).min(to);
        for node in heard {
            if at % 1000 == 0 || at == to {
                master.heartbeat(node, &Standing::default(), at);
            }
        }
        master.tick(at);
    }
}

/// The other one of two nodes.
fn other(node: &str) -> &'static str {
    if node == "node-1" { "node-2" } else { "node-1" }
}

/// A node's state.
fn state_of(master: &MasterState, node: &str) -> NodeState {
    master.nodes()[node].state
}

fn entry(name: &str) -> AgentEntry {
    AgentEntry {
        name: name.to_owned(),
        command: vec!["true".to_owned()],
        directory: None,
        replicas: 1,
        agents: ProcessAgents::Count(1),
        node: None,
        forbid: Vec::new(),
        environment: BTreeMap::new(),
        restart: RestartPolicy::OnFailure,
        confinement: Confinement::default(),
    }
}

fn process_of(master: &MasterState, agent: &str) -> Process {
    master
        .group_of(agent)
        .unwrap()
        .1
        .process
        .clone()
        .expect("it has a process")
}

/// Adds all changed rows to the earlier ones.
fn keep(master: &mut MasterState, rows: &mut BTreeMap<String, Vec<u8>>, now: UnixMillis) {
    for (key, value) in master.take_rows(now) {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

/// Brings the present process of an agent to life.
fn live(master: &mut MasterState, agent: &str, now: UnixMillis) -> Process {
    let process = process_of(master, agent);
    master.started(&process.id, Some(4711));
    master.announced(&process.id, ([127, 0, 0, 1], 1000).into(), now);
    let report = AgentReport::State {
        state: PlacedState::Active,
    };
    master.reported(&process.id, agent, report, now);
    process_of(master, agent)
}

#[test]
fn an_agents_error_takes_a_bounded_part_of_its_row() {
    let mut master = with_nodes(1);
    master.start(&[entry("talker")], 1).unwrap();
    let process = live(&mut master, "talker", 2);
    let error = "\u{1b}[2J".repeat(1 << 20);
    master.reported(&process.id, "talker", AgentReport::Failed { error }, 3);
    let mut rows = BTreeMap::new();
    keep(&mut master, &mut rows, 60_000);
    let text = rows.values().map(|row| String::from_utf8_lossy(row));
    assert!(text.clone().any(|row| row.contains("[2J")));
    let longest = text.map(|row| row.len()).max().unwrap();
    assert!(longest < 20_000, "{longest} bytes");
}

#[test]
fn the_end_of_a_process_takes_a_bounded_part_of_its_row() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 1).unwrap();
    let process = process_of(&master, "a");
    let error = "\u{1b}[2J".repeat(1 << 20);
    master.exited(&process.id, &Exit::NotStarted { error }, 2);
    let note = master.group_of("a").unwrap().1.note.clone().unwrap();
    assert!(note.starts_with("ended (not started: "), "{note}");
    assert!(note.ends_with("start 2 follows"), "{note}");
    assert!(note.chars().count() <= 1024 && !note.contains('\u{1b}'));
}

fn revoked(master: &mut MasterState) -> Vec<String> {
    let effects = master.take_effects();
    effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Revoke { process, .. } => Some(process),
            _ => None,
        })
        .collect()
}

#[test]
fn an_agent_is_placed_started_and_found() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    assert_eq!(master.directory().locate("a"), AgentLocation::InTransit);
    let process = live(&mut master, "a", 1);
    assert_eq!(
        master.directory().locate("a"),
        AgentLocation::Process(process.contact().unwrap())
    );
    assert_eq!(master.life("a"), Some(PlacedState::Active));
}

#[test]
fn a_crash_is_followed_by_a_restart_after_a_pause_that_doubles() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 0).unwrap();
    let mut now = 10;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let process = live(&mut master, "a", now);
        master.exited(&process.id, &Exit::Signal { signal: 9 }, now);
        assert!(revoked(&mut master).contains(&process.id));
        assert_eq!(master.directory().locate("a"), AgentLocation::InTransit);
        let next = master.group_of("a").unwrap().1.start_at.unwrap();
        pauses.push(next - now);
        pass(&mut master, now..=next - 1, &["node-1"]);
        assert!(master.group_of("a").unwrap().1.process.is_none());
        now = next;
        master.tick(now);
        assert_ne!(process_of(&master, "a").id, process.id);
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000]);
}

#[test]
fn success_ends_an_agent_and_never_means_never() {
    let mut master = with_nodes(1);
    let never = AgentEntry {
        restart: RestartPolicy::Never,
        ..entry("n")
    };
    master.start(&[entry("a"), never], 0).unwrap();
    for (agent, exit) in [("a", Exit::Code { code: 0 }), ("n", Exit::Code { code: 3 })] {
        let process = live(&mut master, agent, 1);
        master.exited(&process.id, &exit, 2);
        assert_eq!(master.directory().locate(agent), AgentLocation::Unknown);
        master.heartbeat("node-1", &Standing::default(), 1000);
        master.tick(1000);
        assert!(master.group_of(agent).unwrap().1.process.is_none());
    }
}

#[test]
fn an_agent_that_is_revoked_after_its_end_is_not_started_again_by_itself() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 0).unwrap();
    let process = live(&mut master, "a", 1);
    master.exited(&process.id, &Exit::Signal { signal: 11 }, 2);
    assert!(master.waits_for_start("a"));
    master.bar_everywhere("a");
    master.tick(10_000);
    let group = master.group_of("a").unwrap().1;
    assert!(group.process.is_none() && group.start_at.is_none());
    assert_eq!(group.note.as_deref(), Some(bars::REVOKED));
    // Only an operator gives the agent a chance again.
    master.start_again("a", 10_001).unwrap();
    let again = live(&mut master, "a", 10_002);
    assert!(!master.is_barred(&again.id, "a"));
}

#[test]
fn what_was_killed_or_has_ended_is_started_again_when_an_operator_says_so() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 0).unwrap();
    let process = live(&mut master, "a", 1);
    let still = master.start_again("a", 2).unwrap_err();
    assert_eq!(still.code, FaultCode::NotPermitted);
    master.kill("a", Duration::ZERO, 3).unwrap();
    master.exited(&process.id, &Exit::Signal { signal: 9 }, 4);
    assert!(master.group_of("a").unwrap().1.process.is_none());
    master.start_again("a", 5).unwrap();
    let again = live(&mut master, "a", 6);
    assert_ne!(again.id, process.id);
    // The group is still wanted.
    master.exited(&again.id, &Exit::Signal { signal: 11 }, 7);
    assert!(master.group_of("a").unwrap().1.start_at.is_some());
    assert_eq!(
        master.start_again("nobody", 8).unwrap_err().code,
        FaultCode::Unknown
    );
    let secret = sealbus_seal::token::Secret::random().unwrap();
    master
        .expect(vec!["guest".to_owned()], "node-1", secret.hash(), 100, 9)
        .unwrap();
    assert!(
        master
            .start_again("guest", 10)
            .unwrap_err()
            .to_string()
            .contains("ticket")
    );
}

#[test]
fn a_program_that_leaves_in_order_is_not_lost() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 0).unwrap();
    let process = live(&mut master, "a", 1);
    master.exited(&process.id, &Exit::Detached, 2);
    let (_, group) = master.group_of("a").unwrap();
    assert_eq!(group.note.as_deref(), Some("ended (left in order)"));
    assert_eq!(group.start_at, None);
}

#[test]
fn names_are_taken_once() {
    let mut master = with_nodes(1);
    let fault = master.join(Some("node-1"), description(), 0).unwrap_err();
    assert_eq!(fault.code, FaultCode::NameTaken);
    master.start(&[entry("a")], 0).unwrap();
    let other = AgentEntry {
        agents: ProcessAgents::Named(vec!["a".to_owned()]),
        ..entry("b")
    };
    assert_eq!(
        master.start(&[other], 0).unwrap_err().code,
        FaultCode::NameTaken
    );
}

#[test]
fn a_ticket_for_several_agents_takes_all_their_names_or_none() {
    let mut master = with_nodes(1);
    master.start(&[entry("a")], 0).unwrap();
    let mut expect = |agents: &[&str]| {
        let secret = sealbus_seal::token::Secret::random().unwrap();
        let agents = agents.iter().map(ToString::to_string).collect();
        master
            .expect(agents, "node-1", secret.hash(), 100, 1)
            .map_err(|fault| fault.code)
            .map(|()| master.group_of("usher").map(|(name, _)| name.to_owned()))
    };
    assert_eq!(expect(&["jade-1", "usher", "a"]), Err(FaultCode::NameTaken));
    assert_eq!(expect(&[]), Err(FaultCode::BadRequest));
    assert_eq!(expect(&["jade-1", "usher"]), Ok(Some("jade-1".to_owned())));
    // A ticket that nobody has used gives way, with all its names.
    assert_eq!(expect(&["jade-2", "usher"]), Ok(Some("jade-2".to_owned())));
    assert!(master.group_of("jade-1").is_none());
}

#[test]
fn an_agent_that_ended_gets_another_ticket_while_its_former_process_goes_on() {
    let mut master = with_nodes(1);
    let ticket = |master: &mut MasterState, agents: &[&str]| {
        let secret = sealbus_seal::token::Secret::random().unwrap();
        let agents = agents.iter().map(ToString::to_string).collect();
        master
            .expect(agents, "node-1", secret.hash(), 100, 1)
            .map_err(|fault| fault.code)
    };
    ticket(&mut master, &["jade-1", "usher"]).unwrap();
    let (_, group) = master.group_of("jade-1").unwrap();
    let former = group.process.clone().unwrap().id;
    master.announced(&former, "127.0.0.1:7000".parse().unwrap(), 2);
    let active = AgentReport::State {
        state: PlacedState::Active,
    };
    for agent in ["jade-1", "usher"] {
        master.reported(&former, agent, active.clone(), 3);
    }
    assert_eq!(
        ticket(&mut master, &["jade-2", "usher"]),
        Err(FaultCode::NameTaken)
    );
    master.reported(&former, "usher", AgentReport::Ended, 4);
    // The first agent of a ticket goes with its process.
    assert_eq!(ticket(&mut master, &["jade-1"]), Err(FaultCode::NameTaken));
    assert_eq!(ticket(&mut master, &["jade-2", "usher"]), Ok(()));
    let (name, group) = master.group_of("usher").unwrap();
    assert_eq!(name, "jade-2");
    let present = group.process.clone().unwrap().id;
    // The former process goes on without the name.
    assert_eq!(master.group_of("jade-1").unwrap().1.agents, ["jade-1"]);
    assert_eq!(master.life("jade-1"), Some(PlacedState::Active));
    master.reported(&former, "usher", active.clone(), 5);
    assert_eq!(master.life("usher"), Some(PlacedState::Initiated));
    let subject = sealbus_control::Subject::Agent {
        name: "usher".to_owned(),
    };
    let certified = |process: &str| {
        crate::vouching::check_process(&master, "node-1", process, &subject)
            .map_err(|fault| fault.code)
    };
    assert_eq!(certified(&former), Err(FaultCode::NotPlaced));
    assert_eq!(certified(&present), Ok(()));
}
