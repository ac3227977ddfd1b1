//! The Master's work at the broker: dismissal waits for nothing, and messages left by an agent are not lost.

#![allow(clippy::unwrap_used)]

mod support;

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealbus_brokers::{Accounts, Administration, BrokerPromise, Placed, Queue, Receiver};
use sealbus_seal::{Identity, SecurityLevel};
use support::memory::MemoryBroker;
use support::{LOOPBACK, PATIENCE};

fn agent(name: &str) -> Identity {
    Identity::from_agent_name(name).unwrap()
}

fn accounts(broker: &MemoryBroker) -> Arc<Accounts> {
    accounts_that_promise(broker, BrokerPromise::Durable)
}

fn accounts_that_promise(broker: &MemoryBroker, promise: BrokerPromise) -> Arc<Accounts> {
    let administration = Arc::new(broker.clone());
    Arc::new(Accounts::new(
        administration,
        SecurityLevel::Auth,
        promise,
        Duration::ZERO,
    ))
}

fn queue(agent: &str, promise: BrokerPromise) -> Queue {
    Queue {
        owner: Receiver::Agent(agent.into()),
        promise,
    }
}

#[tokio::test]
async fn a_dismissal_does_not_wait_for_queues_that_are_being_emptied() {
    let broker = MemoryBroker::quiet();
    let accounts = accounts(&broker);
    for name in ["flooded@factory", "revoked@factory"] {
        accounts.admit(&agent(name), LOOPBACK).await.unwrap();
    }
    // The work on a queue takes for ever.
    let (closing, asked) = (accounts.clone(), AtomicUsize::new(0));
    let closing = tokio::spawn(async move {
        let placed = async || match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Placed::default()),
            _ => pending().await,
        };
        closing.close_others(placed).await
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut placed = Placed::default();
    placed.admit("flooded@factory".to_owned(), LOOPBACK);
    let dismissing = accounts.dismiss_others(|| ready(Some(placed)));
    let dismissed = tokio::time::timeout(PATIENCE, dismissing).await.unwrap();
    let dismissed = dismissed.unwrap();
    assert_eq!(dismissed.len(), 1);
    assert_eq!(dismissed[0].identity, agent("revoked@factory"));
    closing.abort();
}

#[tokio::test]
async fn only_those_who_are_placed_nowhere_lose_their_queues() {
    let broker = MemoryBroker::quiet();
    let accounts = accounts(&broker);
    for name in ["placed@factory", "awaited@factory", "ended@factory"] {
        accounts.admit(&agent(name), LOOPBACK).await.unwrap();
    }
    let mut placed = Placed::default();
    placed.admit("placed@factory".to_owned(), LOOPBACK);
    placed.awaited.insert("awaited@factory".to_owned());
    let is_more = accounts.close_others(|| ready(Some(placed.clone()))).await;
    assert!(!is_more.unwrap());
    let left = ["awaited@factory", "placed@factory"];
    assert_eq!(
        broker.queues().await.unwrap(),
        left.map(|agent| queue(agent, BrokerPromise::Durable))
    );
    // An agent that may not log in now keeps its queue and loses its login.
    let dismissed = accounts.dismiss_others(|| ready(Some(placed))).await;
    let dismissed: Vec<_> = dismissed
        .unwrap()
        .into_iter()
        .map(|account| account.identity)
        .collect();
    assert_eq!(dismissed, ["awaited@factory", "ended@factory"].map(agent));
}

#[tokio::test]
async fn a_platform_with_another_promise_leaves_no_queue_of_the_former_one() {
    let broker = MemoryBroker::quiet();
    for (promise, former) in [
        (BrokerPromise::Durable, None),
        (BrokerPromise::Transient, Some(BrokerPromise::Durable)),
        (BrokerPromise::Durable, Some(BrokerPromise::Transient)),
    ] {
        let accounts = accounts_that_promise(&broker, promise);
        let name = "a@factory";
        let mut placed = Placed::default();
        placed.admit(name.to_owned(), LOOPBACK);
        accounts.admit(&agent(name), LOOPBACK).await.unwrap();
        if let Some(former) = former {
            let both = broker.queues().await.unwrap();
            assert!(both.contains(&queue(name, former)), "{both:?}");
        }
        while accounts
            .close_others(|| ready(Some(placed.clone())))
            .await
            .unwrap()
        {}
        assert_eq!(broker.queues().await.unwrap(), [queue(name, promise)]);
    }
}
