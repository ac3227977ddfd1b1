//! Two platforms with gateways, over real connections.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use sealbus_bus::{MailboxLimits, Provenance};
use sealbus_fipa::Performative;
use sealbus_gateways::{GatewayConfig, GatewayLimits, KnownPlatform};
use support::{Platform, allow, content, inform, open_to_all, receive};

#[tokio::test]
async fn agents_of_two_platforms_talk_as_if_they_were_of_one() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (alice, mut alices) = one.agent("alice");
    let (bob, mut bobs) = two.agent("bob");
    alice.send(inform(two.aid("bob"), "hello")).await.unwrap();
    let received = receive(&mut bobs).await;
    let Provenance::Foreign(origin) = received.provenance() else {
        panic!("{:?}", received.provenance());
    };
    assert_eq!(origin.address, "127.0.0.1");
    assert_eq!(origin.certificate, None);
    assert!(!origin.may_register);
    assert!(!received.provenance().is_trusted());
    let message = received.into_message();
    assert_eq!(message.content_text(), Some("hello"));
    let sender = message.sender.as_ref().unwrap();
    assert_eq!(sender.name, "alice@one");
    assert_eq!(sender.addresses, [one.address.as_str()]);
    assert!(message.user_defined.is_empty(), "{message:?}");
    // An answer needs no more than the message.
    let answer = message
        .create_reply(Performative::Agree)
        .with_content("yes");
    bob.send(answer).await.unwrap();
    let answer = receive(&mut alices).await.into_message();
    assert_eq!(answer.content_text(), Some("yes"));
    assert_eq!(
        answer.in_reply_to.as_ref().and_then(|it| it.as_str()),
        Some("tag")
    );
    assert_eq!(one.gateway.counters().sent, 1);
    assert_eq!(one.gateway.counters().received, 1);
}

#[tokio::test]
async fn every_encoding_carries_and_is_answered_in_kind() {
    for encoding in ["string", "xml", "bitefficient", "sealbus.acl.rep.json"] {
        for envelope in ["xml", "bitefficient"] {
            let known = KnownPlatform {
                encoding: Some(encoding.to_owned()),
                envelope: Some(envelope.to_owned()),
                ..KnownPlatform::default()
            };
            let config = GatewayConfig {
                platforms: BTreeMap::from([("two".to_owned(), known)]),
                ..open_to_all()
            };
            let one = Platform::new("one", config).await;
            let two = Platform::new("two", open_to_all()).await;
            let (alice, mut alices) = one.agent("alice");
            let (bob, mut bobs) = two.agent("bob");
            let text = "ä \"quoted\" --boundary\r\n(text) \u{1f600}";
            alice.send(inform(two.aid("bob"), text)).await.unwrap();
            let message = receive(&mut bobs).await.into_message();
            assert_eq!(
                message.content_text(),
                Some(text),
                "{encoding} in {envelope}"
            );
            let answer = message
                .create_reply(Performative::Inform)
                .with_content(text);
            bob.send(answer).await.unwrap();
            assert_eq!(content(&mut alices).await, text, "{encoding} in {envelope}");
        }
    }
}

#[tokio::test]
async fn thousands_arrive_in_order_also_over_several_pairs() {
    const MESSAGES: usize = 500;
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let mut senders = Vec::new();
    let mut readers = Vec::new();
    for pair in 0..4 {
        let (sender, mailbox) = one.agent(&format!("a{pair}"));
        let (receiver, mut inbox) = two.agent(&format!("b{pair}"));
        let to = two.aid(&format!("b{pair}"));
        senders.push(tokio::spawn(async move {
            for number in 0..MESSAGES {
                sender
                    .send(inform(to.clone(), &number.to_string()))
                    .await
                    .unwrap();
            }
            (sender, mailbox)
        }));
        readers.push(tokio::spawn(async move {
            for number in 0..MESSAGES {
                assert_eq!(content(&mut inbox).await, number.to_string());
            }
            drop(receiver);
        }));
    }
    for task in readers {
        task.await.unwrap();
    }
    for task in senders {
        let (_sender, mailbox) = task.await.unwrap();
        assert!(mailbox.is_empty());
    }
    assert_eq!(two.gateway.counters().received, 4 * MESSAGES as u64);
}

#[tokio::test]
async fn several_receivers_get_a_copy_each_and_see_all_others() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (alice, _alices) = one.agent("alice");
    let (_carol, mut carols) = one.agent("carol");
    let (_bob, mut bobs) = two.agent("bob");
    let (_dora, mut doras) = two.agent("dora");
    let message = inform(two.aid("bob"), "all")
        .with_receiver(two.aid("dora"))
        .with_receiver(sealbus_fipa::Aid::new("carol@one").unwrap());
    alice.send(message).await.unwrap();
    for mailbox in [&mut bobs, &mut doras, &mut carols] {
        let message = receive(mailbox).await.into_message();
        let names: Vec<_> = message
            .receivers
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(names, ["bob@two", "dora@two", "carol@one"]);
    }
    assert_eq!(two.gateway.counters().received, 2);
}

#[tokio::test]
async fn what_no_rule_allows_comes_back_as_a_failure_and_is_counted() {
    let one = Platform::new("one", open_to_all()).await;
    let config = GatewayConfig {
        allow: vec![allow("one", "bob")],
        ..GatewayConfig::default()
    };
    let two = Platform::new("two", config).await;
    let (alice, mut alices) = one.agent("alice");
    let (_bob, mut bobs) = two.agent("bob");
    let (_dora, _doras) = two.agent("dora");
    alice.send(inform(two.aid("dora"), "no")).await.unwrap();
    let failure = receive(&mut alices).await;
    assert!(matches!(failure.provenance(), Provenance::Platform));
    let failure = failure.into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert_eq!(failure.sender.as_ref().unwrap().name, "ams@one");
    let text = failure.content_text().unwrap();
    assert!(text.contains("status 403 (Forbidden)"), "{text}");
    assert_eq!(two.gateway.counters().refused["not-permitted"], 1);
    assert_eq!(two.bus.refusals().total(), 1);
    // Permitted messages still get through on the same connection.
    alice.send(inform(two.aid("bob"), "yes")).await.unwrap();
    assert_eq!(content(&mut bobs).await, "yes");
}

#[tokio::test]
async fn rules_can_be_changed_while_it_runs() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", GatewayConfig::default()).await;
    let (alice, mut alices) = one.agent("alice");
    let (_bob, mut bobs) = two.agent("bob");
    alice.send(inform(two.aid("bob"), "no")).await.unwrap();
    receive(&mut alices).await;
    let mut policy = (*two.gateway.policy()).clone();
    policy.rules.push(allow("one", "bob"));
    two.gateway.set_policy(policy).unwrap();
    alice.send(inform(two.aid("bob"), "yes")).await.unwrap();
    assert_eq!(content(&mut bobs).await, "yes");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_told_of_by_the_other_platform() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (alice, mut alices) = one.agent("alice");
    alice
        .send(inform(two.aid("nobody"), "hello"))
        .await
        .unwrap();
    let received = receive(&mut alices).await;
    assert!(matches!(received.provenance(), Provenance::Foreign(_)));
    let failure = received.into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert_eq!(failure.sender.as_ref().unwrap().name, "ams@two");
    assert_eq!(
        failure.conversation_id.as_ref().and_then(|it| it.as_str()),
        Some("talk")
    );
}

#[tokio::test]
async fn a_platform_that_is_away_gets_its_messages_when_it_is_back() {
    let one = Platform::new("one", open_to_all()).await;
    // The ports lie below the range of outgoing connections, so that no such connection takes one meanwhile.
    let start = 20_000 + (std::process::id() % 8_000) as u16;
    let listen = (start..32_000)
        .map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port)))
        .find(|address| std::net::TcpListener::bind(address).is_ok())
        .unwrap();
    let config = GatewayConfig {
        listen,
        ..open_to_all()
    };
    let two = Platform::new("two", config.clone()).await;
    let (alice, mut alices) = one.agent("alice");
    let (bob, mut bobs) = two.agent("bob");
    alice.send(inform(two.aid("bob"), "0")).await.unwrap();
    assert_eq!(content(&mut bobs).await, "0");
    let to = two.aid("bob");
    drop((bob, bobs));
    two.gateway.close(Duration::ZERO).await;
    drop(two);
    for number in 1..20 {
        alice
            .send(inform(to.clone(), &number.to_string()))
            .await
            .unwrap();
    }
    // The platform is away, as the gateway has found.
    tokio::time::timeout(support::PATIENCE, async {
        while one.gateway.counters().retried == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let two = Platform::new("two", config).await;
    let (_bob, mut bobs) = two.agent("bob");
    for number in 1..20 {
        assert_eq!(content(&mut bobs).await, number.to_string());
    }
    assert!(alices.try_recv().is_none());
}

#[tokio::test]
async fn what_cannot_be_sent_in_time_comes_back() {
    // Nobody listens there, and no other program does meanwhile.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = format!("http://{}/acc", nobody.local_addr().unwrap());
    let config = GatewayConfig {
        limits: GatewayLimits {
            patience: 200,
            ..GatewayLimits::default()
        },
        ..open_to_all()
    };
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    let to = |name: &str| sealbus_fipa::Aid::new(name).unwrap();
    let far = to("x@far").with_address(&address);
    alice.send(inform(far, "1")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(
        text.contains("could not be reached in time") && text.contains("x@far"),
        "{text}"
    );
    // No address at all, or none that is understood.
    alice.send(inform(to("y@far"), "2")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert!(
        failure
            .content_text()
            .unwrap()
            .contains("no address of platform far is known")
    );
    let iiop = to("z@far").with_address("IOR:0000");
    alice.send(inform(iiop, "3")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert!(failure.content_text().unwrap().contains("IOR:0000"));
    let own = to("z@far").with_address(&one.address);
    alice.send(inform(own, "4")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert!(failure.content_text().unwrap().contains("own gateway"));
    assert_eq!(one.gateway.counters().failed, 4);
}

#[tokio::test]
async fn without_a_gateway_other_platforms_are_out_of_reach() {
    let bus = sealbus_bus::Bus::new(
        sealbus_bus::BusConfig::new(sealbus_seal::PlatformName::new("one").unwrap()),
        tokio::runtime::Handle::current(),
    );
    let (alice, mut alices) = bus.attach("alice@one", None, None).unwrap();
    let far = sealbus_fipa::Aid::new("x@far")
        .unwrap()
        .with_address("http://127.0.0.1:9/acc");
    alice.send(inform(far, "1")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    assert!(failure.content_text().unwrap().contains("no gateway"));
}

#[tokio::test]
async fn bytes_arrive_as_they_were_in_every_encoding() {
    for encoding in ["string", "xml", "bitefficient"] {
        let known = KnownPlatform {
            encoding: Some(encoding.to_owned()),
            ..KnownPlatform::default()
        };
        let config = GatewayConfig {
            platforms: BTreeMap::from([("two".to_owned(), known)]),
            ..open_to_all()
        };
        let one = Platform::new("one", config).await;
        let two = Platform::new("two", open_to_all()).await;
        let (alice, _alices) = one.agent("alice");
        let (_bob, mut bobs) = two.agent("bob");
        let bytes: Vec<u8> = (0..=255).collect();
        let message = inform(two.aid("bob"), "").with_content(bytes.as_slice());
        alice.send(message).await.unwrap();
        let message = receive(&mut bobs).await.into_message();
        assert_eq!(message.content_bytes(), Some(&bytes[..]), "{encoding}");
    }
}

#[tokio::test]
async fn agents_on_other_threads_send_outside_too() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (alice, _alices) = one.agent("alice");
    let (_bob, mut bobs) = two.agent("bob");
    let message = inform(two.aid("bob"), "hello");
    std::thread::spawn(move || alice.try_send(message).unwrap())
        .join()
        .unwrap();
    assert_eq!(content(&mut bobs).await, "hello");
}

#[tokio::test]
async fn who_wrote_to_a_mailbox_that_stays_full_is_told() {
    let limits = GatewayLimits {
        receiver_time: 300,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..open_to_all()
    };
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", config).await;
    let (alice, mut alices) = one.agent("alice");
    let small = MailboxLimits {
        messages: 1,
        ..MailboxLimits::default()
    };
    let (_bob, mut bobs) = two.bus.attach("bob@two", None, Some(small)).unwrap();
    for text in ["in the mailbox", "in the line"] {
        alice.send(inform(two.aid("bob"), text)).await.unwrap();
    }
    let notice = receive(&mut alices).await.into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert_eq!(notice.sender.as_ref().unwrap().name, "ams@two");
    let said = notice.content_text().unwrap();
    assert!(said.contains("the mailbox of bob@two was full"), "{said}");
    assert_eq!(content(&mut bobs).await, "in the mailbox");
    assert!(bobs.is_empty());
}

/// Bob's mailbox is full, and so is the line before it. His platform puts off messages for him.
#[tokio::test]
async fn what_is_put_off_for_one_agent_does_not_hold_up_others() {
    const MESSAGES: usize = 12;
    let limits = GatewayLimits {
        waiting: 1,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..open_to_all()
    };
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", config).await;
    let (alice, alices) = one.agent("alice");
    let small = MailboxLimits {
        messages: 2,
        ..MailboxLimits::default()
    };
    let (_bob, mut bobs) = two.bus.attach("bob@two", None, Some(small)).unwrap();
    let (_dora, mut doras) = two.agent("dora");
    for number in 0..MESSAGES {
        let number = number.to_string();
        alice.send(inform(two.aid("bob"), &number)).await.unwrap();
        alice.send(inform(two.aid("dora"), &number)).await.unwrap();
    }
    for number in 0..MESSAGES {
        assert_eq!(content(&mut doras).await, number.to_string());
    }
    assert!(bobs.len() <= 2 && alices.is_empty());
    for number in 0..MESSAGES {
        assert_eq!(content(&mut bobs).await, number.to_string());
    }
    assert!(alices.is_empty() && bobs.is_empty());
    // Nothing is left behind.
    alice.send(inform(two.aid("bob"), "more")).await.unwrap();
    assert_eq!(content(&mut bobs).await, "more");
}
