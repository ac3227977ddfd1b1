//! Silence of nodes that counts against them, and silence that does not.

use proptest::prelude::*;

use super::super::silence::LOOK;
use super::*;

/// How long nodes may be silent, in milliseconds.
const PATIENCE: UnixMillis = 8000;

#[test]
fn silence_that_the_broker_causes_is_held_against_nobody() {
    let (patience, after) = (20_000, 30_000);
    let is_dead = |master: &MasterState, node: &str| master.nodes()[node].state == NodeState::Dead;
    let mut master = with_nodes(2);
    master.nodes_speak_by_broker(0);
    // The Master waits for no other moment, because it is told the broker's state.
    assert_eq!(master.next_tick(), Some(LOOK));
    master.heartbeat("node-1", &Standing::default(), 1000);
    master.heartbeat("node-2", &Standing::default(), 1000);
    assert!(master.broker_is_away() && !master.broker_is_away());
    let hour = 3_600_000;
    pass(&mut master, 1000..=hour, &[]);
    assert!(master.is_any_silent(hour) && !is_dead(&master, "node-1"));
    // The broker is back, and one of the nodes is heard.
    assert!(master.broker_worked(hour, hour) && !master.broker_worked(hour, hour));
    pass(&mut master, hour..=hour + after - 1, &[]);
    assert!(!is_dead(&master, "node-1"));
    master.heartbeat("node-1", &Standing::default(), hour + after);
    assert!(!master.broker_worked(hour + after, hour + after));
    master.tick(hour + after);
    assert!(!is_dead(&master, "node-1") && is_dead(&master, "node-2"));
    // The Master does not know yet that a hanging broker is away.
    let heard = hour + after;
    pass(&mut master, heard..=heard + 10 * patience, &[]);
    assert!(!is_dead(&master, "node-1"));
    // Now the Master learns that the broker worked all the time.
    master.broker_worked(heard + patience - 1, heard + 10 * patience);
    master.tick(heard + 10 * patience);
    assert!(!is_dead(&master, "node-1"));
    master.broker_worked(heard + patience, heard + 10 * patience);
    master.tick(heard + 10 * patience);
    assert!(is_dead(&master, "node-1"));
}

#[test]
fn a_stall_of_the_master_is_excused_as_a_whole() {
    for stall in [5_000, 7_000, 9_000, 12_000, 60_000, 86_400_000] {
        let mut master = with_nodes(2);
        pass(&mut master, 0..=5000, &["node-1", "node-2"]);
        // The Master looks at the clock before it hears any node.
        let now = 5000 + stall;
        master.tick(now);
        assert_eq!(state_of(&master, "node-1"), NodeState::Alive, "{stall}");
        assert_eq!(state_of(&master, "node-2"), NodeState::Alive, "{stall}");
        // A node that is silent from then on has only the remaining patience.
        pass(&mut master, now..=now + PATIENCE - 501, &["node-1"]);
        assert_eq!(state_of(&master, "node-2"), NodeState::Alive, "{stall}");
        pass(
            &mut master,
            now + PATIENCE - 501..=now + PATIENCE,
            &["node-1"],
        );
        assert_eq!(state_of(&master, "node-2"), NodeState::Dead, "{stall}");
        assert_eq!(state_of(&master, "node-1"), NodeState::Alive, "{stall}");
    }
}

#[test]
fn a_stall_puts_off_moves_and_restarts() {
    let mut master = with_nodes(2);
    master.start(&[entry("a"), entry("b")], 0).unwrap();
    let source = live(&mut master, "a", 1);
    let failed = live(&mut master, "b", 1);
    let destination = if source.node == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    master.move_agent("a", destination, 2).unwrap();
    master.exited(&failed.id, &Exit::Signal { signal: 11 }, 2);
    let hour = 3_600_000;
    master.tick(hour);
    assert!(master.group_of("a").unwrap().1.moving.is_some());
    assert_eq!(master.group_of("b").unwrap().1.start_at, Some(hour + 2));
}

#[test]
fn a_clock_that_is_put_back_is_waited_for_by_nothing() {
    let mut master = with_nodes(2);
    master.start(&[entry("a")], 0).unwrap();
    let process = live(&mut master, "a", 1);
    let day = 86_400_000;
    pass(&mut master, day..=day + 5000, &["node-1", "node-2"]);
    master.exited(&process.id, &Exit::Signal { signal: 11 }, day + 5000);
    master.tick(1000);
    assert_eq!(master.group_of("a").unwrap().1.start_at, Some(1500));
    pass(&mut master, 1000..=10_000, &["node-1"]);
    assert_eq!(state_of(&master, "node-2"), NodeState::Dead);
    assert_eq!(state_of(&master, "node-1"), NodeState::Alive);
}

#[test]
fn a_master_that_is_cut_off_gives_up_no_node() {
    for cut in [9_000, 15_000, 60_000, 3_600_000] {
        let mut master = with_nodes(2);
        master.start(&[entry("a"), entry("b")], 0).unwrap();
        let (a, b) = (live(&mut master, "a", 1), live(&mut master, "b", 1));
        pass(&mut master, 0..=cut, &[]);
        // Nothing is placed on a node that is not heard.
        assert_eq!(state_of(&master, "node-1"), NodeState::Expected);
        assert_eq!(master.candidates(), []);
        // The connection is back, and the nodes find their way back one after another.
        pass(&mut master, cut..=cut + 5000, &["node-1"]);
        pass(
            &mut master,
            cut + 5000..=cut + 10_000,
            &["node-1", "node-2"],
        );
        for process in [a, b] {
            let running = RunningProcess {
                process: process.id.clone(),
                pid: Some(4711),
                address: None,
                channels: false,
                agents: Vec::new(),
            };
            let node = process.node.as_str();
            let contact = contact(&master, node);
            let now = cut + 10_000;
            let answer = master.register(node, description(), contact, None, &[running], now);
            assert!(answer.unwrap().stop.is_empty());
            assert!(!revoked(&mut master).contains(&process.id));
        }
        // One of the nodes stays away and is given up.
        let now = cut + 10_000;
        pass(&mut master, now..=now + PATIENCE, &["node-1"]);
        assert_eq!(state_of(&master, "node-2"), NodeState::Dead);
    }
}

#[test]
fn a_node_that_stays_away_after_the_master_was_cut_off_is_given_up() {
    let mut master = with_nodes(2);
    pass(&mut master, 0..=60_000, &[]);
    pass(&mut master, 60_000..=60_000 + 15_000, &["node-1"]);
    assert_eq!(state_of(&master, "node-2"), NodeState::Dead);
}

#[test]
fn a_node_that_was_given_up_comes_back_as_another_process_also_to_the_next_master() {
    let mut rows = BTreeMap::new();
    let mut master = with_nodes(2);
    pass(&mut master, 0..=8000, &["node-2"]);
    assert_eq!(state_of(&master, "node-1"), NodeState::Dead);
    let given_up = master.nodes()["node-1"].process.clone();
    keep(&mut master, &mut rows, 8000);

    let mut master = load_at(&rows, 9000);
    assert_eq!(state_of(&master, "node-1"), NodeState::Dead);
    assert_eq!(state_of(&master, "node-2"), NodeState::Expected);
    let process = master.come_back("node-1", description(), 9001).unwrap();
    assert_ne!(process, given_up);
    // The name given to a node holds, even if another node asks for it again.
    keep(&mut master, &mut rows, 9001);
    let mut master = load_at(&rows, 9002);
    assert_eq!(
        master.come_back("node-1", description(), 9003).unwrap(),
        process
    );
    let contact = contact(&master, "node-1");
    master
        .register("node-1", description(), contact, None, &[], 9004)
        .unwrap();
    assert_eq!(state_of(&master, "node-1"), NodeState::Alive);
}

proptest! {
    /// A Master may stand still, be cut off from all nodes, or both, any number of times and for any time. It gives up
    /// no living node, and it gives up a dead one.
    #[test]
    fn stalls_and_cuts_kill_no_node(
        troubles in prop::collection::vec((0_u64..20_000, any::<bool>(), 1_u64..60_000), 0..12),
        dies in prop::option::of(0_u64..60_000),
    ) {
        let nodes = ["node-1", "node-2", "node-3"];
        let mut master = with_nodes(3);
        let mut now = 0;
        let mut deaf_until = 0;
        let mut troubles = troubles.into_iter();
        let mut trouble = troubles.next();
        let mut quiet = 0;
        while quiet < 40_000 {
            now += 250;
            if let Some((at, stall, length)) = trouble
                && now >= at + deaf_until
            {
                // Each history ends with some time in which nodes can be heard again.
                if stall {
                    now += length;
                    master.tick(now);
                }
                deaf_until = now + if stall { 1000 } else { length };
                trouble = troubles.next().map(|(pause, stall, length)| (pause + 6000, stall, length));
            }
            let is_over = trouble.is_none() && now > deaf_until && dies.is_none_or(|dies| now > dies);
            quiet = if is_over { quiet + 250 } else { 0 };
            for (index, node) in nodes.iter().enumerate() {
                // After a cut a node needs some seconds to find its way back.
                let back = deaf_until + 1500 * index as u64;
                let lives = *node != "node-2" || dies.is_none_or(|dies| now < dies);
                if lives
                    && now >= back
                    && now / 1000 != (now - 250) / 1000
                    && master.heartbeat(node, &Standing::default(), now).register
                {
                    let contact = contact(&master, node);
                    prop_assert!(master.register(node, description(), contact, None, &[], now).is_ok());
                }
            }
            master.tick(now);
            for node in nodes {
                let lives = node != "node-2" || dies.is_none_or(|dies| now < dies);
                prop_assert!(!lives || state_of(&master, node) != NodeState::Dead, "{node} at {now}");
            }
        }
        prop_assert_eq!(dies.is_some(), state_of(&master, "node-2") == NodeState::Dead);
    }
}
