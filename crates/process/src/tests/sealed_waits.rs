//! Agents that state no keys, begin one session after another, or take up room. They hold up nobody for long, and push
//! out nobody.

use sealbus_channels::{ChannelPath, EventToSeal, Needs, SealedEvent, Unsealed};

use super::sealed::{credential, encoded, letter, open, sealed, sealed_by};
use super::sealed_channels::{
    BOB, FROM_ALICE, alice_and_bob, offers, open as open_with, parts, parts_on, read_part, reader,
    sealer,
};
use super::*;
use crate::sealing::ProcessSealer;
use sealbus_control::post::{DeliveredLetter, Receipt};
use sealbus_control::{WaitingMessage, WaitingProvenance};

#[tokio::test]
async fn an_agent_that_states_no_key_is_waited_for_once() {
    let world = World::new();
    let (_one, alice, host) = open(&world, "alice").await;
    let (_two, bob, _) = open(&world, "bob").await;
    world.keys.lock().remove("bob");
    let asked = || host.keys_asked.load(Ordering::SeqCst);
    for is_first in [true, false, false, false] {
        let before = asked();
        let refused = alice.send_with(inform(&bob, "hello"), sealed()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("has stated no key"), "{refused}");
        match is_first {
            true => assert!(asked() > before + 1),
            false => assert_eq!(asked(), before + 1),
        }
    }
}

/// Seals an event from alice to bob, who is there in this session.
fn event_in(process: &Process, session: u64) -> Result<SealedEvent, Unsealed> {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of(FROM_ALICE.0))
        .with_content("hello");
    let mut bob = reader(BOB);
    bob.session = session;
    sealer(process).seal(&EventToSeal {
        publisher: FROM_ALICE.0,
        channel: &offers(),
        message: &message,
        readers: &[bob],
        needs: Needs::All,
    })
}

/// The number of sessions that bob begins, one at each look-up, until alice publishes without him; and her reason.
async fn sessions_until_left_out(process: &Process) -> (u64, String) {
    let sessions = async {
        let mut session = 1;
        loop {
            match event_in(process, session) {
                Ok(event) if event.left_out.is_empty() => session += 1,
                Ok(event) => return (session, event.left_out[0].reason.to_string()),
                Err(Unsealed::Unknown(unknown)) => {
                    sealer(process).look_up(&unknown).await;
                    session += 1;
                }
                Err(Unsealed::Failed(why)) => panic!("{why}"),
            }
            // Others do something, too.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, sessions).await.unwrap()
}

#[tokio::test]
async fn a_reader_without_a_key_holds_up_a_publisher_once_however_many_sessions_it_begins() {
    let world = World::new();
    let (one, _alice, _two, _bob) = alice_and_bob(&world).await;
    world.keys.lock().remove("bob");
    let (sessions, why) = sessions_until_left_out(&one).await;
    assert_eq!(sessions, 2);
    assert!(why.contains("has stated no key"), "{why}");
}

#[tokio::test]
async fn a_reader_that_begins_one_session_after_another_is_left_out_for_a_while() {
    let world = World::new();
    let (one, _alice, _two, _bob) = alice_and_bob(&world).await;
    let (_, why) = sessions_until_left_out(&one).await;
    assert!(why.contains("one session after another"), "{why}");
}

#[tokio::test]
async fn a_receipt_that_waits_for_a_key_holds_up_no_other_letter() {
    let world = World::new();
    let (one, _alice, _) = open(&world, "alice").await;
    let (host, tell) = TestHost::new(&world, &["bob"], HOUR, Vec::new());
    let two = Process::open(host.clone(), None).await.unwrap();
    let mut bob = two.agent("bob").await.unwrap();
    let hello = sealed_by(&one, BOB, "hello").await;
    world.keys.lock().remove("alice");
    let alice = Arc::new(credential(&world, "alice", Validity::starting(now(), HOUR)));
    let mut asking = letter(1, &alice, BOB, &encoded(&hello));
    asking.receipt = Some(Receipt::Agent);
    let plain = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of("carol@factory"))
        .with_content("good day");
    let plain = DeliveredLetter {
        number: 2,
        receipt: None,
        waiting: WaitingMessage {
            message: Blob(encoded(&plain)),
            provenance: WaitingProvenance::SameProcess {
                identity: "spiffe://factory/agent/carol".to_owned(),
            },
        },
        ..asking.clone()
    };
    let (agent, letters) = ("bob".to_owned(), vec![asking, plain]);
    tell.send(Command::Letters { agent, letters })
        .await
        .unwrap();
    for text in ["hello", "good day"] {
        assert_eq!(read(&mut bob).await, text);
    }
    let settled = || -> Vec<_> {
        let settled = host.settled.lock();
        let settled = settled.iter().filter(|(_, outcome)| outcome.is_final());
        settled.copied().collect()
    };
    until("an outcome", || !settled().is_empty()).await;
    assert_eq!(settled()[0], (2, LetterOutcome::Taken));
    // There is no key, and so no receipt: the AMS writes to the sender.
    until("the other outcome", || settled().len() == 2).await;
    assert_eq!(settled()[1], (1, LetterOutcome::Taken));
}

#[tokio::test]
async fn groups_of_one_publisher_push_out_none_of_another() {
    const MALLORY: &str = "mallory@factory";
    let world = World::new();
    let one = open_with(&world, &["alice"]).await;
    let two = open_with(&world, &["bob"]).await;
    let three = open_with(&world, &["mallory"]).await;
    let _alice = one.agent("alice").await.unwrap();
    let _bob = two.agent("bob").await.unwrap();
    let _mallory = three.agent("mallory").await.unwrap();
    for content in parts(&one, FROM_ALICE.0, &[BOB], "first").await {
        read_part(&two, BOB, FROM_ALICE, &content).unwrap();
    }
    let channels = (0..=ProcessSealer::MOST_READ).map(|number| format!("/noise/{number}"));
    let channels: Vec<_> = channels.map(|it| ChannelPath::new(&it).unwrap()).collect();
    for channel in &channels {
        for content in parts_on(&three, (MALLORY, channel), &[BOB], "noise").await {
            read_part(&two, BOB, (MALLORY, channel.as_str()), &content).unwrap();
        }
    }
    let second = parts(&one, FROM_ALICE.0, &[BOB], "second").await;
    assert_eq!(second.len(), 1);
    let read = read_part(&two, BOB, FROM_ALICE, &second[0]);
    assert_eq!(read, Ok(Some("second".to_owned())));
    // Mallory's own first group made room.
    let again = parts_on(&three, (MALLORY, &channels[0]), &[BOB], "again").await;
    let first = (MALLORY, channels[0].as_str());
    assert!(read_part(&two, BOB, first, &again[0]).is_err());
}
