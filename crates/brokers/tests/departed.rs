//! The messages of an agent go out although the agent has left, and hold up no other messages. Those of a revoked one come
//! back.

#![allow(clippy::unwrap_used)]

mod support;

use sealbus_brokers::BrokerPromise;
use sealbus_bus::Location;
use sealbus_conformance::World;
use sealbus_fipa::Performative;
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::{Pair, Processes};
use support::{message, receive, text, wait_for};

#[tokio::test]
async fn messages_held_for_a_receiver_outlive_their_sender_and_fail_nobody_elses() {
    let broker = MemoryBroker::quiet();
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let pair = Pair::open(ground, broker.connecting()).await;
    let Pair { here, there, .. } = &pair;
    let (from_bob, mut at_bob) = pair.attach(there, "bob@factory").await;
    let (from_gone, _at_gone) = pair.attach(here, "gone@factory").await;
    let (from_alice, _at_alice) = pair.attach(here, "alice@factory").await;
    // Bob is moving: messages to him wait.
    let locate = |location| pair.locate("bob@factory", location);
    locate(Location::InTransit);
    from_gone
        .send(message("bob@factory", "from one that leaves"))
        .await
        .unwrap();
    here.bus.detach("gone@factory");
    wait_for("the sender's link to be gone", async || {
        let links = here.endpoint.links();
        links.iter().all(|link| &*link.agent != "gone@factory")
    })
    .await;
    from_alice
        .send(message("bob@factory", "from one that stays"))
        .await
        .unwrap();
    locate(Location::Process(there.contact()));
    let mut received = [
        text(receive(&mut at_bob).await),
        text(receive(&mut at_bob).await),
    ];
    // Two senders have no order between them.
    received.sort();
    assert_eq!(received, ["from one that leaves", "from one that stays"]);
    drop(from_bob);
}

#[tokio::test]
async fn messages_that_come_back_after_their_sender_has_left_are_sent_again() {
    let broker = MemoryBroker::quiet();
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let pair = Pair::open(ground, broker.connecting()).await;
    let Pair { here, there, .. } = &pair;
    let (from_gone, _at_gone) = pair.attach(here, "gone@factory").await;
    let locate = |location| pair.locate("bob@factory", location);
    // The directory knows bob before he has a queue.
    locate(Location::Process(there.contact()));
    for number in 0..3 {
        let text = number.to_string();
        from_gone.try_send(message("bob@factory", &text)).unwrap();
    }
    here.bus.detach("gone@factory");
    wait_for("the broker to give them back", async || {
        here.bus.counters().returned >= 3
    })
    .await;
    locate(Location::InTransit);
    let (_from_bob, mut at_bob) = pair.attach(there, "bob@factory").await;
    locate(Location::Process(there.contact()));
    for number in 0..3 {
        assert_eq!(text(receive(&mut at_bob).await), number.to_string());
    }
    assert_eq!(here.bus.counters().undeliverable, 0);
}

#[tokio::test]
async fn messages_that_a_revocation_finds_under_way_come_back() {
    const MANY: u64 = 3;
    let broker = MemoryBroker::quiet();
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let platform = Processes::open(ground, 2, broker.connecting()).await;
    let (from_alice, mut at_alice) = platform.attach(0, "alice@factory", None).await;
    let (_from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
    from_alice
        .send(message("bob@factory", "before"))
        .await
        .unwrap();
    assert_eq!(text(receive(&mut at_bob).await), "before");
    wait_for("the broker's answer", async || {
        let links = platform.endpoint(0).links();
        links.iter().all(|link| link.is_settled)
    })
    .await;
    // They are published at once. Nothing is awaited before the revocation, so the broker does not look at them.
    for number in 0..MANY {
        let text = number.to_string();
        from_alice.try_send(message("bob@factory", &text)).unwrap();
    }
    platform.revoke("alice@factory").await;
    for _ in 0..MANY {
        let notice = receive(&mut at_alice).await.into_message();
        assert_eq!(notice.performative, Performative::Failure);
    }
    assert_eq!(platform.bus(0).counters().undeliverable, MANY);
    assert!(at_bob.is_empty() && at_alice.is_empty());
}
