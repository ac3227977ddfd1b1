//! The letters handed to a process, and which of them it accepts.

use sealbus_seal::permission::{Messages, Policy, Rule};

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
        again: false,
        posted,
        expiry: u64::MAX,
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
            }),
            // This rule does not hold back the platform's notices.
            Rule::Deny(Messages {
                from: vec!["ams".to_owned()],
                to: vec!["bob".to_owned()],
            }),
        ],
        ..Policy::default()
    };
    let rules = Rules {
        permission: policy,
        ..Rules::default()
    };
    tell.send(Command::Rules(rules)).await.unwrap();
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
