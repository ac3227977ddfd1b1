use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use sealbus_control::attachment::AgentReport;
use sealbus_control::node::{Exit, MasterAnswer, NodeAnswer, RunningProcess};
use sealbus_control::{NodeDescription, ProcessContact};
use sealbus_manifest::{AgentEntry, ProcessAgents, RestartPolicy};

fn master() -> MasterState {
    load(&BTreeMap::new())
}

fn load(rows: &BTreeMap<String, Vec<u8>>) -> MasterState {
    // Never drawn before, by no Master.
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let draw_name = Box::new(|| Ok(format!("{:032x}", DRAWN.fetch_add(1, Ordering::Relaxed))));
    let rows = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    MasterState::load(rows, 1, Patience::default(), draw_name, 0).unwrap()
}

fn description() -> NodeDescription {
    NodeDescription {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: "here".to_owned(),
        processors: 2,
        version: "0".to_owned(),
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

/// Brings the present process of an agent to life.
fn live(master: &mut MasterState, agent: &str, now: UnixMillis) -> Process {
    let process = process_of(master, agent);
    master.started(&process.id, Some(4711));
    master.announced(&process.id, ([127, 0, 0, 1], 1000).into(), now);
    let report = AgentReport::State {
        state: AgentState::Active,
    };
    master.reported(&process.id, agent, report, now);
    process_of(master, agent)
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
    assert_eq!(master.life("a"), Some(AgentState::Active));
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
        master.tick(next - 1);
        assert!(master.group_of("a").unwrap().1.process.is_none());
        now = next;
        master.heartbeat("node-1", 0, now);
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
        master.heartbeat("node-1", 0, 1000);
        master.tick(1000);
        assert!(master.group_of(agent).unwrap().1.process.is_none());
    }
}

#[test]
fn a_node_that_leaves_hands_its_agents_over_at_once() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let before = live(&mut master, "a", 1);
    let (here, there) = match before.node.as_str() {
        "node-1" => ("node-1", "node-2"),
        _ => ("node-2", "node-1"),
    };
    master.leaving(here);
    assert_eq!(master.nodes()[here].state, NodeState::Leaving);
    // It still says that it is alive, and need not register for it.
    let MasterAnswer::Current { register, .. } = master.heartbeat(here, 0, 2) else {
        unreachable!();
    };
    assert!(!register);
    master.exited(&before.id, &Exit::NodeLeft, 3);
    master.tick(3);
    assert_eq!(process_of(&master, "a").node, there);
    master.take_effects();
    master.left(here, 4);
    assert_eq!(master.nodes()[here].state, NodeState::Left);
    // Its own process is revoked when it has had its answer.
    let own = master.nodes()[here].process.clone();
    assert!(!revoked(&mut master).contains(&own));
    master.heartbeat(there, 0, 2000);
    master.tick(2000);
    assert!(revoked(&mut master).contains(&own));
    assert_eq!(master.directory().locate(here), AgentLocation::Unknown);
    master.tick(3000);
    assert!(revoked(&mut master).is_empty());
    // As it comes back it is another process.
    assert_ne!(master.come_back(here, description(), 4000).unwrap(), own);
}

#[test]
fn a_node_that_comes_back_while_it_is_parted_with_is_another_process() {
    let mut master = with_nodes(1);
    master.leaving("node-1");
    master.left("node-1", 1);
    let own = master.nodes()["node-1"].process.clone();
    assert_ne!(master.come_back("node-1", description(), 2).unwrap(), own);
    assert!(revoked(&mut master).contains(&own));
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
    // It is wanted, as before.
    master.exited(&again.id, &Exit::Signal { signal: 11 }, 7);
    assert!(master.group_of("a").unwrap().1.start_at.is_some());
    assert_eq!(
        master.start_again("nobody", 8).unwrap_err().code,
        FaultCode::Unknown
    );
    let secret = sealbus_seal::token::Secret::random().unwrap();
    master
        .expect("guest", "node-1", secret.hash(), 100, 9)
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
fn a_dead_nodes_agents_are_revoked_and_placed_on_the_others() {
    let mut master = with_nodes(2);
    master
        .start(
            &[AgentEntry {
                replicas: 4,
                ..entry("a")
            }],
            0,
        )
        .unwrap();
    let before: Vec<Process> = (1..=4)
        .map(|n| live(&mut master, &format!("a-{n}"), 1))
        .collect();
    assert_eq!(
        before
            .iter()
            .filter(|process| process.node == "node-1")
            .count(),
        2
    );
    master.heartbeat("node-2", 0, 8000);
    master.tick(8000);
    let revoked = revoked(&mut master);
    for process in before {
        let lost = process.node == "node-1";
        assert_eq!(revoked.contains(&process.id), lost);
    }
    for number in 1..=4 {
        assert_eq!(process_of(&master, &format!("a-{number}")).node, "node-2");
    }
}

#[test]
fn a_node_that_returns_is_told_to_end_what_was_placed_elsewhere() {
    let mut master = with_nodes(2);
    master
        .start(
            &[AgentEntry {
                node: None,
                ..entry("a")
            }],
            0,
        )
        .unwrap();
    let lost = live(&mut master, "a", 1);
    let other = if lost.node == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    master.heartbeat(other, 0, 8000);
    master.tick(8000);
    let running = RunningProcess {
        process: lost.id.clone(),
        pid: Some(1),
        address: None,
        agents: Vec::new(),
    };
    let node = lost.node.clone();
    let answer = master
        .register(
            &node,
            description(),
            contact(&master, &node),
            None,
            &[running],
            6000,
        )
        .unwrap();
    let sealbus_control::node::MasterAnswer::Current { stop, .. } = answer else {
        panic!()
    };
    assert_eq!(stop, [lost.id]);
}

#[test]
fn without_a_node_agents_wait_for_one() {
    let mut master = master();
    master.start(&[entry("a")], 0).unwrap();
    assert!(
        master
            .group_of("a")
            .unwrap()
            .1
            .note
            .as_ref()
            .unwrap()
            .contains("no node")
    );
    let (name, _) = master.join(None, description(), 1).unwrap();
    master
        .register(&name, description(), contact(&master, &name), None, &[], 1)
        .unwrap();
    assert_eq!(process_of(&master, "a").node, name);
}

#[test]
fn a_move_ends_on_the_other_node_and_revokes_the_old_certificates() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let destination = if source.node == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    let group = master.move_agent("a", destination, 2).unwrap();
    assert_eq!(master.directory().locate("a"), AgentLocation::InTransit);
    let about = About::Freeze {
        group: group.clone(),
        process: source.id.clone(),
    };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    assert_eq!(master.directory().locate("a"), AgentLocation::InTransit);
    assert!(!revoked(&mut master).contains(&source.id));
    let target = live(&mut master, "a", 4);
    assert_eq!(target.node, destination);
    let moved = Effect::Settled {
        group,
        result: Ok(destination.to_owned()),
    };
    assert!(master.take_effects().contains(&moved));
    assert_eq!(
        master.directory().locate("a"),
        AgentLocation::Process(target.contact().unwrap())
    );
    // The process it left stays a little, to send on who still writes to it.
    master.tick(5);
    assert!(!revoked(&mut master).contains(&source.id));
    master.tick(4 + Patience::default().leaving.as_millis() as u64);
    assert!(revoked(&mut master).contains(&source.id));
    assert!(master.process(&source.id).is_none());
}

#[test]
fn a_failed_move_leaves_the_agent_where_it_was() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let destination = if source.node == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    let group = master.move_agent("a", destination, 2).unwrap();
    let about = About::Freeze {
        group,
        process: source.id.clone(),
    };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    let target = process_of(&master, "a");
    master.exited(&target.id, &Exit::Code { code: 1 }, 4);
    assert_eq!(process_of(&master, "a"), source);
    let effects = master.take_effects();
    let thaw = NodeRequest::Thaw {
        process: source.id.clone(),
    };
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Ask { request, .. } if **request == thaw))
    );
    assert_eq!(
        master.directory().locate("a"),
        AgentLocation::Process(source.contact().unwrap())
    );
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

#[derive(Clone, Debug)]
enum Step {
    Start(u8),
    Live(u8),
    Crash(u8),
    Finish(u8),
    Kill(u8),
    Move(u8, u8),
    Freeze(u8, bool),
    NodeBack(u8),
    Wait(u16),
    KillMaster,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4).prop_map(Step::Start),
        (0_u8..4).prop_map(Step::Live),
        (0_u8..4).prop_map(Step::Crash),
        (0_u8..4).prop_map(Step::Finish),
        (0_u8..4).prop_map(Step::Kill),
        (0_u8..4, 1_u8..4).prop_map(|(agent, node)| Step::Move(agent, node)),
        (0_u8..4, any::<bool>()).prop_map(|(agent, done)| Step::Freeze(agent, done)),
        (1_u8..4).prop_map(Step::NodeBack),
        (0_u16..9000).prop_map(Step::Wait),
        Just(Step::KillMaster),
    ]
}

#[test]
fn silence_that_the_broker_causes_is_held_against_nobody() {
    let (patience, after) = (20_000, 30_000);
    let is_dead = |master: &MasterState, node: &str| master.nodes()[node].state == NodeState::Dead;
    let mut master = with_nodes(2);
    master.nodes_speak_by_broker(0);
    // The Master waits for no moment: it is told how the broker is.
    assert_eq!(master.next_tick(), None);
    master.heartbeat("node-1", 0, 1000);
    master.heartbeat("node-2", 0, 1000);
    assert!(master.broker_is_away() && !master.broker_is_away());
    let hour = 3_600_000;
    master.tick(hour);
    assert!(master.is_any_silent(hour) && !is_dead(&master, "node-1"));
    // It is back, and one of the nodes is heard.
    assert!(master.broker_worked(hour, hour) && !master.broker_worked(hour, hour));
    master.tick(hour + after - 1);
    assert!(!is_dead(&master, "node-1"));
    master.heartbeat("node-1", 0, hour + after);
    assert!(!master.broker_worked(hour + after, hour + after));
    master.tick(hour + after);
    assert!(!is_dead(&master, "node-1") && is_dead(&master, "node-2"));
    // A broker that hangs is not known to be away yet.
    let heard = hour + after;
    master.tick(heard + 10 * patience);
    assert!(!is_dead(&master, "node-1"));
    // Now it is known that it worked all the time.
    master.broker_worked(heard + patience - 1, heard + 10 * patience);
    master.tick(heard + 10 * patience);
    assert!(!is_dead(&master, "node-1"));
    master.broker_worked(heard + patience, heard + 10 * patience);
    master.tick(heard + 10 * patience);
    assert!(is_dead(&master, "node-1"));
}

#[test]
fn time_in_which_the_master_did_not_run_is_held_against_nobody() {
    let mut master = with_nodes(2);
    master.heartbeat("node-1", 0, 1000);
    master.heartbeat("node-2", 0, 5000);
    // It should have looked again at 6000 and does so a minute later, before it hears anybody.
    master.did_not_run(60_000, 66_000);
    master.tick(66_000);
    assert!(
        master
            .nodes()
            .values()
            .all(|node| node.state == NodeState::Alive)
    );
    // Each has the patience that was left.
    master.tick(68_999);
    assert_eq!(master.nodes()["node-1"].state, NodeState::Alive);
    master.tick(69_000);
    assert_eq!(master.nodes()["node-1"].state, NodeState::Dead);
    assert_eq!(master.nodes()["node-2"].state, NodeState::Alive);
    // Nobody is heard in the future.
    master.did_not_run(3_600_000, 70_000);
    master.tick(78_000);
    assert_eq!(master.nodes()["node-2"].state, NodeState::Dead);
}

proptest! {
    /// Whatever happens, also kills of the Master between any two steps: an agent is known in one
    /// process at most, every process given up has been revoked, and the directory says what the
    /// groups say.
    #[test]
    fn any_history_keeps_the_invariants(history in prop::collection::vec(steps(), 1..60)) {
        let mut master = with_nodes(3);
        let mut rows: BTreeMap<String, Vec<u8>> = master
            .take_rows(0)
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let mut revocations: Vec<String> = Vec::new();
        let mut ever: Vec<String> = Vec::new();
        let mut now = 0;
        for step in history {
            let name = |n: u8| format!("a{n}");
            let present = |master: &MasterState, n: u8| {
                master.group_of(&name(n)).and_then(|(_, group)| group.process.clone())
            };
            match step {
                Step::Start(n) => { let _ = master.start(&[entry(&name(n))], now); }
                Step::Live(n) => if present(&master, n).is_some() {
                    live(&mut master, &name(n), now);
                },
                Step::Crash(n) => if let Some(process) = present(&master, n) {
                    master.exited(&process.id, &Exit::Signal { signal: 11 }, now);
                },
                Step::Finish(n) => if let Some(process) = present(&master, n) {
                    master.exited(&process.id, &Exit::Code { code: 0 }, now);
                },
                Step::Kill(n) => { let _ = master.kill(&name(n), Duration::from_secs(1), now); }
                Step::Move(n, node) => {
                    let _ = master.move_agent(&name(n), &format!("node-{node}"), now);
                }
                Step::Freeze(n, done) => if let Some(process) = present(&master, n) {
                    let result = if done {
                        Ok(NodeAnswer::Frozen { size: 1 })
                    } else {
                        Err(Fault::new(FaultCode::Internal, "no"))
                    };
                    let about = About::Freeze { group: name(n), process: process.id };
                    master.answered(about, result, now);
                },
                Step::NodeBack(n) => {
                    let node = format!("node-{n}");
                    let running: Vec<RunningProcess> = master
                        .placed_on(&node)
                        .into_iter()
                        .map(|process| RunningProcess {
                            process, pid: Some(1), address: None, agents: Vec::new(),
                        })
                        .collect();
                    let _ = master.register(
                        &node, description(), contact(&master, &node), None, &running, now,
                    );
                }
                Step::Wait(ms) => {
                    now += u64::from(ms);
                    master.heartbeat("node-1", 0, now);
                    master.tick(now);
                }
                Step::KillMaster => {
                    master = load(&rows);
                    for node in master.nodes.values_mut() {
                        node.heard = now;
                    }
                }
            }
            for (key, value) in master.take_rows(now) {
                match value {
                    Some(value) => rows.insert(key, value),
                    None => rows.remove(&key),
                };
            }
            for effect in master.take_effects() {
                if let Effect::Revoke { process, agent: None, .. } = effect {
                    revocations.push(process);
                }
            }
            let mut known = 0;
            for (name, group) in master.groups() {
                let source = group.moving.as_ref().and_then(|moving| moving.source.as_ref());
                for process in group.processes() {
                    known += 1;
                    if !ever.contains(&process.id) {
                        ever.push(process.id.clone());
                    }
                    let gone = group.moving.as_ref().is_some_and(|m| m.source_gone)
                        && source.is_some_and(|source| source.id == process.id);
                    prop_assert!(gone || master.process(&process.id).is_some());
                }
                for agent in &group.agents {
                    let (location, _) = situation(group, agent);
                    prop_assert_eq!(master.directory().locate(agent), location);
                    prop_assert_eq!(master.agents.get(agent), Some(name));
                }
                prop_assert!(group.process.is_none() || group.start_at.is_none());
                prop_assert!(group.wanted || group.start_at.is_none());
            }
            prop_assert!(master.processes.len() <= known);
            for process in &ever {
                let placed = master.groups().values().any(|group| {
                    group.processes().any(|p| p.id == *process)
                });
                prop_assert!(placed || revocations.contains(process), "{} given up", process);
            }
        }
    }
}
