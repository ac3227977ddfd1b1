//! Letters that are handed to a process, and which of them it accepts.

use sealbus_proof::{BatchKey, Signer, Statement};
use sealbus_seal::permission::{Messages, Policy, Rule};
use sealbus_seal::{CertificateChain, Credential, KeyPair, SecurityLevel};

use sealbus_bus::LEVEL_PARAMETER;
use sealbus_fipa::Expression;

use super::*;
use sealbus_control::clock::now;
use sealbus_control::post::{DeliveredLetter, LetterRefusal};
use sealbus_control::{UnixMillis, WaitingMessage, WaitingProvenance};

fn letter(number: u64, sender: &str, posted: UnixMillis) -> DeliveredLetter {
    let aid = sealbus_fipa::Aid::new(format!("{sender}@factory")).unwrap();
    let message = AclMessage::new(Performative::Inform)
        .with_sender(aid)
        .with_content(number.to_string());
    let mut bytes = Vec::new();
    sealbus_fipa::bitefficient::encode(&message, &mut bytes).unwrap();
    let provenance = match sender {
        "ams" => WaitingProvenance::Platform,
        _ => WaitingProvenance::SameProcess {
            identity: format!("spiffe://factory/agent/{sender}"),
        },
    };
    DeliveredLetter {
        number,
        hand_over: 1,
        again: false,
        posted,
        expiry: u64::MAX,
        receipt: None,
        waiting: WaitingMessage {
            message: Blob(bytes),
            provenance,
        },
    }
}

/// Waits until this many outcomes are final, and returns them.
async fn outcomes(host: &TestHost, count: usize) -> Vec<(u64, LetterOutcome)> {
    loop {
        let settled: Vec<_> = {
            let settled = host.settled.lock();
            let settled = settled.iter().filter(|(_, outcome)| outcome.is_final());
            settled.copied().collect()
        };
        if settled.len() >= count {
            return settled;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn letters_obey_the_rules_and_revocations_of_the_day_they_are_handed_over() {
    let (host, tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    let process = Process::open(host.clone(), None).await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let policy = Policy {
        rules: vec![
            Rule::Deny(Messages {
                from: vec!["mallory".to_owned()],
                to: vec!["bob".to_owned()],
                on_behalf_of: None,
            }),
            // This rule does not hold back the platform's notices.
            Rule::Deny(Messages {
                from: vec!["ams".to_owned()],
                to: vec!["bob".to_owned()],
                on_behalf_of: None,
            }),
        ],
        ..Policy::default()
    };
    let rules = Rules {
        permission: policy,
        ..Rules::default()
    };
    tell.send(Command::Rules(Box::new(rules))).await.unwrap();
    host.world.deny("thief").await;
    let (before, after) = (now() - 10_000, now() + 10_000);
    let letters = vec![
        letter(1, "alice", before),
        letter(2, "mallory", before),
        letter(3, "thief", before),
        // This letter was sent under a new certificate.
        letter(4, "thief", after),
        // A notice is delivered even if the rules forbid it.
        letter(5, "ams", before),
    ];
    let agent = || "bob".to_owned();
    let command = |letters| Command::Letters {
        agent: agent(),
        letters,
    };
    tell.send(command(letters.clone())).await.unwrap();
    for number in ["1", "4", "5"] {
        assert_eq!(read(&mut bob).await, number);
    }
    let refused = |reason| LetterOutcome::Refused(reason);
    let mut found = outcomes(&host, 5).await;
    found.sort_by_key(|(number, _)| *number);
    assert_eq!(
        found,
        [
            (1, LetterOutcome::Taken),
            (2, refused(LetterRefusal::NotPermitted)),
            (3, refused(LetterRefusal::Revoked)),
            (4, LetterOutcome::Taken),
            (5, LetterOutcome::Taken),
        ]
    );
    let noted: Vec<_> = process.bus().refusals().last();
    let noted: Vec<_> = noted.iter().map(|it| (&*it.tried_by, it.reason)).collect();
    assert_eq!(
        noted,
        [
            ("mallory@factory", RefusalReason::NotPermitted),
            ("thief@factory", RefusalReason::Revoked)
        ]
    );
    assert!(bob.mailbox().try_recv().is_none());
}

/// Evidence that an agent wrote this to a receiver.
fn evidence(host: &TestHost, author: &str, receiver: &str, message: &[u8]) -> Blob {
    let key = KeyPair::generate().unwrap();
    let subject = Subject::Agent {
        name: author.to_owned(),
    };
    let chain = host.issue(&subject, &key.signing_request().unwrap());
    let chain = CertificateChain::try_from(chain.unwrap()).unwrap();
    let credential = Arc::new(Credential::new(key, chain).unwrap());
    let key = BatchKey::new("factory".parse().unwrap(), SecurityLevel::Signed);
    let signer = Signer::new(credential, Arc::new(key)).unwrap();
    Blob(
        signer
            .sign_one(Statement::direct(receiver, message), now())
            .unwrap(),
    )
}

#[tokio::test]
async fn letters_without_evidence_are_refused_where_messages_are_signed() {
    let (mut host, tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    Arc::get_mut(&mut host).unwrap().membership.platform.level = "signed".to_owned();
    let process = Process::open(host.clone(), None).await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let signed = |number: u64, author: &str, receiver: &str, text: u64| {
        let mut sent = letter(number, "alice", now());
        let said = letter(text, "alice", 0).waiting.message;
        sent.waiting.provenance = WaitingProvenance::Signed {
            identity: format!("spiffe://factory/agent/{author}"),
            evidence: evidence(&host, author, receiver, &said.0),
        };
        sent
    };
    let mut changed = signed(6, "alice", "bob@factory", 6);
    if let WaitingProvenance::Signed { evidence, .. } = &mut changed.waiting.provenance {
        *evidence.0.last_mut().unwrap() ^= 1;
    }
    let letters = vec![
        letter(1, "alice", now()),
        signed(2, "alice", "bob@factory", 2),
        // Evidence of another message, for another receiver, and by another author.
        signed(3, "alice", "bob@factory", 4),
        signed(4, "alice", "carol@factory", 4),
        signed(5, "mallory", "bob@factory", 5),
        changed,
        letter(7, "ams", now()),
    ];
    let agent = "bob".to_owned();
    tell.send(Command::Letters { agent, letters })
        .await
        .unwrap();
    let first = bob.receive().await.unwrap();
    assert_eq!(first.message().content_text().unwrap(), "2");
    let author = first.provenance().evidence().unwrap().author();
    assert!(author.identity().is_agent_named("alice@factory"));
    assert_eq!(read(&mut bob).await, "7");
    let mut found = outcomes(&host, 7).await;
    found.sort_by_key(|(number, _)| *number);
    let refused = LetterOutcome::Refused(LetterRefusal::NotProved);
    let taken = LetterOutcome::Taken;
    let right = [refused, taken, refused, refused, refused, refused, taken];
    assert_eq!(found, (1..).zip(right).collect::<Vec<_>>());
    let counts = process.bus().refusals().counts();
    let refused: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(refused, [(RefusalReason::NotProved, 5)]);
}

/// A node takes the evidence away from a message that was signed on a platform at `auth`.
#[tokio::test]
async fn a_letter_that_asks_for_a_proof_and_has_none_is_refused() {
    let (host, tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    let process = Process::open(host.clone(), None).await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let asking = |number: u64| {
        let mut message = AclMessage::new(Performative::Inform)
            .with_sender(sealbus_bus::aid_of("alice@factory"))
            .with_content(number.to_string());
        let level = Expression::Word("signed".to_owned());
        message = message.with_user_defined(LEVEL_PARAMETER, level);
        let mut bytes = Vec::new();
        sealbus_fipa::bitefficient::encode(&message, &mut bytes).unwrap();
        let mut letter = letter(number, "alice", now());
        letter.waiting.message = Blob(bytes);
        letter
    };
    let mut signed = asking(2);
    signed.waiting.provenance = WaitingProvenance::Signed {
        identity: "spiffe://factory/agent/alice".to_owned(),
        evidence: evidence(&host, "alice", "bob@factory", &signed.waiting.message.0),
    };
    let agent = "bob".to_owned();
    let letters = vec![asking(1), signed, letter(3, "alice", now())];
    tell.send(Command::Letters { agent, letters })
        .await
        .unwrap();
    assert_eq!(read(&mut bob).await, "2");
    assert_eq!(read(&mut bob).await, "3");
    let mut found = outcomes(&host, 3).await;
    found.sort_by_key(|(number, _)| *number);
    let refused = LetterOutcome::Refused(LetterRefusal::NotProved);
    let right = [refused, LetterOutcome::Taken, LetterOutcome::Taken];
    assert_eq!(found, (1..).zip(right).collect::<Vec<_>>());
    let counts = process.bus().refusals().counts();
    let refused: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(refused, [(RefusalReason::NotProved, 1)]);
}

/// A dishonest node claims that an agent's message is a notice, which nobody signs.
#[tokio::test]
async fn a_node_passes_nobodys_message_off_as_the_platforms() {
    let (mut host, tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    Arc::get_mut(&mut host).unwrap().membership.platform.level = "signed".to_owned();
    let process = Process::open(host.clone(), None).await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let mut forged = letter(1, "alice", now());
    forged.waiting.provenance = WaitingProvenance::Platform;
    let (agent, letters) = ("bob".to_owned(), vec![forged, letter(2, "ams", now())]);
    tell.send(Command::Letters { agent, letters })
        .await
        .unwrap();
    assert_eq!(read(&mut bob).await, "2");
    let mut found = outcomes(&host, 2).await;
    found.sort_by_key(|(number, _)| *number);
    let refused = LetterOutcome::Refused(LetterRefusal::NotProved);
    assert_eq!(found, [(1, refused), (2, LetterOutcome::Taken)]);
    let counts = process.bus().refusals().counts();
    assert!(counts.contains(&(RefusalReason::NotProved, 1)));
}

/// By it the node recognises a report that comes twice.
#[tokio::test]
async fn a_letter_that_is_left_is_reported_with_its_hand_over() {
    let (host, tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    let process = Process::open(host.clone(), None).await.unwrap();
    let command = |hand_over| Command::Letters {
        agent: "bob".to_owned(),
        letters: vec![DeliveredLetter {
            hand_over,
            ..letter(1, "alice", now())
        }],
    };
    let reports = |count| {
        let host = host.clone();
        async move { until("a report", || host.settled.lock().len() >= count).await }
    };
    tell.send(command(5)).await.unwrap();
    reports(1).await;
    let bob = process.agent("bob").await.unwrap();
    tell.send(command(6)).await.unwrap();
    reports(2).await;
    drop(bob);
    reports(3).await;
    let bob = process.agent("bob").await.unwrap();
    tell.send(command(7)).await.unwrap();
    reports(4).await;
    // A node that was started again counts from the beginning, and hands the letter over anew.
    tell.send(command(1)).await.unwrap();
    reports(5).await;
    drop(bob);
    reports(6).await;
    let right = [
        (1, LetterOutcome::Left(5)),
        (1, LetterOutcome::Arrived),
        (1, LetterOutcome::Left(6)),
        (1, LetterOutcome::Arrived),
        (1, LetterOutcome::Arrived),
        (1, LetterOutcome::Left(1)),
    ];
    assert_eq!(*host.settled.lock(), right);
}
