//! Sealed events of queue groups and of moving subscribers, and what publishers are told of sealed events that do not arrive.

use sealbus_channels::{Channels, Qos, Subscription, SubscriptionOptions};

use super::sealed_channels::{
    alice_and_bob, failure, know_each_other, next, offers, open, options, publish, publish_with,
    sealed, subscribe,
};
use super::*;

fn in_group() -> SubscriptionOptions {
    options().grouped("workers")
}

/// The content of the next event. Its publisher must not get a failure.
async fn next_of(subscription: &mut Subscription, publisher: &mut AgentHandle) -> String {
    tokio::select! {
        content = next(subscription) => content,
        failed = failure(publisher) => panic!("it comes back: {:?}", failed.content_text()),
    }
}

#[tokio::test]
async fn an_event_of_a_queue_group_waits_for_the_new_key_of_its_only_worker() {
    let world = World::new();
    let (one, mut alice, two, bob) = alice_and_bob(&world).await;
    let mut bobs = subscribe(&two, &bob, in_group());
    publish(&one, &alice, "1").await;
    assert_eq!(next_of(&mut bobs, &mut alice).await, "1");
    // The event waits for a worker. Bob begins anew, in a process with other keys.
    drop(bobs);
    let channels = Channels::of(one.bus());
    while !channels.subscriptions().is_empty() {
        tokio::task::yield_now().await;
    }
    publish(&one, &alice, "2").await;
    two.close().await;
    let three = open(&world, &["bob"]).await;
    know_each_other(&[&one, &three]);
    let bob = three.agent("bob").await.unwrap();
    let mut bobs = subscribe(&three, &bob, in_group());
    // Nobody knows that the former process handled the first event.
    while next_of(&mut bobs, &mut alice).await != "2" {}
    // The state of his process is lost, but the key package is the same.
    three.shared.sealing.as_ref().unwrap().lose_groups();
    publish(&one, &alice, "3").await;
    assert_eq!(next_of(&mut bobs, &mut alice).await, "3");
}

#[tokio::test]
async fn an_event_of_a_queue_group_comes_back_if_its_worker_never_has_a_key() {
    let world = World::new();
    let (one, mut alice, two, bob) = alice_and_bob(&world).await;
    let bobs = subscribe(&two, &bob, in_group());
    // The directory withholds the worker's key.
    world.keys.lock().clear();
    publish(&one, &alice, "1").await;
    let failed = failure(&mut alice).await;
    let why = failed.content_text().unwrap();
    assert!(
        why.contains("bob@factory") && why.contains("has stated no key"),
        "{why}"
    );
    drop(bobs);
}

/// The place that a subscriber leaves has no key for events that are sealed to the other place.
#[tokio::test]
async fn a_subscriber_that_moves_opens_each_sealed_event_in_one_of_its_two_places() {
    let world = World::new();
    let (one, mut alice, two, bob) = alice_and_bob(&world).await;
    let mut bobs = subscribe(&two, &bob, options());
    publish(&one, &alice, "1").await;
    assert_eq!(next_of(&mut bobs, &mut alice).await, "1");
    bob.come_to_rest();
    let three = open(&world, &["bob"]).await;
    know_each_other(&[&one, &two, &three]);
    let moved = three.agent("bob").await.unwrap();
    let mut latter = subscribe(&three, &moved, options());
    let channels = Channels::of(one.bus());
    while channels.subscriptions().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(publish(&one, &alice, "2").await.processes, 1);
    assert_eq!(next_of(&mut latter, &mut alice).await, "2");
    // The move is over.
    drop(bob);
    while channels.subscriptions().len() > 1 {
        tokio::task::yield_now().await;
    }
    publish(&one, &alice, "3").await;
    assert_eq!(next_of(&mut latter, &mut alice).await, "3");
    let all = channels.until_delivered("alice@factory", Duration::from_secs(60));
    assert_eq!(all.await, []);
    let told = alice.mailbox().try_recv();
    assert!(told.is_none(), "{told:?}");
    assert_eq!(two.bus().refusals().total(), 0);
}

#[tokio::test]
async fn the_failure_of_a_sealed_event_names_its_conversation_and_nothing_else_of_it() {
    let world = World::new();
    let (one, mut alice, two, bob) = alice_and_bob(&world).await;
    let mut bobs = subscribe(&two, &bob, options());
    publish(&one, &alice, "1").await;
    assert_eq!(next(&mut bobs).await, "1");
    two.shared.sealing.as_ref().unwrap().lose_groups();
    let mut event = AclMessage::new(Performative::Propose)
        .with_protocol("fipa-contract-net")
        .with_content("2");
    event.conversation_id = Some("order-17".into());
    event.reply_with = Some("offer-3".into());
    Channels::of(one.bus())
        .publish(alice.outbox(), &offers(), &sealed(), event)
        .await
        .unwrap();
    let failed = failure(&mut alice).await;
    assert_eq!(failed.conversation_id, Some("order-17".into()));
    assert_eq!(failed.in_reply_to, Some("offer-3".into()));
    // Somebody who sees the publisher's mailbox learns no more than from a sealed message.
    assert_eq!(failed.protocol, None);
}

#[tokio::test]
async fn an_agent_that_reads_alone_and_in_a_group_gets_a_best_effort_event_from_each() {
    let world = World::new();
    let (one, alice, two, bob) = alice_and_bob(&world).await;
    let mut all = [
        subscribe(&two, &bob, options()),
        subscribe(&two, &bob, in_group()),
        subscribe(&two, &bob, options().grouped("others")),
    ];
    publish(&one, &alice, "1").await;
    for subscription in &mut all {
        assert_eq!(next(subscription).await, "1");
    }
    let qos: Qos = "best-effort,level=sealed".parse().unwrap();
    publish_with(&one, &alice, &qos, "2").await.unwrap();
    for subscription in &mut all {
        assert_eq!(next(subscription).await, "2");
    }
    assert_eq!(two.bus().refusals().total(), 0);
}
