//! Agents of two processes talk, at every level.

use crate::support::{Platform, inform, soon};
use sealbus_bus::Provenance;
use sealbus_seal::SecurityLevel;

async fn converse(level: SecurityLevel) {
    let platform = Platform::new(level);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (seller, mut seller_mailbox) = platform.agent(&here, "seller@factory");
    let (buyer, mut buyer_mailbox) = platform.agent(&there, "buyer@factory");

    for number in 0..1000 {
        seller.send(inform("buyer@factory", number)).await.unwrap();
    }
    for number in 0..1000 {
        let received = soon(buyer_mailbox.recv()).await.unwrap();
        assert_eq!(
            received.message().content_text().unwrap(),
            number.to_string()
        );
        assert_eq!(
            received.message().sender().unwrap().name(),
            "seller@factory"
        );
        match (level, received.provenance()) {
            (SecurityLevel::Auth, Provenance::Proved(identity)) => {
                assert!(identity.identity().is_agent_named("seller@factory"));
            }
            (SecurityLevel::Signed, Provenance::Signed(evidence)) => {
                let author = evidence.author().identity();
                assert!(author.is_agent_named("seller@factory"));
            }
            (SecurityLevel::None | SecurityLevel::Tls, Provenance::Claimed) => {}
            (level, provenance) => panic!("{provenance:?} at level {level}"),
        }
        let reply = received
            .message()
            .create_reply(sealbus_fipa::Performative::Confirm);
        buyer.send(reply).await.unwrap();
    }
    for _ in 0..1000 {
        let reply = soon(seller_mailbox.recv()).await.unwrap();
        assert_eq!(
            reply.message().performative(),
            sealbus_fipa::Performative::Confirm
        );
    }
    // A message in many pieces.
    let long = "x".repeat(5_000_000);
    seller.send(inform("buyer@factory", &long)).await.unwrap();
    let received = soon(buyer_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), long);
    seller.send(inform("buyer@factory", "after")).await.unwrap();
    let received = soon(buyer_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), "after");
    assert_eq!(
        here.bus.refusals().total() + there.bus.refusals().total(),
        0
    );
}

#[tokio::test]
async fn without_security() {
    converse(SecurityLevel::None).await;
}

#[tokio::test]
async fn over_tls() {
    converse(SecurityLevel::Tls).await;
}

#[tokio::test]
async fn with_every_message_signed() {
    converse(SecurityLevel::Signed).await;
}

#[tokio::test]
async fn with_every_agent_proved() {
    converse(SecurityLevel::Auth).await;
}
