//! A platform with so many agents that no node holds the whole directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_control::AgentLocation;
use sealbus_control::admin::{AgentStatus, ask};
use sealbus_control::attachment::ask as ask_host;
use sealbus_control::directory::{Directory, HOLDERS, MOST_WHOLE, Replica, WHOLE_AGAIN};
use sealbus_control::host::Host;
use sealbus_control::{FaultCode, PlacedState, ProcessContact};
use sealbus_master::Master;
use sealbus_node::Node;
use sealbus_process::attachment::Attachment;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::SecurityLevel;

use super::support::{LONG, Operator, alive, config, node_config};
use super::without_master::{heartbeats, neighbours, uses_channels};
use super::{hear, say};

const NODES: usize = 5;

/// A name of which these nodes do not hold the slice.
fn name_apart_from(nodes: &[&str], stem: &str) -> String {
    let mut directory = Directory::starting_at(1);
    for number in 1..=NODES {
        let node = format!("node-{number}");
        let address = ([127, 0, 0, 1], 1).into();
        let contact = ProcessContact {
            node: node.clone(),
            process: "p".to_owned(),
            address,
        };
        directory.set(&node, AgentLocation::Process(contact));
    }
    let mut replica = Replica::default();
    let standing = replica.standing();
    replica.answered(directory.answer("node-1", &standing));
    let mut names = (0..).map(|number| format!("{stem}-{number}"));
    let is_apart = |name: &String| {
        let holders = replica.holders(name);
        let holders = &holders[..HOLDERS];
        !nodes
            .iter()
            .any(|node| holders.iter().any(|holder| holder == node))
    };
    names.find(is_apart).unwrap()
}

/// Waits until each node's copy of the directory has so many agents.
async fn copies(nodes: &[Node], what: &str, are_so: impl Fn(usize) -> bool) {
    let waiting = async {
        while !nodes.iter().all(|node| are_so(node.known_agents())) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LONG, waiting).await.is_err() {
        let known: Vec<usize> = nodes.iter().map(Node::known_agents).collect();
        panic!("{what}: {known:?}");
    }
}

async fn joined(
    operator: &Operator,
    agent: &str,
    node: &str,
) -> (Arc<dyn Host>, Process, AgentHandle) {
    let ticket = operator.ticket(agent, Some(node)).await;
    let host: Arc<dyn Host> = Arc::new(Attachment::join(&ticket).await.unwrap());
    let process = Process::open(host.clone(), None).await.unwrap();
    let handle = process.agent(agent).await.unwrap();
    (host, process, handle)
}

/// Expects a program of so many agents, which never comes.
async fn crowd(operator: &Operator, name: &str, count: usize) {
    let others = (1..count).map(|number| format!("{name}-{number}"));
    let ticket = ask::Ticket {
        agent: name.to_owned(),
        others: others.collect(),
        node: Some("node-5".to_owned()),
        lifetime: 3600,
    };
    operator.ask(ticket).await.unwrap();
}

/// A platform of some nodes.
async fn started(directory: &Path) -> (Master, Operator, Vec<Node>) {
    let master = Master::start(config(directory, SecurityLevel::Auth))
        .await
        .unwrap();
    let operator = Operator::of(&master).await;
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        let token = operator.token(None).await;
        let config = node_config(directory, &format!("n{number}"), Some(token));
        nodes.push(Node::start(config).await.unwrap());
    }
    alive(&operator, NODES).await;
    (master, operator, nodes)
}

#[tokio::test]
async fn agents_find_each_other_on_a_large_platform_also_without_master() {
    let directory = tempfile::tempdir().unwrap();
    let settings = || config(directory.path(), SecurityLevel::Auth);
    let (master, operator, mut nodes) = started(directory.path()).await;
    // As long as the platform is small, all nodes know all agents.
    crowd(&operator, "few", WHOLE_AGAIN - 100).await;
    copies(&nodes, "all know all", |known| known >= WHOLE_AGAIN - 100).await;
    let apart = ["node-1", "node-2"];
    let (far, near) = (
        name_apart_from(&apart, "far"),
        name_apart_from(&apart, "near"),
    );
    let later = name_apart_from(&apart, "later");
    let (host, _first, mut alice) = joined(&operator, "alice", "node-1").await;
    let (_, _second, mut bob) = joined(&operator, &far, "node-2").await;
    let (_, third, _carol) = joined(&operator, &near, "node-2").await;
    let active = |agents: &[AgentStatus]| {
        let active = agents
            .iter()
            .filter(|agent| agent.state == Some(PlacedState::Active));
        active.count() == 3
    };
    operator.until("the three are active", active).await;
    crowd(&operator, "more", MOST_WHOLE).await;
    let most = MOST_WHOLE + WHOLE_AGAIN - 200;
    // The fifth one has the agents of the crowds, which are its own.
    copies(&nodes[..4], "no node holds all", |known| {
        (WHOLE_AGAIN..most).contains(&known)
    })
    .await;

    // Holders have all of their slices when they have sent some heartbeats.
    for _ in 0..3 {
        heartbeats(&operator).await;
    }
    // Nobody asked for these agents so far, and the Master is away.
    drop(operator);
    master.abandon().await;
    say(&alice, &bob, "do you hear me?").await;
    assert_eq!(hear(&mut bob).await, "do you hear me?");
    say(&bob, &alice, "yes").await;
    assert_eq!(hear(&mut alice).await, "yes");
    // That there is no such agent is the Master's to say. The reason names those that were asked.
    let resolve = |agent: &str| {
        let agent = agent.to_owned();
        host.ask(ask_host::Resolve { agent })
    };
    let fault = resolve(&later).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    for node in ["node-3", "node-4", "node-5"] {
        assert!(fault.message.contains(node), "{fault}");
    }
    assert!(fault.message.contains("not known to"), "{fault}");
    // One holder is lost. The next one is asked.
    nodes.remove(2).abandon().await;
    let place = resolve(&near).await.unwrap();
    let process = &third.membership().process;
    assert!(
        matches!(&place, AgentLocation::Process(found) if found.process == *process),
        "{place:?}"
    );
    let fault = resolve(&later).await.unwrap_err();
    assert!(fault.message.contains("not answered by node-3"), "{fault}");

    // Another Master takes over. The platform becomes small again, and everybody knows everybody.
    let master = Master::start(settings()).await.unwrap();
    let operator = Operator::of(&master).await;
    alive(&operator, NODES - 1).await;
    let (_, _fourth, mut dave) = joined(&operator, &later, "node-2").await;
    say(&alice, &dave, "welcome").await;
    assert_eq!(hear(&mut dave).await, "welcome");
    let kill = ask::Kill {
        agent: "more".to_owned(),
        grace: 0,
    };
    operator.ask(kill).await.unwrap();
    let few = WHOLE_AGAIN - 100;
    copies(&nodes, "all know all again", |known| {
        (few..few + 20).contains(&known)
    })
    .await;
    say(&dave, &alice, "thank you").await;
    assert_eq!(hear(&mut alice).await, "thank you");
}

#[tokio::test]
async fn processes_that_use_channels_hear_of_each_other_and_others_of_none() {
    let directory = tempfile::tempdir().unwrap();
    let (master, operator, nodes) = started(directory.path()).await;
    crowd(&operator, "many", MOST_WHOLE + 100).await;
    copies(&nodes[..4], "no node holds all", |known| {
        (500..MOST_WHOLE).contains(&known)
    })
    .await;
    let (_, first, alice) = joined(&operator, "alice", "node-1").await;
    let (_, second, bob) = joined(&operator, "bob", "node-2").await;
    let (_, third, carol) = joined(&operator, "carol", "node-3").await;
    let of = |process: &Process| process.contact().unwrap();
    uses_channels(&third).await;
    // This one knows of the other as soon as it is listed, and the other of this one.
    uses_channels(&first).await;
    assert_eq!(first.bus().processes(), [of(&third)]);
    neighbours(&third, 1).await;
    heartbeats(&operator).await;
    assert_eq!(second.bus().processes(), []);
    uses_channels(&second).await;
    assert_eq!(second.bus().processes().len(), 2);
    neighbours(&first, 2).await;
    drop((alice, carol));
    third.close().await;
    drop(third);
    neighbours(&first, 1).await;
    // Another Master knows which of them use channels.
    drop(operator);
    master.abandon().await;
    let master = Master::start(config(directory.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let operator = Operator::of(&master).await;
    alive(&operator, NODES).await;
    let (_, fourth, _dave) = joined(&operator, "dave", "node-4").await;
    uses_channels(&fourth).await;
    let known = fourth.bus().processes();
    assert!(known.len() == 2 && known.contains(&of(&first)) && known.contains(&of(&second)));
    neighbours(&first, 2).await;
    neighbours(&second, 2).await;
    drop(bob);
}
