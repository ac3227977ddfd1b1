//! The messages of an agent go out although the agent has left, and hold up no other messages.

#![allow(clippy::unwrap_used)]

mod support;

use sealbus_brokers::BrokerPromise;
use sealbus_bus::Location;
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::Pair;
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
