//! Moves, and the ends of agents and nodes in the middle of one.

use super::*;

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
    // The former process stays for a while, to redirect others that still write to it.
    master.tick(5);
    assert!(!revoked(&mut master).contains(&source.id));
    let leaving = TimeLimits::default().leaving.as_millis() as u64;
    pass(&mut master, 5..=4 + leaving, &["node-1", "node-2"]);
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

/// The orders that let agents at rest go on and that end processes, in their order.
fn thawed_and_stopped(master: &mut MasterState) -> Vec<(&'static str, String)> {
    let order = |effect| match effect {
        Effect::Ask { request, .. } => match *request {
            NodeRequest::Thaw { process } => Some(("thaw", process)),
            NodeRequest::Stop { process, .. } => Some(("stop", process)),
            _ => None,
        },
        _ => None,
    };
    master
        .take_effects()
        .into_iter()
        .filter_map(order)
        .collect()
}

const GRACE: Duration = Duration::from_secs(5);

/// An agent at rest mistakes an order to stop for the end of its move, and would end without its last hook.
#[test]
fn an_agent_that_is_killed_while_it_comes_to_rest_ends_in_order() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let group = master.move_agent("a", other(&source.node), 2).unwrap();
    master.take_effects();
    master.kill("a", GRACE, 3).unwrap();
    let expected = [("thaw", source.id.clone()), ("stop", source.id.clone())];
    assert_eq!(thawed_and_stopped(&mut master), expected);
    // The answer of the node was on its way.
    let process = source.id.clone();
    let about = About::Freeze { group, process };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 4);
    assert_eq!(process_of(&master, "a").id, source.id);
    assert_eq!(thawed_and_stopped(&mut master), []);
}

/// An agent that its process has handed in for a move, and that is placed in another one.
fn handed_in() -> (MasterState, Process) {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let group = master.move_agent("a", other(&source.node), 2).unwrap();
    let process = source.id.clone();
    let about = About::Freeze { group, process };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 3);
    (master, source)
}

#[test]
fn an_agent_that_is_killed_while_it_moves_ends_in_order_in_one_process() {
    let moving = || {
        let (mut master, source) = handed_in();
        let target = process_of(&master, "a");
        master.take_effects();
        master.kill("a", GRACE, 4).unwrap();
        let stopped = [("stop", target.id.clone())];
        assert_eq!(thawed_and_stopped(&mut master), stopped);
        (master, source, target)
    };
    // The new process has not taken over: the agent goes on in the former one, and ends there.
    let (mut master, source, target) = moving();
    master.exited(&target.id, &Exit::Code { code: 0 }, 5);
    let expected = [
        ("stop", target.id.clone()),
        ("thaw", source.id.clone()),
        ("stop", source.id.clone()),
    ];
    assert_eq!(thawed_and_stopped(&mut master), expected);
    master.exited(&source.id, &Exit::Code { code: 0 }, 6);
    let (_, ended) = master.group_of("a").unwrap();
    assert_eq!(ended.processes().count(), 0);
    assert_eq!(
        (ended.note.as_deref(), ended.start_at),
        (Some("stopped"), None)
    );

    // The new process has taken over: the former one has no agent any more.
    let (mut master, source, target) = moving();
    live(&mut master, "a", 5);
    master.exited(&target.id, &Exit::Code { code: 0 }, 6);
    let leaving = TimeLimits::default().leaving.as_millis() as u64;
    pass(&mut master, 6..=5 + leaving, &["node-1", "node-2"]);
    let expected = [("stop", source.id.clone())];
    assert_eq!(thawed_and_stopped(&mut master), expected);

    // Another Master that takes over starts nothing, and ends the new process as well.
    let (mut master, source, target) = moving();
    let mut rows = BTreeMap::new();
    keep(&mut master, &mut rows, 5);
    let mut next = load_at(&rows, 6);
    let asked = |effect: &Effect| matches!(effect, Effect::Ask { request, .. } if matches!(**request, NodeRequest::Start { .. }));
    let effects = next.take_effects();
    assert!(!effects.iter().any(asked), "{effects:?}");
    assert_eq!(process_of(&next, "a").id, target.id);
    next.exited(&target.id, &Exit::Code { code: 0 }, 7);
    let orders = thawed_and_stopped(&mut next);
    assert!(
        orders.ends_with(&[("thaw", source.id.clone()), ("stop", source.id)]),
        "{orders:?}"
    );
}

/// The former Master asked for the agent's state. The process ended before the next Master heard whether it had handed that
/// in.
fn ended_for_a_lost_master() -> (MasterState, Process, String, BTreeMap<String, Vec<u8>>) {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let destination = other(&source.node).to_owned();
    let group = master.move_agent("a", &destination, 2).unwrap();
    let mut rows = BTreeMap::new();
    keep(&mut master, &mut rows, 3);
    let mut next = load_at(&rows, 4);
    next.take_effects();
    next.exited(&source.id, &Exit::Signal { signal: 9 }, 5);
    assert!(revoked(&mut next).contains(&source.id));
    keep(&mut next, &mut rows, 6);
    (next, source, group, rows)
}

#[test]
fn a_process_that_ended_is_asked_for_what_it_handed_in_before_its_agent_starts_anew() {
    for was_handed_in in [true, false] {
        let (_, source, group, mut rows) = ended_for_a_lost_master();
        // Yet another Master goes on in the same way.
        let mut master = load_at(&rows, 7);
        let freeze = NodeRequest::Freeze {
            process: source.id.clone(),
            destination: other(&source.node).to_owned(),
        };
        let asked =
            |effect: &Effect| matches!(effect, Effect::Ask { request, .. } if **request == freeze);
        let effects = master.take_effects();
        assert!(effects.iter().any(asked), "{effects:?}");
        assert_eq!(master.directory().locate("a"), AgentLocation::InTransit);
        // The node says again that it ended.
        master.exited(&source.id, &Exit::Lost, 8);
        let process = source.id.clone();
        let about = About::Freeze { group, process };
        let answer = match was_handed_in {
            true => Ok(NodeAnswer::Frozen { size: 3 }),
            false => Err(Fault::new(FaultCode::Unknown, "there is no such process")),
        };
        master.answered(about, answer, 9);
        let inherits = |effect: &Effect| match effect {
            Effect::Ask { request, .. } => match &**request {
                NodeRequest::Start { launch, .. } => launch.inherits.is_some(),
                _ => false,
            },
            _ => false,
        };
        let effects = master.take_effects();
        assert_eq!(effects.iter().any(inherits), was_handed_in, "{effects:?}");
        if was_handed_in {
            // So does the one after it.
            keep(&mut master, &mut rows, 10);
            master = load_at(&rows, 11);
            let target = live(&mut master, "a", 12);
            assert_eq!(target.node, other(&source.node));
            assert!(!master.processes.contains_key(&source.id));
        } else {
            let (_, group) = master.group_of("a").unwrap();
            assert!(group.moving.is_none() && group.process.is_none());
            assert!(
                group.start_at.is_some_and(|at| at > 9),
                "{:?}",
                group.start_at
            );
        }
        assert!(master.process(&source.id).is_none());
    }
}

#[test]
fn an_agent_whose_process_ended_during_its_move_is_killed_and_barred_like_others() {
    let (mut master, ..) = ended_for_a_lost_master();
    master.kill("a", GRACE, 6).unwrap();
    let (_, group) = master.group_of("a").unwrap();
    assert_eq!(group.processes().count(), 0);
    assert_eq!(
        (group.note.as_deref(), group.start_at),
        (Some("stopped"), None)
    );

    let (mut master, source, group, _) = ended_for_a_lost_master();
    master.bar_everywhere("a");
    let process = source.id;
    let about = About::Freeze { group, process };
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 7);
    let target = process_of(&master, "a").id;
    assert!(master.is_barred(&target, "a"));
}

/// An agent whose source process ended before the new one took over.
fn restored_alone() -> (MasterState, Process, Process) {
    let (mut master, source) = handed_in();
    master.exited(&source.id, &Exit::Signal { signal: 9 }, 4);
    let first = process_of(&master, "a");
    master.take_effects();
    (master, source, first)
}

#[test]
fn a_revoked_agent_starts_nowhere_if_both_processes_of_its_move_are_gone() {
    let (mut master, _, first) = restored_alone();
    master.bar_everywhere("a");
    master.exited(&first.id, &Exit::Code { code: 1 }, 5);
    let (_, group) = master.group_of("a").unwrap();
    assert!(!group.wanted && group.process.is_none() && group.start_at.is_none());
}

#[test]
fn agents_are_restored_once_more_if_both_processes_of_a_move_are_gone() {
    let (mut master, source, first) = restored_alone();
    master.exited(&first.id, &Exit::Signal { signal: 9 }, 5);
    let inherited = |effect: Effect| match effect {
        Effect::Ask { request, .. } => match *request {
            NodeRequest::Start { launch } => launch.inherits.map(|it| (launch.process, it.process)),
            _ => None,
        },
        _ => None,
    };
    let second = process_of(&master, "a");
    let starts: Vec<_> = master
        .take_effects()
        .into_iter()
        .filter_map(inherited)
        .collect();
    assert_eq!(starts, [(second.id.clone(), source.id.clone())]);
    assert!(second.id != first.id && master.process(&first.id).is_none());
    // Nothing is tried for ever.
    master.exited(&second.id, &Exit::Signal { signal: 9 }, 6);
    let expected = [("stop", second.id), ("thaw", source.id)];
    assert_eq!(thawed_and_stopped(&mut master), expected);
    let (_, group) = master.group_of("a").unwrap();
    assert!(group.moving.is_none());
}

/// Only the node of the agent has the messages that the agent has not read.
#[test]
fn senders_are_told_of_what_a_killed_agent_left_unread_if_its_former_process_is_gone() {
    for grace in [GRACE, Duration::ZERO] {
        let (mut master, source, target) = restored_alone();
        master.kill("a", grace, 5).unwrap();
        let stopped = [("stop", target.id.clone())];
        assert_eq!(thawed_and_stopped(&mut master), stopped);
        master.exited(&target.id, &Exit::Signal { signal: 9 }, 6);
        let orders = thawed_and_stopped(&mut master);
        assert!(orders.contains(&("thaw", source.id)), "{orders:?}");
        let (_, group) = master.group_of("a").unwrap();
        assert!(group.moving.is_none() && group.processes().count() == 0);
        assert_eq!(
            (group.note.as_deref(), group.start_at),
            (Some("stopped"), None)
        );
    }

    // If the new process has taken over, it has them and tells the senders itself.
    let (mut master, _, target) = restored_alone();
    master.kill("a", GRACE, 5).unwrap();
    live(&mut master, "a", 6);
    master.exited(&target.id, &Exit::Code { code: 0 }, 7);
    let stopped = [("stop", target.id)];
    assert_eq!(thawed_and_stopped(&mut master), stopped);
}

#[test]
fn senders_are_told_if_an_agent_is_killed_or_revoked_before_its_node_said_that_it_was_handed_in() {
    let (mut master, source, ..) = ended_for_a_lost_master();
    master.take_effects();
    master.kill("a", GRACE, 6).unwrap();
    assert_eq!(thawed_and_stopped(&mut master), [("thaw", source.id)]);

    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    master.move_agent("a", other(&source.node), 2).unwrap();
    master.bar_everywhere("a");
    master.take_effects();
    master.exited(&source.id, &Exit::Code { code: 1 }, 3);
    assert_eq!(thawed_and_stopped(&mut master), [("thaw", source.id)]);
}

#[test]
fn a_process_that_still_redirects_others_ends_without_ending_the_next_move() {
    let moved_on = || {
        let (mut master, former) = handed_in();
        let process = live(&mut master, "a", 4).id;
        let group = master.move_agent("a", &former.node, 5).unwrap();
        (master, former, About::Freeze { group, process })
    };
    let end = Exit::Code { code: 0 };
    let (mut master, former, about) = moved_on();
    master.exited(&former.id, &end, 6);
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 7);
    assert_eq!(live(&mut master, "a", 8).node, former.node);

    let (mut master, former, about) = moved_on();
    master.answered(about, Ok(NodeAnswer::Frozen { size: 3 }), 6);
    master.exited(&former.id, &end, 7);
    assert_eq!(live(&mut master, "a", 8).node, former.node);
    assert!(master.process(&former.id).is_none());
}

/// Whether the Master names this process to others as one that uses channels.
fn is_named(master: &MasterState, process: &Process) -> bool {
    let known = master.directory().processes();
    known.iter().any(|contact| contact.process == process.id)
}

/// The directory of a later Master remembers no ends. Each message to such a process would wait for a link that never comes.
#[test]
fn a_process_that_ended_during_its_move_is_named_to_nobody_by_the_next_master() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    master.uses_channels(&source.id, 1);
    let group = master.move_agent("a", other(&source.node), 2).unwrap();
    let about = || About::Freeze {
        group: group.clone(),
        process: source.id.clone(),
    };
    let mut rows = BTreeMap::new();
    let mut next = |master: &mut MasterState, now| {
        keep(master, &mut rows, now);
        load_at(&rows, now)
    };
    let mut master = next(&mut master, 3);
    assert!(is_named(&master, &source));

    // The process ends before its node has said whether it handed in its agent.
    master.exited(&source.id, &Exit::Lost, 4);
    assert!(!is_named(&master, &source));
    let mut master = next(&mut master, 5);
    assert!(!is_named(&master, &source));
    master.answered(about(), Ok(NodeAnswer::Frozen { size: 3 }), 6);
    let mut master = next(&mut master, 7);
    assert!(!is_named(&master, &source));
    live(&mut master, "a", 8);
    assert!(!is_named(&next(&mut master, 9), &source));

    // The process ends after that.
    let (mut master, source) = handed_in();
    master.uses_channels(&source.id, 4);
    assert!(is_named(&master, &source));
    master.exited(&source.id, &Exit::Lost, 5);
    let mut rows = BTreeMap::new();
    keep(&mut master, &mut rows, 6);
    let mut master = load_at(&rows, 6);
    assert!(!is_named(&master, &source));
    let target = live(&mut master, "a", 7);
    assert!(!is_named(&master, &source));
    assert_eq!(process_of(&master, "a").id, target.id);
}

/// The new process has settled, but the Master ended before it stored that. Its node names the agent before the agent's report
/// comes once more.
#[test]
fn a_move_that_ended_while_the_master_changed_is_not_undone() {
    let (mut master, source) = handed_in();
    let target = process_of(&master, "a");
    let address = ([127, 0, 0, 1], 1000).into();
    master.started(&target.id, Some(4711));
    master.announced(&target.id, address, 4);
    let mut rows = BTreeMap::new();
    keep(&mut master, &mut rows, 5);
    let mut next = load_at(&rows, 6);
    let running = [RunningProcess {
        process: target.id.clone(),
        pid: Some(4711),
        address: Some(address),
        channels: false,
        agents: vec![("a".to_owned(), PlacedState::Active)],
    }];
    let at = contact(&next, &target.node);
    next.register(&target.node, description(), at, None, &running, 7)
        .unwrap();
    let active = AgentReport::State {
        state: PlacedState::Active,
    };
    next.reported(&target.id, "a", active, 8);
    let (name, group) = next.group_of("a").unwrap();
    assert!(group.moving.is_none());
    assert_eq!(group.leaving.len(), 1);
    assert_eq!(group.leaving[0].id, source.id);
    let moved = Effect::Settled {
        group: name.to_owned(),
        result: Ok(target.node.clone()),
    };
    assert!(next.take_effects().contains(&moved));
    assert_eq!(process_of(&next, "a").id, target.id);
}
