//! The cost of a change on a large platform: the messages and bytes that the Master sends, by count.

use std::collections::BTreeMap;

use super::*;
use crate::node::NodeRequest;

/// A platform of many nodes, with many agents on each.
struct Platform {
    directory: Directory,
    nodes: Vec<Node>,
}

/// A node.
enum Node {
    /// With its copy of the directory.
    Whole(Box<Replica>),
    /// One that states and asks the same, and keeps nothing: all copies together would need the memory of all nodes.
    Hollow(Standing),
}

impl Node {
    fn follow(&mut self, agent: String) {
        match self {
            Self::Whole(replica) => replica.follow(&agent),
            Self::Hollow(standing) => standing.follow.push(agent),
        }
    }

    fn standing(&mut self) -> Standing {
        match self {
            Self::Whole(replica) => replica.standing(),
            Self::Hollow(standing) => standing.clone(),
        }
    }

    /// Takes an answer. Returns whether the node asks at once again.
    fn answered(&mut self, answer: DirectoryUpdate) -> bool {
        match self {
            Self::Whole(replica) => {
                replica.answered(answer);
                replica.wants()
            }
            Self::Hollow(standing) => {
                assert!(answer.from == 0 || answer.from == standing.revision);
                if answer.from > 0 && answer.names == standing.names + 1 {
                    standing.follow.clear();
                }
                (standing.revision, standing.slices) = (answer.to, answer.slices);
                standing.names = answer.names;
                !standing.follow.is_empty()
            }
        }
    }

    fn told(&mut self, update: DirectoryUpdate) {
        match self {
            Self::Whole(replica) => {
                replica.told(update);
            }
            Self::Hollow(standing) => {
                assert!(update.from <= standing.revision && update.names == standing.names);
                standing.revision = update.to;
            }
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Self::Whole(replica) => replica.revision(),
            Self::Hollow(standing) => standing.revision,
        }
    }

    fn slices(&self) -> Slices {
        match self {
            Self::Whole(replica) => replica.held(),
            Self::Hollow(standing) => standing.slices,
        }
    }
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
    /// One node in `hollow` has its copy of the directory.
    fn new(nodes: usize, agents: usize, hollow: usize) -> Self {
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
        let nodes = (0..nodes).map(|number| {
            let own = (number..agents).step_by(nodes).map(agent);
            if number % hollow == 0 {
                let mut replica = Box::<Replica>::default();
                replica.own_agents_are(own.collect());
                return Node::Whole(replica);
            }
            Node::Hollow(Standing {
                follow: own.collect(),
                ..Standing::default()
            })
        });
        let mut platform = Self {
            directory,
            nodes: nodes.collect(),
        };
        // Slices are given up once their holders have stated that they hold them.
        platform.settle();
        platform.settle();
        platform
    }

    /// All nodes send heartbeats until they want nothing more. Returns the bytes of the answers, and of the largest one.
    fn settle(&mut self) -> (usize, usize) {
        let (mut bytes, mut largest) = (0, 0);
        for (number, side) in self.nodes.iter_mut().enumerate() {
            loop {
                let answer = self.directory.answer(&node(number), &side.standing());
                if matches!(side, Node::Whole(_)) || answer.part.is_none() {
                    let size = serde_json::to_vec(&answer).unwrap().len();
                    (bytes, largest) = (bytes + size, largest.max(size));
                }
                if !side.answered(answer) {
                    break;
                }
            }
        }
        (bytes, largest)
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
            self.nodes[number].told(update);
            assert_eq!(self.nodes[number].revision(), self.directory.revision());
        }
        told
    }
}

/// Runs a platform, prints what it costs, and checks the bounds.
fn run(nodes: usize, agents: usize, moves: usize, followers: usize, hollow: usize) {
    let mut platform = Platform::new(nodes, agents, hollow);
    assert!(platform.directory.is_sliced());
    // Each slice is held three times, and by no node alone.
    let held = platform
        .nodes
        .iter()
        .map(|node| node.slices().count() as usize);
    assert_eq!(held.clone().sum::<usize>(), HOLDERS * SLICES);
    assert!(held.max().unwrap() < SLICES / 4);
    let whole = platform.nodes.iter().filter_map(|node| match node {
        Node::Whole(replica) => Some(replica.agents()),
        Node::Hollow(_) => None,
    });
    let most = whole.max().unwrap();
    assert!(most < agents / 4, "{most} of {agents} at one node");
    println!("{nodes} nodes, {agents} agents: {most} agents at most in a copy");

    // Nodes ask for the agents that move: each is followed by some.
    for number in 0..moves {
        for follower in 0..followers {
            let asker = (number * 7 + follower * 131 + 1) % nodes;
            platform.nodes[asker].follow(agent(number));
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
    assert!(bytes <= messages * 640, "{}", bytes / messages);
    let (bytes, largest) = platform.settle();
    println!("{nodes} heartbeats after it: {bytes} bytes, {largest} in the largest");
    for number in 0..moves {
        let (name, mut knowing) = (agent(number), 0);
        for node in &platform.nodes {
            match node {
                Node::Whole(replica) if replica.covers(&name) => {
                    assert_eq!(replica.locate(&name), platform.directory.locate(&name));
                    knowing += 1;
                }
                Node::Whole(_) => {}
                Node::Hollow(standing) => {
                    knowing += usize::from(standing.slices.contains(Slices::of(&name)));
                }
            }
        }
        assert!(knowing >= HOLDERS, "{name}");
    }
}

#[test]
fn a_moved_agent_is_told_to_its_holders_and_to_those_that_follow_it() {
    run(1000, 100_000, 1000, 5, 10);
}

/// The largest platform that the design speaks of.
#[test]
#[ignore = "large"]
fn the_same_with_ten_thousand_nodes_and_a_million_agents() {
    run(10_000, 1_000_000, 1000, 36, 200);
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = memory.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}
