//! Agents go on while the Master is away, and the Master knows the outcome afterwards.

use std::time::Duration;

use sealbus_bus::{ProcessEndpoint, Provenance, RefusalReason};
use sealbus_channels::{
    ChannelPath, Channels, Qos, Reliability, Subscription, SubscriptionOptions,
};
use sealbus_control::admin::{AgentStatus, NodeStatus};
use sealbus_control::{PlacedState, Rules};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_manifest::Manifest;
use sealbus_master::Master;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::{Messages, Policy, Rule};

use super::support::{LONG, Operator, alive, config, joined, platform, platform_of};
use super::{count, forbidden, hear, say};

/// Waits until every node has sent another heartbeat.
pub(super) async fn heartbeats(operator: &Operator) {
    let before = operator.nodes().await;
    let are_later = |nodes: Vec<NodeStatus>| {
        nodes
            .iter()
            .zip(&before)
            .all(|(now, before)| now.heard > before.heard)
    };
    let heard = async {
        while !are_later(operator.nodes().await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, heard)
        .await
        .expect("the nodes send heartbeats");
}

#[tokio::test]
async fn a_master_started_again_has_every_entry_and_agents_talk_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let (master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (_first, mut alice) = joined(&operator, "alice", "node-1").await;
    let (_second, mut bob) = joined(&operator, "bob", "node-2").await;
    let active = |agents: &[AgentStatus]| {
        agents.len() == 2 && agents.iter().all(|a| a.state == Some(PlacedState::Active))
    };
    operator.until("both are active", active).await;
    let ports = (master.enrolment_address(), master.address());
    // A node learns from a heartbeat's answer what it has missed, and has applied it when it sends the next heartbeat.
    heartbeats(&operator).await;
    heartbeats(&operator).await;
    drop(operator);
    master.abandon().await;
    // The agents did not know each other so far. The nodes' replicas say where they are.
    say(&alice, &bob, "the Master is away").await;
    assert_eq!(hear(&mut bob).await, "the Master is away");
    say(&bob, &alice, "so it is").await;
    assert_eq!(hear(&mut alice).await, "so it is");

    let master = Master::start(config(directory.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    assert_eq!((master.enrolment_address(), master.address()), ports);
    let operator = Operator::of(&master).await;
    alive(&operator, 2).await;
    operator.until("both are active still", active).await;
    // Actions that need the Master work again.
    let (_third, mut carol) = joined(&operator, "carol", "node-2").await;
    say(&alice, &carol, "welcome").await;
    assert_eq!(hear(&mut carol).await, "welcome");
}

/// Waits until a process knows this many others.
pub(super) async fn neighbours(process: &Process, count: usize) -> Vec<ProcessEndpoint> {
    let waiting = async {
        loop {
            let known = process.bus().processes();
            if known.len() == count {
                return known;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(LONG, waiting).await {
        Ok(known) => known,
        Err(_) => panic!("not {count}: {:#?}", process.bus().processes()),
    }
}

/// Agents of a process begin to use channels.
pub(super) async fn uses_channels(process: &Process) {
    assert!(Channels::of(process.bus()).listed(LONG).await);
}

#[tokio::test]
async fn processes_that_use_channels_know_each_other_also_while_the_master_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let (master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, alice) = joined(&operator, "alice", "node-1").await;
    let (second, bob) = joined(&operator, "bob", "node-2").await;
    let (third, carol) = joined(&operator, "carol", "node-2").await;
    let of = |process: &Process| process.contact().unwrap();
    // On a small platform, each process says so from the start.
    let known = neighbours(&first, 2).await;
    assert!(known.contains(&of(&second)) && known.contains(&of(&third)));
    neighbours(&second, 2).await;
    neighbours(&third, 2).await;
    // A process that leaves disappears for the others.
    drop(carol);
    third.close().await;
    drop(third);
    let second_is = of(&second);
    let both_are = async || {
        assert_eq!(neighbours(&first, 1).await, [of(&second)]);
        assert_eq!(neighbours(&second, 1).await, [of(&first)]);
    };
    both_are().await;

    drop(operator);
    master.abandon().await;
    both_are().await;

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
    let (fourth, mut dave) = joined(&operator, "dave", "node-1").await;
    // The new Master knows which of them use channels.
    uses_channels(&fourth).await;
    assert_eq!(fourth.bus().processes().len(), 2);
    assert!(neighbours(&first, 2).await.contains(&second_is));
    neighbours(&second, 2).await;
    // The new Master's rules reach the processes that were there before.
    forbidden(&alice, &bob).await;
    assert_eq!(count(&first, RefusalReason::NotPermitted), 1);
    say(&alice, &dave, "and you?").await;
    assert_eq!(hear(&mut dave).await, "and you?");
}

/// The next event of a subscription, as its text and the proved name of its sender.
async fn event(subscription: &mut Subscription) -> (String, String) {
    let received = tokio::time::timeout(LONG, subscription.recv()).await;
    let event = received
        .expect("an event comes")
        .expect("the subscription goes on");
    let Provenance::Proved(by) = event.message.provenance() else {
        panic!("{:?}", event.message.provenance());
    };
    let by = by.identity().to_string();
    let message = event.message.message();
    (message.content_text().unwrap_or_default().into_owned(), by)
}

/// Publishes until the event has reached this many processes, because announcements take time.
async fn publish_to(process: &Process, from: &AgentHandle, what: &str, processes: usize) {
    let channel: ChannelPath = "/dates/business".parse().unwrap();
    let channels = Channels::of(process.bus());
    let known = async {
        loop {
            let subscriptions = channels.subscriptions();
            let others = subscriptions.iter().filter(|it| it.process.is_some());
            if others.count() == processes {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // The first publication makes its process interested in the others' subscriptions.
    channels.ready(LONG).await;
    if tokio::time::timeout(LONG, known).await.is_err() {
        panic!("not {processes}: {:#?}", channels.subscriptions());
    }
    let message = AclMessage::new(Performative::Inform).with_content(what);
    let qos = channels.qos_of(&channel);
    channels
        .publish(from.outbox(), &channel, &qos, message)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_first_event_reaches_every_subscription_that_was_listed_before() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, alice) = joined(&operator, "alice", "node-1").await;
    let channel: ChannelPath = "/dates/business".parse().unwrap();
    let publisher = Channels::of(first.bus());
    let qos = Qos {
        reliability: Reliability::ExactlyOnce,
        ..publisher.qos_of(&channel)
    };
    let mut subscriptions = Vec::new();
    // Those of other processes come before the first event, and after it.
    for (round, name) in ["bob", "carol"].into_iter().enumerate() {
        let (process, agent) = joined(&operator, name, "node-2").await;
        let options = SubscriptionOptions::new("/dates/*".parse().unwrap());
        let channels = Channels::of(process.bus());
        let subscription = channels.subscribe(agent.outbox(), options).unwrap();
        assert!(subscription.listed().await);
        subscriptions.push((process, agent, subscription));
        if round > 0 {
            // The platform tells those that publish already a moment later.
            neighbours(&first, subscriptions.len()).await;
        }
        let message = AclMessage::new(Performative::Inform).with_content(name);
        let reach = publisher
            .publish(alice.outbox(), &channel, &qos, message)
            .await
            .unwrap();
        assert_eq!(reach.processes, subscriptions.len());
        for (_, _, subscription) in &mut subscriptions {
            assert_eq!(event(subscription).await.0, name);
        }
    }
}

#[tokio::test]
async fn channels_of_three_processes_go_on_while_the_master_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), SecurityLevel::Auth);
    let text = r#"
        [platform]
        name = "factory"
        [[permission.channel]]
        deny = { agents = ["carol"], do = ["publish"], on = ["/dates/**"] }
        [[channel]]
        path = "/dates/**"
        qos = "priority=7"
    "#;
    let manifest = Manifest::parse("platform.toml", text, directory.path()).unwrap();
    config.settings.rules = Rules {
        permission: manifest.permission,
        channels: manifest.channels,
        evidence: manifest.evidence,
        tap: manifest.tap,
        ..Rules::default()
    };
    let (master, operator, _one, _two) = platform_of(config, directory.path()).await;
    let (first, alice) = joined(&operator, "alice", "node-1").await;
    let (second, bob) = joined(&operator, "bob", "node-2").await;
    let (third, carol) = joined(&operator, "carol", "node-2").await;
    for process in [&first, &second, &third] {
        uses_channels(process).await;
    }
    for process in [&first, &second, &third] {
        neighbours(process, 2).await;
    }
    let on = |pattern: &str| SubscriptionOptions::new(pattern.parse().unwrap());
    let subscribe = |process: &Process, agent: &AgentHandle| {
        let channels = Channels::of(process.bus());
        channels.subscribe(agent.outbox(), on("/dates/*")).unwrap()
    };
    let mut at_bob = subscribe(&second, &bob);
    publish_to(&first, &alice, "one", 1).await;
    let alice_is = "spiffe://factory/agent/alice".to_owned();
    assert_eq!(
        event(&mut at_bob).await,
        ("one".to_owned(), alice_is.clone())
    );

    drop(operator);
    master.abandon().await;
    // Agents that published before hear of a subscription made while the Master is away.
    let mut at_carol = subscribe(&third, &carol);
    publish_to(&first, &alice, "two", 2).await;
    assert_eq!(
        event(&mut at_bob).await,
        ("two".to_owned(), alice_is.clone())
    );
    assert_eq!(event(&mut at_carol).await, ("two".to_owned(), alice_is));
    // The declarations and denials of the manifest apply in every process.
    let channel: ChannelPath = "/dates/business".parse().unwrap();
    let channels = Channels::of(third.bus());
    let qos = channels.qos_of(&channel);
    assert_eq!(qos.priority.get(), 7);
    let message = AclMessage::new(Performative::Inform).with_content("may I?");
    let denied = channels
        .publish(carol.outbox(), &channel, &qos, message)
        .await;
    assert!(denied.is_err(), "{denied:?}");
}
