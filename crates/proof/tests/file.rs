//! Files of evidence, and the attempts of forgers.
#![allow(clippy::unwrap_used)]

mod support;

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use sealbus_proof::{
    Blob, CertificateLine, Demands, Disclosure, EarlierLine, EvidenceHead, EvidenceLine,
    FILE_VERSION, Hash, LogLine, MessageLine, Report, Statement, disclose, inspect, write_file,
};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::encryption::{Commitment, Salt};
use sealbus_seal::{Certificate, KeyPair, Timestamp};
use sealbus_transparency::{
    Checkpoint, IssuanceRecord, MerkleLog, Note, WholeTree, consistency_proof, inclusion_proof,
    leaf_hash,
};
use support::{Author, NOW, Said, TestPlatform, encoded};

/// A platform, its log, and an author with three messages.
struct Scene {
    platform: TestPlatform,
    author: Author,
    beside: Author,
    entries: Vec<Vec<u8>>,
    deny_list: DenyList,
}

fn base64(hashes: Vec<Hash>) -> Vec<Blob> {
    hashes.into_iter().map(|hash| Blob(hash.to_vec())).collect()
}

impl Scene {
    fn new() -> Self {
        let platform = TestPlatform::new("factory");
        let author = platform.author("buyer-1");
        let beside = platform.author("buyer-2");
        let others = ["seller-1", "seller-2"].map(|name| platform.author(name));
        let entry = |author: &Author| {
            let der = author.credential.chain().leaf();
            let certificate = Certificate::parse(der).unwrap();
            let authority = platform.authority.identity();
            let at = Timestamp::from_unix_seconds(NOW / 1000);
            let record = IssuanceRecord::of(&certificate, der, None, authority, at);
            record.to_leaf().unwrap()
        };
        Self {
            entries: vec![entry(&others[0]), entry(&author), entry(&others[1])],
            deny_list: DenyList::new(platform.authority.identity().clone()),
            platform,
            author,
            beside,
        }
    }

    fn tree(&self, size: usize) -> WholeTree {
        let leaves = self.entries[..size].iter();
        WholeTree::new(leaves.map(|leaf| leaf_hash(leaf)).collect())
    }

    /// The checkpoint of the first entries.
    fn checkpoint(&self, size: usize) -> Note {
        let leaves = self.entries[..size].iter();
        let log = MerkleLog::from_leaf_hashes(leaves.map(|leaf| leaf_hash(leaf)));
        let authority = &self.platform.authority;
        let checkpoint = Checkpoint::of(authority.identity(), &log);
        let mut note = checkpoint.sign(authority).unwrap();
        let witness = KeyPair::generate().unwrap();
        let at = Timestamp::from_unix_seconds(NOW / 1000);
        // Somebody unknown cosigned it, too.
        note.add(checkpoint.cosign("w.example", &witness, at).unwrap());
        note
    }

    /// The message with this content, as `sender` writes it.
    fn message(sender: &str, content: &str) -> Vec<u8> {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(Aid::new(sender).unwrap())
            .with_receiver(Aid::new("seller-1@factory").unwrap())
            .with_conversation_id("order-17")
            .with_content(content);
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        bytes
    }

    /// A file with the log as it was with `size` entries.
    fn lines(&self, size: usize, sender: &str) -> Vec<EvidenceLine> {
        let messages = ["one", "two", "three"].map(|content| Self::message(sender, content));
        self.lines_of(size, messages.into())
    }

    fn lines_of(&self, size: usize, messages: Vec<Vec<u8>>) -> Vec<EvidenceLine> {
        let authority = &self.platform.authority;
        let tree = self.tree(size);
        let mut chain = Vec::new();
        let certificates = self.author.credential.chain().clone();
        certificates.without_inclusion().encode(&mut chain);
        let index = 1;
        let proof = inclusion_proof(&tree, tree.size(), index).unwrap_or_default();
        let mut lines = vec![
            EvidenceLine::Evidence(EvidenceHead {
                version: FILE_VERSION,
                platform: "factory".to_owned(),
                exported: NOW,
                asked: "conversation order-17".to_owned(),
                gaps: Vec::new(),
            }),
            EvidenceLine::Root(Blob(self.platform.root.clone())),
            EvidenceLine::Log(LogLine {
                authority: Blob(authority.chain().leaf().to_vec()),
                checkpoint: self.checkpoint(size).to_string(),
                witnesses: Vec::new(),
                earlier: vec![EarlierLine {
                    checkpoint: self.checkpoint(1).to_string(),
                    proof: base64(consistency_proof(&tree, tree.size(), 1).unwrap()),
                }],
            }),
            EvidenceLine::Denied(Blob(self.deny_list.sign(authority).unwrap().whole())),
            EvidenceLine::Certificate(CertificateLine {
                chain: Blob(chain),
                entry: Blob(self.entries[1].clone()),
                index,
                proof: base64(proof),
            }),
        ];
        let statement = |message| Statement::direct("seller-1@factory", message);
        let said = messages.iter().map(|message| statement(message)).collect();
        // Another agent of its process speaks in the same batch.
        let beside = (&self.beside.signer, vec![[7; 32]]);
        let batch = Said::of(&[beside, (&self.author.signer, said)], NOW).unwrap();
        for (place, message) in messages.into_iter().enumerate() {
            let proof = encoded(&batch.proof(1, place).unwrap());
            lines.push(EvidenceLine::Message(MessageLine {
                certificate: 0,
                channel: None,
                qos: String::new(),
                receivers: vec!["seller-1@factory".to_owned()],
                message: Blob(message),
                proof: Blob(proof),
            }));
        }
        lines
    }

    fn file(&self) -> Vec<u8> {
        write_file(&self.lines(3, "buyer-1@factory")).unwrap()
    }

    fn demands(&self) -> Demands {
        Demands {
            root: Some(self.platform.root.clone()),
            now: NOW,
            ..Demands::default()
        }
    }

    fn judged(&self, file: &[u8]) -> Result<Report, String> {
        inspect(file, &self.demands()).map_err(|error| error.to_string())
    }
}

/// The file with a last line that fits it: what a forger would write.
fn sealed_again(file: &[u8]) -> Vec<u8> {
    let body = &file[..file[..file.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1];
    let hash = data_encoding::HEXLOWER.encode(digest(&SHA256, body).as_ref());
    [body, format!("{{\"sha256\":\"{hash}\"}}\n").as_bytes()].concat()
}

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

/// The bytes of a sealed message before the commitment, if it brings its secret, and if it names it.
const WHOLE: (u8, usize) = (3, 16 + 1120 + 4);
const SHORT: (u8, usize) = (4, 8 + 4);

/// A message as its author seals it. Only the holder of the receiver's key can read the end.
fn sealed(inside: &[u8], salt: &Salt) -> Vec<u8> {
    sealed_as(WHOLE, inside, salt)
}

fn sealed_as((version, before): (u8, usize), inside: &[u8], salt: &Salt) -> Vec<u8> {
    let limits = sealbus_fipa::Limits::default();
    let inside_of = bitefficient::decode_ref(inside, &limits)
        .unwrap()
        .to_owned();
    let mut outer = AclMessage::new(Performative::from("sealed"));
    outer.sender.clone_from(&inside_of.sender);
    outer.receivers.clone_from(&inside_of.receivers);
    outer.conversation_id.clone_from(&inside_of.conversation_id);
    let mut content = vec![version];
    content.resize(1 + before, 7);
    content.extend_from_slice(Commitment::new(salt, inside).as_bytes());
    content.extend_from_slice(&[9; 99]);
    outer.content = Some(sealbus_fipa::Content::Bytes(content));
    let mut bytes = Vec::new();
    bitefficient::encode(&outer, &mut bytes).unwrap();
    bytes
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
