//! Messages may be as long as the configuration says, and no longer.

#![allow(clippy::unwrap_used)]

mod support;

use sealbus_brokers::BrokerPromise;
use sealbus_bus::Location;
use sealbus_fipa::Limits;
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::Pair;
use support::{message, receive, text};

#[tokio::test]
async fn a_message_may_be_longer_than_usual_if_the_platform_allows_it() {
    let broker = MemoryBroker::quiet();
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let (usual, connect) = (Limits::DEFAULT.message_length, broker.connecting());
    let pair = Pair::open(ground, move |mut config| {
        config.largest_message = 2 * usual;
        connect(config)
    })
    .await;
    let (from_alice, _at_alice) = pair.attach(&pair.here, "alice@factory").await;
    let (_from_bob, mut at_bob) = pair.attach(&pair.there, "bob@factory").await;
    pair.locate("bob@factory", Location::Process(pair.there.contact()));
    let long = "x".repeat(usual + 1);
    from_alice
        .send(message("bob@factory", &long))
        .await
        .unwrap();
    assert_eq!(text(receive(&mut at_bob).await).len(), long.len());
    let too_long = "x".repeat(2 * usual + 1);
    let refused = from_alice.send(message("bob@factory", &too_long)).await;
    assert!(refused.unwrap_err().to_string().contains("limit"));
}
