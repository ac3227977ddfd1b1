//! Files of evidence, and the attempts of forgers.
#![allow(clippy::unwrap_used)]

mod support;

use sealbus_proof::{Blob, Disclosure, EvidenceLine, MessageLine, disclose, inspect, write_file};
use sealbus_seal::Timestamp;
use sealbus_seal::denylist::{Denial, Reason};
use sealbus_seal::encryption::{Commitment, Salt};
use support::NOW;
use support::scene::{SHORT, Scene, WHOLE, sealed, sealed_again, sealed_as};

#[test]
fn a_file_says_who_said_what_to_whom_and_when() {
    let scene = Scene::new();
    let report = scene.judged(&scene.file()).unwrap();
    assert_eq!(report.log.size, 3);
    assert_eq!(report.log.continues, [1]);
    let contents = report.messages.iter().map(|it| it.content.clone().unwrap());
    assert_eq!(contents.collect::<Vec<_>>(), ["one", "two", "three"]);
    for (number, message) in (0..).zip(&report.messages) {
        assert_eq!(message.author, "buyer-1@factory");
        assert_eq!(message.receivers, ["seller-1@factory"]);
        assert_eq!(
            (message.number, message.entry, message.time),
            (number, 1, NOW)
        );
        assert_eq!(message.conversation.as_deref(), Some("order-17"));
        assert_eq!(message.revoked, None);
    }
}

#[test]
fn a_changed_bit_anywhere_is_refused() {
    let scene = Scene::new();
    let file = scene.file();
    for bit in 0..file.len() * 8 {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(scene.judged(&changed).is_err(), "bit {bit}");
    }
    for length in 0..file.len() {
        assert!(scene.judged(&file[..length]).is_err());
    }
}

#[test]
fn a_forger_who_mends_the_last_line_changes_nothing_that_is_proved() {
    let scene = Scene::new();
    let file = scene.file();
    let report = scene.judged(&file).unwrap();
    let mut unproved = 0;
    for at in 0..file.len() - 80 {
        let mut changed = file.clone();
        changed[at] ^= 1 << (at % 7);
        let Ok(found) = scene.judged(&sealed_again(&changed)) else {
            continue;
        };
        unproved += 1;
        // Only the exporter's own words can be changed, and cosignatures of unknown witnesses.
        assert_eq!(found.messages, report.messages, "byte {at}");
        assert_eq!(found.log, report.log, "byte {at}");
    }
    assert!(unproved < 400, "{unproved}");
}

#[test]
fn evidence_outlives_certificates_and_tells_of_revocations() {
    let mut scene = Scene::new();
    let mut demands = scene.demands();
    demands.now = NOW + 20 * 365 * 86_400_000;
    assert_eq!(inspect(&scene.file(), &demands).unwrap().messages.len(), 3);
    demands.now = NOW - 3_600_000;
    assert!(inspect(&scene.file(), &demands).is_err());
    let at = Timestamp::from_unix_seconds(NOW / 1000 + 60);
    let denial = Denial {
        at,
        reason: Reason::ByOperator,
    };
    let (serial, ends) = (
        scene.author.verified.serial(),
        scene.author.verified.not_after(),
    );
    scene.deny_list.deny_serial(serial, ends, denial).unwrap();
    let report = scene.judged(&scene.file()).unwrap();
    assert!(!report.messages.is_empty());
    assert!(report.messages.iter().all(|it| it.revoked == Some(denial)));
}

#[test]
fn the_log_must_hold_the_certificate_and_continue_what_was_seen() {
    let scene = Scene::new();
    // The log was cut off before the author's certificate.
    let cut = write_file(&scene.lines(1, "buyer-1@factory")).unwrap();
    assert!(scene.judged(&cut).unwrap_err().contains("the issuance log"));
    // The certificate is in no log.
    let mut lines = scene.lines(3, "buyer-1@factory");
    let stranger = scene.platform.author("buyer-1");
    if let EvidenceLine::Certificate(line) = &mut lines[4] {
        line.chain.0.clear();
        let certificates = stranger.credential.chain().clone();
        certificates.without_inclusion().encode(&mut line.chain.0);
    }
    let why = scene.judged(&write_file(&lines).unwrap()).unwrap_err();
    assert!(why.contains("is not that of the certificate"), "{why}");
    // Somebody saw more of the log, or another log.
    let mut demands = scene.demands();
    for (seen, is_shown) in [(1, true), (3, true), (2, false)] {
        demands.seen = vec![scene.checkpoint(seen)];
        assert_eq!(inspect(&scene.file(), &demands).is_ok(), is_shown, "{seen}");
    }
    demands = scene.demands();
    demands.quorum = 1;
    let why = inspect(&scene.file(), &demands).unwrap_err().to_string();
    assert!(why.contains("0 witnesses cosigned"), "{why}");
}

#[test]
fn nothing_else_is_believed() {
    let scene = Scene::new();
    let refused = |change: &dyn Fn(&mut Vec<EvidenceLine>), word: &str| {
        let mut lines = scene.lines(3, "buyer-1@factory");
        change(&mut lines);
        let why = scene.judged(&write_file(&lines).unwrap()).unwrap_err();
        assert!(why.contains(word), "{why}");
    };
    let message =
        |lines: &mut Vec<EvidenceLine>, change: &dyn Fn(&mut MessageLine)| match &mut lines[5] {
            EvidenceLine::Message(message) => change(message),
            other => panic!("{other:?}"),
        };
    let wrong = "did not sign these messages";
    refused(
        &|it| message(it, &|it| it.channel = Some("/a".to_owned())),
        wrong,
    );
    refused(&|it| message(it, &|it| it.receivers.clear()), wrong);
    refused(
        &|it| message(it, &|it| it.qos = "priority=7".to_owned()),
        wrong,
    );
    refused(&|it| message(it, &|it| it.message.0[9] ^= 1), wrong);
    refused(&|it| message(it, &|it| it.proof.0[1] = 4), wrong);
    refused(
        &|it| message(it, &|it| it.certificate = 1),
        "lacks the author's certificate",
    );
    refused(&|it| it.push(it[6].clone()), "stands there twice");
    refused(&|it| it.swap(4, 5), "has no place here");
    // Its author signed it in another's name.
    let forged = write_file(&scene.lines(3, "seller-1@factory")).unwrap();
    assert!(
        scene
            .judged(&forged)
            .unwrap_err()
            .contains("another sender")
    );
    // The same names, and another root.
    let other = Scene::new();
    assert!(
        scene
            .judged(&other.file())
            .unwrap_err()
            .contains("not the one that was given")
    );
    let mut lines = other.lines(3, "buyer-1@factory");
    lines[1] = EvidenceLine::Root(Blob(scene.platform.root.clone()));
    assert!(scene.judged(&write_file(&lines).unwrap()).is_err());
}

#[test]
fn the_words_of_a_sealed_message_are_shown_by_their_receiver() {
    let scene = Scene::new();
    let sender = "buyer-1@factory";
    let salts = [[1; 32], [2; 32]].map(Salt::from_bytes);
    let words = ["7 euros", "8 euros"].map(|words| Scene::message(sender, words));
    let messages = vec![
        sealed_as(WHOLE, &words[0], &salts[0]),
        Scene::message(sender, "said openly"),
        sealed_as(SHORT, &words[1], &salts[1]),
    ];
    let lines = scene.lines_of(3, messages);
    let file = write_file(&lines).unwrap();
    let of = |number: usize| Disclosure::new(&salts[number], &words[number]);
    // Its text form is what programs hand out.
    let second: Disclosure = of(1).to_string().parse().unwrap();
    let shown = disclose(&file, &[second]).unwrap();
    let report = scene.judged(&shown).unwrap();
    let found: Vec<_> = report
        .messages
        .iter()
        .map(|it| it.disclosed.as_ref()?.content.as_deref())
        .collect();
    assert_eq!(found, [None, None, Some("8 euros")]);
    assert_eq!(report.messages[2].performative, "sealed");
    let words_of = report.messages[2].disclosed.as_ref().unwrap();
    assert_eq!(words_of.performative, "inform");
    // Another one later, or the same one again.
    let all = disclose(&shown, &[of(0), of(1)]).unwrap();
    assert_eq!(all, disclose(&file, &[of(1), of(0)]).unwrap());
    let report = scene.judged(&all).unwrap();
    let shown = report.messages.iter().filter(|it| it.disclosed.is_some());
    assert_eq!(shown.count(), 2);
}

#[test]
fn nobody_shows_other_words_than_the_author_sealed() {
    let scene = Scene::new();
    let sender = "buyer-1@factory";
    let salt = Salt::from_bytes([1; 32]);
    let words = Scene::message(sender, "7 euros");
    let of_another = Scene::message("mallory@factory", "7 euros");
    let messages = vec![
        sealed(&words, &salt),
        Scene::message(sender, "said openly"),
        // Its author committed to words of somebody else.
        {
            let honest = sealed(&words, &salt);
            let from = Commitment::new(&salt, &words);
            let to = Commitment::new(&salt, &of_another);
            let at = honest
                .windows(Commitment::LENGTH)
                .position(|it| it == from.as_bytes())
                .unwrap();
            let mut changed = honest;
            changed[at..at + Commitment::LENGTH].copy_from_slice(to.as_bytes());
            changed
        },
    ];
    let lines = scene.lines_of(3, messages);
    let file = write_file(&lines).unwrap();
    let other = Scene::message(sender, "9 euros");
    let error = disclose(&file, &[Disclosure::new(&salt, &other)]).unwrap_err();
    assert!(error.to_string().contains("the words 1"), "{error}");
    let judged = |extra: &[(usize, &Salt, &[u8])]| {
        let mut lines = lines.clone();
        for (message, salt, inside) in extra {
            lines.push(EvidenceLine::Disclosed(sealbus_proof::DisclosedLine {
                message: *message,
                salt: Blob(salt.as_bytes().to_vec()),
                inside: Blob(inside.to_vec()),
            }));
        }
        scene.judged(&write_file(&lines).unwrap())
    };
    let wrong = Salt::from_bytes([3; 32]);
    for (extra, why) in [
        (vec![(0, &salt, &other[..])], "other words"),
        (vec![(0, &wrong, &words[..])], "other words"),
        (vec![(1, &salt, &words[..])], "not sealed"),
        (vec![(2, &salt, &of_another[..])], "another sender"),
        (vec![(3, &salt, &words[..])], "no such message"),
        (vec![(0, &salt, &words[..]); 2], "no such message"),
    ] {
        let error = judged(&extra).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    judged(&[(0, &salt, &words[..])]).unwrap();
    // Words stand behind the messages.
    let mut early = lines.clone();
    early.insert(
        lines.len() - 1,
        EvidenceLine::Disclosed(sealbus_proof::DisclosedLine {
            message: 0,
            salt: Blob(salt.as_bytes().to_vec()),
            inside: Blob(words.clone()),
        }),
    );
    assert!(scene.judged(&write_file(&early).unwrap()).is_err());
    // No bit of them can be changed, even by one who mends the last line.
    let shown = disclose(&file, &[Disclosure::new(&salt, &words)]).unwrap();
    let start = shown.len()
        - shown
            .iter()
            .rev()
            .skip(1)
            .position(|it| *it == b'\n')
            .unwrap()
        - 1;
    let line = shown[..start - 1]
        .iter()
        .rposition(|it| *it == b'\n')
        .unwrap()
        + 1;
    for bit in line * 8..(start - 1) * 8 {
        let mut changed = shown.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(scene.judged(&sealed_again(&changed)).is_err(), "bit {bit}");
    }
}
