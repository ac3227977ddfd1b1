//! States that were restored from a backup, and the nodes that know better.

use super::*;
use std::collections::BTreeSet;

/// The rows of a platform with two nodes and the agent `a`, as `sealbus restore` leaves them.
fn restored() -> (Process, BTreeMap<String, Vec<u8>>) {
    let mut rows = BTreeMap::new();
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let process = live(&mut master, "a", 1);
    keep(&mut master, &mut rows, 1);
    rows.insert(RESTORED_ROW.to_owned(), b"1".to_vec());
    (process, rows)
}

fn running(process: &str, agent: &str) -> RunningProcess {
    RunningProcess {
        process: process.to_owned(),
        pid: Some(4711),
        address: Some(([127, 0, 0, 1], 1000).into()),
        channels: false,
        agents: vec![(agent.to_owned(), PlacedState::Active)],
    }
}

fn register(master: &mut MasterState, node: &str, running: &[RunningProcess], now: UnixMillis) {
    let contact = contact(master, node);
    let current = master.register(node, description(), contact, None, running, now);
    assert!(current.unwrap().stop.is_empty());
}

fn stopped(master: &mut MasterState) -> Vec<String> {
    let effects = master.take_effects();
    effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Ask { request, .. } => match *request {
                NodeRequest::Stop { process, .. } => Some(process),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

#[test]
fn what_runs_on_after_a_restore_is_adopted_and_nothing_is_placed_twice() {
    let (known, mut rows) = restored();
    let mut master = load_at(&rows, 1000);
    let node = known.node.clone();
    // `b`, from the manifest, and the node of its process are unknown to the backup.
    master
        .start(&[entry("a"), entry("b"), entry("c")], 1000)
        .unwrap();
    master.come_back("node-9", description(), 1000).unwrap();
    register(&mut master, &node, &[running(&known.id, "a")], 2000);
    register(&mut master, other(&node), &[running("f", "c")], 2000);
    register(&mut master, "node-9", &[running("e", "b")], 2000);
    assert!(master.group_of("b").unwrap().1.process.is_none());
    // The node shows the certificates in two parts.
    master.is_certified("node-9", "e");
    assert!(master.certified("node-9", "e", BTreeSet::new()));
    assert!(master.certified("node-9", "e", BTreeSet::from(["b".to_owned()])));
    master.has_shown_all("node-9", "e");
    // The certificate of `c` is denied.
    let of_c = BTreeSet::from(["c".to_owned()]);
    assert!(!master.certified(other(&node), "f", of_c));
    master.has_shown_all(other(&node), "f");
    let nodes = ["node-1", "node-2", "node-9"];
    pass(&mut master, 2000..=19_000, &nodes);
    assert!(master.is_restoring() && stopped(&mut master).is_empty());
    pass(&mut master, 19_000..=22_000, &nodes);
    assert!(!master.is_restoring());
    assert_eq!(stopped(&mut master), ["f"]);
    assert_eq!(process_of(&master, "a").id, known.id);
    assert_eq!(process_of(&master, "b").id, "e");
    assert_eq!(master.life("b"), Some(PlacedState::Active));
    assert_ne!(process_of(&master, "c").id, "f");
    // The next start is an ordinary one, but for nodes that were away until then.
    keep(&mut master, &mut rows, 22_000);
    let mut master = load_at(&rows, 30_000);
    assert!(!master.is_restoring());
    master.come_back("node-8", description(), 30_000).unwrap();
}

/// The names of processes are no secret.
#[test]
fn a_node_that_names_a_process_of_another_one_neither_gets_it_nor_ends_it() {
    let (known, rows) = restored();
    let mut master = load_at(&rows, 1000);
    let (node, liar) = (known.node.as_str(), other(&known.node));
    master.start(&[entry("a"), entry("b")], 1000).unwrap();
    let processes = [running(&known.id, "a"), running("e", "b")];
    register(&mut master, node, &processes, 2000);
    let agents = || BTreeSet::from(["b".to_owned()]);
    master.is_certified(node, "e");
    assert!(master.certified(node, "e", agents()));
    master.has_shown_all(node, "e");
    register(&mut master, liar, &[running("e", "b")], 2000);
    // The CA certified nothing for the process there.
    assert!(!master.certified(liar, "e", agents()));
    master.has_shown_all(liar, "e");
    pass(&mut master, 2000..=22_000, &["node-1", "node-2"]);
    assert!(!master.is_restoring());
    let adopted = process_of(&master, "b");
    assert_eq!((adopted.id.as_str(), adopted.node.as_str()), ("e", node));
    let effects = master.take_effects().into_iter();
    let told: Vec<String> = effects
        .filter_map(|effect| match effect {
            Effect::Ask { node, request, .. } => {
                matches!(*request, NodeRequest::Stop { .. }).then_some(node)
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [liar]);
}

#[test]
fn a_node_that_is_lost_too_makes_room_for_a_new_one_of_its_name() {
    let (known, rows) = restored();
    let mut master = load_at(&rows, 1000);
    let wish = Some(known.node.as_str());
    master.join(wish, description(), 1500).unwrap();
    register(&mut master, &known.node, &[], 2000);
    register(&mut master, other(&known.node), &[], 2000);
    let taken = master.join(wish, description(), 2000).unwrap_err();
    assert_eq!(taken.code, FaultCode::NameTaken);
    assert!(master.group_of("a").unwrap().1.process.is_none());
    pass(&mut master, 2000..=22_000, &["node-1", "node-2"]);
    assert_ne!(process_of(&master, "a").id, known.id);
    let mut never_restored = load(&BTreeMap::new());
    let stranger = never_restored.come_back("node-9", description(), 0);
    assert_eq!(stranger.unwrap_err().code, FaultCode::NotPermitted);
}

#[test]
fn a_node_that_comes_back_to_a_restored_state_takes_no_process_of_another_one_for_its_own() {
    let (known, rows) = restored();
    let mut master = load_at(&rows, 1000);
    let liar = other(&known.node);
    let of_node = master.nodes()[&known.node].process.clone();
    let mut registered = |process: &str| {
        let contact = ProcessContact {
            process: process.to_owned(),
            ..contact(&master, liar)
        };
        master.register(liar, description(), contact, None, &[], 2000)
    };
    for process in [&known.id, &of_node] {
        let refused = registered(process).unwrap_err();
        assert_eq!(refused.code, FaultCode::NotPermitted);
    }
    registered("begun since the backup").unwrap();
}
