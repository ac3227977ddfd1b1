//! Attempts to show a judge of a file of evidence more than is proved.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::{IpAddr, Ipv4Addr};

use sealbus_proof::{
    Blob, DisclosedLine, Disclosure, EvidenceLine, MessageLine, Statement, disclose, inspect,
    write_file,
};
use sealbus_seal::denylist::{Denial, Reason};
use sealbus_seal::encryption::Salt;
use sealbus_seal::issuance::Grant;
use sealbus_seal::{Identity, Name, ProcessId, Renewed, Serial, Timestamp};
use sealbus_transparency::{Checkpoint, KeyKind, Note, NoteKey};
use support::scene::{Scene, sealed};
use support::{NOW, Said, encoded};

const PRESENT: Timestamp = Timestamp::from_unix_seconds(NOW / 1000);
const BY_OPERATOR: Denial = Denial {
    at: PRESENT,
    reason: Reason::ByOperator,
};

#[test]
fn a_witness_counts_once() {
    let scene = Scene::new();
    let node = Identity::node(&scene.platform.name, "node-1").unwrap();
    let (witness, _) = scene.platform.certified(&node);
    let name = node.to_string();
    let mut chain = Vec::new();
    witness.chain().encode(&mut chain);
    let file = |times: usize| {
        let mut lines = scene.lines(3, "buyer-1@factory");
        let EvidenceLine::Log(log) = &mut lines[2] else {
            panic!("the third line is the log");
        };
        let mut note = Note::parse(&log.checkpoint).unwrap();
        let checkpoint = Checkpoint::parse(note.text()).unwrap();
        note.add(checkpoint.cosign(&name, witness.key(), PRESENT).unwrap());
        log.checkpoint = note.to_string();
        log.witnesses = vec![Blob(chain.clone()); times];
        write_file(&lines).unwrap()
    };
    let mut demands = scene.demands();
    demands.quorum = 1;
    let report = inspect(&file(1), &demands).unwrap();
    assert_eq!(report.log.cosignatures.len(), 1);
    demands.quorum = 2;
    let why = inspect(&file(2), &demands).unwrap_err().to_string();
    assert!(why.contains("node-1 is there twice"), "{why}");
    // Nor does it count as one of the platform and as one that the verifier names.
    let key = NoteKey::new(&name, KeyKind::Witness, *witness.key().public_key()).unwrap();
    demands.witnesses = vec![key.clone(), key];
    let why = inspect(&file(1), &demands).unwrap_err().to_string();
    assert!(why.contains("1 witnesses cosigned"), "{why}");
    demands.quorum = 1;
    inspect(&file(1), &demands).unwrap();
    inspect(&file(0), &demands).unwrap();
}

#[test]
fn what_a_revoked_ca_certified_is_revoked() {
    let mut scene = Scene::new();
    let report = scene.judged(&scene.file()).unwrap();
    assert!(!report.messages.is_empty());
    assert!(report.messages.iter().all(|it| it.revoked.is_none()));
    let authority = scene.platform.authority.certificate();
    let (serial, ends) = (authority.serial(), authority.not_after());
    scene
        .deny_list
        .deny_serial(serial, ends, BY_OPERATOR)
        .unwrap();
    let report = scene.judged(&scene.file()).unwrap();
    assert!(!report.messages.is_empty());
    let mut revoked = report.messages.iter().map(|it| it.revoked);
    assert!(revoked.all(|it| it == Some(BY_OPERATOR)));
}

#[test]
fn a_renewal_of_a_denied_certificate_is_revoked() {
    let earlier = Renewed {
        serial: Serial::from_bytes([7; 16]),
        not_before: PRESENT,
    };
    let mut scene = Scene::with(|platform| {
        let identity = Identity::agent(&platform.name, "buyer-1").unwrap();
        let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST))
            .to_process(
                ProcessId::from_bytes([3; 16]),
                Name::new("node", "node-1").unwrap(),
            )
            .renewing(earlier);
        platform.author_by(&grant)
    });
    let ends = scene.author.verified.not_after();
    scene
        .deny_list
        .deny_serial(earlier.serial, ends, BY_OPERATOR)
        .unwrap();
    let report = scene.judged(&scene.file()).unwrap();
    assert!(!report.messages.is_empty());
    let mut revoked = report.messages.iter().map(|it| it.revoked);
    assert!(revoked.all(|it| it == Some(BY_OPERATOR)));
}

/// The content of a sealed event begins with the byte of a sealed message, and the publisher chooses the bytes at the place where
/// a message has its commitment: its subscribers have read other words.
#[test]
fn no_words_are_shown_of_an_event() {
    let scene = Scene::new();
    let salt = Salt::from_bytes([1; 32]);
    let words = Scene::message("buyer-1@factory", "7 euros");
    let event = sealed(&words, &salt);
    let statement = Statement {
        channel: Some("/offers"),
        qos: "",
        receivers: &[],
        message: &event,
    };
    let said = Said::of(&[(&scene.author.signer, vec![statement.hash()])], NOW).unwrap();
    let mut lines = scene.lines(3, "buyer-1@factory");
    lines.truncate(5);
    lines.push(EvidenceLine::Message(MessageLine {
        certificate: 0,
        channel: Some("/offers".to_owned()),
        qos: String::new(),
        receivers: Vec::new(),
        message: Blob(event.clone()),
        proof: Blob(encoded(&said.proof(0, 0).unwrap())),
    }));
    let file = write_file(&lines).unwrap();
    scene.judged(&file).unwrap();
    let error = disclose(&file, &[Disclosure::new(&salt, &words)]).unwrap_err();
    assert!(error.to_string().contains("the words 1"), "{error}");
    lines.push(EvidenceLine::Disclosed(DisclosedLine {
        message: 0,
        salt: Blob(salt.as_bytes().to_vec()),
        inside: Blob(words),
    }));
    let why = scene.judged(&write_file(&lines).unwrap()).unwrap_err();
    assert!(why.contains("is no direct message"), "{why}");
}
