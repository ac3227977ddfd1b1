//! What a change costs on a large platform: the messages and bytes that the Master sends, by count.

use std::collections::BTreeMap;

use super::*;
use crate::node::NodeRequest;

/// A platform of this many nodes, with this many agents on each.
struct Platform {
    directory: Directory,
    replicas: Vec<Replica>,
}

fn node(number: usize) -> String {
    format!("node-{number}")
}

fn agent(number: usize) -> String {
    format!("seller-{number}")
}

fn place(node_number: usize, agent: usize) -> AgentLocation {
    AgentLocation::Process(ProcessContact {
        node: node(node_number),
        process: format!("{agent:032x}"),
        address: ([10, 0, 0, 1], 7000).into(),
    })
}

impl Platform {
    fn new(nodes: usize, agents: usize) -> Self {
        let mut directory = Directory::starting_at(1);
        for number in 0..nodes {
            directory.set(
                &node(number),
                AgentLocation::Process(ProcessContact {
                    node: node(number),
                    process: format!("{number:032x}"),
                    address: ([10, 0, 0, 1], 7000).into(),
                }),
            );
        }
        for number in 0..agents {
            directory.set(&agent(number), place(number % nodes, number));
        }
        let replicas = (0..nodes).map(|_| Replica::default()).collect();
        let mut platform = Self {
            directory,
            replicas,
        };
        for (number, replica) in platform.replicas.iter_mut().enumerate() {
            let own = (number..agents).step_by(nodes).map(agent);
            replica.own_agents_are(own.collect());
        }
        platform.settle_with(|_| {});
        platform
    }

    /// All nodes send heartbeats until they want nothing more. Returns the bytes of the answers, and of the largest one.
    fn settle(&mut self) -> (usize, usize) {
        let (mut bytes, mut largest) = (0, 0);
        self.settle_with(|answer| {
            let size = serde_json::to_vec(answer).unwrap().len();
            (bytes, largest) = (bytes + size, largest.max(size));
        });
        (bytes, largest)
    }

    fn settle_with(&mut self, mut look: impl FnMut(&DirectoryUpdate)) {
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            loop {
                let answer = self.directory.answer(&node(number), &replica.standing());
                look(&answer);
                replica.answered(answer);
                if !replica.wants() {
                    break;
                }
            }
        }
    }

    /// Tells the concerned nodes their news. Returns the bytes to each.
    fn tell(&mut self) -> BTreeMap<String, usize> {
        let Concerned::Nodes(nodes) = self.directory.concerned() else {
            panic!("a change of one agent concerns all");
        };
        let mut told = BTreeMap::new();
        for name in nodes {
            let update = self.directory.news_for(&name).unwrap();
            let request = NodeRequest::Directory {
                update: update.clone(),
            };
            told.insert(name.clone(), serde_json::to_vec(&request).unwrap().len());
            let number: usize = name.strip_prefix("node-").unwrap().parse().unwrap();
            self.replicas[number].told(update);
            assert_eq!(self.replicas[number].revision(), self.directory.revision());
        }
        told
    }
}

/// Runs a platform, prints what it costs, and checks the bounds.
fn run(nodes: usize, agents: usize, moves: usize, followers: usize) {
    let mut platform = Platform::new(nodes, agents);
    assert!(platform.directory.is_sliced());
    let held: usize = platform.replicas.iter().map(Replica::agents).sum();
    let most = platform.replicas.iter().map(Replica::agents).max().unwrap();
    // Holders have a slice three times, and each node its own agents.
    assert!(held <= (HOLDERS + 1) * agents, "{held}");
    assert!(most < agents / 5, "{most} of {agents} at one node");
    println!(
        "{nodes} nodes, {agents} agents: {} entries a node, {most} at most",
        held / nodes
    );

    // Nodes ask for the agents that move: each is followed by some.
    for number in 0..moves {
        for follower in 0..followers {
            let asker = (number * 7 + follower * 131 + 1) % nodes;
            platform.replicas[asker].follow(&agent(number));
        }
    }
    let (bytes, largest) = platform.settle();
    println!(
        "{} follows: {bytes} bytes of answers, {largest} in the largest",
        moves * followers
    );
    platform.directory.concerned();

    let (mut messages, mut bytes) = (0, 0);
    for number in 0..moves {
        let there = (number + 1) % nodes;
        platform
            .directory
            .set(&agent(number), AgentLocation::InTransit);
        platform.directory.set(&agent(number), place(there, number));
        let told = platform.tell();
        // The holders, the followers, and the node that had it.
        assert!(told.len() <= HOLDERS + followers + 1, "{told:?}");
        messages += told.len();
        bytes += told.values().sum::<usize>();
    }
    println!("{moves} moves: {messages} messages, {bytes} bytes");
    assert!(messages <= moves * (HOLDERS + followers + 1));
    assert!(bytes <= messages * 640, "{}", bytes / messages);
    let (bytes, largest) = platform.settle();
    println!("{nodes} heartbeats after it: {bytes} bytes, {largest} in the largest");
    for number in 0..moves {
        let name = agent(number);
        let knowing = platform
            .replicas
            .iter()
            .filter(|replica| replica.covers(&name));
        let places: Vec<AgentLocation> = knowing.map(|replica| replica.locate(&name)).collect();
        assert!(places.len() >= HOLDERS);
        assert!(
            places
                .iter()
                .all(|place| *place == platform.directory.locate(&name))
        );
    }
}

#[test]
fn a_moved_agent_is_told_to_its_holders_and_to_those_that_follow_it() {
    run(1000, 100_000, 1000, 5);
}

/// The largest platform that the design speaks of. It takes some minutes and some gigabytes.
#[test]
#[ignore = "large"]
fn the_same_with_ten_thousand_nodes_and_a_million_agents() {
    run(10_000, 1_000_000, 1000, 36);
}
