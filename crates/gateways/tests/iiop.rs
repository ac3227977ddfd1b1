//! Two platforms over IIOP.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealbus_bus::{MailboxLimits, Provenance};
use sealbus_fipa::{Aid, Performative};
use sealbus_gateways::{GatewayConfig, GatewayLimits, KnownPlatform};
use sealbus_giop::cdr::ByteOrder;
use sealbus_giop::{
    Assembler, AssemblyLimits, Ior, Message, ObjectAddress, Reply, ReplyStatus, Version,
};
use support::{
    Platform, aid_at, allow, content, inform, ior, open_to_all, receive, two, until, with_iiop,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn agents_of_two_platforms_talk_over_iiop_in_every_encoding() {
    for encoding in ["string", "xml", "bitefficient"] {
        let known = KnownPlatform {
            encoding: Some(encoding.to_owned()),
            ..KnownPlatform::default()
        };
        let config = GatewayConfig {
            platforms: BTreeMap::from([("two".to_owned(), known)]),
            ..with_iiop(open_to_all())
        };
        let one = Platform::new("one", config).await;
        let two = two().await;
        let (alice, mut alices) = one.agent("alice");
        let (bob, mut bobs) = two.agent("bob");
        let text = format!("ä \"quoted\" \u{1f600} {}", "x".repeat(40_000));
        for address in [ior(&two), two.gateway.addresses()[2].clone()] {
            let message = inform(aid_at(&two, "bob", &address), &text);
            alice.send(message).await.unwrap();
            let received = receive(&mut bobs).await;
            assert!(
                matches!(received.provenance(), Provenance::Foreign(it) if it.address == "127.0.0.1")
            );
            let message = received.into_message();
            assert_eq!(message.content_text(), Some(&*text));
            // An answer comes back the same way.
            let sender = message.sender.as_ref().unwrap();
            assert_eq!(sender.addresses[0], ior(&one));
            bob.send(
                message
                    .create_reply(Performative::Agree)
                    .with_content("yes"),
            )
            .await
            .unwrap();
            assert_eq!(content(&mut alices).await, "yes");
        }
        for platform in [&one, &two] {
            let counters = || platform.gateway.counters();
            // A reply may come after the answer of an agent.
            until(|| counters().sent == 2).await;
            assert_eq!((counters().received, counters().failed), (2, 0));
            assert!(counters().refused.is_empty());
        }
    }
}

#[tokio::test]
async fn many_messages_keep_their_order_through_a_full_mailbox() {
    let one = Platform::new("one", with_iiop(open_to_all())).await;
    let limits = GatewayLimits {
        waiting: 4096,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..with_iiop(open_to_all())
    };
    let two = Platform::new("two", config).await;
    let (alice, _alices) = one.agent("alice");
    let limits = MailboxLimits {
        messages: 4,
        ..MailboxLimits::default()
    };
    let (_bob, mut bobs) = two.bus.attach("bob@two", None, Some(limits)).unwrap();
    let receiver = aid_at(&two, "bob", &ior(&two));
    let sending = async {
        for number in 0..200 {
            let message = inform(receiver.clone(), &number.to_string());
            alice.send(message).await.unwrap();
        }
    };
    let reading = async {
        // The mailbox and its line are full first.
        until(|| two.gateway.counters().refused.contains_key("busy")).await;
        for number in 0..200 {
            assert_eq!(content(&mut bobs).await, number.to_string());
        }
    };
    tokio::join!(sending, reading);
    assert_eq!(two.gateway.counters().received, 200);
}

#[tokio::test]
async fn what_the_rules_do_not_allow_comes_back_by_its_exception() {
    let one = Platform::new("one", with_iiop(open_to_all())).await;
    let config = GatewayConfig {
        allow: vec![allow("one", "bob")],
        ..with_iiop(GatewayConfig::default())
    };
    let two = Platform::new("two", config).await;
    let (alice, mut alices) = one.agent("alice");
    let (_dora, _doras) = two.agent("dora");
    alice
        .send(inform(aid_at(&two, "dora", &ior(&two)), "hello"))
        .await
        .unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert!(failure.content_text().unwrap().contains("NO_PERMISSION"));
    assert_eq!(two.gateway.counters().refused["not-permitted"], 1);
}

/// A server that answers every request with `reply`, and counts them.
async fn forwarder(to: impl Fn(&str) -> Ior + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = format!("corbaloc:iiop:1.2@127.0.0.1:{port}/forward");
    let there = own.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut assembler = Assembler::new(AssemblyLimits::of_messages(1 << 20));
            let mut buffer = [0; 4096];
            while let Ok(count) = stream.read(&mut buffer).await {
                if count == 0 {
                    break;
                }
                assembler.push(&buffer[..count]);
                while let Ok(Some(whole)) = assembler.next_message(Instant::now()) {
                    let Ok(Message::Request(request, _)) =
                        Message::decode(&whole.header, &whole.bytes)
                    else {
                        continue;
                    };
                    let ior = to(&there);
                    let reply = Reply::new(request.id, ReplyStatus::LocationForward);
                    let bytes = reply.encode(Version::V1_2, ByteOrder::Big, |out| ior.encode(out));
                    let _ = stream.write_all(&bytes).await;
                }
            }
        }
    });
    own
}

fn reference(address: &str) -> Ior {
    let object: ObjectAddress = address.parse().unwrap();
    Ior::new("IDL:FIPA/MTS:1.0", &object.endpoints()[0])
}

#[tokio::test]
async fn a_forward_is_followed_and_a_circle_is_left() {
    let limits = GatewayLimits {
        patience: 10_000,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..with_iiop(open_to_all())
    };
    let one = Platform::new("one", config).await;
    let two = two().await;
    let (alice, mut alices) = one.agent("alice");
    let (_bob, mut bobs) = two.agent("bob");
    let there = ior(&two);
    let forward = forwarder(move |_| reference(&there)).await;
    alice
        .send(inform(aid_at(&two, "bob", &forward), "hello"))
        .await
        .unwrap();
    assert_eq!(content(&mut bobs).await, "hello");

    let circle = forwarder(reference).await;
    alice
        .send(inform(aid_at(&two, "bob", &circle), "lost"))
        .await
        .unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert!(
        failure
            .content_text()
            .unwrap()
            .contains("sent the message on"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_forward_leads_to_no_address_that_no_operator_named() {
    let known = |address: String| KnownPlatform {
        addresses: vec![address],
        ..KnownPlatform::default()
    };
    let inside = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = inside.local_addr().unwrap().port();
    let target = format!("corbaloc::127.0.0.2:{port}/inside");
    let was_asked = Arc::new(AtomicBool::new(false));
    let asked = was_asked.clone();
    let forward = forwarder(move |_| {
        asked.store(true, Ordering::SeqCst);
        reference(&target)
    })
    .await;
    let limits = GatewayLimits {
        patience: 10_000,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        platforms: BTreeMap::from([("two".to_owned(), known(forward))]),
        ..with_iiop(GatewayConfig::default())
    };
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    alice
        .send(inform(Aid::new("bob@two").unwrap(), "lost"))
        .await
        .unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert!(was_asked.load(Ordering::SeqCst), "nobody was forwarded");
    let accepted = tokio::time::timeout(Duration::ZERO, inside.accept()).await;
    assert!(
        accepted.is_err(),
        "the gateway connected to an address inside"
    );
}
