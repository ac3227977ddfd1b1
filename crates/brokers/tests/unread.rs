//! Large messages to an agent that does not read them wait at the broker, and not in the agent's process.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealbus_brokers::{BrokerPromise, Queue, Receiver};
use sealbus_bus::{Bus, Location, Mailbox, Outbox};
use sealbus_conformance::World;
use sealbus_fipa::AclMessage;
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::{Pair, Processes};
use support::{message, receive, text, wait_for};

/// The bytes of a large message.
const LARGE: usize = 3 << 20;
/// The most that may wait in a mailbox: the limit, a message that was accepted below it, and what messages have besides
/// their content.
const BOUND: usize = (64 << 20) + LARGE + (1 << 20);
/// The number of large messages. All of them have more than twice as many bytes.
const MANY: usize = 50;
/// The usual prefetch of these tests.
const USUAL: usize = 64;

async fn platform(broker: &MemoryBroker, processes: usize) -> Processes {
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    Processes::open(ground, processes, broker.connecting()).await
}

fn queue_of_bob() -> Queue {
    Queue {
        owner: Receiver::Agent("bob@factory".into()),
        promise: BrokerPromise::Durable,
    }
}

/// A message to Bob: its number, and as many other bytes.
fn numbered(number: usize, bytes: usize) -> AclMessage {
    message("bob@factory", &format!("{number:08}{}", "x".repeat(bytes)))
}

async fn sends(outbox: &Outbox, numbers: std::ops::Range<usize>, bytes: usize) {
    for number in numbers {
        outbox.send(numbered(number, bytes)).await.unwrap();
    }
}

async fn takes(mailbox: &mut Mailbox, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let text = text(receive(mailbox).await);
        assert_eq!(text[..8].parse(), Ok(number));
    }
}

/// Notes the most bytes that ever wait in Bob's mailbox.
async fn watches(bus: &Bus, most: &AtomicUsize) {
    loop {
        if let Some(bob) = bus.agent("bob@factory") {
            most.fetch_max(bob.mailbox().counts().bytes, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn until<T>(watching: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    tokio::select! {
        () = watching => unreachable!("it watches for ever"),
        done = work => done,
    }
}

async fn one_that_does_not_read_holds_little(broker: MemoryBroker) {
    let platform = platform(&broker, 2).await;
    let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
    let (_from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
    let most = AtomicUsize::new(0);
    let exchange = async {
        sends(&from_alice, 0..MANY, LARGE).await;
        wait_for("a full mailbox", async || {
            at_bob.len() * LARGE > BOUND - 2 * LARGE
        })
        .await;
        // More would come soon, and again after the broker has ended.
        tokio::time::sleep(Duration::from_millis(300)).await;
        broker.restart();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(at_bob.len() < MANY / 2, "{}", at_bob.len());
        let prefetch = broker.prefetch(&queue_of_bob());
        assert!(prefetch.is_none_or(|it| it < MANY / 2), "{prefetch:?}");
        takes(&mut at_bob, 0..MANY).await;
        // Small messages come in the usual number again.
        wait_for("the usual prefetch", async || {
            sends(&from_alice, 0..USUAL, 0).await;
            takes(&mut at_bob, 0..USUAL).await;
            broker.prefetch(&queue_of_bob()) == Some(USUAL)
        })
        .await;
        assert!(at_bob.is_empty());
    };
    until(watches(platform.bus(1), &most), exchange).await;
    let most = most.into_inner();
    assert!((LARGE..=BOUND).contains(&most), "{most} bytes");
}

#[tokio::test]
async fn large_messages_wait_at_the_broker() {
    one_that_does_not_read_holds_little(MemoryBroker::quiet()).await;
}

#[tokio::test]
async fn large_messages_wait_at_a_broker_that_breaks_connections() {
    for seed in 1..=3 {
        one_that_does_not_read_holds_little(MemoryBroker::hostile(seed)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_to_one_that_reads_come_all() {
    let broker = MemoryBroker::quiet();
    let platform = platform(&broker, 2).await;
    let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
    let (_from_bob, mut at_bob) = platform.attach(1, "bob@factory", None).await;
    tokio::join!(
        sends(&from_alice, 0..2 * MANY, LARGE),
        takes(&mut at_bob, 0..2 * MANY)
    );
}

/// A number of small messages, and all messages that are sent to Bob: ten large ones follow the small ones.
const SMALL: usize = 50;
const ALL: usize = SMALL + 10;

/// Bob does not read them, and gets fewer at a time than usual.
async fn mixed(from_alice: &Outbox, at_bob: &Mailbox, broker: &MemoryBroker) {
    sends(from_alice, 0..SMALL, 0).await;
    sends(from_alice, SMALL..ALL, 15 << 20).await;
    gets_less_than(USUAL, broker).await;
    assert!((SMALL..ALL).contains(&at_bob.len()), "{}", at_bob.len());
}

async fn gets_less_than(prefetch: usize, broker: &MemoryBroker) {
    wait_for("a reader that gets less at a time", async || {
        let its = broker.prefetch(&queue_of_bob());
        its.is_some_and(|its| its < prefetch)
    })
    .await;
}

#[tokio::test]
async fn one_that_moves_with_large_messages_unread_gets_none_twice() {
    let broker = MemoryBroker::quiet();
    let platform = platform(&broker, 3).await;
    let (from_alice, _at_alice) = platform.attach(0, "alice@factory", None).await;
    let (from_bob, at_bob) = platform.attach(1, "bob@factory", None).await;
    mixed(&from_alice, &at_bob, &broker).await;
    let unread = at_bob.drain();
    drop(from_bob);
    let (_from_bob, mut at_bob) = platform.move_to(1, 2, "bob@factory", unread).await;
    takes(&mut at_bob, 0..ALL).await;
    sends(&from_alice, ALL..ALL + 1, 0).await;
    takes(&mut at_bob, ALL..ALL + 1).await;
    assert!(at_bob.is_empty());
}

#[tokio::test]
async fn one_that_ends_when_it_has_read_large_messages_gets_none_twice() {
    let broker = MemoryBroker::quiet();
    // The Master's work would remove Bob's queue.
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let pair = Pair::open(ground, broker.connecting()).await;
    let Pair { here, there, .. } = &pair;
    let (from_alice, _at_alice) = pair.attach(here, "alice@factory").await;
    let (from_bob, mut at_bob) = pair.attach(there, "bob@factory").await;
    pair.locate("bob@factory", Location::Process(there.contact()));
    mixed(&from_alice, &at_bob, &broker).await;
    let held = at_bob.len();
    // Large messages would follow the small ones: there are fewer deliveries than messages here.
    takes(&mut at_bob, 0..2).await;
    gets_less_than(held - 2, &broker).await;
    takes(&mut at_bob, 2..held).await;
    there.bus.detach("bob@factory");
    drop((from_bob, at_bob));
    wait_for("the end of the last connection", async || {
        broker.readers(&queue_of_bob()) == 0
    })
    .await;
    let (_from_bob, mut at_bob) = pair.attach(there, "bob@factory").await;
    takes(&mut at_bob, held..ALL).await;
    sends(&from_alice, ALL..ALL + 1, 0).await;
    takes(&mut at_bob, ALL..ALL + 1).await;
    assert!(at_bob.is_empty());
}
