//! Revoked agents, and the identities that may still be certified.

use super::*;
use crate::vouching::check_process;
use sealbus_control::Subject;
use sealbus_manifest::GATEWAY_VARIABLE;

fn agent(name: &str) -> Subject {
    Subject::Agent {
        name: name.to_owned(),
    }
}

fn may(master: &MasterState, process: &Process, subject: &Subject) -> Result<(), FaultCode> {
    check_process(master, &process.node, &process.id, subject).map_err(|fault| fault.code)
}

/// A process with so many agents, and their names.
fn crowd(agents: usize) -> (Vec<String>, AgentEntry) {
    let names: Vec<String> = (0..agents).map(|number| format!("a-{number}")).collect();
    let crowd = AgentEntry {
        agents: ProcessAgents::Named(names.clone()),
        ..entry("crowd")
    };
    (names, crowd)
}

fn twins() -> AgentEntry {
    AgentEntry {
        agents: ProcessAgents::Named(vec!["a".to_owned(), "b".to_owned()]),
        ..entry("twins")
    }
}

/// A gateway with its own agent and two callers.
fn door() -> AgentEntry {
    let agents = ["a2a", "auditor", "buyer"].map(str::to_owned);
    AgentEntry {
        agents: ProcessAgents::Named(agents.into()),
        environment: BTreeMap::from([(GATEWAY_VARIABLE.to_owned(), "{}".to_owned())]),
        ..entry("a2a")
    }
}

/// Lets the process of a gateway crash, and time pass until the next one. Only these agents come to life in it.
fn crash(master: &mut MasterState, agents: &[&str], now: UnixMillis) -> Process {
    let former = process_of(master, "a2a");
    master.exited(&former.id, &Exit::Signal { signal: 9 }, now);
    let again = master.group_of("a2a").unwrap().1.start_at.unwrap();
    pass(master, now..=again, &["node-1"]);
    for agent in agents {
        live(master, agent, now);
    }
    let next = process_of(master, "a2a");
    assert_ne!(next.id, former.id);
    next
}

#[test]
fn a_gateway_that_crashes_is_restarted_without_a_caller_that_was_revoked() {
    let (mut master, mut rows) = (with_nodes(1), BTreeMap::new());
    master.start(&[door()], 0).unwrap();
    for agent in ["a2a", "auditor", "buyer"] {
        live(&mut master, agent, 1);
    }
    let first = process_of(&master, "a2a");
    master.bar_everywhere("auditor");
    let left = AgentReport::Failed {
        error: "revoked".to_owned(),
    };
    master.reported(&first.id, "auditor", left, 2);
    let no = Err(FaultCode::NotPermitted);
    assert_eq!(may(&master, &first, &agent("auditor")), no);
    for now in [10, 600] {
        let next = crash(&mut master, &["a2a", "buyer"], now);
        assert_eq!(may(&master, &next, &agent("auditor")), no);
        for subject in [agent("a2a"), agent("buyer"), Subject::Process] {
            assert_eq!(may(&master, &next, &subject), Ok(()));
        }
        // Nobody waits for it.
        assert!(next.is_settled());
        let place = master.directory().locate("auditor");
        assert_eq!(place, AgentLocation::Unknown);
    }
    // The next Master knows.
    keep(&mut master, &mut rows, 4000);
    let mut master = load(&rows);
    let second = process_of(&master, "a2a");
    assert_eq!(may(&master, &second, &agent("auditor")), no);
    master.exited(&second.id, &Exit::Signal { signal: 9 }, 5000);
    let note = master.group_of("a2a").unwrap().1.note.clone().unwrap();
    assert!(!note.contains(bars::REVOKED), "{note}");
    // An operator that starts the gateway trusts the caller again.
    master.start_again("a2a", 6000).unwrap();
    keep(&mut master, &mut rows, 6000);
    assert!(rows.keys().all(|key| !key.starts_with(BAR_ROW)));
}

#[test]
fn a_gateway_that_waits_for_its_restart_goes_on_without_a_caller_and_not_without_itself() {
    let mut master = with_nodes(1);
    master.start(&[door()], 0).unwrap();
    let first = live(&mut master, "a2a", 1);
    master.exited(&first.id, &Exit::Signal { signal: 9 }, 2);
    master.bar_everywhere("auditor");
    master.tick(master.group_of("a2a").unwrap().1.start_at.unwrap());
    let second = live(&mut master, "a2a", 1000);
    let no = Err(FaultCode::NotPermitted);
    assert_eq!(may(&master, &second, &agent("auditor")), no);
    master.bar_everywhere("a2a");
    master.exited(&second.id, &Exit::Signal { signal: 9 }, 2000);
    let group = master.group_of("a2a").unwrap().1;
    assert!(group.process.is_none() && group.start_at.is_none());
    assert_eq!(group.note.as_deref(), Some(bars::REVOKED));
}

#[test]
fn a_gateway_moves_without_a_caller_that_was_revoked() {
    let mut master = with_nodes(2);
    master.start(&[door()], 0).unwrap();
    for agent in ["a2a", "auditor", "buyer"] {
        live(&mut master, agent, 1);
    }
    let source = process_of(&master, "a2a");
    master.bar_everywhere("auditor");
    let group = master.move_agent("a2a", other(&source.node), 2).unwrap();
    let about = About::Freeze {
        group,
        process: source.id.clone(),
    };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    for agent in ["a2a", "buyer"] {
        live(&mut master, agent, 4);
    }
    assert!(master.group_of("a2a").unwrap().1.moving.is_none());
    let target = process_of(&master, "a2a");
    let no = Err(FaultCode::NotPermitted);
    assert_eq!(may(&master, &target, &agent("auditor")), no);
}

#[test]
fn what_is_barred_in_a_process_is_barred_there_and_where_it_moves_to() {
    let mut master = with_nodes(2);
    master.start(&[twins()], 0).unwrap();
    live(&mut master, "a", 1);
    let source = live(&mut master, "b", 1);
    let group = master.move_agent("a", other(&source.node), 2).unwrap();
    master.bar(&source.id, Some("a"));
    assert_eq!(
        may(&master, &source, &agent("a")),
        Err(FaultCode::NotPermitted)
    );
    assert_eq!(may(&master, &source, &agent("b")), Ok(()));
    let about = About::Freeze {
        group,
        process: source.id.clone(),
    };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    let target = process_of(&master, "a");
    assert_ne!(target.id, source.id);
    assert_eq!(
        may(&master, &target, &agent("a")),
        Err(FaultCode::NotPermitted)
    );
    // An agent barred during a move is barred at both ends.
    master.bar(&source.id, Some("b"));
    for process in [&source, &target] {
        assert_eq!(
            may(&master, process, &agent("b")),
            Err(FaultCode::NotPermitted)
        );
        assert_eq!(
            may(&master, process, &Subject::Process),
            Err(FaultCode::NotPlaced)
        );
    }
}

#[test]
fn a_process_that_is_being_left_bars_nobody_elsewhere() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let group = master.move_agent("a", other(&source.node), 2).unwrap();
    let about = About::Freeze {
        group,
        process: source.id.clone(),
    };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    let target = live(&mut master, "a", 4);
    assert_eq!(
        master.processes_of("a"),
        [target.id.clone(), source.id.clone()]
    );
    master.bar(&source.id, Some("a"));
    assert_eq!(may(&master, &target, &agent("a")), Ok(()));
}

#[test]
fn a_node_certifies_nobody_but_itself_in_its_own_process() {
    let mut master = with_nodes(1);
    master.start(&[entry("a"), entry("b")], 0).unwrap();
    let (a, b) = (live(&mut master, "a", 1), live(&mut master, "b", 1));
    let own = Process {
        id: master.nodes()["node-1"].process.clone(),
        ..a.clone()
    };
    assert_eq!(may(&master, &own, &Subject::Process), Ok(()));
    assert_eq!(may(&master, &own, &agent("node-1")), Ok(()));
    // Otherwise the agent's certificates would survive `kill`, which revokes by process.
    assert_eq!(may(&master, &own, &agent("a")), Err(FaultCode::NotPlaced));
    assert_eq!(may(&master, &b, &agent("a")), Err(FaultCode::NotPlaced));
    assert_eq!(may(&master, &a, &agent("a")), Ok(()));
    master.kill("a", Duration::from_secs(5), 2).unwrap();
    for process in [&a, &own] {
        assert_eq!(
            may(&master, process, &agent("a")),
            Err(FaultCode::NotPlaced)
        );
    }
}

#[test]
fn a_node_that_was_given_up_is_certified_under_its_next_name_only() {
    let mut master = with_nodes(2);
    let before = master.nodes()["node-1"].process.clone();
    pass(&mut master, 0..=8000, &["node-2"]);
    let may = |master: &MasterState, process: &str| {
        check_process(master, "node-1", process, &Subject::Process).is_ok()
    };
    assert!(!may(&master, &before));
    let after = master.come_back("node-1", description(), 8001).unwrap();
    assert!(!may(&master, &before) && may(&master, &after));
}

#[test]
fn a_revocation_writes_one_row_which_goes_with_its_process() {
    let (names, crowd) = crowd(40);
    let (mut master, mut rows) = (with_nodes(1), BTreeMap::new());
    master.start(&[crowd], 0).unwrap();
    for name in &names {
        live(&mut master, name, 1);
    }
    let process = process_of(&master, "a-0");
    keep(&mut master, &mut rows, 1);
    for name in &names[1..] {
        master.bar(&process.id, Some(name));
        master.bar(&process.id, Some(name));
    }
    let before = rows.len();
    let written = master.take_rows(2);
    assert_eq!(written.len(), names.len() - 1);
    let bytes: usize = written
        .iter()
        .flat_map(|(_, value)| value)
        .map(Vec::len)
        .sum();
    assert_eq!(bytes, 0);
    rows.extend(
        written
            .into_iter()
            .map(|(key, value)| (key, value.unwrap())),
    );
    let mut master = load(&rows);
    assert_eq!(may(&master, &process, &agent("a-0")), Ok(()));
    assert_eq!(
        may(&master, &process, &agent("a-7")),
        Err(FaultCode::NotPermitted)
    );
    master.exited(&process.id, &Exit::Code { code: 0 }, 3);
    keep(&mut master, &mut rows, 3);
    assert!(rows.len() <= before, "rows of barred agents stay for ever");
}

#[test]
fn reports_of_many_agents_write_their_group_now_and_then() {
    let (names, crowd) = crowd(40);
    let mut master = with_nodes(1);
    master.start(&[crowd], 0).unwrap();
    let process = process_of(&master, "a-0");
    master.take_rows(0);
    let mut written = 0;
    let active = AgentReport::State {
        state: PlacedState::Active,
    };
    for name in &names {
        master.reported(&process.id, name, active.clone(), 10);
        written += master.take_rows(10).len();
    }
    assert_eq!(written, 0);
    assert!(master.has_unsaved());
    assert_eq!(master.take_rows(1010).len(), 1);
    // Ends that come together are written together.
    for name in &names[1..] {
        master.reported(&process.id, name, AgentReport::Ended, 1010);
    }
    assert_eq!(master.take_rows(1010).len(), 1);
    // A change that no node knows is written at once.
    master.kill("a-0", Duration::from_secs(5), 1011).unwrap();
    assert!(!master.take_rows(1011).is_empty());
}

/// The node forgets its report of the end when that is answered.
#[test]
fn the_end_of_one_agent_among_many_is_known_to_the_next_master() {
    let (names, crowd) = crowd(17);
    let (mut master, mut rows) = (with_nodes(1), BTreeMap::new());
    master.start(&[crowd], 0).unwrap();
    for name in &names {
        live(&mut master, name, 1);
    }
    let process = process_of(&master, "a-0");
    keep(&mut master, &mut rows, 2000);
    master.reported(&process.id, "a-0", AgentReport::Ended, 2010);
    keep(&mut master, &mut rows, 2010);
    let next = load(&rows);
    assert_eq!(next.life("a-0"), None);
    assert_eq!(next.life("a-1"), Some(PlacedState::Active));
}
