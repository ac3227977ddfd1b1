//! Level `signed`: a delivered message has its author's proof, which others can check. A message without a proof, or
//! with a wrong one, is refused, and its author is named.
#![allow(clippy::unwrap_used)]

mod direct;
mod events;
#[path = "../intruder/mod.rs"]
mod intruder;
mod sealed;
#[path = "../support/mod.rs"]
mod support;
mod unlogged;
mod wrong;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use intruder::Intruder;
use intruder::scene::{Scene, from, is_returned};
use sealbus_bus::{Provenance, ReceivedMessage, RefusalReason};
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_mesh::frame::{Frame, SignedMessages};
use sealbus_proof::{Batch, BatchKey, Hash, Proof, Signer, Statement, Verifier, WRONG_SIGNATURES};
use sealbus_seal::{Credential, SecurityLevel};
use support::proxy::Proxy;
use support::{Authority, Platform, inform, now, soon};

const LEVEL: SecurityLevel = SecurityLevel::Signed;

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn statement(receiver: &str, message: &AclMessage) -> Hash {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).unwrap();
    statement_of(receiver, &bytes)
}

fn statement_of(receiver: &str, message: &[u8]) -> Hash {
    let receivers = [receiver];
    let statement = Statement {
        channel: None,
        qos: "",
        receivers: &receivers,
        message,
    };
    statement.hash()
}

/// The signer of an agent in a process of its own.
fn signer(credential: &Arc<Credential>) -> Signer {
    signer_with(credential, &key(LEVEL))
}

fn key(level: SecurityLevel) -> Arc<BatchKey> {
    Arc::new(BatchKey::new("factory".parse().unwrap(), level))
}

fn signer_with(credential: &Arc<Credential>, key: &Arc<BatchKey>) -> Signer {
    Signer::new(credential.clone(), key.clone()).unwrap()
}

/// The parts of a [`Frame::Sign`].
#[derive(Clone)]
struct Signature {
    time: u64,
    signature: Vec<u8>,
    authors: Vec<SignedMessages>,
}

impl Signature {
    /// The signature of these senders, each given by its handle, for these statements.
    fn of(said: &[(u32, &Signer, &[Hash])]) -> Self {
        let mut batch = Batch::new(said[0].1.key().clone());
        let authors = said.iter().map(|(sender, signer, statements)| {
            SignedMessages::new(*sender, &batch.add(signer, statements).unwrap())
        });
        let authors = authors.collect();
        let batch = batch.sign(milliseconds()).unwrap();
        Self {
            time: batch.time(),
            signature: batch.signature().to_vec(),
            authors,
        }
    }

    /// The signature of sender 0 for this statement.
    fn alone(signer: &Signer, statement: Hash) -> Self {
        Self::of(&[(0, signer, &[statement])])
    }

    /// Says that the process of sender 0 could not sign.
    fn missing() -> Self {
        Self {
            time: 0,
            signature: Vec::new(),
            authors: vec![SignedMessages::unsigned(0, 1)],
        }
    }

    fn frame(&self) -> Frame<'_> {
        Frame::Sign {
            time: self.time,
            signature: &self.signature,
            authors: &self.authors,
        }
    }
}

/// The signature by `signer` for one message to the victim.
fn proof(signer: &Signer, message: &AclMessage) -> Signature {
    Signature::alone(signer, statement("victim@factory", message))
}

/// Shows the delegation of a sender.
async fn delegate(intruder: &mut Intruder, handle: u32, signer: &Signer) {
    let mut delegation = Vec::new();
    signer.delegation().encode(&mut delegation);
    let frame = Frame::Delegate {
        handle,
        serial: *signer.serial().as_bytes(),
        delegation: &delegation,
    };
    intruder.send(&frame).await.unwrap();
}

/// Sends a message, and the signature behind it.
async fn say(intruder: &mut Intruder, message: &AclMessage, signature: &Signature) {
    intruder.message(0, 0, message).await.unwrap();
    intruder.send(&signature.frame()).await.unwrap();
}

/// Checks the evidence as an outsider does: with only the platform's root certificate.
fn check_elsewhere(authority: &Authority, receiver: &str, message: &ReceivedMessage) -> Proof {
    let said = statement_of(receiver, &message.to_bytes().unwrap());
    check_statement(authority, said, message)
}

fn check_statement(authority: &Authority, said: Hash, message: &ReceivedMessage) -> Proof {
    let evidence = message.provenance().evidence().expect("no evidence");
    let mut chain = Vec::new();
    evidence.chain().encode(&mut chain);
    let (chain, _) = sealbus_seal::CertificateChain::decode_prefix(&chain).unwrap();
    let author = authority.trust().verify(&chain, now()).unwrap();
    let mut proof = Vec::new();
    evidence.proof().unwrap().encode(&mut proof);
    let proof = Proof::decode(&proof).unwrap();
    Verifier::new(authority.platform.clone(), LEVEL)
        .verify(&author, &proof, &said, milliseconds())
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
    // Batches of several senders and receivers, with a long message between them.
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
                assert!(numbers.insert((proof.serial().to_string(), proof.number())));
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
    let own = signer(&mallory);
    delegate(&mut intruder, 0, &own).await;
    say(&mut intruder, &message, &proof(&own, &message)).await;
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
    say(&mut intruder, &message, &Signature::missing()).await;
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene
        .refused(RefusalReason::NotProved, "mallory@factory")
        .await;
    // No proof comes, and the target ends: this ends the connection.
    intruder.message(0, 0, &message).await.unwrap();
    let close = Frame::CloseTarget { target: 0 };
    intruder.send(&close).await.unwrap();
    intruder.until_end().await;
    // The same if the agent leaves.
    let mut intruder = scene.ready(&mallory).await;
    intruder.message(0, 0, &message).await.unwrap();
    intruder.send(&Frame::Unbind { handle: 0 }).await.unwrap();
    intruder.until_end().await;
    // The number of messages that wait for proofs is limited.
    let mut intruder = scene.ready(&mallory).await;
    while intruder.message(0, 0, &message).await.is_ok() {}
    intruder.until_end().await;
    scene.unharmed().await;
}

/// An attacker's wrong proofs cost [`WRONG_SIGNATURES`] checks, and then its connection.
#[tokio::test]
async fn ten_thousand_wrong_proofs_end_one_connection_and_disturb_nobody() {
    let mut scene = Scene::at(LEVEL).await;
    let other = scene.platform.process("node-4").await;
    let (honest, _mailbox) = scene.platform.agent(&other, "steady@factory");
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let mut intruder = scene.ready(&mallory).await;
    delegate(&mut intruder, 0, &own).await;
    let message = from("mallory@factory");
    let wrong = proof(&own, &from("mallory@factory").with_content("not said"));
    let mut sent = 0;
    let attack = async {
        for _ in 0..10_000 {
            let message = intruder.message(0, 0, &message).await;
            if message.is_err() || intruder.send(&wrong.frame()).await.is_err() {
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
    // One more check is allowed for each second that the attack took.
    assert!(checked >= u64::from(WRONG_SIGNATURES), "{checked}");
    assert!(checked < 10_000, "{checked} of {sent}");
    scene.unharmed().await;
}

/// Proofs are under way while their author gets a new certificate, and while connections break.
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
