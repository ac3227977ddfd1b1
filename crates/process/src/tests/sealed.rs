//! Sealed messages: dishonest directories and nodes, and keys that move with their agents.

use sealbus_bus::{Delivery, LEVEL_PARAMETER, Sealer};
use sealbus_fipa::{Expression, Limits};
use sealbus_proof::{BatchKey, Signer, Statement};
use sealbus_seal::encryption::{CertifiedEncryptionKey, EncryptionKey};
use sealbus_seal::{Credential, KeyPair, SecurityLevel};

use super::*;
use sealbus_control::post::{DeliveredLetter, LetterRefusal};
use sealbus_control::{SealedKeys, WaitingMessage, WaitingProvenance};

pub(super) fn sealed() -> Delivery {
    Delivery::default().at_level(SecurityLevel::Sealed)
}

pub(super) async fn open(world: &Arc<World>, agent: &str) -> (Process, AgentHandle, Arc<TestHost>) {
    let (host, tell) = TestHost::new(world, &[agent], HOUR, Vec::new());
    // The channel for commands lives as long as the test.
    std::mem::forget(tell);
    let process = Process::open(host.clone(), None).await.unwrap();
    let handle = process.agent(agent).await.unwrap();
    (process, handle, host)
}

pub(super) fn credential(world: &World, agent: &str, validity: Validity) -> Credential {
    let (key, chain) = certified(world, agent, validity);
    Credential::new(key, chain).unwrap()
}

/// A certificate of the right CA, without the proof that it is in the log.
fn unlogged(world: &World, agent: &str, validity: Validity) -> Credential {
    let (key, chain) = certified(world, agent, validity);
    Credential::new(key, chain.without_inclusion()).unwrap()
}

fn certified(world: &World, agent: &str, validity: Validity) -> (KeyPair, CertificateChain) {
    let key = KeyPair::generate().unwrap();
    let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
    let identity = Identity::agent(world.platform(), agent).unwrap();
    let grant = Grant::by_operator(identity, ADDRESS);
    (key, world.issue(&grant, &request, validity))
}

fn stated(credential: &Credential, key: &EncryptionKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    CertifiedEncryptionKey::sign(credential, key.public())
        .unwrap()
        .encode(&mut bytes);
    bytes
}

#[tokio::test]
async fn no_key_of_a_dishonest_directory_is_believed() {
    let world = World::new();
    let (one, alice, _) = open(&world, "alice").await;
    let (_two, mut bob, _) = open(&world, "bob").await;
    let honest = world.keys.lock().get("bob").cloned().unwrap();
    let own = EncryptionKey::generate().unwrap();
    let present = Validity::starting(now(), HOUR);
    let second = Duration::from_secs(1);
    let ended = Validity::starting(now().minus(40 * second), 10 * second);
    let elsewhere = World::new();
    let mut changed = honest.0.clone();
    let (_, package) = CertifiedEncryptionKey::decode_with_package(&honest.0).unwrap();
    let length = honest.0.len() - package.len();
    let middle = length - 700;
    changed[middle] ^= 1;
    let other = stated(&credential(&world, "mallory", present), &own);
    let secret = unlogged(&world, "bob", present);
    let mut cut = honest.0.clone();
    cut.truncate(length - 1);
    for (what, key, why) in [
        ("that of another agent", other, "not that of"),
        (
            "one of another authority",
            stated(&credential(&elsewhere, "bob", present), &own),
            "",
        ),
        ("one that was changed", changed, "did not sign"),
        ("a part of one", cut, "not a certified key"),
        ("no key at all", b"junk".to_vec(), "not a certified key"),
        (
            "one that the log lacks",
            stated(&secret, &own),
            "issuance log",
        ),
        (
            "an old one",
            stated(&credential(&world, "bob", ended), &own),
            "Is the agent running?",
        ),
    ] {
        world.keys.lock().insert("bob".to_owned(), Blob(key));
        let refused = alice.send_with(inform(&bob, "secret"), sealed()).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, SendError::NotSealed { .. }), "{what}");
        let refused = refused.to_string();
        assert!(
            refused.contains("bob@factory") && refused.contains(why),
            "{what}: {refused}"
        );
    }
    world.keys.lock().insert("bob".to_owned(), honest);
    alice
        .send_with(inform(&bob, "secret"), sealed())
        .await
        .unwrap();
    assert_eq!(read(&mut bob).await, "secret");

    // A valid key that is older than the known one: its certificate began earlier, and may have ended. Alice's process
    // knows carol's newer one.
    let newer = Validity::starting(now().plus(30 * second), HOUR / 2);
    for (validity, kept, is_believed) in [
        (newer, false, true),
        (present, false, false),
        (present, true, false),
        (ended, true, false),
    ] {
        let key = stated(&credential(&world, "carol", validity), &own);
        world.keys.lock().insert("carol".to_owned(), Blob(key));
        let sealing = one.shared.sealing.as_ref().unwrap();
        let found = sealing.look_up("carol@factory", kept).await;
        match (found, is_believed) {
            (Ok(_), true) => {
                sealed_by(&one, "carol@factory", "hello").await;
            }
            (Err(refused), false) => {
                let refused = refused.to_string();
                assert!(
                    refused.contains("before the one that is known"),
                    "{refused}"
                );
            }
            (found, _) => panic!("{:?}", found.map(|_| ())),
        }
    }
}

/// A letter from alice with this message, which alice signed for `receiver`.
pub(super) fn letter(
    number: u64,
    alice: &Arc<Credential>,
    receiver: &str,
    message: &[u8],
) -> DeliveredLetter {
    let key = BatchKey::new("factory".parse().unwrap(), SecurityLevel::Signed);
    let signer = Signer::new(alice.clone(), Arc::new(key)).unwrap();
    let statement = Statement::direct(receiver, message);
    let now = sealbus_control::clock::now();
    DeliveredLetter {
        number,
        hand_over: 1,
        again: false,
        posted: now,
        expiry: u64::MAX,
        receipt: None,
        waiting: WaitingMessage {
            message: Blob(message.to_vec()),
            provenance: WaitingProvenance::Signed {
                identity: "spiffe://factory/agent/alice".to_owned(),
                evidence: Blob(signer.sign_one(statement, now).unwrap()),
            },
        },
    }
}

pub(super) fn encoded(message: &AclMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    sealbus_fipa::bitefficient::encode(message, &mut bytes).unwrap();
    bytes
}

pub(super) async fn sealed_by(process: &Process, receiver: &str, content: &str) -> AclMessage {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of("alice@factory"))
        .with_receiver(sealbus_bus::aid_of(receiver))
        .with_content(content);
    let sealing = process.shared.sealing.clone().unwrap();
    let sealer: Arc<dyn Sealer> = sealing;
    let sealed = sealer.seal(&message, receiver, None).await.unwrap();
    let outer = sealbus_fipa::bitefficient::decode(&sealed.whole().unwrap(), &Limits::default());
    outer.unwrap()
}

/// A dishonest node tries this with letters that it keeps, and a dishonest author with a signature of its own.
#[tokio::test]
async fn sealed_letters_that_were_changed_or_are_for_others_are_refused() {
    let world = World::new();
    let (one, _alice, _) = open(&world, "alice").await;
    let (host, tell) = TestHost::new(&world, &["bob", "carol"], HOUR, Vec::new());
    let two = Process::open(host.clone(), None).await.unwrap();
    let mut bob = two.agent("bob").await.unwrap();
    let _carol = two.agent("carol").await.unwrap();
    let alice = credential(&world, "alice", Validity::starting(now(), HOUR));
    let alice = Arc::new(alice);
    const BOB: &str = "bob@factory";

    let good = sealed_by(&one, BOB, "good").await;
    let for_carol = sealed_by(&one, "carol@factory", "for carol").await;
    // A node cannot sign, so each of its changes breaks the proof; an author signs what it likes.
    let mut bit = encoded(&good);
    let last = bit.len() - 20;
    bit[last] ^= 1;
    let mut moved = good.clone();
    moved.conversation_id = Some("another".into());
    let mut clear = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of("alice@factory"))
        .with_receiver(sealbus_bus::aid_of(BOB))
        .with_content("in the clear");
    clear = clear.with_user_defined(LEVEL_PARAMETER, Expression::Word("sealed".to_owned()));
    let mut named = clear.clone();
    named.performative = Performative::from("sealed");
    // The same content for another receiver in the same process, which has the same key.
    let mut turned = for_carol.clone();
    turned.receivers = good.receivers.clone();
    let mut unsigned = letter(9, &alice, BOB, &encoded(&good));
    unsigned.waiting.provenance = WaitingProvenance::SameProcess {
        identity: "spiffe://factory/agent/alice".to_owned(),
    };
    let letters = vec![
        letter(1, &alice, BOB, &bit),
        letter(2, &alice, BOB, &encoded(&moved)),
        letter(3, &alice, BOB, &encoded(&clear)),
        letter(4, &alice, BOB, &encoded(&named)),
        letter(5, &alice, BOB, &encoded(&for_carol)),
        letter(6, &alice, BOB, &encoded(&turned)),
        letter(7, &alice, "carol@factory", &encoded(&for_carol)),
        letter(8, &alice, BOB, &encoded(&good)),
        unsigned,
    ];
    let agent = "bob".to_owned();
    tell.send(Command::Letters { agent, letters })
        .await
        .unwrap();
    assert_eq!(read(&mut bob).await, "good");
    let mut found = Vec::new();
    while found.len() < 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        found = host.settled.lock().clone();
        found.retain(|(_, outcome)| outcome.is_final());
    }
    found.sort_by_key(|(number, _)| *number);
    let refused = LetterOutcome::Refused;
    let right = [
        refused(LetterRefusal::NotOpened),
        refused(LetterRefusal::NotOpened),
        refused(LetterRefusal::NotSealed),
        refused(LetterRefusal::NotOpened),
        refused(LetterRefusal::NotOpened),
        refused(LetterRefusal::NotOpened),
        refused(LetterRefusal::NotProved),
        LetterOutcome::Taken,
        refused(LetterRefusal::NotProved),
    ];
    assert_eq!(found, (1..).zip(right).collect::<Vec<_>>());
}

#[tokio::test]
async fn keys_move_with_their_agents_and_nodes_learn_none() {
    let world = World::new();
    let (_one, alice, _) = open(&world, "alice").await;
    let (here, tell) = TestHost::new(&world, &["bob"], HOUR, Vec::new());
    let source = Process::open(here, None).await.unwrap();
    let mut bob = source.agent("bob").await.unwrap();
    // The messages with the secret are read here: the first one, which waited until its receiver was found, and the
    // first one that a link took at once. The messages that only name it move unread.
    for greeting in ["good day", "how are you?"] {
        alice
            .send_with(inform(&bob, greeting), sealed())
            .await
            .unwrap();
        assert_eq!(read(&mut bob).await, greeting);
    }
    let said = "the price is seven";
    for _ in 0..2 {
        alice.send_with(inform(&bob, said), sealed()).await.unwrap();
    }
    while source
        .bus()
        .agent("bob@factory")
        .unwrap()
        .mailbox()
        .counts()
        .waiting
        < 2
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let resting = tokio::spawn(async move {
        let mut bob = bob;
        bob.wishes().wished().await;
        bob.hand_over(b"state".to_vec()).await
    });
    let frozen = ask_to_freeze(&tell).await.await.unwrap().unwrap();
    let carried = frozen[0].mailbox[0].message.0.clone();
    assert!(carried.len() < 1120);
    assert!(!carried.windows(said.len()).any(|at| at == said.as_bytes()));

    // Only the agent itself, under a valid certificate, gets the keys, and nobody on the way can see them.
    let own = EncryptionKey::generate().unwrap();
    let asked = |stated: Vec<u8>| {
        let tell = tell.clone();
        async move {
            let (answer, keys) = oneshot::channel();
            let key = Blob(stated);
            tell.send(Command::FormerKeys { key, answer })
                .await
                .unwrap();
            keys.await.unwrap()
        }
    };
    let present = Validity::starting(now(), HOUR);
    let elsewhere = World::new();
    for stated in [
        stated(&credential(&world, "mallory", present), &own),
        stated(&credential(&elsewhere, "bob", present), &own),
        stated(&unlogged(&world, "bob", present), &own),
        b"junk".to_vec(),
    ] {
        assert!(asked(stated).await.is_err());
    }
    let keys: SealedKeys = asked(stated(&credential(&world, "bob", present), &own))
        .await
        .unwrap();
    let beginning = b"sealbus encryption keys";
    assert!(
        !keys
            .sealed
            .0
            .windows(beginning.len())
            .any(|at| at == beginning)
    );

    *world.source.lock() = Some(tell.clone());
    let (there, _tell) = TestHost::new(&world, &["bob"], HOUR, frozen.clone());
    let destination = Process::open(there, None).await.unwrap();
    let mut bob = destination.agent("bob").await.unwrap();
    for _ in 0..2 {
        let message = bob.receive().await.unwrap();
        assert!(message.is_sealed() && message.row().is_some());
        assert_eq!(message.message().content_text().unwrap(), said);
    }

    // The former process has ended. The messages are noted as refused, and the agent goes on.
    *world.source.lock() = None;
    let (there, _tell) = TestHost::new(&world, &["bob"], HOUR, frozen);
    let without = Process::open(there, None).await.unwrap();
    let mut bob = without.agent("bob").await.unwrap();
    assert!(bob.mailbox().try_recv().is_none());
    let counts = without.bus().refusals().counts();
    let refused: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(refused, [(RefusalReason::NotOpened, 2)]);
    drop(tell);
    resting.abort();
}

#[tokio::test]
async fn a_statement_that_comes_late_takes_the_place_of_no_later_one() {
    let world = World::new();
    let (host, _tell) = TestHost::new(&world, &["alice"], HOUR, Vec::new());
    let away = || Fault::new(FaultCode::Unavailable, "the node is away");
    // For the first statement, and for one repetition.
    *host.not_stated.lock() = vec![away(), away()];
    let process = Process::open(host.clone(), None).await.unwrap();
    let _alice = process.agent("alice").await.unwrap();
    until("the second attempt", || host.not_stated.lock().is_empty()).await;
    let shared = &process.shared;
    let subject = Subject::Agent {
        name: "alice".to_owned(),
    };
    let renewed = shared
        .certifier
        .request_certificate(subject, "alice@factory", None, true)
        .await
        .unwrap();
    shared.publish_key("alice", &renewed).await;
    let latest = world.keys.lock().get("alice").cloned();
    assert!(latest.is_some());
    // The third attempt would have come by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.keys.lock().get("alice").cloned(), latest);
}
