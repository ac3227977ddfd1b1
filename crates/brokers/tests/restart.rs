//! A broker that ends and begins again, with each of its promises.

#![allow(clippy::unwrap_used)]

mod support;

use sealbus_brokers::BrokerPromise;
use sealbus_bus::Mailbox;
use sealbus_channels::{ChannelPath, ChannelPattern, Channels, Qos, SubscriptionOptions};
use sealbus_conformance::World;
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::Processes;
use support::{PATIENCE, message, receive, text};

const PROMISES: [BrokerPromise; 2] = [BrokerPromise::Durable, BrokerPromise::Transient];
/// The number of restarts, and of messages before each and after it.
const RESTARTS: u32 = 5;
const MANY: u32 = 100;

async fn platform(broker: &MemoryBroker, promise: BrokerPromise) -> Processes {
    let ground = broker.ground(SecurityLevel::Auth, promise);
    Processes::open(ground, 2, broker.connecting()).await
}

async fn takes(mailbox: &mut Mailbox, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert_eq!(text(receive(mailbox).await), number.to_string());
    }
}

#[tokio::test]
async fn messages_that_a_broker_lost_arrive_once_and_in_order() {
    for promise in PROMISES {
        let broker = MemoryBroker::hostile(3).losing_nothing();
        let platform = platform(&broker, promise).await;
        let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
        let (from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
        let mut sent = 0;
        let mut send = async || {
            for _ in 0..MANY {
                let message = message("bob@factory", &sent.to_string());
                from_alice.send(message).await.unwrap();
                sent += 1;
            }
        };
        for restart in 0..RESTARTS {
            let start = 2 * restart * MANY;
            send().await;
            takes(&mut at_bob, start..start + MANY / 2).await;
            // Some lie in the mailbox, others at the broker, and others in the sender's process.
            broker.restart();
            send().await;
            takes(&mut at_bob, start + MANY / 2..start + 2 * MANY).await;
        }
        assert!(at_bob.is_empty());
        drop(from_bob);
    }
}

#[tokio::test]
async fn messages_of_many_lives_of_a_sender_come_once() {
    const LIVES: u32 = 12;
    let broker = MemoryBroker::quiet();
    let platform = platform(&broker, BrokerPromise::Durable).await;
    let (_from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
    for life in 0..=LIVES {
        if life == LIVES {
            broker.restart();
        }
        let (from_alice, at_alice) = platform.attach(0, "alice@factory", None).await;
        let message = message("bob@factory", &life.to_string());
        from_alice.send(message).await.unwrap();
        support::wait_for("the message", async || at_bob.len() > life as usize).await;
        platform.bus(0).detach("alice@factory");
        drop((from_alice, at_alice));
    }
    takes(&mut at_bob, 0..LIVES + 1).await;
    assert!(at_bob.is_empty());
}

#[tokio::test]
async fn a_message_to_one_that_does_not_know_its_sender_arrives() {
    for promise in PROMISES {
        let broker = MemoryBroker::quiet();
        let platform = platform(&broker, promise).await;
        let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
        // Bob's queue is there, and Bob is not: his messages wait at the broker.
        let (from_bob, at_bob) = platform.attach(1, "bob@factory", None).await;
        platform.bus(1).detach("bob@factory");
        drop((from_bob, at_bob));
        let (_from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
        from_alice.send(message("bob@factory", "0")).await.unwrap();
        broker.restart();
        takes(&mut at_bob, 0..1).await;
    }
}

#[tokio::test]
async fn events_that_a_broker_lost_arrive_once_and_in_order() {
    for promise in PROMISES {
        let broker = MemoryBroker::hostile(4).losing_nothing();
        let platform = platform(&broker, promise).await;
        let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
        let (from_bob, _at_bob) = platform.attach(1, "bob@factory", None).await;
        let path = ChannelPath::new("/numbers").unwrap();
        let options = SubscriptionOptions::new(ChannelPattern::new("/numbers").unwrap());
        let mut subscription = Channels::of(platform.bus(1))
            .subscribe(&from_bob, options)
            .unwrap();
        let publisher = Channels::of(platform.bus(0));
        publisher.ready(PATIENCE).await;
        support::wait_for("the subscription to be known", async || {
            !publisher.subscriptions().is_empty()
        })
        .await;
        let publishing = async {
            for number in 0..RESTARTS * MANY {
                let event = AclMessage::new(Performative::Inform).with_content(number.to_string());
                publisher
                    .publish(&from_alice, &path, &Qos::default(), event)
                    .await
                    .unwrap();
                if number % MANY == MANY / 2 {
                    broker.restart();
                }
            }
        };
        let taking = async {
            for number in 0..RESTARTS * MANY {
                let event = tokio::time::timeout(PATIENCE, subscription.recv())
                    .await
                    .expect("no event came")
                    .unwrap();
                assert_eq!(text(event.message.clone()), number.to_string());
            }
        };
        tokio::join!(publishing, taking);
    }
}
