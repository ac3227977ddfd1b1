//! Nodes that leave, die, and come back.

use super::*;

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
    // The node still sends heartbeats, and need not register for them.
    assert!(!master.heartbeat(here, &Standing::default(), 2).register);
    master.exited(&before.id, &Exit::NodeLeft, 3);
    master.tick(3);
    assert_eq!(process_of(&master, "a").node, there);
    master.take_effects();
    master.left(here, 4);
    assert_eq!(master.nodes()[here].state, NodeState::Left);
    // The node's own process is revoked after the node has had its answer.
    let own = master.nodes()[here].process.clone();
    assert!(!revoked(&mut master).contains(&own));
    pass(&mut master, 4..=2000, &[there]);
    assert!(revoked(&mut master).contains(&own));
    assert_eq!(master.directory().locate(here), AgentLocation::Unknown);
    master.tick(3000);
    assert!(revoked(&mut master).is_empty());
    // When the node comes back, it is another process.
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
    pass(&mut master, 0..=8000, &["node-2"]);
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
    pass(&mut master, 0..=8000, &[other]);
    let running = RunningProcess {
        process: lost.id.clone(),
        pid: Some(1),
        address: None,
        channels: false,
        agents: Vec::new(),
    };
    let node = lost.node.clone();
    // The node does not know yet that it was given up.
    let given_up = contact(&master, &node);
    let refused = master.register(&node, description(), given_up, None, &[], 8001);
    assert_eq!(refused.unwrap_err().code, FaultCode::NotPermitted);
    master.come_back(&node, description(), 8002).unwrap();
    let answer = master
        .register(
            &node,
            description(),
            contact(&master, &node),
            None,
            &[running],
            8003,
        )
        .unwrap();
    assert_eq!(answer.stop, [lost.id]);
}

#[test]
fn what_ended_in_order_while_the_master_was_away_is_not_run_again() {
    let mut rows = BTreeMap::new();
    let mut master = with_nodes(2);
    master.start(&[entry("a"), entry("b")], 0).unwrap();
    let (done, gone) = (live(&mut master, "a", 1), live(&mut master, "b", 1));
    keep(&mut master, &mut rows, 1);
    let mut master = load_at(&rows, 5000);
    for node in ["node-1", "node-2"] {
        // Each node reports both, and is believed about its own.
        let ended = [&done, &gone]
            .map(|process| (process.id.clone(), Exit::Code { code: 0 }))
            .into_iter()
            .filter(|(process, _)| *process == done.id || node != gone.node)
            .collect::<Vec<_>>();
        master.ended_meanwhile(node, &ended, 5001);
        let contact = contact(&master, node);
        master
            .register(node, description(), contact, None, &[], 5002)
            .unwrap();
    }
    let group = master.group_of("a").unwrap().1;
    assert_eq!(group.note.as_deref(), Some("ended (exit code 0)"));
    assert!(group.process.is_none() && !group.wanted);
    // The same report comes again by the usual way, and changes nothing.
    master.exited(&done.id, &Exit::Code { code: 0 }, 5003);
    assert!(master.group_of("a").unwrap().1.process.is_none());
    // The process that is merely missing was lost.
    assert_ne!(process_of(&master, "b").id, gone.id);
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

/// However many agents wait for a node, a heartbeat costs no look at them.
#[test]
fn agents_that_wait_for_a_node_are_looked_at_when_one_comes() {
    let mut master = with_nodes(1);
    let entry = |number: usize| AgentEntry {
        node: Some("node-2".to_owned()),
        ..entry(&format!("a{number}"))
    };
    let entries: Vec<_> = (0..100).map(entry).collect();
    master.start(&entries, 1).unwrap();
    master.tick(250);
    assert_eq!(master.loads.due_by(250).count(), 0);
    assert!(!master.nodes.have_changed());
    assert_eq!(master.next_tick(), Some(250 + 500));
    let (name, _) = master.join(None, description(), 300).unwrap();
    let contact = contact(&master, &name);
    master
        .register(&name, description(), contact, None, &[], 300)
        .unwrap();
    let placed = master.groups().values();
    assert!(placed.clone().all(|group| group.process.is_some()));
    assert_eq!(placed.len(), 100);
}

#[test]
fn the_texts_of_a_node_take_a_bounded_part_of_its_row() {
    let long = NodeDescription {
        host: "h".repeat(100_000),
        version: "\u{1b}".repeat(100_000),
        ..description()
    };
    let check = |master: &MasterState| {
        let known = &master.nodes()["node-1"].description;
        assert!(known.host.chars().count() < 300);
        assert!(known.version.len() < 3000 && !known.version.contains('\u{1b}'));
        assert_eq!(known.processors, long.processors);
    };
    let mut master = master();
    master.join(None, long.clone(), 0).unwrap();
    check(&master);
    master.come_back("node-1", long.clone(), 1).unwrap();
    check(&master);
    let contact = contact(&master, "node-1");
    master
        .register("node-1", long.clone(), contact, None, &[], 2)
        .unwrap();
    check(&master);
}

#[test]
fn a_copy_of_a_node_on_another_machine_does_not_take_its_place() {
    let mut master = with_nodes(2);
    let copy = || NodeDescription {
        host: "there".to_owned(),
        ..description()
    };
    pass(&mut master, 0..=7000, &["node-1", "node-2"]);
    let before = master.nodes()["node-1"].clone();
    let refused = master.come_back("node-1", copy(), 7001).unwrap_err();
    assert_eq!(refused.code, FaultCode::Unavailable);
    assert!(refused.message.contains("runs on here"), "{refused}");
    assert_eq!(master.nodes()["node-1"], before);
    // On its own machine it may have been started again.
    let own = master.come_back("node-1", description(), 7002);
    assert_eq!(own.unwrap(), before.process);
    // After it has ended, its state directory may be on another machine.
    pass(&mut master, 7000..=16_000, &["node-2"]);
    let moved = master.come_back("node-1", copy(), 16_001);
    assert_ne!(moved.unwrap(), before.process);
}

/// A container that is made anew after a crash has another name. Its questions are no signs of life of the former one.
#[test]
fn the_only_node_comes_back_under_another_name_of_its_machine_once_it_is_given_up() {
    let mut master = with_nodes(1);
    let renamed = || NodeDescription {
        host: "there".to_owned(),
        ..description()
    };
    pass(&mut master, 0..=7000, &["node-1"]);
    let is_in = |at: &UnixMillis| {
        master.tick(*at);
        master.come_back("node-1", renamed(), *at).is_ok()
    };
    assert_eq!((7500..60_000).step_by(500).find(is_in), Some(15_000));
}
