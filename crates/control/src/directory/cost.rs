//! The cost of a change on a large platform: the messages and bytes that the Master sends, by count.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::node::NodeRequest;

/// A platform of many nodes, with many agents on each.
struct Platform {
    directory: Directory,
    nodes: Vec<Node>,
}

/// A node. Some have a copy of the directory.
enum Node {
    Whole(Box<Replica>),
    Hollow(HollowReplica),
}

impl Node {
    fn follow(&mut self, agent: String) {
        match self {
            Self::Whole(replica) => replica.follow(&agent),
            Self::Hollow(replica) => replica.follow([agent]),
        }
    }

    fn standing(&mut self) -> Standing {
        match self {
            Self::Whole(replica) => replica.standing(),
            Self::Hollow(replica) => replica.standing(),
        }
    }

    /// Takes an answer. Returns whether the node asks again at once.
    fn answered(&mut self, answer: DirectoryUpdate) -> bool {
        match self {
            Self::Whole(replica) => {
                replica.answered(answer);
                replica.wants()
            }
            Self::Hollow(replica) => {
                assert!(answer.from == 0 || answer.from == replica.revision());
                replica.answered(&answer)
            }
        }
    }

    fn told(&mut self, update: DirectoryUpdate) {
        match self {
            Self::Whole(replica) => {
                replica.told(update);
            }
            Self::Hollow(replica) => replica.told(&update),
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Self::Whole(replica) => replica.revision(),
            Self::Hollow(replica) => replica.revision(),
        }
    }

    fn slices(&self) -> Slices {
        match self {
            Self::Whole(replica) => replica.held(),
            Self::Hollow(replica) => replica.held(),
        }
    }
}

fn node(number: usize) -> String {
    format!("node-{number}")
}

fn agent(number: usize) -> String {
    format!("seller-{number}")
}

fn contact_of(node_number: usize, process: usize) -> ProcessContact {
    ProcessContact {
        node: node(node_number),
        process: format!("{process:032x}"),
        address: ([10, 0, 0, 1], 7000).into(),
    }
}

fn place(node_number: usize, agent: usize) -> AgentLocation {
    AgentLocation::Process(contact_of(node_number, agent))
}

impl Platform {
    /// One in `hollow` nodes has a copy of the directory.
    fn new(nodes: usize, agents: usize, hollow: usize) -> Self {
        let mut directory = Directory::starting_at(1);
        for number in 0..nodes {
            directory.set(&node(number), place(number, number));
        }
        for number in 0..agents {
            directory.set(&agent(number), place(number % nodes, number));
        }
        let nodes = (0..nodes).map(|number| {
            let own = (number..agents).step_by(nodes).map(agent);
            if number % hollow == 0 {
                let mut replica = Box::<Replica>::default();
                replica.own_agents_are(&Arc::new(own.collect()));
                return Node::Whole(replica);
            }
            let mut hollow = HollowReplica::default();
            hollow.follow(own);
            Node::Hollow(hollow)
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

    /// Lets all nodes send heartbeats until they want nothing more. Returns the bytes of all answers, and of the largest one.
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

    /// Tells the concerned nodes their news. Returns the bytes for each.
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

/// Runs a platform, prints the costs, and checks the limits.
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

    // Nodes ask for the agents that move, so that each of them has some followers.
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
        // The holders, the followers, and the node that had the agent.
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
                Node::Hollow(replica) => {
                    knowing += usize::from(replica.held().contains(Slices::of(&name)));
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

/// The largest platform of the design.
#[test]
#[ignore = "large"]
fn the_same_with_ten_thousand_nodes_and_a_million_agents() {
    run(10_000, 1_000_000, 1000, 36, 200);
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = memory.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}

/// The bytes of all messages with the present news for the nodes that they concern.
fn told(directory: &mut Directory) -> usize {
    let Concerned::Nodes(nodes) = directory.concerned() else {
        panic!("a process concerns all nodes");
    };
    let told = nodes.into_iter().filter_map(|name| {
        let update = directory.news_for(&name)?;
        Some(serde_json::to_vec(&NodeRequest::Directory { update }).unwrap())
    });
    told.map(|told| told.len()).sum()
}

/// Processes that end, each at another moment, and run again as others: some use channels, and some do not.
///
/// Prints the costs beside the design's budget for all changes of the directory. The processes that use channels are on
/// this many of the nodes.
fn restart(nodes: usize, users: usize, processes: usize, restarts: usize) {
    /// The moves in a minute, and the bytes per second that all of them may cost.
    const BUDGET: (usize, usize) = (1000, 200_000);
    let mut directory = Directory::starting_at(1);
    for number in 0..nodes {
        directory.set(&node(number), place(number, number));
    }
    for number in 0..=MOST_WHOLE {
        directory.set(&agent(number), place(number % nodes, number));
    }
    assert!(directory.is_sliced());
    for number in 0..processes {
        directory.joined(contact_of(number % users, nodes + number));
    }
    // A node on which the first process begins to use channels is sent all of them.
    let mut newcomer = Standing {
        processes: true,
        ..Standing::default()
    };
    let mut whole = 0;
    loop {
        let answer = directory.answer(&node(0), &newcomer);
        whole += serde_json::to_vec(&answer).unwrap().len();
        let Some(DirectoryPart {
            of,
            until: Some(last),
            ..
        }) = answer.part
        else {
            break;
        };
        newcomer = Standing {
            revision: answer.to,
            names: answer.names,
            transfer: Some(Transfer {
                after: Some(last),
                ..of
            }),
            ..newcomer
        };
    }
    for number in 1..nodes {
        let standing = Standing {
            revision: directory.revision(),
            processes: number < users,
            ..Standing::default()
        };
        directory.answer(&node(number), &standing);
    }
    directory.concerned();
    let (moves, budget) = BUDGET;
    let mut each_of = |uses_channels: bool| {
        let mut bytes = 0;
        for number in 0..restarts {
            let name = agent(number);
            let former = match uses_channels {
                true => contact_of(number % users, nodes + number),
                false => contact_of(number % nodes, nodes + 2 * processes + number),
            };
            directory.ended(former.named(), [&name]);
            bytes += told(&mut directory);
            if uses_channels {
                let present = contact_of((number + 1) % users, nodes + processes + number);
                directory.joined(present);
                bytes += told(&mut directory);
            }
        }
        bytes / restarts
    };
    let (using, other) = (each_of(true), each_of(false));
    println!(
        "{nodes} nodes, {processes} processes that use channels on {users} of them: {whole} bytes to a node that begins; at \
         {moves} in a minute that run elsewhere, {} bytes/s if they use channels, and {} if not, beside a budget of {budget}",
        using * moves / 60,
        other * moves / 60,
    );
    assert!(whole <= nodes * 400 + processes * 160, "{whole}");
    // The holders of an agent's slice are also told of the end of its process.
    assert!(using <= (users + HOLDERS) * 640, "{using}");
    assert!(other <= HOLDERS * 320, "{other}");
}

#[test]
fn nodes_with_processes_that_use_channels_hear_of_each_other() {
    restart(100, 10, 2000, 20);
}

#[test]
#[ignore = "large"]
fn the_same_with_ten_thousand_nodes_and_twenty_thousand_processes() {
    for users in [0, 20, 10_000] {
        restart(10_000, users.max(1), users * 2, 20);
    }
}
