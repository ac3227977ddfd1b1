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
    let leaving = Patience::default().leaving.as_millis() as u64;
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
