//! A Master, nodes and agent processes on the loopback of one test process, with real sockets, the real store and real
//! certificates. Agent processes join by ticket and live in this process. The programs that a node starts are real.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod answers;
mod control_plane;
mod doors;
mod large;
mod listing;
mod sealed;
#[path = "../support/mod.rs"]
mod support;
mod without_master;

use std::path::Path;
use std::time::Duration;

use sealbus_bus::{Delivery, RefusalReason, SendError};
use sealbus_control::admin::{AgentStatus, Page, ask};
use sealbus_control::{FaultCode, PlacedState};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_manifest::Manifest;
use sealbus_master::Master;
use sealbus_node::{Node, NodeError};
use sealbus_process::{AgentHandle, Parting, Process, ProcessEnd};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::{Messages, Policy, Rule};
use support::{LONG, Operator, alive, config, joined, node_config, platform};
use without_master::{neighbours, uses_channels};

async fn say(from: &AgentHandle, to: &AgentHandle, what: &str) {
    let message = AclMessage::new(Performative::Inform)
        .with_receiver(to.aid().clone())
        .with_content(what);
    from.send(message).await.unwrap();
}

async fn hear(agent: &mut AgentHandle) -> String {
    let received = tokio::time::timeout(LONG, agent.receive()).await;
    let received = received
        .expect("a message comes")
        .expect("the mailbox is open");
    let message = received.message();
    message.content_text().unwrap_or_default().into_owned()
}

/// Puts a platform's first manifest in force.
fn first(manifest: Manifest) -> ask::Apply {
    ask::Apply {
        taken_over: false,
        wanted: Box::new(manifest),
        agreed: None,
        grace: 0,
    }
}

#[tokio::test]
async fn certified_agents_on_two_nodes_talk_at_every_level() {
    for level in [SecurityLevel::None, SecurityLevel::Tls, SecurityLevel::Auth] {
        let directory = tempfile::tempdir().unwrap();
        let (_master, operator, _one, _two) = platform(directory.path(), level).await;
        let (_first, alice) = joined(&operator, "alice", "node-1").await;
        let (_second, mut bob) = joined(&operator, "bob", "node-2").await;
        operator
            .until("both are active", |agents| {
                agents.len() == 2 && agents.iter().all(|a| a.state == Some(PlacedState::Active))
            })
            .await;
        for number in 0..50 {
            say(&alice, &bob, &number.to_string()).await;
        }
        for number in 0..50 {
            assert_eq!(hear(&mut bob).await, number.to_string(), "at {level}");
        }
        let answer = operator
            .ask(ask::CertificationEvents {
                from: 0,
                limit: 1000,
            })
            .await;
        let steps: Vec<u8> = answer
            .unwrap()
            .events
            .iter()
            .filter(|event| event.subject == "alice" && event.step > 0)
            .map(|event| event.step)
            .collect();
        assert_eq!(steps, [1, 2, 3, 4, 5, 6], "at {level}");
    }
}

#[tokio::test]
async fn a_token_is_good_once_and_a_taken_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let master = Master::start(config(directory.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let operator = Operator::of(&master).await;
    let token = operator.token(None).await;
    let one = Node::start(node_config(directory.path(), "one", Some(token.clone())))
        .await
        .unwrap();
    assert_eq!(one.name(), "node-1");
    let again = Node::start(node_config(directory.path(), "two", Some(token))).await;
    assert!(again.err().unwrap().to_string().contains("used already"));
    let token = operator.token(None).await;
    let mut taken = node_config(directory.path(), "three", Some(token.clone()));
    taken.name = Some("node-1".to_owned());
    let refused = Node::start(taken).await.err().unwrap();
    assert!(refused.to_string().contains("taken"), "{refused}");
    // The token was not spent on the failed attempt.
    let three = Node::start(node_config(directory.path(), "three", Some(token)))
        .await
        .unwrap();
    assert_eq!(three.name(), "node-2");
    let nothing = Node::start(node_config(directory.path(), "four", None)).await;
    assert!(matches!(nothing.err(), Some(NodeError::NoToken(_))));
}

#[tokio::test]
async fn a_second_master_on_the_same_state_or_port_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let master = Master::start(config(directory.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let second = Master::start(config(directory.path(), SecurityLevel::Auth)).await;
    assert!(
        second
            .err()
            .unwrap()
            .to_string()
            .contains("open in another process")
    );
    let mut other = config(directory.path(), SecurityLevel::Auth);
    other.directory = directory.path().join("other");
    other.enrolment_port = master.enrolment_address().port();
    let error = Master::start(other).await.err().unwrap().to_string();
    assert!(
        error.contains("in use") && error.contains(&master.enrolment_address().port().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn programs_are_started_logged_restarted_and_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let text = r#"
        [platform]
        name = "factory"
        [[agent]]
        name = "once"
        command = ["sh", "-c", "echo hello from $SEALBUS_AGENT; exit 0"]
        [[agent]]
        name = "flaky"
        command = ["sh", "-c", "exit 3"]
        [[agent]]
        name = "steady"
        command = ["sleep", "600"]
        replicas = 2
    "#;
    let manifest = Manifest::parse("platform.toml", text, directory.path()).unwrap();
    operator.ask(first(manifest)).await.unwrap();
    let find = |agents: &[AgentStatus], name: &str| {
        agents
            .iter()
            .find(|agent| agent.name == format!("{name}@factory"))
            .cloned()
            .unwrap()
    };
    let agents = operator
        .until("each has had its course", |agents| {
            agents.len() == 4
                && find(agents, "once").state.is_none()
                && find(agents, "flaky").restarts >= 2
                && find(agents, "steady-1").pid.is_some()
                && find(agents, "steady-2").pid.is_some()
        })
        .await;
    assert_ne!(
        find(&agents, "steady-1").node,
        find(&agents, "steady-2").node
    );
    let from = sealbus_control::node::LogPosition::LastLines { lines: 50 };
    let log = operator
        .ask(ask::Log {
            agent: "once".to_owned(),
            from,
        })
        .await
        .unwrap();
    assert!(log.text.contains("hello from once"), "{}", log.text);
    let pid = find(&agents, "steady-1").pid.unwrap();
    let kill = ask::Kill {
        agent: "steady-1".to_owned(),
        grace: 5000,
    };
    operator.ask(kill).await.unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let agents = operator.agents().await;
    assert_eq!(find(&agents, "steady-1").note.as_deref(), Some("stopped"));
    for agent in ["flaky", "steady-2"] {
        let kill = ask::Kill {
            agent: agent.to_owned(),
            grace: 0,
        };
        operator.ask(kill).await.unwrap();
    }
    let unknown = operator
        .ask(ask::Kill {
            agent: "nobody".to_owned(),
            grace: 0,
        })
        .await;
    assert_eq!(unknown.unwrap_err().code, FaultCode::Unknown);
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_and_not_certified_again() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (_first, alice) = joined(&operator, "alice", "node-1").await;
    let (_second, mut bob) = joined(&operator, "bob", "node-2").await;
    say(&alice, &bob, "before").await;
    assert_eq!(hear(&mut bob).await, "before");
    let revoke = ask::Revoke {
        what: "alice".to_owned(),
        reason: "a test".to_owned(),
    };
    assert_eq!(operator.ask(revoke).await.unwrap().certificates.len(), 1);
    // However long the attack goes on, nothing of it arrives: its messages are refused and counted.
    let refused = async {
        loop {
            let message = AclMessage::new(Performative::Inform)
                .with_receiver(bob.aid().clone())
                .with_content("after");
            let _ = alice.send(message).await;
            let living = ask::Certificates {
                all: false,
                of: None,
                page: Page::default(),
            };
            let found = operator.ask(living).await.unwrap();
            assert!(
                !found
                    .certificates
                    .iter()
                    .any(|c| c.identity.ends_with("/agent/alice"))
            );
            let ended = alice.wishes().is_stop_wished();
            if ended {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, refused)
        .await
        .expect("alice is told that it was revoked");
}

/// Waits until the rules forbid the message.
async fn forbidden(from: &AgentHandle, to: &AgentHandle) {
    let refused = async {
        loop {
            let message = AclMessage::new(Performative::Inform).with_receiver(to.aid().clone());
            match from.send(message).await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(SendError::NotPermitted { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(tokio::time::timeout(LONG, refused).await.is_ok());
}

fn count(process: &Process, reason: RefusalReason) -> u64 {
    let counts = process.bus().refusals().counts();
    let found = counts.into_iter().find(|(it, _)| *it == reason);
    found.map_or(0, |(_, count)| count)
}

/// Posts a message for an agent that may be absent.
async fn post(from: &AgentHandle, to: &str, what: &str) {
    let message = AclMessage::new(Performative::Inform)
        .with_receiver(from.process().peer(to).unwrap())
        .with_content(what);
    from.send_with(message, Delivery::persistent())
        .await
        .unwrap();
}

#[tokio::test]
async fn what_waits_obeys_the_rules_that_hold_when_it_is_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let (master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (_first, mut alice) = joined(&operator, "alice", "node-1").await;
    post(&alice, "bob", "one").await;
    post(&alice, "carol", "two").await;
    drop(operator);
    master.abandon().await;

    let mut config = config(directory.path(), SecurityLevel::Auth);
    config.settings.rules.permission = Policy {
        rules: vec![Rule::Deny(Messages {
            from: vec!["alice".to_owned()],
            to: vec!["bob".to_owned()],
            on_behalf_of: None,
        })],
        ..Policy::default()
    };
    let master = Master::start(config).await.unwrap();
    let operator = Operator::of(&master).await;
    alive(&operator, 2).await;
    let (second, mut bob) = joined(&operator, "bob", "node-2").await;
    let notice = hear(&mut alice).await;
    assert!(
        notice.contains("bob@factory") && notice.contains("not-permitted"),
        "{notice}"
    );
    assert_eq!(count(&second, RefusalReason::NotPermitted), 1);
    let refusal = second.bus().refusals().last().pop().unwrap();
    assert_eq!(refusal.tried_by, "alice@factory");
    assert_eq!(refusal.receiver.as_deref(), Some("bob@factory"));
    let (_third, mut carol) = joined(&operator, "carol", "node-1").await;
    assert_eq!(hear(&mut carol).await, "two");
    assert!(bob.mailbox().try_recv().is_none());
}

#[tokio::test]
async fn what_a_revoked_agent_had_sent_is_not_delivered_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, alice) = joined(&operator, "alice", "node-1").await;
    let (second, carol) = joined(&operator, "carol", "node-1").await;
    post(&alice, "bob", "by a thief, perhaps").await;
    post(&carol, "bob", "by one that ended").await;
    carol.leave(Parting::Ended);
    second.close().await;
    operator
        .ask(ask::Revoke {
            what: "alice".to_owned(),
            reason: "her key was stolen".to_owned(),
        })
        .await
        .unwrap();
    let ended = tokio::time::timeout(LONG, first.ended()).await.unwrap();
    assert!(matches!(ended, ProcessEnd::Revoked { .. }), "{ended:?}");
    let (third, mut bob) = joined(&operator, "bob", "node-2").await;
    assert_eq!(hear(&mut bob).await, "by one that ended");
    // The message came first, and was judged before.
    assert_eq!(count(&third, RefusalReason::Revoked), 1);
    let refusal = third.bus().refusals().last().pop().unwrap();
    assert_eq!(refusal.tried_by, "alice@factory");
    assert!(bob.mailbox().try_recv().is_none());
}

#[tokio::test]
async fn the_directories_answer_and_follow_the_agents_lives() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (process, alice) = joined(&operator, "alice", "node-1").await;
    operator
        .until("alice is active", |agents| {
            agents[0].state == Some(PlacedState::Active)
        })
        .await;
    let register = ask::DfRegister {
        agent: "alice".to_owned(),
        service_type: "selling".to_owned(),
        service_name: "apples".to_owned(),
        lease: None,
    };
    operator.ask(register).await.unwrap();
    let search = || ask::DfSearch {
        service_type: Some("selling".to_owned()),
        service_name: None,
        page: Page::default(),
    };
    let services = operator.ask(search()).await.unwrap().services;
    assert_eq!(services.len(), 1);
    assert_eq!(services[0].agent, "alice@factory");
    drop(alice);
    process.close().await;
    let gone = async {
        loop {
            if operator.ask(search()).await.unwrap().services.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, gone)
        .await
        .expect("the DF forgets an agent that is gone");
}

#[tokio::test]
async fn a_dead_nodes_agents_are_revoked_and_it_may_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let text = r#"
        [platform]
        name = "factory"
        [[agent]]
        name = "steady"
        command = ["sleep", "600"]
        replicas = 2
    "#;
    let manifest = Manifest::parse("platform.toml", text, directory.path()).unwrap();
    operator.ask(first(manifest)).await.unwrap();
    let agents = operator
        .until("both run", |agents| agents.iter().all(|a| a.pid.is_some()))
        .await;
    let on_one = |agents: &[AgentStatus]| {
        agents
            .iter()
            .find(|agent| agent.node.as_deref() == Some("node-1"))
            .cloned()
    };
    let lost = on_one(&agents).expect("one is placed on node-1");
    one.abandon().await;
    let agents = operator
        .until("it is placed on the other node", |agents| {
            agents
                .iter()
                .all(|agent| agent.node.as_deref() == Some("node-2") && agent.pid.is_some())
        })
        .await;
    assert!(
        agents
            .iter()
            .any(|agent| agent.name == lost.name && agent.restarts == 1)
    );
    // The process that was left behind goes on until its node comes back and gives it orders.
    let left = format!("/proc/{}", lost.pid.unwrap());
    let again = Node::start(node_config(directory.path(), "one", None))
        .await
        .unwrap();
    assert_eq!(again.name(), "node-1");
    alive(&operator, 2).await;
    let gone = async {
        while Path::new(&left).exists() && !zombie(lost.pid.unwrap()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, gone)
        .await
        .expect("the process left behind is ended");
    operator.ask(ask::Shutdown { grace: 0 }).await.unwrap();
}

/// Whether a process has ended and only waits until its parent, this test, notices.
fn zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .unwrap_or_default()
            .trim()
            .starts_with('Z')
    })
}

#[tokio::test]
async fn a_node_started_again_takes_its_processes_over() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, alice) = joined(&operator, "alice", "node-1").await;
    let (second, mut bob) = joined(&operator, "bob", "node-2").await;
    uses_channels(&first).await;
    say(&alice, &bob, "before").await;
    assert_eq!(hear(&mut bob).await, "before");
    one.abandon().await;
    say(&alice, &bob, "its node is away").await;
    assert_eq!(hear(&mut bob).await, "its node is away");
    let again = Node::start(node_config(directory.path(), "one", None))
        .await
        .unwrap();
    assert_eq!(again.name(), "node-1");
    alive(&operator, 2).await;
    operator
        .until("alice is there still", |agents| {
            agents
                .iter()
                .all(|agent| agent.state == Some(PlacedState::Active))
        })
        .await;
    // A new agent is found through the node that came back.
    let (third, mut carol) = joined(&operator, "carol", "node-2").await;
    say(&alice, &carol, "hello").await;
    assert_eq!(hear(&mut carol).await, "hello");
    // That node tells the process again of others that use channels.
    uses_channels(&third).await;
    let of = |process: &Process| process.contact().unwrap();
    let known = neighbours(&third, 2).await;
    assert!(known.contains(&of(&first)) && known.contains(&of(&second)));
    let known = neighbours(&first, 2).await;
    assert!(known.contains(&of(&second)) && known.contains(&of(&third)));
}
