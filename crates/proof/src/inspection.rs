//! The check of a file of evidence, which trusts nothing but the platform's root certificate.

use std::collections::HashSet;
use std::thread;

use data_encoding::HEXLOWER;
use sealbus_fipa::{AclMessageRef, Limits, bitefficient};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::{
    CLOCK_SKEW, Certificate, CertificateChain, IdentityKind, PlatformName, Timestamp, Trust,
    VerifiedIdentity,
};
use sealbus_transparency::{
    Checkpoint, Hash, IssuanceRecord, KeyKind, Note, NoteKey, leaf_hash, verify_consistency,
    verify_inclusion,
};

use crate::blob::Blob;
use crate::delegation::BatchKeyDelegation;
use crate::disclosure;
use crate::error::{EvidenceFileError, NotTrue};
use crate::file::{
    CertificateLine, EvidenceLine, FILE_VERSION, LogLine, MessageLine, at, hexadecimal, whole,
};
use crate::proof::Proof;
use crate::report::{CosignatureReport, LogReport, MessageReport, Report};
use crate::statement::Statement;
use crate::verifier::Verifier;

/// An author's certificate that was checked.
struct CheckedAuthor {
    chain: CertificateChain,
    leaf: Certificate,
    entry: u64,
    revoked: Option<Denial>,
}

/// The lines before the messages, checked.
struct Ground {
    trust: Trust,
    authors: Vec<CheckedAuthor>,
}

/// The facts that a verifier knows before it reads a file.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    /// The platform's root certificate: DER. Without it the one in the file is believed, and the caller must compare
    /// [`Report::root`].
    pub root: Option<Vec<u8>>,
    /// The keys of witnesses outside of the platform that must have cosigned.
    pub witnesses: Vec<NoteKey>,
    /// How many witnesses must have cosigned.
    pub quorum: usize,
    /// Checkpoints that somebody saw: the log in the file must continue them.
    pub seen: Vec<Note>,
    /// The time here, in milliseconds since 1970.
    pub now: u64,
}

/// Checks a file of evidence.
///
/// # Errors
/// [`EvidenceFileError`]: the file proves nothing.
pub fn inspect(file: &[u8], demands: &Demands) -> Result<Report, EvidenceFileError> {
    let body = whole(file)?;
    let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    let mut lines = (1..).zip(lines);
    let mut next = || {
        let (number, line) = lines.next().unwrap_or_default();
        Ok((
            number,
            at(number, serde_json::from_slice::<EvidenceLine>(line))?,
        ))
    };
    let (EvidenceLine::Evidence(head), number) = swap(next()?) else {
        return at(1, Err(NotTrue::Form("the file does not begin as evidence")));
    };
    if head.version != FILE_VERSION {
        return at(number, Err(NotTrue::Version(head.version)));
    }
    let platform = at(number, PlatformName::new(&head.platform))?;
    let (EvidenceLine::Root(Blob(root)), number) = swap(next()?) else {
        return at(2, Err(NotTrue::Form("it is not the root certificate")));
    };
    if demands.root.as_ref().is_some_and(|known| *known != root) {
        let found = hexadecimal(&root);
        return at(number, Err(NotTrue::OtherRoot { found }));
    }
    let trust = Trust::new(platform.clone(), &[root.clone().into()], CLOCK_SKEW);
    let trust = at(number, trust)?;
    let (EvidenceLine::Log(log), number) = swap(next()?) else {
        return at(3, Err(NotTrue::Form("it is not the issuance log")));
    };
    let (checkpoint, log) = at(number, check_log(&log, &trust, demands))?;
    let (EvidenceLine::Denied(Blob(denied)), number) = swap(next()?) else {
        return at(4, Err(NotTrue::Form("it is not the deny list")));
    };
    let denied = at(number, trust.open_kept_deny_list(&denied, None))?;
    let mut authors = Vec::new();
    let mut messages = Vec::new();
    let mut disclosed = Vec::new();
    for (number, line) in lines {
        if line.starts_with(b"{\"message\":") && disclosed.is_empty() {
            messages.push((number, line));
            continue;
        }
        if line.starts_with(b"{\"disclosed\":") {
            disclosed.push((number, line));
            continue;
        }
        match at(number, serde_json::from_slice(line))? {
            EvidenceLine::Certificate(line) if messages.is_empty() && disclosed.is_empty() => {
                let author = check_certificate(&line, &checkpoint, &trust, &denied);
                authors.push(at(number, author)?);
            }
            _ => return at(number, Err(NotTrue::Form("such a line has no place here"))),
        }
    }
    let ground = Ground { trust, authors };
    let lines = messages;
    let mut messages = check_messages(&ground, &lines, demands.now)?;
    for (place, words) in disclosure::check(&lines, &disclosed)? {
        if let Some(message) = messages.get_mut(place) {
            message.disclosed = Some(words);
        }
    }
    Ok(Report {
        platform: platform.to_string(),
        root: hexadecimal(&root),
        exporter: head,
        log,
        denied_version: denied.version(),
        messages,
    })
}

fn swap((number, line): (usize, EvidenceLine)) -> (EvidenceLine, usize) {
    (line, number)
}

fn hashes(proof: &[Blob]) -> Result<Vec<Hash>, NotTrue> {
    let hash = |Blob(bytes): &Blob| bytes.as_slice().try_into();
    let hashes = proof.iter().map(hash).collect::<Result<_, _>>();
    hashes.map_err(|_| NotTrue::Form("a hash does not have 32 bytes"))
}

fn check_log(
    line: &LogLine,
    trust: &Trust,
    demands: &Demands,
) -> Result<(Checkpoint, LogReport), NotTrue> {
    // The certificate may have ended since. It speaks for the log because the root has signed it.
    let last = Certificate::parse(&line.authority.0)?.not_after();
    let authority = trust.verify_authority(&line.authority.0, last)?;
    let key = Checkpoint::key_of(authority.identity(), authority.public_key().clone())?;
    let note = Note::parse(&line.checkpoint)?;
    let checkpoint = Checkpoint::open(&note, &key)?;
    let mut cosignatures: Vec<CosignatureReport> = Vec::new();
    for chain in &line.witnesses {
        let chain = CertificateChain::decode(&chain.0)?;
        let node = chain.certificate()?;
        let name = node.identity().to_string();
        if node.identity().kind() != IdentityKind::Node {
            return Err(NotTrue::NotAWitness(name));
        }
        if cosignatures.iter().any(|known| known.witness == name) {
            return Err(NotTrue::WitnessTwice(name));
        }
        let at = note.verify(&NoteKey::new(
            &name,
            KeyKind::Witness,
            node.public_key().clone(),
        )?)?;
        trust.verify_as_of(&chain, at)?;
        cosignatures.push(CosignatureReport {
            witness: name,
            at: at.as_unix_seconds() * 1000,
        });
    }
    for key in &demands.witnesses {
        let at = note.verify(key)?;
        if cosignatures.iter().all(|known| known.witness != key.name()) {
            cosignatures.push(CosignatureReport {
                witness: key.name().to_owned(),
                at: at.as_unix_seconds() * 1000,
            });
        }
    }
    if cosignatures.len() < demands.quorum {
        return Err(NotTrue::Witnesses {
            found: cosignatures.len(),
            wanted: demands.quorum,
        });
    }
    let mut continues = Vec::new();
    let mut known = vec![checkpoint.clone()];
    for earlier in &line.earlier {
        let seen = Checkpoint::open(&Note::parse(&earlier.checkpoint)?, &key)?;
        verify_consistency(
            seen.size,
            &seen.root,
            checkpoint.size,
            &checkpoint.root,
            &hashes(&earlier.proof)?,
        )?;
        continues.push(seen.size);
        known.push(seen);
    }
    for note in &demands.seen {
        let seen = Checkpoint::open(note, &key)?;
        if !known.contains(&seen) {
            return Err(NotTrue::NotContinued(seen.size));
        }
    }
    let report = LogReport {
        origin: checkpoint.origin.clone(),
        size: checkpoint.size,
        root: HEXLOWER.encode(&checkpoint.root),
        cosignatures,
        continues,
    };
    Ok((checkpoint, report))
}

fn check_certificate(
    line: &CertificateLine,
    checkpoint: &Checkpoint,
    trust: &Trust,
    denied: &DenyList,
) -> Result<CheckedAuthor, NotTrue> {
    let chain = CertificateChain::decode(&line.chain.0)?;
    if chain.inclusion().is_some() {
        return Err(NotTrue::Form(
            "the proof of inclusion stands behind the certificates",
        ));
    }
    let leaf = chain.certificate()?;
    // Within its life the certificate was good, whatever came later.
    trust.verify_as_of(&chain, leaf.not_before())?;
    let entry = &line.entry.0;
    let record = IssuanceRecord::from_leaf(entry).map_err(NotTrue::Entry)?;
    if !record.is_of(&leaf, chain.leaf()) {
        return Err(NotTrue::OtherEntry(leaf.identity().clone()));
    }
    verify_inclusion(
        &leaf_hash(entry),
        line.index,
        checkpoint.size,
        &checkpoint.root,
        &hashes(&line.proof)?,
    )?;
    let revoked = denial_of(&chain, &leaf, denied)?;
    Ok(CheckedAuthor {
        chain,
        leaf,
        entry: line.index,
        revoked,
    })
}

/// The denial of a certificate, as [`Trust::check`] finds it: that of a CA behind it, its own, or that of the certificate that
/// it renews. An operator's word counts before others.
fn denial_of(
    chain: &CertificateChain,
    leaf: &Certificate,
    denied: &DenyList,
) -> Result<Option<Denial>, NotTrue> {
    for issuer in chain.issuers() {
        let serial = Certificate::parse(issuer)?.serial();
        if let Some(denial) = denied.denied_serial(serial) {
            return Ok(Some(denial));
        }
    }
    let itself = denied.denied(leaf.identity(), leaf.serial(), leaf.not_before());
    let earlier = leaf
        .renews()
        .and_then(|it| denied.denied(leaf.identity(), it.serial, it.not_before));
    let is_operators = |denial: &Denial| denial.reason == Reason::ByOperator;
    let by_operator = itself.filter(is_operators);
    Ok(by_operator
        .or(earlier.filter(is_operators))
        .or(itself)
        .or(earlier))
}

/// Checks the messages on all processors.
fn check_messages(
    ground: &Ground,
    lines: &[(usize, &[u8])],
    now: u64,
) -> Result<Vec<MessageReport>, EvidenceFileError> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let share = lines.len().div_ceil(workers).max(1);
    let checked = thread::scope(|scope| {
        let workers: Vec<_> = lines
            .chunks(share)
            .map(|lines| scope.spawn(move || check_share(ground, lines, now)))
            .collect();
        let join = |worker: thread::ScopedJoinHandle<
            '_,
            Result<Vec<MessageReport>, EvidenceFileError>,
        >| {
            // A worker has no reason to panic.
            worker
                .join()
                .unwrap_or_else(|_| at(0, Err(NotTrue::Form("a message could not be checked"))))
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let messages: Vec<MessageReport> = checked.into_iter().flatten().collect();
    let mut known = HashSet::with_capacity(messages.len());
    for (message, (number, _)) in messages.iter().zip(lines) {
        if !known.insert((&message.serial, message.number)) {
            return at(
                *number,
                Err(NotTrue::Form("this message stands there twice")),
            );
        }
    }
    Ok(messages)
}

fn check_share(
    ground: &Ground,
    lines: &[(usize, &[u8])],
    now: u64,
) -> Result<Vec<MessageReport>, EvidenceFileError> {
    let mut known = Knowledge {
        authors: Vec::new(),
        verifiers: Vec::new(),
    };
    known.authors.resize_with(ground.authors.len(), || None);
    let check = |(number, line): &(usize, &[u8])| {
        let line = match at(*number, serde_json::from_slice(line))? {
            EvidenceLine::Message(line) => line,
            _ => return at(*number, Err(NotTrue::Form("it is not a message"))),
        };
        at(*number, check_message(ground, &mut known, &line, now))
    };
    lines.iter().map(check).collect()
}

/// The facts that messages before have shown.
struct Knowledge {
    /// The authors, by their number in the file.
    authors: Vec<Option<KnownAuthor>>,
    /// One verifier for each level. They know the latest batches, of all authors.
    verifiers: Vec<Verifier>,
}

/// An author whose messages were checked before.
struct KnownAuthor {
    verified: VerifiedIdentity,
    /// A delegation that was found true.
    delegation: BatchKeyDelegation,
}

impl Knowledge {
    fn check(
        &mut self,
        ground: &Ground,
        number: usize,
        proof: &Proof,
        statement: &Hash,
        now: u64,
    ) -> Result<(), NotTrue> {
        let (Some(author), Some(known)) =
            (ground.authors.get(number), self.authors.get_mut(number))
        else {
            return Err(NotTrue::Form("the file lacks the author's certificate"));
        };
        let verifiers = &mut self.verifiers;
        let place = verifiers.iter().position(|it| it.level() == proof.level());
        let place = place.unwrap_or_else(|| {
            let platform = ground.trust.platform().clone();
            verifiers.push(Verifier::new(platform, proof.level()));
            verifiers.len() - 1
        });
        let verifier = &mut verifiers[place];
        if let Some(known) = known
            && known.delegation == *proof.delegation()
        {
            return Ok(verifier.verify_delegated(&known.verified, proof, statement, now)?);
        }
        // The verifier compares the time that the proof states with the life of the whole chain.
        let then = Timestamp::from_unix_seconds(proof.time() / 1_000);
        let verified = ground.trust.verify_as_of(&author.chain, then)?;
        verifier.verify(&verified, proof, statement, now)?;
        *known = Some(KnownAuthor {
            verified,
            delegation: proof.delegation().clone(),
        });
        Ok(())
    }
}

fn check_message(
    ground: &Ground,
    known: &mut Knowledge,
    line: &MessageLine,
    now: u64,
) -> Result<MessageReport, NotTrue> {
    let Some(author) = ground.authors.get(line.certificate) else {
        return Err(NotTrue::Form("the file lacks the author's certificate"));
    };
    let proof = Proof::decode(&line.proof.0)?;
    let receivers: Vec<&str> = line.receivers.iter().map(String::as_str).collect();
    let statement = Statement {
        channel: line.channel.as_deref(),
        qos: &line.qos,
        receivers: &receivers,
        message: &line.message.0,
    };
    known.check(ground, line.certificate, &proof, &statement.hash(), now)?;
    let limits = Limits {
        message_length: line.message.0.len(),
        ..Limits::default()
    };
    let view = bitefficient::decode_ref(&line.message.0, &limits)?;
    let name = author.leaf.identity().agent_name().unwrap_or_default();
    if view.sender().is_none_or(|sender| sender.name() != name) {
        return Err(NotTrue::OtherSender(name));
    }
    Ok(report(line, &proof, author, name, &view))
}

fn report(
    line: &MessageLine,
    proof: &Proof,
    author: &CheckedAuthor,
    name: String,
    view: &AclMessageRef<'_>,
) -> MessageReport {
    let content = view.content_bytes();
    MessageReport {
        author: name,
        identity: author.leaf.long_lived_identity(),
        serial: proof.serial().to_string(),
        entry: author.entry,
        number: proof.number(),
        time: proof.time(),
        level: proof.level().to_string(),
        channel: line.channel.clone(),
        qos: line.qos.clone(),
        receivers: line.receivers.clone(),
        performative: view.performative().as_str().to_owned(),
        conversation: disclosure::text(view.conversation_id()),
        in_reply_to: disclosure::text(view.in_reply_to()),
        content_sha256: content.as_deref().map(hexadecimal),
        content: content.and_then(|bytes| String::from_utf8(bytes.into_owned()).ok()),
        revoked: author.revoked,
        disclosed: None,
    }
}
