//! Whole logs: written, published, witnessed, read again, and tampered with.
// Longer than 500 lines: its tests share the files of one log.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use sealbus_seal::{
    AuthorityKey, Identity, IssuingAuthority, KeyPair, LONGEST_CERTIFICATE, MOST_CERTIFICATES,
    MlDsaKeyPair, PlatformName, RootAuthority, SignatureAlgorithm, Timestamp, Validity,
    certificate_pem,
};
use sealbus_transparency::{
    AddCheckpoint, Audit, Checkpoint, Entry, Folder, KeyKind, LogError, LogFile, LogHead,
    LogWriter, MOST_SIGNATURES, Note, NoteKey, NoteSignature, TileReader, Witness, WitnessRefusal,
    consistency_proof,
};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn authority() -> IssuingAuthority {
    authority_with(SignatureAlgorithm::Ed25519)
}

fn authority_with(signatures: SignatureAlgorithm) -> IssuingAuthority {
    let platform = PlatformName::new("factory").unwrap();
    let key = AuthorityKey::generate(signatures).unwrap();
    let validity = Validity::starting(NOW, YEAR);
    let root = RootAuthority::create_with(key, &platform, validity).unwrap();
    root.create_authority("ca-1", Validity::starting(NOW, YEAR))
        .unwrap()
}

fn key_of(authority: &IssuingAuthority) -> NoteKey {
    let key = authority.certificate().public_key().clone();
    Checkpoint::key_of(authority.identity(), key).unwrap()
}

fn leaf(number: u64) -> Vec<u8> {
    format!("{{\"entry\":{number}}}").into_bytes()
}

/// The files of a log in memory.
#[derive(Clone, Default)]
struct Files(BTreeMap<LogFile, Vec<u8>>);

impl Files {
    fn publish(&mut self, log: &mut LogWriter, authority: &IssuingAuthority) -> Checkpoint {
        let publication = log.publication(authority.identity());
        self.0.extend(publication.files);
        let note = publication.checkpoint.sign(authority).unwrap();
        let signed = note.to_string().into_bytes();
        self.0.insert(LogFile::Checkpoint, signed);
        log.written(publication.head);
        publication.checkpoint
    }

    fn read(&self, file: LogFile) -> Result<Vec<u8>, LogError> {
        let why = "it is not there".to_owned();
        let found = self.0.get(&file).cloned();
        found.ok_or(LogError::Unreadable { file, why })
    }

    fn audit(&self, key: &NoteKey, seen: &[Checkpoint]) -> Result<Vec<Entry>, LogError> {
        let text = String::from_utf8(self.read(LogFile::Checkpoint)?).unwrap();
        let checkpoint = Checkpoint::open(&Note::parse(&text)?, key)?;
        let mut audit = Audit::new(checkpoint);
        for seen in seen {
            audit.must_continue(seen)?;
        }
        self.drive(&mut audit)
    }

    fn drive(&self, audit: &mut Audit) -> Result<Vec<Entry>, LogError> {
        let mut entries = Vec::new();
        while let Some(file) = audit.wants() {
            let (file, bytes) = match self.read(file) {
                Ok(bytes) => (file, bytes),
                Err(_) => (file.full(), self.read(file.full())?),
            };
            entries.extend(audit.give(file, &bytes)?);
        }
        audit.finish()?;
        Ok(entries)
    }
}

fn filled(count: u64, authority: &IssuingAuthority) -> (LogWriter, Files) {
    let mut log = LogWriter::default();
    let mut files = Files::default();
    for number in 0..count {
        assert_eq!(log.append(&leaf(number)).unwrap(), number);
    }
    files.publish(&mut log, authority);
    (log, files)
}

#[test]
fn a_log_is_read_whole_at_every_size() {
    let authority = authority();
    let key = key_of(&authority);
    let mut log = LogWriter::default();
    let mut files = Files::default();
    let mut seen = Vec::new();
    for size in [0, 1, 2, 255, 256, 257, 511, 512, 800] {
        while log.size() < size {
            let number = log.size();
            log.append(&leaf(number)).unwrap();
        }
        seen.push(files.publish(&mut log, &authority));
        let entries = files.audit(&key, &seen).unwrap();
        assert_eq!(entries.len() as u64, size);
        assert!(entries.iter().all(|entry| entry.leaf == leaf(entry.index)));
    }
}

#[test]
fn an_audit_goes_on_where_it_ended() {
    let authority = authority();
    let (mut log, mut files) = filled(300, &authority);
    let mut audit = Audit::new(log.publication(authority.identity()).checkpoint);
    assert_eq!(files.drive(&mut audit).unwrap().len(), 300);
    for size in [300, 301, 512, 700] {
        while log.size() < size {
            let number = log.size();
            log.append(&leaf(number)).unwrap();
        }
        let target = files.publish(&mut log, &authority);
        audit.go_on(target).unwrap();
        let entries = files.drive(&mut audit).unwrap();
        assert!(entries.iter().all(|entry| entry.leaf == leaf(entry.index)));
        assert_eq!(entries.last().map_or(300, |last| last.index + 1), size);
    }
    let (shorter, _) = filled(699, &authority);
    let target = shorter.publication(authority.identity()).checkpoint;
    let error = audit.go_on(target).unwrap_err();
    assert_eq!(
        error,
        LogError::Truncated {
            seen: 700,
            size: 699
        }
    );
}

#[test]
fn a_changed_bit_anywhere_is_noticed() {
    let authority = authority();
    let key = key_of(&authority);
    let (_, files) = filled(600, &authority);
    assert!(files.audit(&key, &[]).is_ok());
    for (file, bytes) in &files.0 {
        // Every byte of short files, and some of long ones.
        let step = (bytes.len() / 97).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = files.clone();
            changed.0.get_mut(file).unwrap()[at] ^= 1;
            if *file == LogFile::Checkpoint && String::from_utf8(changed.0[file].clone()).is_err() {
                continue;
            }
            assert!(changed.audit(&key, &[]).is_err(), "{file} at {at}");
        }
        let mut missing = files.clone();
        missing.0.remove(file);
        assert!(missing.audit(&key, &[]).is_err(), "{file}");
    }
}

#[test]
fn a_log_goes_on_from_its_files_with_the_same_root() {
    let authority = authority();
    for count in [0_u64, 255, 256, 300, 66_000] {
        let (log, files) = filled(count, &authority);
        let head: LogHead =
            serde_json::from_str(&serde_json::to_string(log.head()).unwrap()).unwrap();
        let mut reads = 0;
        let read = |file| {
            reads += 1;
            files.read(file)
        };
        let mut again = LogWriter::resume(head.clone(), read).unwrap();
        assert!(reads <= 3, "{reads}");
        for number in head.size..count {
            again.append(&leaf(number)).unwrap();
        }
        assert_eq!(again.tree(), log.tree());
        for file in sealbus_transparency::Tiles::partial_of(head.size) {
            let without = |wanted| match wanted == file {
                true => Err(LogError::Unreadable {
                    file,
                    why: String::new(),
                }),
                false => files.read(wanted),
            };
            assert!(LogWriter::resume(head.clone(), without).is_err(), "{file}");
        }
    }
}

#[test]
fn entries_stay_in_memory_until_they_are_in_files() {
    let authority = authority();
    let mut log = LogWriter::default();
    for number in 0..600 {
        log.append(&leaf(number)).unwrap();
    }
    let publication = log.publication(authority.identity());
    for number in 600..800 {
        log.append(&leaf(number)).unwrap();
    }
    assert_eq!(log.written(publication.head), 0..512);
    let later = log.publication(authority.identity());
    let full: Vec<String> = later
        .files
        .iter()
        .map(|(file, _)| file.to_string())
        .collect();
    let expected = [
        "tile/entries/002",
        "tile/0/002",
        "tile/entries/003.p/32",
        "tile/0/003.p/32",
        "tile/1/000.p/3",
    ];
    assert_eq!(full, expected);
    assert_eq!(log.written(later.head), 512..768);
}

fn request(
    files: &Files,
    checkpoint: &Checkpoint,
    old: u64,
    authority: &IssuingAuthority,
) -> AddCheckpoint {
    let tiles = TileReader::new(checkpoint.size, |file| files.read(file));
    let request = AddCheckpoint {
        old,
        proof: consistency_proof(tiles, checkpoint.size, old).unwrap(),
        note: checkpoint.sign(authority).unwrap(),
    };
    let again = AddCheckpoint::parse(&request.to_string()).unwrap();
    assert_eq!(again, request);
    request
}

#[test]
fn a_witness_notices_a_log_that_was_cut_off_or_has_two_views() {
    let authority = authority();
    let (mut log, mut files) = filled(700, &authority);
    let mut witness = Witness::new(key_of(&authority), None);
    let first = files.publish(&mut log, &authority);
    assert_eq!(
        witness.consider(&request(&files, &first, 1, &authority)),
        Err(WitnessRefusal::Seen(0))
    );
    let accepted = witness
        .consider(&request(&files, &first, 0, &authority))
        .unwrap();
    witness.accepted(accepted);

    // It goes on.
    log.append(b"more").unwrap();
    let more = files.publish(&mut log, &authority);
    let refused = witness.consider(&request(&files, &more, 5, &authority));
    assert_eq!(refused, Err(WitnessRefusal::Seen(700)));
    let accepted = witness
        .consider(&request(&files, &more, 700, &authority))
        .unwrap();
    assert_eq!(accepted, more);
    witness.accepted(accepted);
    assert!(
        witness
            .consider(&request(&files, &more, 701, &authority))
            .is_ok()
    );

    // It was cut off.
    let (short, short_files) = filled(650, &authority);
    let shown = short.publication(authority.identity()).checkpoint;
    let refused = witness
        .consider(&request(&short_files, &shown, 0, &authority))
        .unwrap_err();
    assert!(
        matches!(
            refused,
            WitnessRefusal::Truncated {
                seen: 701,
                shown: 650,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.is_alarm());

    // It has another view of the same size, and of a larger one.
    let (mut other, mut other_files) = filled(700, &authority);
    for entry in ["another", "and one more"] {
        other.append(entry.as_bytes()).unwrap();
        let shown = other_files.publish(&mut other, &authority);
        let refused = witness.consider(&request(&other_files, &shown, 701, &authority));
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, WitnessRefusal::Forked { seen: 701, .. }),
            "{refused}"
        );
        assert!(refused.is_alarm());
    }
    assert_eq!(witness.latest(), Some(&more));
    let seen = [more];
    let error = other_files.audit(&key_of(&authority), &seen).unwrap_err();
    assert_eq!(error, LogError::NotConsistent { old: 701, new: 702 });
    let error = short_files.audit(&key_of(&authority), &seen).unwrap_err();
    assert_eq!(
        error,
        LogError::Truncated {
            seen: 701,
            size: 650
        }
    );

    // Another key signs nothing for this log.
    let foreign = self::authority();
    let refused = witness
        .consider(&request(&files, &seen[0], 701, &foreign))
        .unwrap_err();
    assert_eq!(refused.status(), 403);
}

#[test]
fn cosignatures_are_of_one_witness_one_time_and_one_checkpoint() {
    let authority = authority();
    let (log, _) = filled(3, &authority);
    let checkpoint = log.publication(authority.identity()).checkpoint;
    let pair = KeyPair::generate().unwrap();
    let name = Identity::node(&PlatformName::new("factory").unwrap(), "node-1").unwrap();
    let name = name.to_string();
    let key = NoteKey::new(&name, KeyKind::Witness, *pair.public_key()).unwrap();
    assert_eq!(key.to_string().parse::<NoteKey>().unwrap(), key);
    let mut note = checkpoint.sign(&authority).unwrap();
    let signature = checkpoint.cosign(&name, &pair, NOW).unwrap();
    note.add(NoteSignature::parse(&signature.to_string()).unwrap());
    let note = Note::parse(&note.to_string()).unwrap();
    assert_eq!(note.verify(&key), Ok(NOW));
    assert_eq!(
        Checkpoint::open(&note, &key_of(&authority)),
        Ok(checkpoint.clone())
    );
    assert_eq!(
        note.signed_by(&[&key]).signatures(),
        std::slice::from_ref(&signature)
    );

    let mut larger = Checkpoint {
        size: 4,
        ..checkpoint.clone()
    }
    .sign(&authority)
    .unwrap();
    larger.add(signature);
    assert!(larger.verify(&key).is_err());
    // The same bytes are no signature of a log under any name.
    let as_log = NoteKey::new(&name, KeyKind::Log, *pair.public_key()).unwrap();
    assert!(note.verify(&as_log).is_err());
    let other = NoteKey::new(
        &name,
        KeyKind::Witness,
        authority.certificate().public_key().clone(),
    );
    assert!(note.verify(&other.unwrap()).is_err());
}

/// A note that its maker wrote must not be refused by its readers.
#[test]
fn a_note_holds_the_cosignatures_of_many_nodes_and_of_no_more_than_a_reader_takes() {
    let authority = authority();
    let (log, _) = filled(3, &authority);
    let checkpoint = log.publication(authority.identity()).checkpoint;
    let mut note = checkpoint.sign(&authority).unwrap();
    let pair = KeyPair::generate().unwrap();
    for node in 0..200 {
        note.add(
            checkpoint
                .cosign(&format!("node-{node}"), &pair, NOW)
                .unwrap(),
        );
    }
    let read = Note::parse(&note.to_string()).unwrap();
    assert_eq!(read.signatures().len(), 201);
    let later = 200..MOST_SIGNATURES + 9;
    let later = later.map(|node| checkpoint.cosign(&format!("node-{node}"), &pair, NOW));
    let added = later.filter(|signature| note.add(signature.clone().unwrap()));
    assert_eq!(added.count(), MOST_SIGNATURES - 201);
    let read = Note::parse(&note.to_string()).unwrap();
    assert_eq!(read.signatures().len(), MOST_SIGNATURES);
    assert!(Checkpoint::open(&read, &key_of(&authority)).is_ok());
}

#[test]
fn a_log_with_ml_dsa_is_witnessed_and_its_key_has_one_text() {
    let authority = authority_with(SignatureAlgorithm::MlDsa65);
    let key = key_of(&authority);
    let text = key.to_string();
    assert_eq!(text.parse::<NoteKey>().unwrap(), key);
    let (log, files) = filled(300, &authority);
    assert_eq!(files.audit(&key, &[]).unwrap().len(), 300);
    let checkpoint = log.publication(authority.identity()).checkpoint;
    let mut note = checkpoint.sign(&authority).unwrap();
    let pair = KeyPair::generate().unwrap();
    let witness = NoteKey::new("witness", KeyKind::Witness, *pair.public_key()).unwrap();
    note.add(checkpoint.cosign("witness", &pair, NOW).unwrap());
    let note = Note::parse(&note.to_string()).unwrap();
    assert_eq!(note.verify(&witness).unwrap(), NOW);
    note.verify(&key).unwrap();
    // An Ed25519 key of the same name does not stand for it, and no witness signs with ML-DSA.
    let classical = KeyPair::generate().unwrap();
    let classical = (*classical.public_key()).into();
    let classical = Checkpoint::key_of(authority.identity(), classical).unwrap();
    assert!(matches!(
        note.verify(&classical),
        Err(LogError::NotSigned(_))
    ));
    let quantum = MlDsaKeyPair::generate().unwrap();
    let quantum = quantum.public_key().clone();
    assert!(NoteKey::new("witness", KeyKind::Witness, quantum).is_err());
}

#[test]
fn checkpoints_have_one_form() {
    SignatureAlgorithm::ALL
        .into_iter()
        .for_each(checkpoints_of_one_form);
}

fn checkpoints_of_one_form(signatures: SignatureAlgorithm) {
    let authority = authority_with(signatures);
    let key = key_of(&authority);
    let (log, _) = filled(1, &authority);
    let note = log
        .publication(authority.identity())
        .checkpoint
        .sign(&authority)
        .unwrap();
    let note = note.to_string();
    let lines: Vec<&str> = note.lines().collect();
    assert_eq!(
        lines[..2],
        ["spiffe://factory/authority/ca-1/issuance", "1"]
    );
    assert_eq!(lines[3], "");
    assert!(lines[4].starts_with("\u{2014} spiffe://factory/authority/ca-1/issuance "));
    let open = |note: &str| Checkpoint::open(&Note::parse(note)?, &key);
    assert!(open(&note).is_ok());
    for (from, to) in [
        ("\n1\n", "\n2\n"),
        ("\n1\n", "\n01\n"),
        ("\n1\n", "\n+1\n"),
        ("ca-1", "ca-2"),
        ("\n\n", "\n"),
        ("\n\n", "\nmore\n\n"),
        ("\n\n", "\n\n\n"),
        ("\n1", "\n\r1"),
        ("\u{2014}", "-"),
    ] {
        assert!(open(&note.replacen(from, to, 1)).is_err(), "{from:?}");
    }
    assert!(open(note.trim_end()).is_err());
    let forged = log.publication(authority.identity()).checkpoint;
    let other = authority_with(signatures);
    let forged = forged.sign(&other).unwrap().to_string();
    assert!(matches!(open(&forged), Err(LogError::NotSigned(_))));
    // Another signature besides the true one does no harm, and too many do.
    let line = forged.lines().last().unwrap();
    assert!(open(&format!("{note}{line}\n")).is_ok());
    assert!(
        open(&format!(
            "{note}{}",
            format!("{line}\n").repeat(MOST_SIGNATURES)
        ))
        .is_err()
    );
}

/// With ML-DSA-65, the certificates of a node and its CA take about 13,300 bytes.
#[test]
fn a_reader_takes_the_certificates_of_as_many_nodes_as_a_note_has_cosignatures() {
    let chain = certificate_pem(&[0; LONGEST_CERTIFICATE]).repeat(MOST_CERTIFICATES);
    assert!(MOST_SIGNATURES * chain.len() <= LogFile::Witnesses.longest());
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path());
    let long = vec![b'.'; MOST_SIGNATURES * 13_300];
    for (file, is_taken) in [(LogFile::Witnesses, true), (LogFile::Checkpoint, false)] {
        folder.write(&[(file, long.clone())]).unwrap();
        let read = folder.read(file).map(|read| read == long);
        assert_eq!(read.is_ok_and(|same| same), is_taken, "{file}");
    }
}

#[test]
fn a_folder_keeps_files_and_drops_partial_ones_once_they_are_full() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path().join("log/ca"));
    let authority = authority();
    let mut log = LogWriter::default();
    for number in 0..600 {
        log.append(&leaf(number)).unwrap();
        if number % 50 == 0 || number == 599 {
            let publication = log.publication(authority.identity());
            folder.write(&publication.files).unwrap();
            log.written(publication.head);
        }
    }
    let partial: LogFile = "tile/entries/000.p/1".parse().unwrap();
    assert!(folder.read(partial).is_err());
    let (read, bytes) = folder.read_or_full(partial).unwrap();
    assert_eq!(read, partial.full());
    assert_eq!(bytes, folder.read(partial.full()).unwrap());
    let mut audit = Audit::new(log.publication(authority.identity()).checkpoint);
    let mut entries = 0;
    while let Some(file) = audit.wants() {
        let (file, bytes) = folder.read_or_full(file).unwrap();
        entries += audit.give(file, &bytes).unwrap().len();
    }
    audit.finish().unwrap();
    assert_eq!(entries, 600);
}

proptest! {
    /// As the fuzz targets: a value that can be read has one form, after any change of the bytes.
    #[test]
    fn altered_requests_are_refused_or_read_as_they_are_written(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 0..4),
        cut in any::<prop::sample::Index>(), is_cut: bool,
    ) {
        let request = format!(
            "old 3\n{}\n{}\n\nspiffe://factory/authority/ca/issuance\n7\n{}\n\n\u{2014} name {}\n",
            HASHES[0], HASHES[1], HASHES[2], HASHES[3],
        );
        let mut text: Vec<char> = request.chars().collect();
        for (place, character) in changes {
            let place = place.index(text.len());
            text[place] = character;
        }
        if is_cut {
            text.truncate(cut.index(text.len()));
        }
        let text: String = text.into_iter().collect();
        if let Ok(read) = AddCheckpoint::parse(&text) {
            prop_assert_eq!(AddCheckpoint::parse(&read.to_string()).unwrap(), read.clone());
            prop_assert_eq!(Note::parse(&read.note.to_string()).unwrap(), read.note.clone());
            if let Ok(checkpoint) = Checkpoint::parse(read.note.text()) {
                let size = format!("\n{}\n", checkpoint.size);
                prop_assert!(read.note.text().contains(&size));
            }
        }
        prop_assert!(text.parse::<NoteKey>().is_err());
    }
}

const HASHES: [&str; 4] = [
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "DAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
];
