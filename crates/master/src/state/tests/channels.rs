//! Processes whose agents use channels.

use super::*;

/// A process may report channels before its address is known. The nodes must have learned the address.
#[test]
fn a_process_is_listed_when_the_nodes_have_heard_of_its_address() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let process = process_of(&master, "a");
    master.started(&process.id, Some(4711));
    let hear = |master: &mut MasterState| {
        let standing = Standing {
            revision: master.directory().revision(),
            processes: true,
            heard: master.directory().revision(),
            ..Standing::default()
        };
        for node in ["node-1", "node-2"] {
            master.heartbeat(node, &standing, 1);
        }
    };
    hear(&mut master);
    assert!(!master.uses_channels(&process.id, 1).is_told);
    master.announced(&process.id, ([127, 0, 0, 1], 1000).into(), 1);
    assert!(!master.uses_channels(&process.id, 1).is_told);
    hear(&mut master);
    assert!(master.uses_channels(&process.id, 1).is_told);
}
