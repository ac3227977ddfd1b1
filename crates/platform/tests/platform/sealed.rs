//! Level `sealed` on a platform with two nodes: nobody but the receiver reads a message, on the wire or on any disk.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{LONG, Operator, platform};
use sealbus_bus::{Delivery, ReceivedMessage, RefusalReason, SealedEnvelope, SendError};
use sealbus_channels::{ChannelPath, Channels, Persistence, Qos};
use sealbus_control::PlacedState;
use sealbus_control::admin::AgentStatus;
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_process::attachment::Attachment;
use sealbus_process::{AgentHandle, Parting, Process};
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::Commitment;

const MARKER: &str = "the-price-is-seven-and-nobody-else-may-know";

fn sealed() -> Delivery {
    Delivery::default().at_level(SecurityLevel::Sealed)
}

fn kept() -> Delivery {
    Delivery::persistent().at_level(SecurityLevel::Sealed)
}

fn secret(receiver: &str) -> AclMessage {
    let mut message = AclMessage::new(Performative::Propose)
        .with_receiver(Aid::new(receiver).unwrap())
        .with_protocol("fipa-contract-net")
        .with_content(MARKER);
    message.conversation_id = Some("order-17".into());
    message
}

async fn received(agent: &mut AgentHandle) -> ReceivedMessage {
    tokio::time::timeout(LONG, agent.receive())
        .await
        .expect("the message comes")
        .unwrap()
}

/// An agent that the platform knows as active, so that it knows its key. Its folder stays for its next start.
async fn joined_in(
    operator: &Operator,
    agent: &str,
    node: &str,
    folder: Option<&Path>,
) -> (Process, AgentHandle) {
    let ticket = operator.ticket(agent, Some(node)).await;
    let attachment = Attachment::join(&ticket).await.unwrap();
    let attachment = attachment.in_folder(folder.map(Path::to_owned));
    let process = Process::open(Arc::new(attachment), None).await.unwrap();
    let handle = process.agent(agent).await.unwrap();
    let name = handle.aid().name.clone();
    let is_active = |it: &AgentStatus| it.name == name && it.state == Some(PlacedState::Active);
    operator
        .until("an active agent", |agents| agents.iter().any(is_active))
        .await;
    (process, handle)
}

async fn joined(operator: &Operator, agent: &str, node: &str) -> (Process, AgentHandle) {
    joined_in(operator, agent, node, None).await
}

async fn leave((process, agent): (Process, AgentHandle), operator: &Operator) {
    let name = agent.aid().name.clone();
    agent.leave(Parting::Ended);
    process.close().await;
    let is_gone = |agents: &[AgentStatus]| {
        let is_there = |it: &AgentStatus| it.name == name && it.state.is_some();
        !agents.iter().any(is_there)
    };
    operator.until("the end of an agent", is_gone).await;
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Checks that no file holds the words of the message, in any encoding that the platform uses.
fn assert_nothing_shows(folder: &Path, is_there: &str) {
    use base64::Engine;
    let in_base64: Vec<String> = (0..3)
        .map(|skipped| {
            let middle = &MARKER.as_bytes()[skipped..][..MARKER.len() / 3 * 3 - 3];
            base64::engine::general_purpose::STANDARD.encode(middle)
        })
        .collect();
    let mut is_seen = false;
    for file in files(folder) {
        let Ok(bytes) = std::fs::read(&file) else {
            continue;
        };
        let has = |words: &str| bytes.windows(words.len()).any(|at| at == words.as_bytes());
        is_seen |= has(is_there);
        for words in in_base64
            .iter()
            .map(String::as_str)
            .chain([MARKER, "propose"])
        {
            assert!(!has(words), "{} holds {words}", file.display());
        }
    }
    assert!(
        is_seen,
        "no file holds {is_there}: the letter is not there at all"
    );
}

#[tokio::test]
async fn a_message_is_read_by_its_receiver_alone_and_its_author_is_proved() {
    for level in [SecurityLevel::Auth, SecurityLevel::Signed] {
        let directory = tempfile::tempdir().unwrap();
        let (_master, operator, _one, _two) = platform(directory.path(), level).await;
        let (_first, alice) = joined(&operator, "alice", "node-1").await;
        let (_second, mut bob) = joined(&operator, "bob", "node-2").await;
        for delivery in [sealed(), kept(), sealed()] {
            alice
                .send_with(secret("bob@factory"), delivery)
                .await
                .unwrap();
            let message = received(&mut bob).await;
            assert!(message.is_sealed());
            assert_eq!(message.provenance().as_str(), "signed");
            let inside = message.message().to_owned();
            assert_eq!(inside.content_bytes().unwrap(), MARKER.as_bytes());
            assert_eq!(inside.performative, Performative::Propose);
            // Taps, records and moves see this.
            let seen = message.seen().to_owned();
            assert_eq!(seen.performative.as_str(), "sealed");
            assert_eq!(seen.conversation_id, inside.conversation_id);
            assert!(seen.protocol.is_none());
            let travelled = message.to_bytes().unwrap();
            let marker = MARKER.as_bytes();
            assert!(!travelled.windows(marker.len()).any(|at| at == marker));
        }
        // Whoever has the outer message, its evidence and these two sees what alice wrote, and to whom.
        alice
            .send_with(secret("bob@factory"), sealed())
            .await
            .unwrap();
        let message = received(&mut bob).await;
        assert_eq!(
            message
                .provenance()
                .evidence()
                .unwrap()
                .author()
                .identity()
                .to_string(),
            "spiffe://factory/agent/alice"
        );
        let outer = message.seen().to_owned();
        let envelope = SealedEnvelope::parse(outer.content_bytes().unwrap()).unwrap();
        let (salt, inside) = message.committed().unwrap();
        assert_eq!(envelope.commitment, Commitment::new(salt, inside));
        assert_ne!(envelope.commitment, Commitment::new(salt, &inside[1..]));

        // An answer is sealed as well, if its author says so, and a message without the level is not.
        bob.send_with(secret("alice@factory"), sealed())
            .await
            .unwrap();
        alice.send(secret("bob@factory")).await.unwrap();
        assert!(!received(&mut bob).await.is_sealed());
    }
}

#[tokio::test]
async fn where_the_platform_is_at_sealed_agents_seal_without_being_told() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Sealed).await;
    let (first, mut alice) = joined(&operator, "alice", "node-1").await;
    let (_second, mut bob) = joined(&operator, "bob", "node-2").await;
    for delivery in [Delivery::default(), Delivery::persistent()] {
        alice
            .send_with(secret("bob@factory"), delivery)
            .await
            .unwrap();
        let message = received(&mut bob).await;
        assert!(message.is_sealed());
        assert_eq!(message.provenance().as_str(), "signed");
        assert_eq!(message.message().content_text().unwrap(), MARKER);
    }
    let both = secret("alice@factory").with_receiver(Aid::new("bob@factory").unwrap());
    alice.send(both).await.unwrap();
    for agent in [&mut alice, &mut bob] {
        assert!(received(agent).await.is_sealed());
    }
    // Nobody may ask for less.
    let less = Delivery::default().at_level(SecurityLevel::Signed);
    let refused = alice.send_with(secret("bob@factory"), less).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("weaker than level=sealed"), "{refused}");
    // Events are sealed, and no log keeps them.
    let channels = Channels::of(first.bus());
    let path = ChannelPath::new("/offers").unwrap();
    let event = || AclMessage::new(Performative::Inform).with_content(MARKER);
    channels
        .publish(alice.outbox(), &path, &Qos::default(), event())
        .await
        .unwrap();
    let persistent = Qos {
        persistence: Persistence::Persistent,
        ..Qos::default()
    };
    let refused = channels
        .publish(alice.outbox(), &path, &persistent, event())
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("a log cannot hold"), "{refused}");
    // The platform's own agents read what is written to them.
    let mut question = secret("df@factory");
    question.protocol = None;
    alice.send(question).await.unwrap();
    let answer = received(&mut alice).await;
    assert!(!answer.is_sealed());
    assert_eq!(answer.message().sender().unwrap().name(), "df@factory");
}

#[tokio::test]
async fn a_message_waits_sealed_for_an_absent_agent_that_kept_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let folder = directory.path().join("bob");
    std::fs::create_dir(&folder).unwrap();
    let (_first, mut alice) = joined(&operator, "alice", "node-1").await;
    let bob = joined_in(&operator, "bob", "node-2", Some(&folder)).await;
    leave(bob, &operator).await;

    let transient = alice.send_with(secret("bob@factory"), sealed()).await;
    let refused = transient.unwrap_err();
    assert!(matches!(refused, SendError::NotSealed { .. }), "{refused}");
    alice
        .send_with(secret("bob@factory"), kept())
        .await
        .unwrap();
    assert_nothing_shows(directory.path(), "order-17");

    let (process, mut bob) = joined_in(&operator, "bob", "node-2", Some(&folder)).await;
    let message = received(&mut bob).await;
    assert!(message.is_sealed() && message.kept().is_some());
    assert_eq!(message.message().content_text().unwrap(), MARKER);
    assert_nothing_shows(directory.path(), "sealbus encryption keys v1");
    leave((process, bob), &operator).await;

    // Without its former keys it cannot open the next one, and its author hears of it.
    alice
        .send_with(secret("bob@factory"), kept())
        .await
        .unwrap();
    let (process, _bob) = joined_in(&operator, "bob", "node-2", None).await;
    let failure = received(&mut alice).await;
    assert!(failure.provenance().is_of_platform());
    let said = failure.message().content_text().unwrap().into_owned();
    assert!(said.contains("does not have the key"), "{said}");
    assert_eq!(
        failure.message().conversation_id().unwrap().text().unwrap(),
        "order-17"
    );
    let noted = process.bus().refusals().last();
    assert!(
        noted
            .iter()
            .any(|it| it.reason == RefusalReason::NotOpened && it.tried_by == "alice@factory")
    );
}

#[tokio::test]
async fn an_agent_that_cannot_open_a_message_is_named_to_its_author() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (_first, alice) = joined(&operator, "alice", "node-1").await;
    for (receiver, why) in [
        ("nobody@factory", "has stated no key"),
        ("df@factory", ""),
        ("bob@elsewhere", "agent of another platform"),
    ] {
        for delivery in [sealed(), kept()] {
            let sent = alice.send_with(secret(receiver), delivery).await;
            if receiver == "df@factory" {
                // The platform's own agents have keys, too.
                assert!(delivery.persistent || sent.is_ok(), "{sent:?}");
                continue;
            }
            let refused = sent.unwrap_err().to_string();
            assert!(
                refused.contains(receiver) && refused.contains(why),
                "{refused}"
            );
        }
    }
    let below = directory.path().join("below");
    let (_master, operator, _one, _two) = platform(&below, SecurityLevel::Tls).await;
    let (_second, carol) = joined(&operator, "carol", "node-1").await;
    let refused = carol.send_with(secret("carol@factory"), sealed()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot give level=sealed"), "{refused}");
}

#[tokio::test]
async fn agents_of_one_process_seal_for_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (_first, mut alice) = joined(&operator, "alice", "node-1").await;
    alice
        .send_with(secret("alice@factory"), sealed())
        .await
        .unwrap();
    let message = received(&mut alice).await;
    assert!(message.is_sealed());
    assert_eq!(message.provenance().as_str(), "same-process");
    assert_eq!(message.message().content_text().unwrap(), MARKER);
    assert_eq!(message.seen().performative().as_str(), "sealed");
}
