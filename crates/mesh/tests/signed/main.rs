//! Level `signed`: a delivered message has its author's proof, which others can check. A message without a proof, or
//! with a wrong one, is refused by name.
#![allow(clippy::unwrap_used)]

mod direct;
mod events;
#[path = "../intruder/mod.rs"]
mod intruder;
mod sealed;
#[path = "../support/mod.rs"]
mod support;
mod unlogged;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use intruder::Intruder;
use intruder::scene::{Scene, deny, from, is_returned};
use sealbus_bus::{Provenance, ReceivedMessage, RefusalReason};
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_mesh::frame::Frame;
use sealbus_proof::{Batch, Proof, Signer, Statement, Verifier, WRONG_SIGNATURES};
use sealbus_seal::{Credential, SecurityLevel};
use support::proxy::Proxy;
use support::{Authority, Platform, inform, now, soon};

const LEVEL: SecurityLevel = SecurityLevel::Signed;

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn statement(receiver: &str, message: &AclMessage) -> sealbus_proof::Hash {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).unwrap();
    statement_of(receiver, &bytes)
}

fn statement_of(receiver: &str, message: &[u8]) -> sealbus_proof::Hash {
    let receivers = [receiver];
    let statement = Statement {
        channel: None,
        qos: "",
        receivers: &receivers,
        message,
    };
    statement.hash()
}

fn signer(credential: &Arc<Credential>) -> Signer {
    Signer::new(credential.clone(), LEVEL).unwrap()
}

fn wire(batch: &Batch, count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    batch.proof(&(0..count)).unwrap().encode(&mut out);
    out
}

/// The wire form of a proof that `signer` made for one message to the victim.
fn proof(signer: &Signer, message: &AclMessage) -> Vec<u8> {
    let statements = vec![statement("victim@factory", message)];
    wire(&signer.sign(statements, milliseconds()).unwrap(), 1)
}

/// Sends a message, and `proof` behind it.
async fn say(intruder: &mut Intruder, message: &AclMessage, proof: &[u8]) {
    intruder.message(0, 0, message).await.unwrap();
    let sign = Frame::Sign { sender: 0, proof };
    intruder.send(&sign).await.unwrap();
}

/// Checks the evidence as an outsider does: with the platform's root certificate and nothing else.
fn check_elsewhere(authority: &Authority, receiver: &str, message: &ReceivedMessage) -> Proof {
    let said = statement_of(receiver, &message.to_bytes().unwrap());
    check_statement(authority, said, message)
}

fn check_statement(
    authority: &Authority,
    said: sealbus_proof::Hash,
    message: &ReceivedMessage,
) -> Proof {
    let evidence = message.provenance().evidence().expect("no evidence");
    let mut chain = Vec::new();
    evidence.chain().encode(&mut chain);
    let (chain, _) = sealbus_seal::CertificateChain::decode_prefix(&chain).unwrap();
    let author = authority.trust().verify(&chain, now()).unwrap();
    let mut proof = Vec::new();
    evidence.proof().unwrap().encode(&mut proof);
    let proof = Proof::decode(&proof).unwrap();
    Verifier::new(authority.platform.clone(), LEVEL)
        .verify(&author, &proof, &[said], milliseconds())
        .unwrap();
    let sender = message.message().sender().unwrap().name().to_owned();
    assert!(author.identity().is_agent_named(&sender));
    proof
}

#[tokio::test]
async fn every_message_has_evidence_that_others_can_check() {
    let platform = Platform::new(LEVEL);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (first, _first_mailbox) = platform.agent(&here, "first@factory");
    let (second, _second_mailbox) = platform.agent(&here, "second@factory");
    let mut receivers = Vec::new();
    for number in 0..5 {
        let name = format!("receiver-{number}@factory");
        let (outbox, mailbox) = platform.agent(&there, &name);
        receivers.push((name, outbox, mailbox));
    }
    // Batches of several senders and receivers, and a long message between them.
    for number in 0..700 {
        for outbox in [&first, &second] {
            let mut message = inform("receiver-0@factory", number);
            for (name, ..) in &receivers[1..] {
                message
                    .receivers
                    .push(sealbus_fipa::Aid::new(name.as_str()).unwrap());
            }
            if number == 300 {
                message = message.with_content("x".repeat(300_000));
            }
            outbox.send(message).await.unwrap();
        }
    }
    for (name, _, mailbox) in &mut receivers {
        let mut numbers = std::collections::HashSet::new();
        for count in 0..1400 {
            let received = soon(mailbox.recv()).await.unwrap();
            if count % 100 < 3 {
                let proof = check_elsewhere(&platform.authority, name, &received);
                assert!(numbers.insert((proof.serial().to_string(), proof.numbers())));
            }
        }
    }
    assert_eq!(there.bus.refusals().total(), 0);
}

#[tokio::test]
async fn the_intruders_program_works_when_it_is_honest() {
    let mut scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    let proof = proof(&signer(&mallory), &message);
    say(&mut intruder, &message, &proof).await;
    let received = soon(scene.mailbox.recv()).await.unwrap();
    check_elsewhere(&scene.platform.authority, "victim@factory", &received);
    scene.unharmed().await;
}

#[tokio::test]
async fn a_message_without_a_proof_is_not_delivered() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    // Its process says that it could not sign.
    say(&mut intruder, &message, &[]).await;
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene
        .refused(RefusalReason::NotProved, "mallory@factory")
        .await;
    // No proof comes, and the target ends: the connection ends.
    intruder.message(0, 0, &message).await.unwrap();
    let close = Frame::CloseTarget { target: 0 };
    intruder.send(&close).await.unwrap();
    intruder.until_end().await;
    // The same if the agent leaves.
    let mut intruder = scene.ready(&mallory).await;
    intruder.message(0, 0, &message).await.unwrap();
    intruder.send(&Frame::Unbind { handle: 0 }).await.unwrap();
    intruder.until_end().await;
    // The messages that wait for proofs are bounded.
    let mut intruder = scene.ready(&mallory).await;
    while intruder.message(0, 0, &message).await.is_ok() {}
    intruder.until_end().await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_proof_in_which_a_bit_was_changed_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let signer = signer(&mallory);
    let message = from("mallory@factory");
    let good = proof(&signer, &message);
    for bit in (0..good.len() * 8).step_by(61) {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let before = scene.process.bus.refusals().total();
        // A malformed proof ends its connection.
        let mut intruder = scene.ready(&mallory).await;
        say(&mut intruder, &message, &changed).await;
        soon(async {
            while scene.process.bus.refusals().total() == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
    scene.unharmed().await;
}

#[tokio::test]
async fn a_proof_of_something_else_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    let other = from("mallory@factory").with_content("something else");
    let one = |signer: &Signer, receiver: &str, message: &AclMessage| {
        let statements = vec![statement(receiver, message)];
        wire(&signer.sign(statements, milliseconds()).unwrap(), 1)
    };
    let two = vec![
        statement("victim@factory", &other),
        statement("victim@factory", &message),
    ];
    let two = own.sign(two, milliseconds()).unwrap();
    let mut first_of_two = Vec::new();
    two.proof(&(0..1)).unwrap().encode(&mut first_of_two);
    let sealed = Signer::new(mallory.clone(), SecurityLevel::Sealed).unwrap();
    let alice = scene.platform.authority.agent("alice@factory");
    let elsewhere = Authority::new("elsewhere").agent("mallory@elsewhere");
    let impostor = Authority::new("factory").agent("mallory@factory");
    let wrong = [
        ("another message", one(&own, "victim@factory", &other)),
        ("another receiver", one(&own, "alice@factory", &message)),
        ("another place of the batch", first_of_two),
        ("more messages", wire(&two, 2)),
        ("another level", one(&sealed, "victim@factory", &message)),
        (
            "another agent",
            one(&signer(&alice), "victim@factory", &message),
        ),
        (
            "another platform",
            one(&signer(&elsewhere), "victim@factory", &message),
        ),
        (
            "another authority",
            one(&signer(&impostor), "victim@factory", &message),
        ),
    ];
    for (number, (what, proof)) in wrong.into_iter().enumerate() {
        say(&mut intruder, &message, &proof).await;
        intruder.until(is_returned(RefusalReason::NotProved)).await;
        assert_eq!(
            scene.count(RefusalReason::NotProved),
            number as u64 + 1,
            "{what}"
        );
    }
    scene
        .refused(RefusalReason::NotProved, "mallory@factory")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn what_a_revoked_author_signed_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    let proof = proof(&signer(&mallory), &message);
    intruder.message(0, 0, &message).await.unwrap();
    deny(&scene, mallory.certificate().unwrap().serial());
    intruder
        .send(&Frame::Sign {
            sender: 0,
            proof: &proof,
        })
        .await
        .unwrap();
    intruder.until(is_returned(RefusalReason::Revoked)).await;
    scene.unharmed().await;
}

/// An attacker's wrong proofs cost [`WRONG_SIGNATURES`] checks, then its connection.
#[tokio::test]
async fn ten_thousand_wrong_proofs_end_one_connection_and_disturb_nobody() {
    let mut scene = Scene::at(LEVEL).await;
    let other = scene.platform.process("node-4").await;
    let (honest, _mailbox) = scene.platform.agent(&other, "steady@factory");
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    let wrong = proof(&own, &from("mallory@factory").with_content("not said"));
    let mut sent = 0;
    let attack = async {
        for _ in 0..10_000 {
            let message = intruder.message(0, 0, &message).await;
            let sign = Frame::Sign {
                sender: 0,
                proof: &wrong,
            };
            if message.is_err() || intruder.send(&sign).await.is_err() {
                return;
            }
            sent += 1;
        }
    };
    let talk = async {
        for number in 0..1000 {
            let said = inform("victim@factory", number);
            honest.send(said).await.unwrap();
        }
    };
    let listen = async {
        for number in 0..1000 {
            let received = scene.mailbox.recv().await.unwrap();
            let text = received.message().content_text().unwrap().into_owned();
            assert_eq!(text, number.to_string());
        }
    };
    soon(async { tokio::join!(attack, talk, listen) }).await;
    intruder.until_end().await;
    let checked = scene.count(RefusalReason::NotProved);
    // One more may be checked for each second that the attack took.
    assert!(checked >= u64::from(WRONG_SIGNATURES), "{checked}");
    assert!(checked < 10_000, "{checked} of {sent}");
    scene.unharmed().await;
}

/// A proof is on its way while its author gets a new certificate, and connections break.
#[tokio::test]
async fn proofs_outlive_the_certificates_and_connections_they_were_made_with() {
    let platform = Platform::new(LEVEL);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let (sender, _sender_mailbox) = platform.agent(&here, "sender@factory");
    let (_outbox, mut mailbox) = platform.agent_behind(&there, "receiver@factory", proxy.address);
    let talk = async {
        for number in 0..2000 {
            sender
                .send(inform("receiver@factory", number))
                .await
                .unwrap();
            if number % 400 == 100 {
                let renewed = platform.authority.agent("sender@factory");
                here.bus.set_credential("sender@factory", renewed).unwrap();
            }
            if number % 300 == 150 {
                proxy.cut();
            }
        }
    };
    let listen = async {
        for number in 0..2000 {
            let received = mailbox.recv().await.unwrap();
            assert!(matches!(received.provenance(), Provenance::Signed(_)));
            let text = received.message().content_text().unwrap().into_owned();
            assert_eq!(text, number.to_string());
        }
    };
    soon(async { tokio::join!(talk, listen) }).await;
    assert_eq!(there.bus.refusals().total(), 0);
}

#[tokio::test]
async fn a_process_at_another_level_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let address = scene.process.endpoint.local_address();
    let trust = scene.platform.authority.trust();
    let dialled = Intruder::dial(address, &scene.credential, trust).await;
    soon(dialled.unwrap().until_end()).await;
    scene.refused(RefusalReason::LevelMismatch, "node-2").await;
    scene.unharmed().await;
}
