//! A process gives back messages that it was never given. They are neither sent on nor stored, so nobody can make
//! agents of another process say, or sign, messages that they did not write.
#![allow(clippy::unwrap_used)]

mod intruder;
mod support;

use std::time::Duration;

use intruder::scene::{Scene, from};
use intruder::{Intruder, Seen};
use sealbus_bus::{Location, Mailbox, Outbox, ProcessEndpoint, RefusalReason};
use sealbus_fipa::{Aid, Content, Performative, bitefficient};
use sealbus_mesh::frame::{Frame, Kind, Why};
use sealbus_seal::SecurityLevel;
use sealbus_seal::binding::Binding;
use support::{Platform, inform, soon};

/// A message that the victim wrote to bob.
struct Taken {
    sender: u32,
    target: u32,
    payload: Vec<u8>,
}

/// Waits, as bob, for a message.
async fn take(scene: &Scene, intruder: &mut Intruder) -> Taken {
    let bob = scene.platform.authority.agent("bob@factory");
    soon(async {
        loop {
            match intruder
                .next()
                .await
                .expect("the peer ended the connection")
            {
                Seen::Target { handle: target } => {
                    let mut proof = Vec::new();
                    let binding = Binding::prove(&bob, &intruder.channel, intruder.role);
                    binding.unwrap().encode(&mut proof);
                    let proof = &proof;
                    intruder
                        .send(&Frame::Prove { target, proof })
                        .await
                        .unwrap();
                    let limit = 1 << 20;
                    intruder
                        .send(&Frame::Accept { target, limit })
                        .await
                        .unwrap();
                }
                Seen::Message {
                    sender,
                    target,
                    payload,
                } => {
                    return Taken {
                        sender,
                        target,
                        payload,
                    };
                }
                _ => {}
            }
        }
    })
    .await
}

/// An honest agent, `writer`, has written to bob, whom the intruder's process runs.
async fn written(scene: &Scene) -> (Intruder, Taken, Outbox, Mailbox) {
    // Without this connection, the process would dial by itself, and end a later one.
    let mut intruder = scene.ready(&scene.mallory()).await;
    let (writer, answers) = scene.platform.agent(&scene.process, "writer@factory");
    let identity = scene.credential.certificate().unwrap().identity().clone();
    let address = "127.0.0.1:9".parse().unwrap();
    let place = Location::Process(ProcessEndpoint { identity, address });
    scene.platform.directory.put("bob@factory", place);
    writer
        .send(inform("bob@factory", "good day"))
        .await
        .unwrap();
    let taken = take(scene, &mut intruder).await;
    (intruder, taken, writer, answers)
}

async fn give_back(intruder: &mut Intruder, taken: &Taken, why: Why, payload: &[u8]) {
    let returned = Frame::Returned {
        target: taken.target,
        sender: taken.sender,
        why,
        more: false,
        piece: payload,
    };
    intruder.send(&returned).await.unwrap();
}

/// Closes a target, as the peer asks.
async fn close_target(intruder: &mut Intruder, target: u32) {
    intruder
        .until(|seen| matches!(seen, Seen::CloseTarget { .. }))
        .await;
    intruder
        .send(&Frame::TargetClosed { target })
        .await
        .unwrap();
}

fn forged() -> Vec<u8> {
    let mut message = inform("bob@factory", "I owe you a million");
    message.sender = Some(Aid::new("writer@factory").unwrap());
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    payload
}

async fn only_what_was_sent_is_sent_on(level: SecurityLevel) {
    let scene = Scene::at(level).await;
    let (mut intruder, taken, writer, mut answers) = written(&scene).await;

    // A refusal of another message does not concern the writer.
    give_back(
        &mut intruder,
        &taken,
        Why::Refused(RefusalReason::OverLimit),
        &forged(),
    )
    .await;
    // Bob has moved to an honest process.
    let honest = scene.platform.process("node-2").await;
    let (_, mut bob) = scene.platform.agent(&honest, "bob@factory");
    give_back(&mut intruder, &taken, Why::Moving, &forged()).await;
    give_back(&mut intruder, &taken, Why::Moving, &taken.payload).await;
    give_back(&mut intruder, &taken, Why::Moving, &taken.payload).await;
    close_target(&mut intruder, taken.target).await;

    writer.send(inform("bob@factory", "goodbye")).await.unwrap();
    for wanted in ["good day", "goodbye"] {
        let message = soon(bob.recv()).await.unwrap().into_message();
        assert_eq!(message.content_text(), Some(wanted));
    }
    assert_eq!(scene.count(RefusalReason::NotProved), 3);
    assert!(
        answers.try_recv().is_none(),
        "the writer was told of a failure"
    );
    scene.unharmed().await;
}

#[tokio::test]
async fn at_auth_only_what_was_sent_is_sent_on() {
    only_what_was_sent_is_sent_on(SecurityLevel::Auth).await;
}

#[tokio::test]
async fn at_signed_only_what_was_sent_is_signed_again() {
    only_what_was_sent_is_sent_on(SecurityLevel::Signed).await;
}

/// Messages that were sent in a row come back one by one.
#[tokio::test]
async fn of_a_row_only_what_was_sent_is_sent_on() {
    let scene = Scene::new().await;
    let (mut intruder, taken, writer, mut answers) = written(&scene).await;
    let contents: Vec<Content> = (0..150_u8)
        .map(|number| match number / 10 % 3 {
            0 => Content::from(number.to_string()),
            1 => Content::from(vec![number; 3]),
            _ => Content::from(vec![number; 300]),
        })
        .collect();
    for content in &contents {
        let message = inform("bob@factory", "").with_content(content.clone());
        writer.try_send(message).unwrap();
    }
    let mut payloads = vec![taken.payload.clone()];
    let mut in_rows = 0;
    while payloads.len() <= contents.len() {
        let seen = soon(intruder.next()).await;
        match seen.expect("the peer ended the connection") {
            Seen::Message { payload, .. } => payloads.push(payload),
            Seen::Row { payloads: row } => {
                in_rows += row.len();
                payloads.extend(row);
            }
            _ => {}
        }
    }
    assert!(in_rows > contents.len() / 2, "{in_rows}");

    // Bob has moved to an honest process.
    let honest = scene.platform.process("node-2").await;
    let (_, mut bob) = scene.platform.agent(&honest, "bob@factory");
    // With another act, and with another content.
    let mut forged = [payloads[150].clone(), payloads[150].clone()];
    forged[0][2] = Performative::Request.code();
    *forged[1].iter_mut().nth_back(1).unwrap() ^= 1;
    for payload in payloads.iter().chain(&forged).chain(&payloads[150..]) {
        give_back(&mut intruder, &taken, Why::Moving, payload).await;
    }
    close_target(&mut intruder, taken.target).await;

    let wanted = std::iter::once(Content::from("good day")).chain(contents);
    for content in wanted {
        let message = soon(bob.recv()).await.unwrap().into_message();
        assert_eq!(message.content, Some(content));
    }
    assert_eq!(scene.count(RefusalReason::NotProved), 3);
    assert!(
        answers.try_recv().is_none(),
        "the writer was told of a failure"
    );
    scene.unharmed().await;
}

#[tokio::test]
async fn a_message_that_is_refused_is_reported_to_its_sender_once() {
    let scene = Scene::new().await;
    let (mut intruder, taken, _writer, mut answers) = written(&scene).await;
    let why = Why::Refused(RefusalReason::OverLimit);
    give_back(&mut intruder, &taken, why, &taken.payload).await;
    give_back(&mut intruder, &taken, why, &taken.payload).await;
    let told = soon(answers.recv()).await.unwrap();
    assert_eq!(told.message().performative(), Performative::Failure);
    scene.refused(RefusalReason::NotProved, "bob@factory").await;
    assert!(answers.try_recv().is_none(), "the writer was told twice");
    scene.unharmed().await;
}

/// A process remembers who sent a message until it learns that the message was taken.
#[tokio::test]
async fn what_comes_back_comes_before_it_is_acknowledged() {
    const MESSAGES: usize = 12;
    let scene = Scene::new().await;
    let mut peer = scene.ready(&scene.mallory()).await;
    scene.process.bus.detach("victim@factory");
    peer.until(|seen| matches!(seen, Seen::Other(Kind::Leaving)))
        .await;
    // Together they are more than is written at a time.
    let message = from("mallory@factory").with_content("x".repeat(60_000));
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    let message = Frame::Message {
        sender: 0,
        target: 0,
        is_signed: false,
        payload: &payload,
    };
    let mut frames = vec![message; MESSAGES];
    frames.push(Frame::Unbind { handle: 0 });
    peer.send_together(&frames).await.unwrap();
    let mut came_back = 0;
    // The first frame of the session opened the target.
    let mut acknowledged = 1;
    while acknowledged < 1 + frames.len() as u64 {
        match soon(peer.next()).await.expect("the connection has ended") {
            Seen::Returned { .. } => came_back += 1,
            Seen::Acknowledge { received } => {
                acknowledged = received;
                let taken = (received as usize - 1).min(MESSAGES);
                assert!(came_back >= taken, "{came_back} of {taken} came back");
            }
            _ => {}
        }
    }
    assert_eq!(came_back, MESSAGES);
}

#[tokio::test]
async fn an_agent_has_one_window_on_a_link() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let again = Frame::Target {
        handle: 1,
        name: "victim@factory",
    };
    intruder.send(&again).await.unwrap();
    let seen = intruder.until_end().await;
    let is_accepted = |seen: &Seen| matches!(seen, Seen::Accept { target: 1, .. });
    assert!(!seen.iter().any(is_accepted), "{seen:?}");
    // A target that was closed is opened anew.
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder.close(0).await;
    intruder.target(2, "victim@factory").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_window_that_is_closed_and_opened_again_is_no_wider() {
    let mut scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder.close(0).await;
    let message = from("mallory@factory").with_content("x".repeat(60_000));
    let mut sent = 0;
    // The victim reads nothing.
    for _ in 0..20 {
        let limit = intruder.target(0, "victim@factory").await;
        let mut written = 0;
        while written < limit {
            intruder.message(0, 0, &message).await.unwrap();
            written += 60_000;
            sent += 1;
        }
        intruder.close(0).await;
    }
    assert!(sent * 60_000 < 4 << 20, "{sent} messages of 60 kB are kept");
    // The room comes back as the victim reads.
    assert_eq!(intruder.target(0, "victim@factory").await, 0);
    for _ in 0..sent {
        soon(scene.mailbox.recv()).await.unwrap();
    }
    intruder
        .until(|seen| matches!(seen, Seen::Other(Kind::Credit)))
        .await;
    intruder.message(0, 0, &message).await.unwrap();
    soon(scene.mailbox.recv()).await.unwrap();
    scene.unharmed().await;
}

/// An agent of an honest process is looked up again, or moves: its sender is told of the messages that it had got by
/// then if they are never read.
#[tokio::test]
async fn what_an_agent_leaves_unread_is_told_even_if_its_target_was_closed() {
    let scene = Scene::new().await;
    let mut peer = scene.ready(&scene.mallory()).await;
    let message = from("mallory@factory");
    peer.message(0, 0, &message).await.unwrap();
    peer.close(0).await;
    // The handle stands for another target now.
    peer.target(0, "victim@factory").await;
    peer.message(0, 0, &message).await.unwrap();
    peer.close(0).await;
    scene.process.bus.detach("victim@factory");
    drop(scene.mailbox);
    let mut wanted = Vec::new();
    bitefficient::encode(&message, &mut wanted).unwrap();
    for told in [1, 2] {
        let seen = peer.until(|seen| matches!(seen, Seen::Unread { .. })).await;
        let Seen::Unread {
            number,
            sender,
            payload,
        } = seen
        else {
            unreachable!()
        };
        assert_eq!((number, sender, payload), (told, 0, wanted.clone()));
    }
}

/// Bob's process reports that bob, who has been closed as a target, ended without reading.
#[tokio::test]
async fn what_was_left_unread_is_reported_once_and_only_if_it_was_sent() {
    let scene = Scene::new().await;
    let (mut intruder, taken, _writer, mut answers) = written(&scene).await;
    let target = taken.target;
    let why = Why::Moving;
    intruder
        .send(&Frame::Leaving { target, why })
        .await
        .unwrap();
    close_target(&mut intruder, target).await;
    for (number, payload) in [
        // There was no seventh target, nothing else was sent to the first, and each message comes back only once.
        (7, &taken.payload),
        (1, &forged()),
        (1, &taken.payload),
        (1, &taken.payload),
    ] {
        let unread = Frame::Unread {
            number,
            sender: taken.sender,
            more: false,
            piece: payload,
        };
        intruder.send(&unread).await.unwrap();
    }
    let told = soon(answers.recv()).await.unwrap();
    assert_eq!(told.message().performative(), Performative::Failure);
    let told = told.message().content_text().unwrap().into_owned();
    assert!(told.contains("bob@factory"), "{told}");
    soon(async {
        while scene.count(RefusalReason::NotProved) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(scene.count(RefusalReason::NotProved), 2);
    assert!(answers.try_recv().is_none(), "the writer was told twice");
    scene.unharmed().await;
}

/// Two honest processes. Bob keeps his mailbox while Alice's process looks for him again.
#[tokio::test]
async fn each_message_is_read_or_its_sender_is_told() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut answers) = platform.agent(&here, "alice@factory");
    let (_bob, mut bobs) = platform.agent(&there, "bob@factory");
    let place = Location::Process(there.endpoint.process());
    for number in 0..10 {
        alice.send(inform("bob@factory", number)).await.unwrap();
        soon(async {
            while bobs.len() <= number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        for place in [Location::InTransit, place.clone()] {
            platform.directory.put("bob@factory", place);
            here.bus.location_changed("bob@factory");
        }
    }
    for number in 0..3 {
        let read = bobs.recv().await.unwrap().into_message();
        assert_eq!(read.content_text(), Some(&*number.to_string()));
    }
    there.bus.detach("bob@factory");
    drop(bobs);
    for _ in 3..10 {
        let told = soon(answers.recv()).await.unwrap();
        assert_eq!(told.message().performative(), Performative::Failure);
    }
    alice.send(inform("alice@factory", "done")).await.unwrap();
    let last = soon(answers.recv()).await.unwrap().into_message();
    assert_eq!(last.content_text(), Some("done"));
}
