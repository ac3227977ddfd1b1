//! A process that gives back messages that it was never given. They are neither sent on nor stored, so nobody makes agents of
//! another process say, or sign, what they did not write.
#![allow(clippy::unwrap_used)]

mod intruder;
mod support;

use intruder::scene::Scene;
use intruder::{Intruder, Seen};
use sealbus_bus::{Location, Mailbox, Outbox, ProcessEndpoint, RefusalReason};
use sealbus_fipa::{Aid, Performative, bitefficient};
use sealbus_mesh::frame::{Frame, Why};
use sealbus_seal::SecurityLevel;
use sealbus_seal::binding::Binding;
use support::{inform, soon};

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
    let mut intruder = scene.dial().await;
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

    // A refusal of something else is none of the writer's business.
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
    let target = taken.target;
    intruder
        .until(|seen| matches!(seen, Seen::CloseTarget { .. }))
        .await;
    intruder
        .send(&Frame::TargetClosed { target })
        .await
        .unwrap();

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
    let is_accepted = |seen: &Seen| matches!(seen, Seen::Accept { target: 1 });
    assert!(!seen.iter().any(is_accepted), "{seen:?}");
    // A target that was closed is opened anew.
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder
        .send(&Frame::CloseTarget { target: 0 })
        .await
        .unwrap();
    intruder.target(2, "victim@factory").await;
    scene.unharmed().await;
}
