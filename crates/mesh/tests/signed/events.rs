//! Channels at level `signed`.

use std::collections::HashSet;

use sealbus_bus::{Moment, RefusalReason};
use sealbus_channels::frame::{Head, Stamp, begin_event};
use sealbus_channels::{
    ChannelHeader, ChannelPath, Channels, Mechanism, Qos, ReceivedEvent, SubscriptionOptions,
};
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_mesh::frame::{Frame, PROCESS_TARGET};
use sealbus_proof::{Hash, Proof, Statement};
use sealbus_seal::SecurityLevel;

use super::intruder::scene::{Scene, from, is_returned};
use super::support::proxy::Proxy;
use super::support::{Authority, Platform, inform, soon};
use super::{
    LEVEL, Signature, check_statement, delegate, milliseconds, signer, signer_with, statement,
};

/// As [`check_elsewhere`](super::check_elsewhere), for an event from a channel.
fn check_event(authority: &Authority, event: &ReceivedEvent) -> Proof {
    let receiver = match &event.header.mechanism {
        Mechanism::Message { receiver } => Some(&**receiver),
        _ => None,
    };
    let statement = Statement {
        channel: Some(event.header.channel.as_str()),
        qos: &event.header.qos.to_string(),
        receivers: receiver.as_slice(),
        message: &event.message.to_bytes().unwrap(),
    };
    check_statement(authority, statement.hash(), &event.message)
}

/// Events of several agents, short and long, while subscriptions come and go, over connections that break.
#[tokio::test]
async fn every_event_has_evidence_that_others_can_check() {
    everything_is_signed(LEVEL, "exactly-once,ordered,priority=7,expiry=1h").await;
}

/// The same, where the publisher asks for it and the platform does not.
#[tokio::test]
async fn every_event_of_a_signed_channel_has_evidence_that_others_can_check() {
    everything_is_signed(SecurityLevel::Auth, "priority=7,expiry=1h,level=signed").await;
}

async fn everything_is_signed(level: SecurityLevel, qos: &str) {
    let platform = Platform::new(level);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let mut behind = there.endpoint.process();
    behind.address = proxy.address;
    let (publishing, listening) = (Channels::of(&here.bus), Channels::of(&there.bus));
    here.bus.process_joined(behind);
    there.bus.process_joined(here.endpoint.process());
    let (first, _first_mailbox) = platform.agent(&here, "first@factory");
    let (second, _second_mailbox) = platform.agent(&here, "second@factory");
    let (listener, _listener_mailbox) = platform.agent(&there, "listener@factory");
    let on = || SubscriptionOptions::new("/dates/**".parse().unwrap());
    let mut subscription = listening.subscribe(&listener, on()).unwrap();
    let (business, private): (ChannelPath, ChannelPath) = (
        "/dates/business".parse().unwrap(),
        "/dates/private".parse().unwrap(),
    );
    let qos: Qos = qos.parse().unwrap();
    let talk = async {
        for number in 0..300 {
            for outbox in [&first, &second] {
                let length = if number % 100 == 50 { 200_000 } else { 10 };
                let said = inform("anyone@factory", "x".repeat(length));
                publishing
                    .publish(outbox, &business, &qos, said)
                    .await
                    .unwrap();
            }
            let said = inform("listener@factory", number);
            publishing
                .send(&first, &private, "listener@factory", &qos, said)
                .await
                .unwrap();
            if number % 100 == 20 {
                proxy.cut();
            }
            drop(publishing.subscribe(&second, on()).unwrap());
        }
    };
    let listen = async {
        let mut numbers = HashSet::new();
        for _ in 0..900 {
            let event = subscription.recv().await.unwrap();
            let proof = check_event(&platform.authority, &event);
            assert!(numbers.insert((proof.serial().to_string(), proof.number())));
        }
    };
    soon(async { tokio::join!(talk, listen) }).await;
    assert_eq!(there.bus.refusals().total(), 0);
}

/// On a platform at `auth`, some messages of a channel are signed. All keep their order, whoever wrote them.
#[tokio::test]
async fn signed_events_keep_their_place_among_others() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (publishing, listening) = (Channels::of(&here.bus), Channels::of(&there.bus));
    here.bus.process_joined(there.endpoint.process());
    there.bus.process_joined(here.endpoint.process());
    let (first, _first_mailbox) = platform.agent(&here, "first@factory");
    let (second, _second_mailbox) = platform.agent(&here, "second@factory");
    let (listener, _listener_mailbox) = platform.agent(&there, "listener@factory");
    let options = SubscriptionOptions::new("/dates".parse().unwrap());
    let mut subscription = listening.subscribe(&listener, options).unwrap();
    let channel: ChannelPath = "/dates".parse().unwrap();
    let (plain, signed): (Qos, Qos) = (Qos::default(), "level=signed".parse().unwrap());
    let is_signed = |number: u32| number.is_multiple_of(3) || number % 50 > 40;
    let talk = async {
        for number in 0..500 {
            let outbox = [&first, &second][usize::from(number % 7 > 3)];
            let length = if number % 100 == 45 { 200_000 } else { 10 };
            let said = inform("anyone@factory", format!("{number} {}", "x".repeat(length)));
            let qos = [&plain, &signed][usize::from(is_signed(number))];
            publishing
                .publish(outbox, &channel, qos, said)
                .await
                .unwrap();
        }
    };
    let listen = async {
        for number in 0..500 {
            let event = subscription.recv().await.unwrap();
            let text = event.message.message().content_text().unwrap().into_owned();
            assert!(
                text.starts_with(&format!("{number} ")),
                "{number}: {text:.20}"
            );
            match is_signed(number) {
                true => drop(check_event(&platform.authority, &event)),
                false => assert_eq!(event.message.provenance().as_str(), "proved"),
            }
        }
    };
    soon(async { tokio::join!(talk, listen) }).await;
    assert_eq!(there.bus.refusals().total(), 0);
}

/// A message that is marked as signed waits for its proof, even where the platform asks for none.
#[tokio::test]
async fn a_mark_without_a_proof_gets_nothing_through() {
    let scene = Scene::at(SecurityLevel::Auth).await;
    let _channels = Channels::of(&scene.process.bus);
    let mallory = scene.mallory();
    let (frame, right) = event("/dates/business", &from("mallory@factory"));
    let (_, wrong) = event("/dates/private", &from("mallory@factory"));
    let other = Scene::at(SecurityLevel::Auth).await.mallory();
    let own = signer(&mallory);
    let prove =
        |credential, statement| Signature::alone(&signer_with(credential, own.key()), statement);
    let mut refused = 0;
    for proof in [
        Signature::missing(),
        prove(&mallory, wrong),
        prove(&other, right),
    ] {
        let mut intruder = scene.ready(&mallory).await;
        delegate(&mut intruder, 0, &own).await;
        assert!(intruder.opens_target(1, PROCESS_TARGET).await);
        let brings = Frame::Message {
            sender: 0,
            target: 1,
            is_signed: true,
            payload: &frame,
        };
        intruder.send(&brings).await.unwrap();
        intruder.send(&proof.frame()).await.unwrap();
        intruder.until(is_returned(RefusalReason::NotProved)).await;
        refused += 1;
        assert_eq!(scene.count(RefusalReason::NotProved), refused);
        // The same holds for a direct message.
        let mut payload = Vec::new();
        bitefficient::encode(&from("mallory@factory"), &mut payload).unwrap();
        let says = Frame::Message {
            sender: 0,
            target: 0,
            is_signed: true,
            payload: &payload,
        };
        intruder.send(&says).await.unwrap();
        intruder.send(&proof.frame()).await.unwrap();
        intruder.until(is_returned(RefusalReason::NotProved)).await;
        refused += 1;
        assert_eq!(scene.count(RefusalReason::NotProved), refused);
        // No proof comes at all.
        intruder.send(&says).await.unwrap();
        intruder.send(&Frame::Unbind { handle: 0 }).await.unwrap();
        intruder.until_end().await;
    }
    scene.unharmed().await;
}

/// The frame of an event, and the hash of its publisher's statement.
fn event(channel: &str, message: &AclMessage) -> (Vec<u8>, Hash) {
    let header = ChannelHeader::new(
        Mechanism::Event,
        channel.parse().unwrap(),
        Qos::default(),
        1,
        Moment::from_unix_ms(milliseconds()),
    );
    let head = Head::of(&header);
    let mut frame = Vec::new();
    let stamp = Stamp {
        session: 1,
        number: 1,
    };
    begin_event(&mut frame, stamp, &head, &[]);
    let at = frame.len();
    bitefficient::encode(message, &mut frame).unwrap();
    let statement = head.statement(&frame[at..]);
    (frame, statement)
}

#[tokio::test]
async fn an_event_without_its_publishers_proof_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let _channels = Channels::of(&scene.process.bus);
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let said = from("mallory@factory");
    let (frame, right) = event("/dates/business", &said);
    let (_, other_channel) = event("/dates/private", &said);
    let (_, other_message) = event("/dates/business", &from("anna@factory"));
    let prove = |statement| Signature::alone(&own, statement);
    let direct = statement("victim@factory", &said);
    for proof in [other_channel, other_message, direct].map(prove) {
        let mut intruder = scene.ready(&mallory).await;
        assert!(intruder.opens_target(1, PROCESS_TARGET).await);
        delegate(&mut intruder, 0, &own).await;
        for proof in [proof, Signature::missing()] {
            let payload = &frame[..];
            let (sender, target) = (0, 1);
            let brings = Frame::Message {
                is_signed: false,
                sender,
                target,
                payload,
            };
            intruder.send(&brings).await.unwrap();
            intruder.send(&proof.frame()).await.unwrap();
            intruder.until(is_returned(RefusalReason::NotProved)).await;
        }
    }
    assert_eq!(scene.count(RefusalReason::NotProved), 6);
    // If the proof is right, the inlet judges the event.
    let mut intruder = scene.ready(&mallory).await;
    assert!(intruder.opens_target(1, PROCESS_TARGET).await);
    let (sender, target) = (0, 1);
    let payload = &frame[..];
    let brings = Frame::Message {
        is_signed: false,
        sender,
        target,
        payload,
    };
    intruder.send(&brings).await.unwrap();
    delegate(&mut intruder, 0, &own).await;
    intruder.send(&prove(right).frame()).await.unwrap();
    // An event that is never proved ends its connection when the target or the publisher ends.
    for end in [
        Frame::CloseTarget { target: 1 },
        Frame::Unbind { handle: 0 },
    ] {
        let mut intruder = scene.ready(&mallory).await;
        assert!(intruder.opens_target(1, PROCESS_TARGET).await);
        intruder.send(&brings).await.unwrap();
        intruder.send(&end).await.unwrap();
        intruder.until_end().await;
    }
    assert_eq!(scene.count(RefusalReason::NotProved), 6);
    scene.unharmed().await;
}
